# SPDX-License-Identifier: GPL-2.0-or-later
"""Two sets of run records against each other: a judgement a figure, and what else differed."""

import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from fabtune.errors import ExitCode, InputError
from fabtune.measure import checks, metrics
from fabtune.model.judgement import ALPHA_BIAS, Judgement, Rules, Sides, Verdict, judge_together, proven_bias
from fabtune.model.runrecord import RunRecord
from fabtune.report import apart, differences, looks_taken, pairing
from fabtune.report.looks_taken import LooksTaken
from fabtune.report.pairing import PairedBy, Pairing
from fabtune.report.sample import Key, Sample, clocks_apart, on_both_sides

# What decides where the workload does not say it, and what is looked at beside it, a family of its own.
_PRIMARY = ("mb_per_s", "files_per_s")
_COMPARED = (*_PRIMARY, "p50_ms", "p99_ms", "cpu_s_per_gb")

_Biases = Mapping[Key, tuple[float, float] | None]


@attrs.frozen
class FigureRow:
    """One figure of one step of both sides, judged; a `primary` one decides the outcome.

    `paired` says by what its runs are paired, and `remark` what is left out of the pairs, or why there are none.
    """

    step: str
    metric: metrics.Figure
    primary: bool
    sides: Sides
    judgement: Judgement
    paired: PairedBy = ""
    remark: str = ""

    @property
    def medians(self) -> tuple[float | None, float | None]:
        """A's and B's median, None for a side without the figure."""
        a, b = (statistics.median(side) if side else None for side in (self.sides.a, self.sides.b))
        return a, b

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """The values of each pair, none where the runs were not paired."""
        return tuple(zip(self.sides.a, self.sides.b, strict=True)) if self.sides.paired else ()


@attrs.frozen
class Comparison:
    """B against A, named by their labels, judged by `rules`; `same` is A against A where that was measured.

    `paired` says by what runs are paired.  `families` are the numbers of primary and of other figures that were judged
    together, those of further comparisons with the same A included.  So many runs of B are `shared` with A; `unlike`
    says of which side the runs differ among themselves, and in what, and `between` in what the sides do.  `of_b` are
    the runs of B that were used, and `looked` is how far each session came that is looked at several times.
    """

    a: str
    b: str
    rows: tuple[FigureRow, ...]
    invalid: tuple[tuple[str, str], ...]
    differences: tuple[tuple[str, str, str], ...]
    rules: Rules
    paired: PairedBy
    families: tuple[int, int]
    same: "Comparison | None" = None
    shared: int = 0
    unlike: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    of_b: tuple[RunRecord, ...] = ()
    looked: tuple[LooksTaken, ...] = ()

    @property
    def primary(self) -> list[FigureRow]:
        """The rows that decide."""
        return [row for row in self.rows if row.primary]

    def point(self, row: FigureRow) -> str:
        """Return the step of a row that decides, with its direction where reads and writes of the step both do."""
        if sum(one.step == row.step for one in self.primary) < 2:
            return row.step
        return re.sub(r"(?=, |$)", f" {row.metric.key.partition('_')[0]}", row.step, count=1)

    @property
    def decided(self) -> bool:
        """Whether each primary figure has a verdict."""
        return bool(self.primary) and all(row.judgement.verdict is not Verdict.CANNOT_TELL for row in self.primary)

    @property
    def settled(self) -> bool:
        """Whether no primary figure asks for more runs: what some runs do not tell, no further ones can."""
        asking = (row for row in self.primary if row.judgement.verdict is Verdict.CANNOT_TELL and not row.sides.unfair)
        return bool(self.primary) and not any(asking)

    @property
    def exit_code(self) -> ExitCode:
        """3 when a primary figure got worse, 5 when one cannot be told, else 0."""
        verdicts = {row.judgement.verdict for row in self.primary}
        if Verdict.WORSE in verdicts:
            return ExitCode.DRIFT
        return ExitCode.DONE if self.decided else ExitCode.CANNOT_TELL


