# SPDX-License-Identifier: GPL-2.0-or-later
"""`ab`, `report` and `compare` say the same of the same records, and what they say rests on what was settled before."""

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import make_record, with_step

from fabtune.cli.compare import show
from fabtune.cli.main import main
from fabtune.errors import ExitCode, InputError
from fabtune.experiment.summary import UNTOLD, summarise
from fabtune.measure import metrics, recordfile
from fabtune.model import runrecord
from fabtune.model.judgement import Rules, Verdict
from fabtune.model.offered import Offered
from fabtune.model.results import FAILED, Point
from fabtune.model.runrecord import RunRecord, SessionTurn
from fabtune.report import cells, compare, demo, paired, suite, verdict_table


def session(
    ratio: float, *, same: float | None = None, noise: float = 0.01, pairs: int = 10, seed: int = 1, name: str = "s"
) -> list[RunRecord]:
    """The records of an interleaved session, with A against A where that differs by `same`."""
    draw = random.Random(seed)
    parts = [("-pairs", "wan", ratio)] + ([("-calibration", "default", same)] if same else [])
    return [
        attrs.evolve(
            make_record(100 * (factor if side == "B" else 1) * math.exp(draw.gauss(0, noise)), label),
            session=SessionTurn(name + part, pair, side, Rules()),
        )
        for part, other, factor in parts
        for pair in range(pairs)
        for side, label in (("A", "default"), ("B", other))
    ]


def compared(records: list[RunRecord]) -> compare.Comparison:
    found = compare.compare_session(records)
    assert found is not None
    return found


@pytest.mark.parametrize("same", [None, 1.0, 1.04])
@pytest.mark.parametrize("ratio", [0.95, 1.0, 1.05])
def test_all_verbs_say_the_same_of_the_same_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], same: float | None, ratio: float
) -> None:
    records = session(ratio, same=same)
    by_ab = compared(records)
    ((_, by_report),) = paired.outcomes(records)
    for number, one in enumerate(records):
        side = "A" if one.session and one.session.side == "A" else "B"
        recordfile.write(one, tmp_path / side / f"{number:02d}.run.json.gz")
    code = main(["compare", str(tmp_path / "A"), str(tmp_path / "B"), "--json"])
    by_compare = json.loads(capsys.readouterr().out)
    assert verdict_table.as_json(by_report) == verdict_table.as_json(by_ab)
    assert by_compare == json.loads(verdict_table.as_json(by_ab))
    assert code == by_ab.exit_code == by_report.exit_code


def kept(records: list[RunRecord], out: Path) -> Path:
    """The directory that `ab` leaves, with both sides and A against A in it."""
    for one in records:
        assert one.session
        part, side, pair = one.session.id.removeprefix(one.session.name), one.session.side, one.session.pair
        recordfile.write(one, out / part.lstrip("-") / f"{pair:02d}-{side}-{one.session.name}.run.json.gz")
    return out


@pytest.mark.parametrize("same", [None, 1.0])
@pytest.mark.parametrize("ratio", [0.95, 1.05])
def test_what_ab_left_is_compared_as_it_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], same: float | None, ratio: float
) -> None:
    """`compare` took two paths, `ab` writes one directory: that twice was "no practical difference" of any session."""
    records = session(ratio, same=same)
    out, by_ab = str(kept(records, tmp_path / "runs")), compared(records)
    assert main(["compare", out, "--json"]) == by_ab.exit_code
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(verdict_table.as_json(by_ab)) and found["rows"][0]["verdict"] in ("better", "worse")
    for other in (out, f"{tmp_path}/../{tmp_path.name}/runs"):
        assert main(["compare", out, other]) == ExitCode.USAGE
        assert f"the same path twice; `fabtune compare {out}` judges the sessions" in capsys.readouterr().err


def test_each_session_in_a_directory_is_judged_and_the_gravest_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, ratio in (("first", 1.05), ("second", 0.95), ("third", 1.0)):
        kept(session(ratio, name=name, noise=0.03 if name == "third" else 0.01), tmp_path / "runs")
    assert main(["compare", str(tmp_path / "runs"), "--json"]) == ExitCode.DRIFT
    found = [one["rows"][0]["verdict"] for one in json.loads(capsys.readouterr().out)]
    assert found == ["better", "worse", "cannot tell"]
    assert main(["compare", str(tmp_path / "runs")]) == ExitCode.DRIFT
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("Session")] == [
        "Session first", "Session second", "Session third"
    ]  # fmt: skip


