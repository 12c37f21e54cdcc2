# SPDX-License-Identifier: GPL-2.0-or-later
"""Two sets of run records against each other: a row a figure, a verdict a row, and what else differed."""

import statistics as plain_statistics
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from fabtune.errors import ExitCode, InputError
from fabtune.measure import checks, metrics, workload
from fabtune.model import runrecord
from fabtune.model.runrecord import RunRecord, StepResult
from fabtune.report import statistics
from fabtune.report.statistics import Comparison, Verdict
from fabtune.report.table import Cell, Column, Table

_Pairs = tuple[tuple[float, float], ...]
_Medians = tuple[float | None, float | None]

# The verdict on these decides; all others are looked at, each family adjusted for its own number.
PRIMARY = ("mb_per_s", "files_per_s")
_SECONDARY = ("p50_ms", "p99_ms", "cpu_s_per_gb")


@attrs.frozen
class MetricRow:
    """One figure of one step, compared; `comparison` is None with fewer than two runs a side.

    `medians` are A's and B's, None for a side without the figure.
    """

    step: str
    metric: metrics.Metric
    comparison: Comparison | None
    verdict: Verdict
    why: str
    pairs: _Pairs
    medians: _Medians

    @property
    def primary(self) -> bool:
        """Whether this row decides the outcome."""
        return self.metric.key.endswith(PRIMARY)


@attrs.frozen
class Judgement:
    """A comparison of two sides, named by their labels."""

    a: str
    b: str
    rows: tuple[MetricRow, ...]
    invalid: tuple[tuple[str, str], ...]
    differences: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """3 when a primary figure got worse, 5 when one cannot be told, else 0."""
        verdicts = {row.verdict for row in self.rows if row.primary}
        if Verdict.WORSE in verdicts:
            return ExitCode.DRIFT
        return ExitCode.CANNOT_TELL if Verdict.CANNOT_TELL in verdicts or not verdicts else ExitCode.DONE


def compare(
    a: Sequence[RunRecord],
    b: Sequence[RunRecord],
    *,
    practical: float = statistics.PRACTICAL,
    noise: Mapping[tuple[str, str], float] | None = None,
) -> Judgement:
    """Return B against A.  Runs that belong to one interleaved session are paired, others are not.

    `noise` is what `noise_of` an A/A session gave.  Invalid runs are named in the outcome and take
    no part; so does the other run of their pair.  Raises InputError when the sides did not run
    the same workload.
    """
    if not a or not b:
        raise InputError("nothing to compare: each side needs at least one run record")
    workloads = {record.workload.name for record in (*a, *b)}
    if len(workloads) > 1:
        raise InputError(f"cannot compare different workloads: {', '.join(sorted(workloads))}")
    invalid = [(name(record), why) for record in (*a, *b) if (why := invalid_because(record))]
    notes = []
    paired = _pairs(a, b)
    if paired:
        paired = [(x, y) for x, y in paired if not invalid_because(x) and not invalid_because(y)]
        a, b = [x for x, _ in paired], [y for _, y in paired]
    else:
        notes.append("The runs were not interleaved: drift between the two sets counts as a difference here.")
        a, b = ([record for record in side if not invalid_because(record)] for side in (a, b))
    rows = _rows(a, b, bool(paired), practical, noise or {})
    return Judgement(
        a=_label(a, "A"),
        b=_label(b, "B"),
        rows=tuple(rows),
        invalid=tuple(invalid),
        differences=tuple(differences(a[0], b[0])) if a and b else (),
        notes=tuple(notes),
    )


def noise_of(outcome: Judgement) -> dict[tuple[str, str], float]:
    """Return how far from 1 the interval of A against A reaches, by step and figure."""
    return {
        (row.step, row.metric.key): max(1 / row.comparison.low, row.comparison.high) - 1
        for row in outcome.rows
        if row.comparison
    }


def invalid_because(record: RunRecord) -> str:
    """Return why a record may not be compared, or nothing."""
    if not record.complete:
        return f"incomplete: {record.problem}"
    broken = checks.voiding(record)
    return "; ".join(f"{one.step}: broken law: {one.law} ({one.found}, expected {one.expected})" for one in broken)


def name(record: RunRecord) -> str:
    """Return how a record is called in messages."""
    return str(record.file or f"{record.workload.name} started at {record.started_unix_s:.0f}")


def _label(records: Sequence[RunRecord], otherwise: str) -> str:
    labels = {str(record.label) for record in records}
    return next(iter(labels)) if len(labels) == 1 and "" not in labels else otherwise