def compare(
    a: Sequence[RunRecord],
    b: Sequence[RunRecord],
    *,
    practical: float | None = None,
    calibration: Sequence[RunRecord] = (),
) -> Comparison:
    """Return B against A.  Runs of one session, or of one seed in the lab or on a fleet, are paired; others are not.

    Among the runs of `calibration` are those of A against A.  `practical` is the session's own where nobody says
    another.
    Invalid runs are named in the outcome and take no part; so does the other run of their pair.
    Raises InputError when the sides did not run the same workload.
    """
    _refuse((a, b))
    looked = looks_taken.of_sessions((*a, *b))
    a, b = looks_taken.counting(a, looked), looks_taken.counting(b, looked)
    # By these names a bias is found again: of a point's calibration alone nothing need be told apart.
    same = a_against_a(calibration, practical=practical, told_apart_by=apart.telling_points_apart(a, b))
    bias = {(row.step, row.metric.key): proven_bias(row.judgement) for row in (same.rows if same else ())}
    too_early = next((one.too_early for one in looked if one.too_early), "")
    (judged,) = _judged(a, [b], _rules((*a, *b), practical), bias, too_early=too_early)
    return attrs.evolve(judged, same=same, looked=looked)


def compare_each(a: Sequence[RunRecord], others: Sequence[Sequence[RunRecord]]) -> list[Comparison]:
    """Return each of `others` against A, as `compare` does, but all of them judged together: more sets, less certain.

    Raises InputError.
    """
    _refuse((a, *others))
    return _judged(a, others, _rules([one for side in (a, *others) for one in side], None), {})


def _refuse(sides: Sequence[Sequence[RunRecord]]) -> None:
    if not all(sides):
        raise InputError("nothing to compare: each side needs at least one run record")
    workloads = {record.workload.name for side in sides for record in side}
    if len(workloads) > 1:
        names = ", ".join(sorted(workloads))
        raise InputError(f"cannot compare different workloads: {names}; give each side records of one, and of the same")


def _rules(records: Sequence[RunRecord], practical: float | None) -> Rules:
    told = [one.session.rules for one in records if one.session and one.session.rules]
    # Of several sessions no later look, and no difference that matters to one, may count for another's.
    practicals = [one.practical for one in told]
    rules = attrs.evolve(min(told, key=lambda one: one.level), practical=min(practicals)) if told else Rules()
    return rules if practical is None else attrs.evolve(rules, practical=practical)


def split(records: Sequence[RunRecord]) -> list[tuple[str, list[RunRecord]]]:
    """Return the interleaved sessions among `records` by name, A against A of a session with it."""
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.session:
            found.setdefault(record.session.name, []).append(record)
    return sorted(found.items())


def compare_session(records: Sequence[RunRecord], *, practical: float | None = None) -> Comparison | None:
    """Return B against A of one session, with what its A against A proves; None where a side was not measured."""
    a, b = _of_sides(records, calibration=False)
    return compare(a, b, practical=practical, calibration=records) if a and b else None


def compare_sessions(records: Sequence[RunRecord], *, practical: float | None = None) -> list[tuple[str, Comparison]]:
    """Return B against A of each interleaved session among `records` that has both sides, by the session's name."""
    found = ((name, compare_session(mine, practical=practical)) for name, mine in split(records))
    return [(name, one) for name, one in found if one]


def a_against_a(
    records: Sequence[RunRecord], *, practical: float | None = None, told_apart_by: Sequence[str] = ()
) -> Comparison | None:
    """Return what A against A of one session proves: the set-up's own bias; None where that was not measured.

    Steps are named with their `told_apart_by`, and with what tells those of A against A apart.
    """
    sides = _of_sides(records, calibration=True)
    rules = attrs.evolve(_rules(records, practical), level=ALPHA_BIAS, looks=())
    return _judged(sides[0], [sides[1]], rules, {}, told_apart_by)[0] if all(sides) else None