def test_runs_of_no_session_beside_one_are_judged_among_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One session in a directory, and no other label was judged, nor named."""
    loose = [make_record(rate + number, label, start=100.0 + number)
             for number in range(3) for label, rate in (("default", 100), ("wan", 100), ("far", 10))]  # fmt: skip
    found = paired.outcomes([*session(1.2), *loose])
    assert [(heading, one.primary[0].judgement.verdict) for heading, one in found] == [
        ("wan against default, session s", Verdict.BETTER),
        ("wan against default, runs of no session", Verdict.CANNOT_TELL),
        ("far against default, runs of no session", Verdict.WORSE),
    ]
    page = re.sub(r"<[^>]+>", "", suite.render([*session(1.2), *loose], [], [], ["fabtune"])).replace("\xa0", " ")
    assert "Yes. xdd, wan, session s against default: better at read." in page
    assert "Cannot tell. xdd, wan, runs of no session against default: cannot tell at read." in page
    assert "No, it harmed. xdd, far against default: worse at read." in page
    assert "Of the runs of no session every other label is held against default" in page
    out = kept(session(1.2), tmp_path / "runs")
    for number, one in enumerate(loose):
        recordfile.write(one, out / f"{number}.run.json.gz")
    assert main(["compare", str(out)]) == ExitCode.DONE
    assert "9 runs of no session took no part; `fabtune report" in capsys.readouterr().err


def test_what_is_held_against_nothing_is_named() -> None:
    whole, alone = session(1.2), [make_record(10.0, "far")]
    half = [one for one in session(1.2, name="half") if one.label == "default"]
    assert paired.held_against([*whole, *alone]) == "1 run of far, of no session, is held against nothing."
    assert paired.held_against([*whole, *half]) == "Session half has no runs of both sides: it is not judged."
    assert paired.held_against(whole) == paired.held_against(alone) == ""
    assert "is held against nothing" in suite.render([*whole, *alone], [], [], ["fabtune"])


def test_one_path_without_a_whole_session_is_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept([one for one in session(1.05) if one.session and one.session.side == "A"], tmp_path / "half")
    recordfile.write(make_record(100), tmp_path / "loose" / "1.run.json.gz")
    for place in ("half", "loose"):
        assert main(["compare", str(tmp_path / place)]) == ExitCode.USAGE
        said = capsys.readouterr().err
        assert f"{tmp_path / place}: no session of `fabtune ab` with runs of both sides; give two paths" in said


def test_the_bias_of_one_session_is_not_that_of_the_next() -> None:
    biased, plain = session(1.03, same=1.05, name="first", seed=2), session(1.03, name="second", seed=2)
    outcomes = [outcome for _, outcome in paired.outcomes([*biased, *plain])]
    assert [outcome.primary[0].judgement.verdict for outcome in outcomes] == [Verdict.CANNOT_TELL, Verdict.BETTER]
    assert "favours one side" in outcomes[0].primary[0].judgement.why


def test_a_noisy_calibration_holds_no_verdict_back() -> None:
    """A set-up that varies was taken for one that cannot see: 5 % of noise hid any effect of 5 %."""
    outcome = compared(session(1.05, same=1.0, noise=0.03, pairs=30))
    assert outcome.primary[0].judgement.verdict is Verdict.BETTER
    assert outcome.same and outcome.same.primary[0].judgement.verdict is Verdict.CANNOT_TELL
    assert any("cannot tell whether the set-up is biased" in note for note in verdict_table.notes(outcome))


def test_what_decides_is_declared_before_the_run() -> None:
    records = [
        attrs.evolve(one, workload=attrs.evolve(one.workload, primary="p99_ms")) for one in session(1.1, noise=0.01)
    ]
    outcome = compared(records)
    assert [row.metric.key for row in outcome.primary] == ["read_p99_ms"]
    captions = [table.caption for table in verdict_table.verdict_tables(outcome)]
    assert "which decide" in captions[0] and "do not decide" in captions[1]


def test_a_session_is_judged_by_its_own_rules_unless_asked_otherwise() -> None:
    rules = Rules(practical=0.1, level=0.01)
    records = [
        attrs.evolve(one, session=attrs.evolve(one.session, rules=rules)) for one in session(1.03) if one.session
    ]
    found = compared(records).primary[0].judgement
    assert (found.verdict, found.level) == (Verdict.SAME, 0.01)
    again = compare.compare_session(records, practical=0.02)
    assert again and again.primary[0].judgement.verdict is Verdict.BETTER


def test_runs_of_the_lab_are_paired_by_their_seed() -> None:
    a, b = (
        [make_record(rate * (1 + seed / 10), label, environment={"settings": {"seed": seed}}) for seed in (1, 2, 3)]
        for label, rate in (("untouched", 3), ("wan", 93))
    )
    outcome = compare.compare(a, b[::-1])
    found = outcome.primary[0].judgement
    assert outcome.paired == "seed" and found.verdict is Verdict.BETTER and found.low == pytest.approx(31)


def renumbered(records: list[RunRecord], number: int, pair: int, side: str) -> list[RunRecord]:
    """The records with pair `number` of a side called `pair`."""
    return [
        attrs.evolve(one, session=attrs.evolve(one.session, pair=pair))
        if one.session and (one.session.pair, one.session.side) == (number, side)
        else one
        for one in records
    ]


def test_one_pair_that_is_there_twice_does_not_unpair_the_others() -> None:
    """Ten pairs that drifted were "better"; with one number there twice it was Welch's t, and "cannot tell"."""
    draw = random.Random(4)
    whole = [
        attrs.evolve(
            make_record(rate * math.exp(0.03 * pair + draw.gauss(0, 0.005)), label),
            session=SessionTurn("s-pairs", pair, side, Rules()),
        )
        for pair in range(10)
        for side, label, rate in (("A", "default", 100), ("B", "wan", 105))
    ]
    for records in (whole, renumbered(whole, 1, 0, "B")):
        outcome = compared(records)
        (row,) = outcome.primary
        assert outcome.paired == "session" and row.judgement.verdict is Verdict.BETTER
    assert row.judgement.n == 8 and row.judgement.method == "signed ranks"
    notes = verdict_table.notes(outcome)
    assert (
        "Left out of the pairs: pair 1 (there more than once on a side); 1 run of default (without a partner)." in notes
    )
    assert not any("not interleaved" in one for one in notes)


