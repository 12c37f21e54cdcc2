# SPDX-License-Identifier: GPL-2.0-or-later
"""Latency as a cumulative distribution on a logarithmic axis: all requests, no averages of percentiles."""

from collections.abc import Sequence

from fabtune.measure.measured import Latencies
from fabtune.report import cells as cell_sets
from fabtune.report.cells import Cell
from fabtune.report.chart import Axis, Series, line_chart
from fabtune.report.page import Figure, Section
from fabtune.report.table import Column, Table, decimals, plain
from fabtune.report.throughput import MAX_CURVES

# A curve of these shares shows body and tail alike; every plotted point is in the table.
SHARES = (
    0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 1.0,
)  # fmt: skip


def section(group: Sequence[Cell], workload: str) -> Section | None:
    """Return the distributions of `workload`, one drawing a step and direction; None without any."""
    figures, rows = [], []
    for (step, op, rtt_ms), part in cell_sets.by(group, lambda c: (c.step, c.op, c.rtt_ms)).items():
        series = []
        where = f"{step} {op}" if op not in step else step
        where += f" at {rtt_ms:g} ms" if rtt_ms is not None else ""
        for cell in part[:MAX_CURVES]:
            quantiles = _quantiles(cell.latencies())
            if not quantiles:
                continue
            series.append(Series(cell.label or "no label", tuple((ms, share) for share, ms in quantiles), "step"))
            rows += [(where, cell.label, share, ms) for share, ms in quantiles]
        if series:
            title = f"{workload} {where}: share of requests no slower"
            drawing = line_chart(title, series, Axis("latency, ms", 10), Axis("share of requests"))
            figures.append(Figure(drawing, f"{where}: the share of requests that took no longer."))
    if not figures:
        return None
    columns = (
        Column("step", "step"),
        Column("label", "label"),
        Column("share", "share", "", plain),
        Column("latency", "latency_ms", "ms", decimals(3)),
    )
    heading = f"{workload}: latency distribution"
    return Section(heading, figures=tuple(figures), tables=(Table(heading, columns, tuple(rows), group_by=2),))


def _quantiles(latencies: Latencies) -> list[tuple[float, float]]:
    """Return (share, ms) at `SHARES`, leaving out shares finer than the number of requests, and what is not known."""
    found = []
    for share in SHARES:
        if share in (0.5, 1.0) or min(share, 1 - share) * latencies.total >= 1:
            ns = latencies.quantile_ns(share)
            if ns is not None:
                found.append((share, ns / 1e6))
    return found