def compare_sets(a: Sequence[RunRecord], b: Sequence[RunRecord], *, practical: float | None = None) -> Comparison:
    """Return B against A, of sets that may hold their session's A against A as well.  Raises InputError."""
    sides = [[one for one in side if not (one.session and one.session.calibration)] for side in (a, b)]
    if not all(sides):
        return compare(a, b, practical=practical)
    # The bias of a session says nothing of runs that are not its own.
    names = {one.session.name for side in sides for one in side if one.session and not invalid_because(one)}
    ours = [one for one in (*a, *b) if one.session and one.session.name in names]
    return compare(sides[0], sides[1], practical=practical, calibration=ours)


def _of_sides(records: Sequence[RunRecord], *, calibration: bool) -> tuple[list[RunRecord], list[RunRecord]]:
    turns = [(one, one.session) for one in records if one.session and one.session.calibration is calibration]
    a, b = ([one for one, turn in turns if turn.side == side] for side in "AB")
    return a, b


def _judged(
    a: Sequence[RunRecord],
    others: Sequence[Sequence[RunRecord]],
    rules: Rules,
    bias: _Biases,
    told_apart_by: Sequence[str] = (),
    too_early: str = "",
) -> list[Comparison]:
    # A run that failed is missed at its own point.
    names = [tuple(dict.fromkeys([*told_apart_by, *apart.telling_points_apart(a, b)])) for b in others]
    judged = _rows(a, list(zip(others, names, strict=True)), rules, bias, too_early)
    told = [row.primary for rows in judged for row in rows]
    families = told.count(True), told.count(False)
    return [
        _comparison(a, b, tuple(rows), rules, families, mine)
        for b, rows, mine in zip(others, judged, names, strict=True)
    ]


def _comparison(
    a: Sequence[RunRecord],
    b: Sequence[RunRecord],
    rows: tuple[FigureRow, ...],
    rules: Rules,
    families: tuple[int, int],
    told_apart_by: Sequence[str],
) -> Comparison:
    invalid = [(name(record), why) for record in (*a, *b) if (why := invalid_because(record))]
    names = _names(a, b)
    a, b = _usable(a), _usable(b)
    found = differences.of_sides(
        a, b, lambda one: tuple(apart.step_name(one, step, told_apart_by) for step in one.steps)
    )
    return Comparison(
        *names,
        rows=rows,
        invalid=tuple(invalid),
        differences=found.rows,
        rules=rules,
        paired=next((row.paired for row in rows if row.paired), ""),
        families=families,
        shared=on_both_sides(b, a),
        unlike=tuple(differences.sentence(name, keys) for name, keys in zip(names, found.unlike, strict=True) if keys),
        between=tuple(apart.between_sides(a, b, names, told_apart_by)),
        of_b=tuple(b),
    )


def invalid_because(record: RunRecord) -> str:
    """Return why a record may not be compared, or nothing."""
    if not record.complete:
        return f"incomplete: {record.problem}"
    return checks.void_because(record)


def name(record: RunRecord) -> str:
    """Return how a record is called in messages."""
    return str(record.file or f"{record.workload.name} started at {record.started_unix_s:.0f}")