def of_seeds(seeds: list[int | None], label: str, rate: float) -> list[RunRecord]:
    return [
        make_record(rate * (1 + (seed or 0) / 100), label, start=float(number),
                    environment=None if seed is None else {"settings": {"seed": seed}})
        for number, seed in enumerate(seeds)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seeds", "pairs", "said"),
    [
        ([1, 2, 3, 4, 5], 5, None),
        ([1, 1, 2, 3, 4, 5], 4, "Left out of the pairs: seed 1 (there more than once on a side)."),
        (
            [None, None, 2, 3, 4, 5], 4,
            "Left out of the pairs: 2 runs of wan (without pair or seed); 1 run of untouched (without a partner).",
        ),
        ([7, 8, 9], 0, None),
        # A seed or two in common are no reason to leave all others out, where those can tell.
        ([5, 6, 7, 8, 9], 0, "Not paired, since fewer than 3 pairs are left: drift between the two sets counts as a"),
        ([4, 5, 6, 7, 8], 0, "Not paired, since fewer than 3 pairs are left: drift between the two sets counts as a"),
        ([3, 4, 5, 6, 7], 3, "Left out of the pairs: 2 runs of untouched (without a partner); 2 runs of wan (without"),
        (
            [1, 1, 2, 2, 3, 3], 0,
            "Not paired, since without seeds 1, 2 and 3 (there more than once on a side) fewer than 3 pairs are left",
        ),
    ],
)  # fmt: skip
def test_what_pairs_is_paired_and_what_is_left_out_is_said(
    seeds: list[int | None], pairs: int, said: str | None
) -> None:
    all_of_them = [1, 2, 3, 4, 5] if len(seeds) != 3 else [1, 2, 3]
    outcome = compare.compare(of_seeds(list(all_of_them), "untouched", 100), of_seeds(seeds, "wan", 110))
    (row,) = outcome.primary
    assert len(row.pairs) == pairs and outcome.paired == ("seed" if pairs else "")
    assert row.judgement.method == ("Student's t" if pairs else "Welch's t")
    notes = verdict_table.notes(outcome)
    told = [one for one in notes if "airs" in one and "are paired" not in one]
    assert [one[: len(said)] for one in told] == [said] if said else not told
    assert any("not interleaved" in one for one in notes) == (not pairs and not said)


