#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""How often the verdicts of `ab`, `report` and `compare` are right: simulated, from run records to judgement.

Each session is made of records with known truth, and goes the way that the verb's own go: through the stopping rule of
`ab`, the report's search for sessions, the sessions or the two sides of `compare`.  Beside each stands the textbook's
t test on the same numbers.  The same seeds give the same file (out/bench/power.json).
"""

import argparse
import hashlib
import json
import math
import os
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import attrs

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/unit"), str(TOP / "tests/bench"), str(TOP / "userspace")]

import kept_tables  # noqa: E402
from kept_file import document_of  # noqa: E402
from run_records import make_record  # noqa: E402

from fabtune.experiment import alternation  # noqa: E402
from fabtune.measure.interleave import Turn  # noqa: E402
from fabtune.model.judgement import Judgement, Rules, Verdict, rules_with_looks  # noqa: E402
from fabtune.model.runrecord import CALIBRATION, RunRecord, SessionTurn  # noqa: E402
from fabtune.model.statistics import paired_t, welch_t  # noqa: E402
from fabtune.report import compare, paired  # noqa: E402
from fabtune.report.compare import Comparison  # noqa: E402

SESSIONS = 2000
VERBS = ("ab", "report", "compare")
KEPT, PAGE = TOP / "Documentation/results/simulated/power.json", TOP / "Documentation/measuring.md"
_LICENCE = "SPDX-License-Identifier: GPL-2.0-or-later"
# What the file says of each case, null where it does not ask for it.
_KEYS = ("coverage", "textbook", "power", "wrong_way", "false_different", "pairs")
# An outlier: a run that loses so much.
_LOSS = math.log(0.7)
_DIFFERENT = (Verdict.BETTER, Verdict.WORSE)


@attrs.frozen(kw_only=True)
class Case:
    """What is true of the sessions of one case; `kind` says how the runs belong together.

    `noise_b` and `runs_b` are those of B where they are not A's.
    """

    says: str
    effect: float
    noise: float
    runs: int
    kind: str = "session"
    noise_b: float | None = None
    runs_b: int | None = None
    calibrate: int = 0
    outliers: float = 0.0
    drift: float = 0.0
    # How much of a run's deviation the next one keeps.
    memory: float = 0.0
    # So many more primary figures, each of a step of its own, in which the sides are equal.
    equal: int = 0

    def noise_of(self, *, other: bool) -> float:
        """Return how much the runs of a side vary, B's where it is the `other`."""
        return self.noise if self.noise_b is None or not other else self.noise_b

    def runs_of(self, *, other: bool) -> int:
        """Return how many runs a side has, B where it is the `other`."""
        return self.runs if self.runs_b is None or not other else self.runs_b