def _usable(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [one for one in records if not invalid_because(one)]


def _names(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> tuple[str, str]:
    """Return how both sides are called; one of which no run is left, as those that are not."""
    return pairing.names_apart(_label(_usable(a) or a, "the first"), _label(_usable(b) or b, "the second"))


def _label(records: Sequence[RunRecord], otherwise: str) -> str:
    labels = {str(record.label) for record in records}
    return next(iter(labels)) if len(labels) == 1 and "" not in labels else otherwise


def figures(record: RunRecord, told_apart_by: Sequence[str] = ()) -> dict[Key, metrics.Figure]:
    """Return the compared figures of a record by step and key; the step is named with its `told_apart_by`."""
    wanted = (*_COMPARED, *filter(None, [record.workload.primary]))
    steps = [(apart.step_name(record, result, told_apart_by), result) for result in record.steps]
    return {
        (name, metric.key): metric
        for name, result in steps
        for metric in metrics.told_and_untold(result)
        if metric.key.endswith(wanted) and "percent" not in metric.key
    }


def _side(records: Sequence[RunRecord], called: str, told_apart_by: Sequence[str]) -> Sample:
    used = _usable(records)

    def steps(some: Iterable[RunRecord]) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(apart.step_name(one, step, told_apart_by) for step in one.steps) for one in some)

    def has_failed(one: RunRecord) -> bool:
        return one.failed or bool(checks.left_undone(one))

    def ways(one: RunRecord) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for step in one.steps:
            name = apart.step_name(one, step, told_apart_by)
            found[name] = found.get(name, frozenset()).union(metrics.ways_asked(step))
        return found

    return Sample(
        called,
        tuple((pairing.belonging_of(one), figures(one, told_apart_by)) for one in used),
        tuple(ways(one) for one in used),
        tuple(one.clock for one in used),
        steps(one for one in records if has_failed(one)),
        steps(one for one in records if one.complete and invalid_because(one) and not has_failed(one)),
    )


def _rows(
    a: Sequence[RunRecord],
    others: Sequence[tuple[Sequence[RunRecord], Sequence[str]]],
    rules: Rules,
    bias: _Biases,
    too_early: str,
) -> list[list[FigureRow]]:
    """Return the rows of each of `others` against A, the primary figures first; those of all are one family.

    Each of them comes with the names of what tells its points, and A's, apart.  What is `too_early` is not judged.
    """
    placed = []
    for b, told_apart_by in others:
        names = _names(a, b)
        of_a, of_b = _side(a, names[0], told_apart_by), _side(b, names[1], told_apart_by)
        told = [one for _, side in (*of_a.used, *of_b.used) for one in side.items()]
        # What neither side tells is a row as well, with the reason.
        known = dict(told) | {key: figure for key, figure in told if isinstance(figure, metrics.Metric)}
        placed.append((known, of_a, of_b))
    decides = tuple({one.workload.primary for side in (a, *(b for b, _ in others)) for one in side} - {""}) or _PRIMARY
    rows: list[list[FigureRow]] = [[] for _ in others]
    for primary in (True, False):
        family = [
            (mine, key, known[key], *_sides(key, known[key].better, of_a, of_b, _bias_of(key, known, bias), too_early))
            for mine, (known, of_a, of_b) in zip(rows, placed, strict=True)
            for key in known
            if key[1].endswith(decides) is primary
        ]
        judged = judge_together([one[-1] for one in family], alpha=rules.level, practical=rules.practical)
        for (mine, key, metric, pairs, sides), judgement in zip(family, judged, strict=True):
            mine.append(FigureRow(key[0], metric, primary, sides, judgement, pairs.by, pairs.remark))
    return rows


def _bias_of(key: Key, known: Collection[Key], biases: _Biases) -> tuple[float, float] | None:
    """Return the bias of a figure; what was proven at a point that none of the `known` is counts at each of them."""
    if key in biases:
        return biases[key]
    proven = [bias for one, bias in biases.items() if bias and one[1] == key[1] and one not in known]
    return max(proven, key=_most) if proven else None


def _most(bias: tuple[float, float]) -> float:
    return max(bias[1], 1 / bias[0])


def _sides(
    key: Key, better: int, of_a: Sample, of_b: Sample, bias: tuple[float, float] | None, too_early: str
) -> tuple[Pairing, Sides]:
    pairs = pairing.pair(of_a.values(key), of_b.values(key), (of_a.name, of_b.name))
    return pairs, Sides(
        a=pairs.a, b=pairs.b, better=better, paired=bool(pairs.by), bias=bias,
        rounded=of_a.rounded(key) + of_b.rounded(key),
        unfair=too_early or clocks_apart(key, of_a, of_b) or of_a.unfair(key) or of_b.unfair(key),
    )  # fmt: skip