def test_two_runs_of_a_side_show_their_pairs_for_want_of_a_verdict() -> None:
    (row,) = compare.compare(of_seeds([1, 2, 3, 4, 5], "untouched", 100), of_seeds([4, 5], "wan", 110)).primary
    assert row.judgement.why == "2 pairs; at least 3 are needed" and len(row.pairs) == 2


def test_a_loose_run_among_those_of_a_session_does_not_unpair_them() -> None:
    outcome = compared(session(1.05))
    mixed = compare.compare_sets(
        *([*(one for one in session(1.05) if one.label == label), make_record(90, label, start=9.0)]
          for label in ("default", "wan"))
    )  # fmt: skip
    assert mixed.primary[0].judgement == outcome.primary[0].judgement and mixed.paired == "session"
    assert (
        "Left out of the pairs: 1 run of default (without pair or seed); 1 run of wan (without pair or seed)."
        in verdict_table.notes(mixed)
    )


def test_a_figure_of_two_groups_is_said_to_be_one() -> None:
    a = [make_record(rate) for rate in (97.7, 119.5, 119.4, 97.6, 119.5)]
    outcome = compare.compare(a, [make_record(118 + n, "wan") for n in range(5)])
    said = "read throughput of default falls into two groups: 2 near 97.7 MB/s and 3 near 119.5 MB/s"
    assert any(said in note for note in verdict_table.notes(outcome))


def test_one_run_that_differs_is_said_to_be_one() -> None:
    a = [make_record(rate) for rate in (97.7, 119.5, 119.4)]
    told = verdict_table.notes(compare.compare(a, [make_record(118 + n, "wan") for n in range(3)]))
    assert "read throughput of default: one of 3 runs differs, 97.7 MB/s." in told
    assert not any("two groups" in note for note in told)


def of_labels(rates: dict[str, float], noise: float = 0.01, seeds: int = 5) -> list[RunRecord]:
    draw = random.Random(3)
    return [make_record(rate * draw.gauss(1, noise), label, environment={"settings": {"seed": seed}})
            for label, rate in rates.items() for seed in range(1, seeds + 1)]  # fmt: skip


def test_each_of_several_labels_is_judged_against_the_baseline() -> None:
    found = paired.outcomes(of_labels({"lan": 100, "wan": 300, "untouched": 100, "slow": 50}, 0.001))
    assert [(one.a, one.b) for _, one in found] == [("untouched", name) for name in ("lan", "wan", "slow")]
    assert [one.primary[0].judgement.verdict for _, one in found] == [Verdict.SAME, Verdict.BETTER, Verdict.WORSE]
    for labels, base in (
        (("lan", "default", "wan"), "default"),
        (("wan", "lan"), "wan"),
        (("b", "untouched"), "untouched"),
    ):
        outcomes = paired.outcomes(of_labels(dict.fromkeys(labels, 100.0)))
        assert {one.a for _, one in outcomes} == {base} and len(outcomes) == len(labels) - 1


def test_labels_that_are_held_against_one_are_one_family() -> None:
    """Twenty labels that do nothing must not find one of them better."""
    records = of_labels({"untouched": 100.0, "wan": 102.2})
    ((_, alone),) = paired.outcomes(records)
    assert alone.primary[0].judgement.verdict is Verdict.BETTER
    others = of_labels({f"same-{n}": 100.0 for n in range(19)})
    found = {one.b: one for _, one in paired.outcomes([*records, *others])}
    wan = found["wan"]
    assert wan.primary[0].judgement.level == pytest.approx(0.05 / 20) and wan.families == (20, 40)
    assert "beside the other figures" in wan.primary[0].judgement.why
    assert any(
        "the 20 primary and the 40 other figures of all that is held against" in one for one in verdict_table.notes(wan)
    )


def test_no_figure_wraps_at_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtune.cli.table.room", lambda: 80)
    for records in (session(1.051, noise=0.06), session(1.001, noise=0.001), session(31.3, noise=0.1)):
        outcome = compared(records)
        show(outcome, as_json=False)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        for row in outcome.rows:
            line = next(one for one in lines if one.startswith(row.metric.title))
            assert verdict_table.change(row.judgement) in line and row.judgement.verdict.value in line