def _pairs(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> list[tuple[RunRecord, RunRecord]]:
    """Return the pairs of one interleaved session, or nothing."""

    def places(side: Sequence[RunRecord]) -> dict[tuple[str, int], RunRecord]:
        turns = [record.session for record in side]
        return {(turn.id, turn.pair): record for turn, record in zip(turns, side, strict=True) if turn}

    in_a, in_b = places(a), places(b)
    if len(in_a) < len(a) or len(in_b) < len(b):
        return []
    return [(in_a[key], in_b[key]) for key in sorted(in_a.keys() & in_b.keys())]


def figures(record: RunRecord, told_apart_by: Sequence[str] = ()) -> dict[tuple[str, str], metrics.Metric]:
    """Return the compared figures of a record by step and key; the step is named with its `told_apart_by`."""
    return {
        (_step_name(record, result, told_apart_by), metric.key): metric
        for result in record.steps
        for metric in metrics.of_step(result)
        if metric.key.endswith((*PRIMARY, *_SECONDARY)) and metric.value > 0 and "percent" not in metric.key
    }


def _parameters(record: RunRecord, result: StepResult) -> dict[str, Any]:
    path = {"rtt_ms": record.path.rtt_ms, "rate_bytes_per_s": record.path.rate_bytes_per_s}
    known = {key: value for key, value in path.items() if value is not None}
    return {key: value for key, value in result.parameters.items() if key != "op"} | known


def _step_name(record: RunRecord, result: StepResult, told_apart_by: Sequence[str]) -> str:
    parameters = _parameters(record, result)
    said = (f"{key} {workload.said_value(key, parameters[key])}" for key in told_apart_by if key in parameters)
    return ", ".join([result.name, *said])


def _telling_apart(records: Sequence[RunRecord]) -> list[str]:
    """Return the parameters that differ between records although the step's name is the same."""
    seen: dict[tuple[str, str], set[str]] = {}
    for record in records:
        for result in record.steps:
            for name, value in _parameters(record, result).items():
                seen.setdefault((result.name, name), set()).add(str(value))
    return list(dict.fromkeys(name for (_, name), values in seen.items() if len(values) > 1))


def _rows(
    a: Sequence[RunRecord],
    b: Sequence[RunRecord],
    paired: bool,
    practical: float,
    noise: Mapping[tuple[str, str], float],
) -> list[MetricRow]:
    apart = _telling_apart((*a, *b))
    of_a, of_b = [figures(record, apart) for record in a], [figures(record, apart) for record in b]
    keys = list(dict.fromkeys(key for side in (*of_a, *of_b) for key in side))
    found: list[tuple[tuple[str, str], metrics.Metric, Comparison | None, _Pairs, _Medians]] = []
    for key in keys:
        metric = next(side[key] for side in (*of_a, *of_b) if key in side)
        pairs = tuple((x[key].value, y[key].value) for x, y in zip(of_a, of_b, strict=False) if key in x and key in y)
        values_a = [side[key].value for side in of_a if key in side]
        values_b = [side[key].value for side in of_b if key in side]
        comparison = None
        if paired and len(pairs) > 1:
            comparison = statistics.compare_pairs(pairs)
        elif not paired and min(len(values_a), len(values_b)) > 1:
            comparison = statistics.compare_groups(values_a, values_b)
        medians = (_median(values_a), _median(values_b))
        found.append((key, metric, comparison, pairs if paired else (), medians))
    rows = []
    for primary in (True, False):
        family = [one for one in found if one[1].key.endswith(PRIMARY) is primary]
        adjusted = iter(statistics.holm([one[2].p for one in family if one[2]]))
        for key, metric, comparison, pairs, medians in family:
            if comparison is None:
                why = "fewer than two valid runs a side"
                rows.append(MetricRow(key[0], metric, None, Verdict.CANNOT_TELL, why, pairs, medians))
                continue
            verdict, why = statistics.verdict(
                comparison,
                better=metric.better,
                adjusted_p=next(adjusted),
                practical=practical,
                noise=noise.get(key, 0.0),
            )
            rows.append(MetricRow(key[0], metric, comparison, verdict, why, pairs, medians))
    return rows


def _median(values: Sequence[float]) -> float | None:
    return plain_statistics.median(values) if values else None


def differences(a: RunRecord, b: RunRecord) -> list[tuple[str, str, str]]:
    """Return what else differed between two runs: everything read back, the host, the versions, the parameters."""
    parts = ("environment", "versions", "host", "runtime_s", "ramp_s", "path", "target")
    raw = (runrecord.as_json(side) for side in (a, b))
    flat_a, flat_b = ({key: value for part in parts for key, value in _flat(part, side[part])} for side in raw)
    # Each login is a session of its own; the size of a directory is the room that was left in it.
    changing = {"target.sessions"} | ({"target.size_bytes"} if a.target.kind == "directory" else set())
    keys = sorted((flat_a.keys() | flat_b.keys()) - changing)
    return [
        (key, flat_a.get(key, "absent"), flat_b.get(key, "absent"))
        for key in keys
        if flat_a.get(key) != flat_b.get(key)
    ]


def _flat(prefix: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for key, one in value.items() for pair in _flat(f"{prefix}.{key}", one)]
    return [(prefix, str(value))]


def change(comparison: Comparison) -> str:
    """Return the ratio with its interval: per cent near 1, a multiple where that says more."""
    return _ratio(comparison.ratio, comparison.low, comparison.high)


def _ratio(value: float, *interval: float) -> str:
    values = (value, *interval)
    as_multiple = max(values) > 2 or min(values) < 0.5
    said = [f"{one:.3g}" if as_multiple else f"{(one - 1) * 100:+.1f}" for one in values]
    return said[0] + ("×" if as_multiple else "%") + (f" [{', '.join(said[1:])}]" if interval else "")


_COLUMNS = (
    Column("step", "step"),
    Column("figure", "figure"),
    Column("A", "a"),
    Column("B", "b"),
    Column("B against A", "change"),
    Column("", "significance"),
    Column("verdict", "verdict"),
)


def table(outcome: Judgement) -> Table:
    """Return one benchstat-like row a figure, those that decide first; `reasons` says why one cannot be told."""
    rows: list[tuple[Cell, ...]] = []
    for row in outcome.rows:
        found = row.comparison
        label = f"{row.metric.title}, {row.metric.unit}"
        if found is None:
            a, b = row.medians
            ratio = _ratio(b / a) if a is not None and b is not None else None
            shown = (None if median is None else f"{median:.4g}" for median in row.medians)
            rows.append((row.step, label, *shown, ratio, None, row.verdict.value))
            continue
        significance = f"{f'p={found.p:.3f}' if found.p >= 0.001 else 'p<0.001'} n={found.n}"
        sides = ((found.a_median, found.a_spread), (found.b_median, found.b_spread))
        shown = (f"{median:.4g} ± {spread:.0%}" for median, spread in sides)
        rows.append((row.step, label, *shown, change(found), significance, row.verdict.value))
    columns = tuple(
        attrs.evolve(column, title={"a": outcome.a, "b": outcome.b}.get(column.key, column.title))
        for column in _COLUMNS
    )
    return Table(f"{outcome.b} against {outcome.a}", columns, tuple(rows), group_by=1)


def reasons(outcome: Judgement) -> list[str]:
    """Return each reason for which a verdict cannot be given, with the figures that it holds for."""
    found: dict[str, list[str]] = {}
    for row in outcome.rows:
        if row.why:
            found.setdefault(row.why, []).append(f"{row.step}, {row.metric.title}")
    everything = len(outcome.rows)
    return [
        f"{Verdict.CANNOT_TELL.value}: {why}" + ("" if len(where) == everything else f" ({'; '.join(where)})")
        for why, where in found.items()
    ]


def as_json(outcome: Judgement) -> dict[str, Any]:
    """Return the outcome under stable keys."""
    return {
        "a": outcome.a,
        "b": outcome.b,
        "rows": [
            {
                "step": row.step,
                "figure": row.metric.key,
                "unit": row.metric.unit,
                "primary": row.primary,
                "verdict": row.verdict.value,
                "why": row.why,
                "a_median": row.medians[0],
                "b_median": row.medians[1],
                **(attrs.asdict(row.comparison) if row.comparison else {}),
            }
            for row in outcome.rows
        ],
        "invalid": [{"record": record, "why": why} for record, why in outcome.invalid],
        "differences": [{"what": what, "a": a, "b": b} for what, a, b in outcome.differences],
        "notes": list(outcome.notes),
    }


def calibration_notes(same: Judgement) -> list[str]:
    """Return what A against A says about the set-up itself."""
    notes = []
    for row in same.rows:
        if row.primary and row.comparison:
            holds = row.comparison.low <= 1 <= row.comparison.high
            verdict = "as it must" if holds else "which it must not: the set-up favours one side"
            inside = "holds" if holds else "does not hold"
            notes.append(f"A against A, {row.step}: {change(row.comparison)}; the interval {inside} 1, {verdict}.")
    return notes


def with_names(outcome: Judgement, a: str, b: str, notes: Sequence[str]) -> Judgement:
    """Return `outcome` under the profiles' names, with further notes."""
    names = (a, b) if a != b else (f"{a} (A)", f"{b} (B)")
    return attrs.evolve(outcome, a=names[0], b=names[1], notes=(*outcome.notes, *notes))
