# SPDX-License-Identifier: GPL-2.0-or-later
"""Latency as percentiles of all requests, a point a bin, with the tail drawn as wide as the body."""

import itertools
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from fabtune.measure.measured import ALIKE, Latencies
from fabtune.report import cells as cell_sets
from fabtune.report.apart import said_setting
from fabtune.report.chart import Axis, Series, line_chart
from fabtune.report.page import Figure, Section
from fabtune.report.table import Cell, Column, Table, plain, significant
from fabtune.report.throughput import MAX_CURVES, of_labels

# On the axis stands of how many requests one is slower: 2 is the median, 100 is p99.
_MARKS = (1.0, 2.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7)
# The percentiles that people ask for; the fold below them has all.
_ASKED = (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0)


def section(group: Sequence[cell_sets.Cell], workload: str, look: Mapping[str, int]) -> Section | None:
    """Return the percentiles of `workload`, one drawing a step and direction; None without any."""
    figures = []
    notes: list[str] = []
    asked: list[tuple[Cell, ...]] = []
    every: list[tuple[Cell, ...]] = []
    placed = cell_sets.by(group, lambda c: (c.step, c.op, c.rtt_ms, tuple(c.told_apart_by.items())))
    for (step, op, rtt_ms, apart), part in placed.items():
        where = f"{step} {op}" if op not in step else step
        where += f" at {rtt_ms:g} ms" if rtt_ms is not None else ""
        where += "".join(f", {said_setting(name, value)}" for name, value in apart)
        series = []
        for cell in part:
            found = cell.latencies()
            if found.total:
                asked.append((where, cell.label, found.total, *(_of_runs(cell, share) for share in _ASKED)))
                notes += _untold(cell, f"{where}, {cell.label}" if cell.label else where)
            if points := _points(found):
                series.append(Series(cell.label or "no label", points, "step", look=look[cell.label]))
                every += [(where, cell.label, one_in, ms) for one_in, ms in points]
        if series:
            series, left_out = series[:MAX_CURVES], of_labels(len(series))
            last = max(x for one in series for x, _ in one.points)
            axis = Axis("percentile of requests", 10, _percentile, tuple(m for m in _MARKS if m <= max(2, last)))
            title = f"{workload} {where}: latency by percentile"
            figures.append(
                Figure(line_chart(title, series, axis, Axis("latency, ms", 10)), f"{where}: all requests.{left_out}")
            )
    if not asked:
        return None
    heading = f"{workload}: latency distribution"
    named = (Column("step", "step"), Column("label", "label"))
    columns = (
        *named,
        Column("requests", "requests", "", plain),
        *(Column("most" if q == 1 else f"p{100 * q:g}", f"p{100 * q:g}_ms", "ms", significant(3)) for q in _ASKED),
    )
    of_bins = (
        *named,
        Column("one in", "one_in", "takes so long", significant(4)),
        Column("latency", "latency_ms", "ms", significant(4)),
    )
    tables = [Table(heading, columns, tuple(asked), group_by=1)]
    if every:
        tables.append(Table(f"{heading}, all bins", of_bins, tuple(every), group_by=2))
    return Section(heading, _TEXT, figures=tuple(figures), tables=tuple(tables), notes=tuple(notes))


_TEXT = (
    "Curves are from all bins of all runs; percentiles in the table are medians over the runs, as in other tables. "
    "To the right the axis leaves each further nine of the requests the same room: the slowest are seen as well as "
    "the median. A curve ends where it would stand on a single request, or on requests that a run of this length "
    "cuts off."
)


def _of_runs(cell: cell_sets.Cell, share: float) -> float | None:
    """Return the median over the runs of one percentile, in ms, the longest of all for 1; None where a run has none."""
    of_runs = [found.quantile_ns(share) for found in cell.latencies_by_run()]
    known = [ns / 1e6 for ns in of_runs if ns is not None]
    if len(known) < len(of_runs):
        return None
    return max(known) if share == 1 else statistics.median(known)


def _untold(cell: cell_sets.Cell, where: str) -> list[str]:
    """Return why the lowest percentile that is compared is not there, of the first run that does not tell it."""
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        whys = [why for found in cell.latencies_by_run() if (why := found.untold(share))]
        if whys:
            return [f"No {name} of {where}: {whys[0]}."]
    return []


def _percentile(one_in: float) -> str:
    """Return of how many requests one is slower as a percentile."""
    return f"{100 * (1 - 1 / one_in):.7g} %" if one_in > 1 else "0"


def _points(latencies: Latencies) -> tuple[tuple[float, float], ...]:
    """Return (of how many requests one takes this long or longer, latency in ms), a point a bin, as far as it is known.

    Of the drained ones it is only known that they took less: what is shown is the same with all of them lowest.
    Those that last too long for the part are left out: longer ones are missing.
    """
    bins = sorted((ns, count) for ns, count in latencies.counts.items() if count)
    ranks = list(itertools.accumulate(count for _, count in bins))
    points: list[tuple[float, float]] = []
    for (ns, count), rank in zip(bins, ranks, strict=True):
        lowest_ns = bins[bisect_left(ranks, max(1, rank - latencies.drained))][0]
        if latencies.total - rank < latencies.drained or not latencies.reaches(ns):
            return tuple(points)
        if ns - lowest_ns <= ALIKE * ns:
            points.append((latencies.total / (latencies.total - rank + count), ns / 1e6))
    # The slowest stands alone, or with those of its own bin.
    return (*points, (float(latencies.total), points[-1][1])) if points else ()