@pytest.mark.parametrize("wrong", [{"level": 0.0}, {"level": 0.5}, {"practical": -1.0}, {"level": math.nan}])
def test_rules_that_nobody_settled_are_refused(wrong: dict[str, float], tmp_path: Path) -> None:
    raw: Any = runrecord.as_json(session(1.0, pairs=1)[0])
    raw["session"]["rules"] |= wrong
    with pytest.raises(InputError, match=next(iter(wrong))):
        runrecord.read(raw, "a record")


def test_points_that_differ_in_a_setting_of_the_lab_are_no_runs_of_one_point() -> None:
    def one(mb_per_s: float, label: str, seed: int, **settings: object) -> RunRecord:
        told = {"seed": seed, "profile": label, "rtt_ms": 50.0, "mtu": 1500, **settings}
        return make_record(mb_per_s, label, environment={"settings": told})

    records = [
        one(rate * noise, label, seed, loss=loss)
        for seed, noise in enumerate((0.99, 1.0, 1.01), 1)
        for label, rate, loss in (
            ("wan", 100, 0.0),
            ("wan-lossy", 100, 0.0),
            ("wan", 10, 0.001),
            ("wan-lossy", 40, 0.001),
        )
    ]
    ((_, outcome),) = paired.outcomes(records)
    said = {row.step: (row.judgement.n, row.judgement.verdict) for row in outcome.primary}
    assert said == {"read, loss 0": (3, Verdict.SAME), "read, loss 0.001": (3, Verdict.BETTER)}
    assert [(cell.parameters["loss"], len(cell.runs)) for cell in cells.cells(records)] == [
        (0.0, 3), (0.0, 3), (0.001, 3), (0.001, 3)
    ]  # fmt: skip
    # What differs between the sides alone is what is compared.
    sides = [
        [one(rate, "wan", seed, kernel=kernel) for seed in (1, 2, 3)] for rate, kernel in ((9, "trixie"), (10, "sid"))
    ]
    (row,) = compare.compare_sets(*sides).primary
    assert (row.step, row.judgement.n, row.judgement.verdict) == ("read", 3, Verdict.BETTER)


def test_a_side_of_several_labels_is_held_against_the_other_label_by_label() -> None:
    def side(wan: float) -> list[RunRecord]:
        return [
            make_record(rate * noise, label, environment={"settings": {"seed": seed, "profile": label}})
            for seed, noise in enumerate((0.99, 1.0, 1.01), 1)
            for label, rate in (("untouched", 10), ("wan", wan))
        ]

    said = {row.step: row.judgement.verdict for row in compare.compare_sets(side(100), side(80)).primary}
    assert said == {"read, untouched": Verdict.SAME, "read, wan": Verdict.WORSE}


def test_hosts_of_a_fleet_are_points_of_their_own() -> None:
    def one(mb_per_s: float, label: str, host: str, seed: int) -> RunRecord:
        record = make_record(mb_per_s, label, environment={"settings": {"seed": seed, "profile": label}})
        return attrs.evolve(record, host=attrs.evolve(record.host, name=host))

    records = [
        one(rate * noise, label, host, seed)
        for seed, noise in enumerate((0.99, 1.0, 1.01), 1)
        for label, host, rate in (
            ("untouched", "a", 100), ("wan", "a", 110), ("untouched", "b", 10), ("wan", "b", 9),
        )
    ]  # fmt: skip
    ((_, outcome),) = paired.outcomes(records)
    said = {row.step: row.judgement.verdict for row in outcome.primary}
    assert said == {"read, host a": Verdict.BETTER, "read, host b": Verdict.WORSE}
    # Two hosts held against each other are what is compared.
    sides = [[one for one in records if one.host.name == host and one.label == "wan"] for host in "ab"]
    assert compare.compare_sets(*sides).primary[0].judgement.verdict is Verdict.WORSE


def test_the_page_s_table_names_the_setting_that_tells_points_apart(tmp_path: Path) -> None:
    for loss in (0.0, 0.001):
        for seed in (1, 2, 3):
            told = {"seed": seed, "profile": "wan", "loss": loss, "buffer_bdp": 0.5}
            record = make_record(100 - 1e4 * loss, "wan", environment={"settings": told}, seconds=4)
            recordfile.write(record, tmp_path / f"{loss}-{seed}.run.json.gz")
    assert main(["report", str(tmp_path)]) == 0
    html = (tmp_path / "report.html").read_text()
    assert ">loss<" in html, html[html.find("<caption>xdd: throughput") :][:600]
    assert "read, loss 0.001: all requests" in html and "read, wan, loss 0, seed 1 (run 1)" in html
    assert ">0.001<" in html and "buffer_bdp" not in html.split("How this was made")[0]