CASES = {
    "5-2-10": Case(says="5 % effect, 2 % noise, 10 pairs", effect=0.05, noise=0.02, runs=10, calibrate=6),
    "3-2-16": Case(says="3 % effect, 2 % noise, 16 pairs", effect=0.03, noise=0.02, runs=16, calibrate=6),
    "5-2-10-family": Case(
        says="the first, beside three more primary figures without an effect", effect=0.05, noise=0.02, runs=10, equal=3
    ),
    "0-2-10": Case(says="no effect, 2 % noise, 10 pairs", effect=0, noise=0.02, runs=10, calibrate=6),
    "0-10-10": Case(says="no effect, 10 % noise, 10 pairs", effect=0, noise=0.1, runs=10),
    "5-2-10-outliers": Case(
        says="the first, and 5 % of the runs lose 30 %", effect=0.05, noise=0.02, runs=10, outliers=0.05
    ),
    "0-2-10-outliers": Case(says="no effect, the same outliers", effect=0, noise=0.02, runs=10, outliers=0.05),
    "0-2-10-drift": Case(
        says="no effect, 5 % drift, each run keeps 0.7 of the last one's deviation",
        effect=0, noise=0.02, runs=10, drift=0.05, memory=0.7,
    ),
    "5-2-6": Case(says="5 % effect, 2 % noise, 6 pairs", effect=0.05, noise=0.02, runs=6),
    "50-10-seeds": Case(says="50 % effect, 10 % noise, 3 seeds", effect=0.5, noise=0.1, runs=3, kind="seeds"),
    "0-10-seeds": Case(says="no effect, 10 % noise, 3 seeds", effect=0, noise=0.1, runs=3, kind="seeds"),
    "0-10-1-10": Case(says="no effect, 10 % noise against 1 %, 10 pairs", effect=0, noise=0.1, noise_b=0.01, runs=10),
    "5-2-unpaired": Case(says="5 % effect, 2 % noise, 10 runs a side, not paired", effect=0.05, noise=0.02, runs=10,
                         kind="sets"),
    "3-2-unpaired": Case(says="3 % effect, 2 % noise, 16 runs a side, not paired", effect=0.03, noise=0.02, runs=16,
                         kind="sets"),
    "5-3-1-unpaired": Case(says="5 % effect, 3 % noise, 10 runs against 1 %, 20 runs, not paired", effect=0.05,
                           noise=0.03, noise_b=0.01, runs=10, runs_b=20, kind="sets"),
    "5-2-unpaired-outliers": Case(says="5 % effect, 2 % noise, 10 runs a side, not paired, the same outliers",
                                  effect=0.05, noise=0.02, runs=10, outliers=0.05, kind="sets"),
    "5-3-1-unpaired-outliers": Case(
        says="5 % effect, 3 % noise, 10 runs against 1 %, 20 runs, not paired, the same outliers", effect=0.05,
        noise=0.03, noise_b=0.01, runs=10, runs_b=20, outliers=0.05, kind="sets",
    ),
    "0-2-unpaired": Case(says="no effect, 2 % noise, 10 runs a side, not paired", effect=0, noise=0.02, runs=10,
                         kind="sets"),
    "0-10-1-unpaired": Case(says="no effect, 10 % noise against 1 %, 10 runs a side, not paired", effect=0, noise=0.1,
                            noise_b=0.01, runs=10, kind="sets"),
    "0-10-1-8-30": Case(says="no effect, 10 % noise, 8 runs against 1 %, 30 runs, not paired", effect=0, noise=0.1,
                        noise_b=0.01, runs=8, runs_b=30, kind="sets"),
    "0-1-10-8-30": Case(says="no effect, 1 % noise, 8 runs against 10 %, 30 runs, not paired", effect=0, noise=0.01,
                        noise_b=0.1, runs=8, runs_b=30, kind="sets"),
    "0-20-1-7-40": Case(says="no effect, 20 % noise, 7 runs against 1 %, 40 runs, not paired", effect=0, noise=0.2,
                        noise_b=0.01, runs=7, runs_b=40, kind="sets"),
    "5-5-decided": Case(says="5 % effect, 5 % noise, until decided, 32 pairs at most", effect=0.05, noise=0.05,
                        runs=32, kind="until"),
    "0-5-decided": Case(says="no effect, 5 % noise, until decided, 32 pairs at most", effect=0, noise=0.05, runs=32,
                        kind="until"),
}  # fmt: skip

# Cases with the power of the textbook's test, and those whose outliers may cost them a third of another's.
_AS_STRONG = ("5-2-10", "3-2-16", "5-2-unpaired", "3-2-unpaired", "5-3-1-unpaired")
_WITH_OUTLIERS = {
    "5-2-10-outliers": "5-2-10", "5-2-unpaired-outliers": "5-2-unpaired", "5-3-1-unpaired-outliers": "5-3-1-unpaired",
}  # fmt: skip


class Simulated:
    """A session as `ab` has one, whose runs take no time."""

    def __init__(self, case: Case, rules: Rules, draw: random.Random) -> None:
        self.records: list[RunRecord] = []
        self.rules = rules
        self._case, self._draw = case, draw
        self._deviation, self._made = draw.gauss(0, 1), 0

    def run(self, part: str, turns: Iterable[Turn]) -> list[RunRecord]:
        """Make the runs of `part` in their order and return all made so far."""
        for turn in turns:
            other = turn.side == "B" and part != CALIBRATION
            place = SessionTurn(f"s{part}", turn.pair, turn.side, self.rules)
            self.records.append(attrs.evolve(self.one(other), session=place))
        return self.records

    def one(self, other: bool) -> RunRecord:
        """Make one run, of B where it is the `other`."""
        case, draw = self._case, self._draw
        fresh = math.sqrt(1 - case.memory**2)
        self._deviation = case.memory * self._deviation + fresh * draw.gauss(0, 1)
        rate = math.log1p(case.effect) * other + case.noise_of(other=other) * self._deviation
        rate += case.drift * self._made / (2 * case.runs)
        self._made += 1
        lost = _LOSS if draw.random() < case.outliers else 0
        label = "wan" if other else "untouched"
        made = make_record(100 * math.exp(rate + lost), label)
        more = (
            make_record(100 * math.exp(case.noise_of(other=other) * draw.gauss(0, 1)), label).steps[0]
            for _ in range(case.equal)
        )
        named = (attrs.evolve(step, name=f"equal {number}") for number, step in enumerate(more, 1))
        return attrs.evolve(made, steps=(*made.steps, *named))


