# SPDX-License-Identifier: GPL-2.0-or-later
"""What happened during each run: throughput, depth, refusals, latency and CPU by the second."""

from collections.abc import Iterable, Mapping, Sequence

from fabtune.model.runrecord import RunRecord
from fabtune.report.chart import Axis, Series
from fabtune.report.page import Detail, Figure, Section
from fabtune.report.panels import Panel, panels
from fabtune.report.table import Cell, Column, Table, decimals, plain

# All runs of a page together show about this many seconds; longer runs are shown in coarser steps.
BUDGET_ROWS = 9_000
_LEAST_ROWS = 20
# What is drawn: panels of one unit, each with the columns of the table that it shows.
_PANELS = (("MB/s", (1, 2)), ("requests", (3, 6)), ("ms", (4, 5)))

_COLUMNS = (
    Column("time", "time_s", "s", decimals(1)),
    Column("read", "read_mb_per_s", "MB/s", decimals(1)),
    Column("write", "write_mb_per_s", "MB/s", decimals(1)),
    Column("in flight", "in_flight", "", plain),
    Column("p50", "p50_ms", "ms", decimals(3)),
    Column("p99", "p99_ms", "ms", decimals(3)),
    Column("queue full", "queue_full", "", plain),
    Column("resent", "tcp_retransmitted_segments", "", plain),
    Column("CPU busy", "cpu_busy_percent", "%", decimals(0)),
    Column("softirq", "softirq_percent", "%", decimals(0)),
)


def section(records: Sequence[RunRecord], workload: str) -> Section | None:
    """Return a fold for each step of each run with samples; None without any."""
    runs = [(record, result) for record in records for result in record.steps if len(result.samples) > 2]
    if not runs:
        return None
    limit = max(_LEAST_ROWS, BUDGET_ROWS // len(runs))
    details = []
    for number, (record, result) in enumerate(runs, 1):
        rows = list(_rows(_thin(result.samples, limit)))
        label = f", {record.label}" if record.label else ""
        title = f"Run {number}: {result.name}{label}"
        empty = {i for i in range(len(_COLUMNS)) if all(row[i] is None for row in rows)}
        columns = tuple(column for i, column in enumerate(_COLUMNS) if i not in empty)
        table = Table(title, columns, tuple(tuple(c for i, c in enumerate(row) if i not in empty) for row in rows))
        details.append(
            Detail(title, (Figure(_drawing(title, rows), "Drag, or use + - and the arrows, to zoom."),), table)
        )
    text = "One fold a run. The whole step is shown, its ramp included. Where a row stands for several seconds, "
    text += "refusals are summed and percentiles are those of the slowest second."
    return Section(f"{workload}: over time", text, details=tuple(details))


def _drawing(title: str, rows: Sequence[tuple[Cell, ...]]) -> str:
    """Return throughput, depth and refusals, and latency over the same seconds; what was not seen is left out."""
    parts = []
    for label, columns in _PANELS:
        series = []
        for index in columns:
            points = tuple((float(row[0] or 0), float(row[index] or 0)) for row in rows if row[index] is not None)
            if any(y for _, y in points) or (points and label == "requests"):
                series.append(Series(_COLUMNS[index].title, points, "plain"))
        if series:
            parts.append(Panel(Axis(label), tuple(series)))
    return panels(title, Axis("time, s"), parts)


def _thin(samples: Sequence[Mapping[str, float]], limit: int) -> list[Mapping[str, float]]:
    """Return at most about `limit` samples that stand for all.

    Most are counters, so that what lies between is not lost.  Of fabstat's figures of single seconds
    refusals are summed and the worst percentile is kept.
    """
    stride = -(-(len(samples) - 1) // limit)
    if stride < 2:
        return list(samples)
    kept = [samples[0]]
    for first in range(1, len(samples), stride):
        part = samples[first : first + stride]
        merged = dict(part[-1])
        for key in ("fabstat.queue_full", "fabstat.p50_ms", "fabstat.p99_ms"):
            if values := [one[key] for one in part if key in one]:
                merged[key] = sum(values) if key == "fabstat.queue_full" else max(values)
        kept.append(merged)
    return kept


def _rows(samples: Sequence[Mapping[str, float]]) -> Iterable[tuple[Cell, ...]]:
    start = samples[0]["time.monotonic"]
    for before, after in zip(samples, samples[1:], strict=False):
        seconds = after["time.monotonic"] - before["time.monotonic"]
        if seconds < 0.05:
            continue  # the last sample right after another

        def change(key: str, before: Mapping[str, float] = before, after: Mapping[str, float] = after) -> float | None:
            return after[key] - before[key] if key in after and key in before else None

        cpu = {key: after[key] - before[key] for key in after if key.startswith("kernel.all.cpu.") and key in before}
        total = sum(cpu.values())
        # What a hypervisor stole is not busy.
        idle = sum(cpu.get(f"kernel.all.cpu.{name}", 0) for name in ("idle", "wait.total", "steal"))
        rates = [change(f"disk.dev.{op}_bytes") for op in ("read", "write")]
        yield (
            round(after["time.monotonic"] - start, 3),
            *(round(kib * 1024 / 1e6 / seconds, 3) if kib is not None else None for kib in rates),
            after.get("disk.dev.inflight"),
            after.get("fabstat.p50_ms"),
            after.get("fabstat.p99_ms"),
            after.get("fabstat.queue_full"),
            change("network.tcp.retranssegs"),
            round(100 * (total - idle) / total, 2) if total else None,
            round(100 * cpu["kernel.all.cpu.irq.soft"] / total, 2) if total else None,
        )