@pytest.mark.parametrize("paired", [True, False])
def test_runs_that_failed_are_no_proof_of_a_gain(paired: bool) -> None:
    """Six of twelve runs of wan had failed, and it was "better" by those that had not, with exit 0."""

    def run(rate: float, label: str, number: int, **changes: Any) -> RunRecord:
        return make_record(rate + number / 10, label, number if paired else None, start=float(number), **changes)

    a = [run(100, "default", number) for number in range(12)]
    for failed, verdict in ((0, Verdict.BETTER), (6, Verdict.CANNOT_TELL), (1, Verdict.CANNOT_TELL)):
        b = [run(120, "wan", number, complete=number >= failed) for number in range(12)]
        outcome = compare.compare(a, b)
        assert {row.judgement.verdict for row in outcome.rows} == {verdict}
        assert (outcome.exit_code == ExitCode.CANNOT_TELL) == bool(failed)
    assert "1 of 12 runs of wan failed" in verdict_table.notes(outcome)[0]
    # Who ends a run says nothing of it.
    b[0] = attrs.evolve(b[0], problem="interrupted by the user")
    assert compare.compare(a, b).rows[0].judgement.verdict is Verdict.BETTER


def test_what_some_runs_cannot_tell_is_not_judged_by_the_others() -> None:
    """Of a load that B kept up with in every other run only, B's latency was that of those runs."""

    def run(rate: float, label: str, pair: int, completed: int) -> RunRecord:
        found = Offered(1000, completed, 10.0, 16, 0, 0, 0, 0)
        record = with_step(make_record(rate + pair / 10, label, pair), offered=found, depth=16)
        return attrs.evolve(record, workload=attrs.evolve(record.workload, primary="p99_ms"))

    a = [run(100, "default", pair, 1000) for pair in range(12)]
    for lost, verdict in ((0, Verdict.BETTER), (600, Verdict.CANNOT_TELL)):
        b = [run(150, "wan", pair, 1000 - (lost if pair % 2 else 0)) for pair in range(12)]
        outcome = compare.compare(a, b)
        (row,) = outcome.primary
        assert row.metric.key == "read_p99_ms" and row.judgement.verdict is verdict
    assert "6 of 12 runs of wan do not tell it" in row.judgement.why
    assert next(one for one in outcome.rows if one.metric.key == "read_mb_per_s").judgement.verdict is Verdict.BETTER


def test_a_figure_that_a_side_never_tells_is_not_called_a_lack_of_runs() -> None:
    a = [
        with_step(make_record(100 + n, "untouched"), offered=Offered(1000, 500, 10.0, 16, 0, 0, 0, 0)) for n in range(4)
    ]
    outcome = compare.compare(a, [make_record(100 + n, "wan") for n in range(4)])
    whys = {row.metric.key: row.judgement.why for row in outcome.rows}
    assert whys["read_p99_ms"] == "no run of untouched tells it: the offered rate was not reached"


def test_a_run_on_both_sides_is_said_to_be() -> None:
    """A copied directory was ten runs of B, and "no practical difference" with an interval of no width."""
    runs = [make_record(100 + number, start=float(number)) for number in range(10)]
    others = [make_record(200 + number, start=99.0) for number in range(9)]
    for b, said in ((runs, "10 runs of .* are among"), ([*runs[:1], *others], "1 run of .* is among"), (others, "")):
        outcome = compare.compare_sets(runs, [attrs.evolve(one, file="copy") for one in b])
        told = [one for one in verdict_table.notes(outcome) if "among those of" in one]
        assert len(told) == bool(said) and all(re.match(said, one) for one in told)


def test_sessions_of_several_rules_are_judged_by_the_strictest() -> None:
    """A session that may stop at any of four looks, after one that may not, was judged as if it had one look."""
    loose, looked = Rules(practical=0.1), Rules(level=0.015, looks=(8, 12, 20, 32))
    a, b = (
        [attrs.evolve(one, session=SessionTurn(f"{label}-pairs", pair, side, rules)) for pair, one in enumerate(made)]
        for label, rules, side in (("1", loose, "A"), ("2", looked, "B"))
        for made in [[make_record(100 + number, label) for number in range(8)]]
    )
    for sides in ((a, b), (b, a)):
        rules = compare.compare_sets(*sides).rules
        assert (rules.level, rules.practical, rules.looks) == (0.015, looked.practical, looked.looks)