@attrs.frozen
class Session:
    """What each verb says of the same records, and the textbook's p with the sign of its estimate.

    `said` is of the figure that the case is about, `equal` of those beside it in which the sides are equal.
    """

    said: dict[str, Judgement]
    textbook: tuple[float, float]
    equal: dict[str, tuple[Judgement, ...]]


def session(case: Case, seed: int) -> Session:
    """Simulate one session and judge it by every verb that would."""
    draw = random.Random(f"{case.says}/{seed}")
    rules = rules_with_looks(case.runs) if case.kind == "until" else Rules()
    made = Simulated(case, attrs.evolve(rules, seed=draw.randrange(1 << 31)), draw)
    outcomes: dict[str, Comparison] = {}
    if case.kind in ("session", "until"):
        outcomes["ab"] = alternation.until_decided(made.run, case.calibrate, case.runs, made.rules)
        a, b = ([one for one in made.records if one.session and one.session.side == side] for side in "AB")
        full = [one for one in made.records if one.session and not one.session.calibration]
        values = [[rate(one) for one in full if one.session and one.session.side == side] for side in "AB"]
        test = paired_t([math.log(y / x) for x, y in zip(*values, strict=True)])
    else:
        a, b = ([made.one(other) for _ in range(case.runs_of(other=other))] for other in (False, True))
        if case.kind == "seeds":
            a, b = ([seeded(one, number) for number, one in enumerate(side)] for side in (a, b))
        values = [[math.log(rate(one)) for one in side] for side in (a, b)]
        seeds = case.kind == "seeds"
        test = paired_t([y - x for x, y in zip(*values, strict=True)]) if seeds else welch_t(*values)
    ((_, outcomes["report"]),) = paired.outcomes([*a, *b])
    if made.records:
        ((_, outcomes["compare"]),) = compare.compare_sessions(made.records)
    else:
        outcomes["compare"] = compare.compare_sets(a, b)
    judged = {verb: tuple(row.judgement for row in found.primary) for verb, found in outcomes.items()}
    about, beside = {verb: said[0] for verb, said in judged.items()}, {verb: said[1:] for verb, said in judged.items()}
    return Session(about, (test.p, test.estimate), beside)


def seeded(record: RunRecord, seed: int) -> RunRecord:
    """Return a record as the lab's are, which know their seed."""
    return attrs.evolve(record, environment={"settings": {"seed": seed}})


def rate(record: RunRecord) -> float:
    """Return what a record moved."""
    return float(record.steps[0].document.moved_bytes("read"))


def covers(said: Judgement, truth: float) -> bool:
    """Tell whether an interval has the truth in it."""
    return said.interval is not None and said.interval[0] <= truth <= said.interval[1]


def figures(case: Case, sessions: Sequence[Session]) -> dict[str, dict[str, float]]:
    """Return by verb how often the interval covers the truth and the verdict is right, beside the textbook's."""
    found = {}
    fixed = case.kind != "until"
    truth = 1 + case.effect
    right = sum(p <= 0.05 and estimate > 0 for p, estimate in (one.textbook for one in sessions))
    wrong = sum(p <= 0.05 for p, _ in (one.textbook for one in sessions))
    for verb in (verb for verb in VERBS if verb in sessions[0].said):
        said = [one.said[verb] for one in sessions]
        verdicts = [one.verdict for one in said]
        beside = [one.equal[verb] for one in sessions]
        # Of a family each interval alone must cover.
        covered = sum(covers(one, truth) for one in said) + sum(covers(one, 1) for rest in beside for one in rest)
        mine = {"coverage": covered / (1 + case.equal)}
        mine |= {"textbook": right if case.effect else wrong} if fixed else {}
        if case.effect:
            mine |= {"power": verdicts.count(Verdict.BETTER), "wrong_way": verdicts.count(Verdict.WORSE)}
        if not case.effect or case.equal:
            # One of them is one too many.
            alike = beside if case.effect else [(one, *rest) for one, rest in zip(said, beside, strict=True)]
            mine |= {"false_different": sum(any(one.verdict in _DIFFERENT for one in rest) for rest in alike)}
        found[verb] = {name: count / len(sessions) for name, count in mine.items()}
        found[verb]["pairs"] = round(statistics.fmean(one.n for one in said), 1)
    return found


@attrs.frozen
class Result:
    """Shares of so many sessions, by verb and case; `cases` says what is true in each."""

    sessions: int
    cases: dict[str, str]
    verbs: dict[str, dict[str, dict[str, float]]]


