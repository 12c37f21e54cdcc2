# SPDX-License-Identifier: GPL-2.0-or-later
"""Two settings against each other on a page: verdicts, ratios, runs in the order they were made, what else differed."""

from collections.abc import Mapping, Sequence

import attrs

from fabtune.model.judgement import Verdict
from fabtune.model.runrecord import RunRecord
from fabtune.model.units import counted
from fabtune.model.untouched import UNTOUCHED, baseline
from fabtune.report import compare, verdict_table
from fabtune.report.chart import Axis, Series, line_chart
from fabtune.report.compare import Comparison
from fabtune.report.forest import Spread, forest_plot
from fabtune.report.page import Figure, Section
from fabtune.report.table import Column, Table, plain, significant, times

# A longer forest shows the figures that decide alone.
MAX_ROWS = 12
# So many pairs have room for a mark each.
_NUMBERED_PAIRS = 20


def sections(
    found: Sequence[tuple[str, Comparison]], workload: str, look: Mapping[str, int], text: str = ""
) -> list[Section]:
    """Return what can be said of each comparison, under its heading; `look` is that of each label, `text` of all."""
    told = [_section(outcome, f"{workload}: {heading}", look) for heading, outcome in found]
    return [attrs.evolve(one, text="" if at else text) for at, one in enumerate(told)]


def outcomes(records: Sequence[RunRecord]) -> list[tuple[str, Comparison]]:
    """Return each comparison that `records` of one workload allow, under its heading.

    Interleaved sessions are taken as such; of other runs each label is held against the one that `baseline` names.
    """
    told = [(f"{one.b} against {one.a}, session {name}", one) for name, one in compare.compare_sessions(records)]
    by_label = _loose(records)
    if len(by_label) > 1:
        beside = ", runs of no session" if told else ""
        a = by_label.pop(baseline(by_label))
        each = compare.compare_each(a, list(by_label.values()))
        told += [(f"{one.b} against {one.a}{beside}", one) for one in each]
    return told


def _loose(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Return the runs that belong to no interleaved session, by label."""
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        if not record.session:
            found.setdefault(record.label, []).append(record)
    return found


def held_against(records: Sequence[RunRecord]) -> str:
    """Return which label the others are held against, and why it is that one, and which runs are against none."""
    loose, sessions = _loose(records), compare.split(records)
    said = [f"Session {name} has no runs of both sides: it is not judged." for name, mine in sessions if _half(mine)]
    if len(loose) > 1:
        told = _base(list(loose))
        said.append(f"Of the runs of no session {told[0].lower()}{told[1:]}" if sessions else told)
    for label, mine in loose.items() if sessions and len(loose) == 1 else ():
        runs = f"{counted(len(mine), 'run')} of {label or 'no label'}"
        said.append(f"{runs}, of no session, {'is' if len(mine) == 1 else 'are'} held against nothing.")
    return " ".join(said)


def _half(session: Sequence[RunRecord]) -> bool:
    turns = [one.session for one in session if one.session]
    return len({turn.side for turn in turns if not turn.calibration}) < 2


def _base(labels: Sequence[str]) -> str:
    base = baseline(labels)
    others = "Every other label is held" if len(labels) > 2 else "The other label is held"
    if base == UNTOUCHED:
        return f"{others} against {base}, since that is what runs with nothing applied are called."
    why = "as older records call that" if base == "default" else "the first by name"
    return f"{others} against {base or 'the runs without one'}, {why}: no runs are called {UNTOUCHED}."


def _section(outcome: Comparison, heading: str, look: Mapping[str, int]) -> Section:
    figures = []
    shown = [row for row in outcome.rows if row.primary or len(outcome.rows) <= MAX_ROWS]
    intervals = [one for row in shown for one in _interval(row)]
    if intervals:
        axis = f"{outcome.b} / {outcome.a}"
        caption = (
            "Ratios with the intervals that judge them. In the shaded band a difference makes no practical difference."
        )
        figures.append(Figure(forest_plot(heading, intervals, outcome.rules.practical, axis), caption))
    pairs = []
    for row in (row for row in outcome.rows if row.primary and row.pairs):
        title = f"{row.step}: {row.metric.title} of each pair"
        # Only the pairs of a session have an order that drift could show in.
        if outcome.paired == "session" and len(row.pairs) > 1:
            figures.append(_drift(outcome, row, title, look))
        named = row.step, row.metric.title
        pairs += [(*named, i + 1, a, b, b / a if a else None) for i, (a, b) in enumerate(row.pairs)]
    tables = verdict_table.verdict_tables(outcome)
    if intervals:
        keys = {"ratio": "ratio", "low": "ratio_low", "high": "ratio_high"}
        columns = (Column("figure", "figure"), *(Column(title, key, "", times) for title, key in keys.items()))
        tables.append(Table("Ratios", columns, tuple((one.name, one.ratio, one.low, one.high) for one in intervals)))
    if pairs:
        a, b = outcome.a, outcome.b
        pair_columns = (
            Column("step", "step"), Column("figure", "figure"), Column("pair", "pair", "", plain),
            *(Column(title, key, "", significant(4)) for title, key in ((a, "a"), (b, "b"))),
            Column("ratio", "ratio", "", times),
        )  # fmt: skip
        tables.append(Table("Runs by pair", pair_columns, tuple(pairs), group_by=2))
    if outcome.invalid:
        columns = (Column("run", "run"), Column("why", "why"))
        tables.append(Table("Runs that are not valid and were not used", columns, outcome.invalid))
    if outcome.differences:
        what = (Column("what", "what"), Column(outcome.a, "a"), Column(outcome.b, "b"))
        tables.append(Table("What else differed", what, outcome.differences))
    return Section(heading, figures=tuple(figures), tables=tuple(tables), notes=tuple(verdict_table.notes(outcome)))


def _drift(outcome: Comparison, row: compare.FigureRow, title: str, look: Mapping[str, int]) -> Figure:
    sides = zip((outcome.a, outcome.b), zip(*row.pairs, strict=True), strict=True)
    series = [
        Series(name, tuple((float(i + 1), v) for i, v in enumerate(values)), look=look.get(name, place))
        for place, (name, values) in enumerate(sides)
    ]
    numbers = tuple(float(i + 1) for i in range(len(row.pairs))) if len(row.pairs) <= _NUMBERED_PAIRS else ()
    x_axis = Axis("pair, in the order measured", marks=numbers)
    drawing = line_chart(title, series, x_axis, Axis(row.metric.unit), from_zero=False)
    return Figure(drawing, f"{title}. Drift moves both lines, an effect parts them.")


def _interval(row: compare.FigureRow) -> list[Spread]:
    found = row.judgement
    if found.ratio is None or found.low is None or found.high is None:
        return []
    sense = {Verdict.BETTER: 1, Verdict.WORSE: -1}.get(found.verdict, 0)
    figure = row.metric.title if row.metric.title.startswith(row.step) else f"{row.step}: {row.metric.title}"
    return [Spread(f"{figure}, {found.verdict.value}", found.ratio, found.low, found.high, sense)]