def told_or_not(tmp_path: Path) -> Path:
    """The records of an experiment in which one profile is told the path, or left to measure it."""
    for known in ("given", "measured"):
        for seed in (1, 2, 3):
            settings = {"profile": "wan", "known": known, "seed": seed}
            record = make_record(100 + seed / 10, "wan", environment={"settings": settings})
            recordfile.write(record, tmp_path / known / f"{seed}.run.json.gz")
    return tmp_path


def test_report_calls_a_profile_that_measures_its_path_what_run_calls_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` found no practical difference at any point, `report` of the same tree that wan alone was measured."""
    records, unreadable, remarks = suite.load(told_or_not(tmp_path))
    ((_, outcome),) = paired.outcomes(records)
    assert (outcome.a, outcome.b, outcome.paired) == ("wan", "wan-measured", "seed")
    assert {row.judgement.verdict for row in outcome.primary} == {Verdict.SAME}
    page = suite.render(records, unreadable, remarks, ["fabtune", "report", "x"])
    assert "wan-measured against wan: no practical difference" in page and "alone was measured" not in page
    assert main(["compare", str(tmp_path / "given"), str(tmp_path / "measured")]) == ExitCode.DONE
    assert "wan-measured (B) against wan (A)" in capsys.readouterr().out


def at_a_cost(rtt_ms: float, profile: str, seed: int, spent: float) -> RunRecord:
    """A run whose CPUs were busy for a share `spent` of the usual."""
    settings = {"profile": profile, "seed": seed, "rtt_ms": rtt_ms}
    rate = (20 if profile == "wan" else 10) * (1 + seed / 100)
    record = make_record(rate, profile, path={"rtt_ms": rtt_ms}, seconds=10, environment={"settings": settings})
    for sample in record.steps[0].samples:
        busy = {key for key in sample if key.startswith("kernel.all.cpu.") and key != "kernel.all.cpu.idle"}
        idle = sum(sample[key] for key in busy) * (1 - spent)
        sample.update({key: sample[key] * spent for key in busy})
        sample["kernel.all.cpu.idle"] += idle
    return record


@pytest.mark.parametrize("failed", [False, True])
def test_run_and_report_say_the_same_of_the_cost(failed: bool) -> None:
    """`run` said "3 of 3, down to 0.17" where `report` said "2 of 2, down to 0.22", and the table something else."""
    spent = {(20.0, "untouched"): 1.0, (20.0, "wan"): 3.0, (100.0, "untouched"): 1.0, (100.0, "wan"): 0.2}
    records = [at_a_cost(*place, seed, share * (1 + seed % 2 / 500)) for place, share in spent.items()
               for seed in (1, 2, 3, 4)]  # fmt: skip
    lost = records[-1] if failed else None
    rows = []
    for number, one in enumerate(records):
        settings: Any = one.environment["settings"]
        factors = {"profile": str(settings["profile"]), "rtt": f"{settings['rtt_ms']:g}ms"}
        found = {metric.key: metric.value for metric in metrics.of_step(one.steps[0])}
        told = {"op": "read", "mb_per_s": found["read_mb_per_s"], "bound_mb_per_s": 100.0, "fraction_of_bound": 0.1}
        point = Point(settings | told | {key: found.get(f"read_{key}", found.get(key)) for key in COMPARED})
        if one is lost:
            point = Point(settings | {"op": "read", UNTOLD: FAILED})
            records[number] = with_step(attrs.evolve(one, complete=False, problem="it failed"), fio=None, samples=())
        rows.append((factors, point))
    points = [row.published for row in summarise(rows)]
    (by_run,) = [one.text for one in demo.answers(points) if one.question == "At what cost?"]
    html = suite.render(records, [], [], ["fabtune", "report", "x"]).replace("\N{NO-BREAK SPACE}", " ")
    assert by_run.replace("reads", "read") in html
    end = "cannot tell at 1 of 2 points (reads at 100 ms). Cannot tell: 1 of 4 runs of wan failed" if failed else "less"
    assert end in by_run and "more at 1 of 2 points (reads at 20 ms), up to 1.5" in by_run


COMPARED = ("p50_ms", "p99_ms", "cpu_s_per_gb")