def simulate(names: Sequence[str], sessions: int) -> Result:
    """Return the figures of every verb in the cases of these names."""
    jobs = [(CASES[name], seed) for name in names for seed in range(sessions)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(session, *zip(*jobs, strict=True), chunksize=50))
    found: dict[str, dict[str, dict[str, float]]] = {verb: {} for verb in VERBS}
    for number, name in enumerate(names):
        for verb, said in figures(CASES[name], done[number * sessions : (number + 1) * sessions]).items():
            found[verb][name] = said
    return Result(sessions, {name: CASES[name].says for name in names}, found)


def as_json(result: Result) -> str:
    """Return the result as its file has it: the verbs beside what they were tried on, and a digest of it all."""
    verbs = {
        verb: {name: {key: said.get(key) for key in _KEYS} for name, said in cases.items()}
        for verb, cases in result.verbs.items()
    }
    found = {"licence": _LICENCE, "sessions": result.sessions, "cases": result.cases, **verbs}
    return json.dumps(found | {"digest": _digest(found)}, indent=1) + "\n"


def _digest(found: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def read(path: Path) -> Result:
    """Return a kept result.  Raises ValueError for one that was edited."""
    raw = document_of(path)
    if raw.pop("digest", None) != _digest(raw):
        raise ValueError(f"{path}: edited by hand: its digest does not fit")
    verbs = {
        verb: {
            name: {key: value for key, value in said.items() if value is not None} for name, said in raw[verb].items()
        }
        for verb in VERBS
    }
    return Result(raw["sessions"], raw["cases"], verbs)


def missed(result: Result) -> list[str]:
    """Return the bars that are missed."""
    found = []
    for verb, cases in result.verbs.items():
        for name, said in cases.items():
            # Looking several times needs an interval that covers at every look, so more than 95 % at the last.
            # So does one of a family, so that the family does not err.
            most = 1.0 if CASES[name].kind == "until" or CASES[name].equal else 0.97
            # Chance alone moves a share by twice this.
            slack = 2 * math.sqrt(0.05 * 0.95 / result.sessions)
            if not 0.93 - slack <= said["coverage"] <= most + slack:
                found.append(f"{verb} {name}: the interval covers in {said['coverage']:.1%}")
            if said.get("false_different", 0) > 0.05 + slack:
                found.append(f"{verb} {name}: called different in {said['false_different']:.1%}")
            if name in _AS_STRONG and said["power"] < said["textbook"] - 0.02:
                found.append(f"{verb} {name}: power {said['power']:.1%}, the textbook's {said['textbook']:.1%}")
        for name, clean in _WITH_OUTLIERS.items():
            if (few := cases.get(name)) and few["power"] < 0.7 * cases[clean]["power"]:
                found.append(f"{verb} {name}: power {few['power']:.1%}")
    return found


def share(value: float) -> str:
    """Return a share as people read it."""
    return f"{100 * value:.1f} %"


def table(result: Result) -> str:
    """Return the result as a table of Documentation: verbs that say the same stand in one line."""
    lines = [
        "| simulated | verbs | interval covers | found (t test) | called different though equal (t test) | pairs |",
        "|---|---|---|---|---|---|",
    ]
    for name in result.cases:
        by_figures: dict[tuple[str, ...], list[str]] = {}
        for verb, cases in result.verbs.items():
            if said := cases.get(name):
                found = [share(said[key]) if key in said else "" for key in ("power", "false_different")]
                if "textbook" in said:
                    # Of the figure that the case is about.
                    found["power" not in said] += f" ({share(said['textbook'])})"
                cells = (share(said["coverage"]), *found, f"{said['pairs']:g}")
                by_figures.setdefault(cells, []).append(f"`{verb}`")
        for cells, verbs in by_figures.items():
            lines.append(f"| {result.cases[name]} | {', '.join(verbs)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_table(text: str, result: Result) -> str:
    """Return a page of Documentation with the table of `result` between its marks."""
    return kept_tables.between_marks(text, "power", table(result))


def main() -> int:
    """Simulate, keep, print, and return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--document", action="store_true", help="only make Documentation's table from the kept result")
    args = parser.parse_args()
    if args.document:
        PAGE.write_text(with_table(PAGE.read_text(), read(KEPT)))
        return 0
    result = simulate(tuple(CASES), args.sessions)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "power.json").write_text(as_json(result))
    print(table(result), end="")
    for one in missed(result):
        print(f"missed: {one}")
    return bool(missed(result))


if __name__ == "__main__":
    sys.exit(main())
