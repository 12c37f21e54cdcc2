# SPDX-License-Identifier: GPL-2.0-or-later
"""What happened during each run: throughput, depth, refusals, latency and CPU by the second."""

from collections.abc import Iterable, Mapping, Sequence

from fabtune.measure import measured
from fabtune.measure.watch import SESSIONS_OUT
from fabtune.measure.workload import said_value
from fabtune.model.runrecord import RunRecord, StepResult
from fabtune.report.apart import point_of, said_setting, telling_apart
from fabtune.report.chart import Axis, Series
from fabtune.report.page import Detail, Figure, Section
from fabtune.report.pairing import belonging_of
from fabtune.report.panels import Marks, Panel, panels
from fabtune.report.table import Cell, Column, Table, decimals, plain, significant

# All runs of a page together show about this many seconds; longer runs are shown in coarser steps.
BUDGET_ROWS = 9_000
_LEAST_ROWS = 20
# What is drawn: panels of one unit, each with the columns of the table that it shows.
_PANELS = (("MB/s", (1, 2)), ("requests", (3, 6)), ("ms", (4, 5)))
_LOOKS = {index: look for look, index in enumerate(index for _, columns in _PANELS for index in columns)}
_RESENT = 7
# So many times that a session was out are marked.
_MARKED = 3
# Beside the label of a run these say which it is; the others are the load's own.
_OWN = ("op",)

_COLUMNS = (
    Column("time", "time_s", "s", decimals(1)),
    Column("read", "read_mb_per_s", "MB/s", decimals(1)),
    Column("write", "write_mb_per_s", "MB/s", decimals(1)),
    Column("in flight", "in_flight", "", plain),
    Column("p50", "p50_ms", "ms", significant(3)),
    Column("p99", "p99_ms", "ms", significant(3)),
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
    varying = [
        name
        for name in dict.fromkeys(name for _, result in runs for name in result.parameters)
        if name not in _OWN and len({result.parameters.get(name) for _, result in runs}) > 1
    ]
    apart = telling_apart((record.label, result.name, record, result) for record, result in runs)
    for number, (record, result) in enumerate(runs, 1):
        rows = list(_rows(_thin(result.samples, limit)))
        title = f"{_point(record, result, varying, apart)} (run {number})"
        empty = {i for i in range(len(_COLUMNS)) if all(row[i] is None for row in rows)}
        columns = tuple(column for i, column in enumerate(_COLUMNS) if i not in empty)
        table = Table(title, columns, tuple(tuple(c for i, c in enumerate(row) if i not in empty) for row in rows))
        details.append(
            Detail(title, (Figure(_drawing(title, rows, _marks(record, result, rows)), _caption(result)),), table)
        )
    text = "One fold a run. The whole step is shown; what is no part of what was measured, its ramp above all, is "
    text += "shaded. Events and seconds in which TCP sent again are marked. Where a row stands for several seconds, "
    text += "refusals are summed and percentiles are those of the slowest second."
    return Section(f"{workload}: over time", text, details=tuple(details))


def _point(record: RunRecord, result: StepResult, varying: Sequence[str], apart: Sequence[str]) -> str:
    """Return which point a run is of: step, label, path, what else varies, and which draw."""
    said = [result.name, record.label]
    said += [f"RTT {record.path.rtt_ms:g} ms"] if record.path.rtt_ms is not None else []
    said += [f"{name} {said_value(name, result.parameters[name])}" for name in varying if name in result.parameters]
    known = {"rtt_ms", *result.parameters}
    point = point_of(record, result)
    said += [said_setting(name, point[name]) for name in apart if name in point and name not in known]
    if place := belonging_of(record):
        said.append(f"{'pair' if place.by == 'session' else 'seed'} {place.shown}")
    return ", ".join(filter(None, said))


def _caption(result: StepResult) -> str:
    text = "Drag, or use + - and the arrows, to zoom."
    times = len(_outages(result)) // 2
    if times > _MARKED:
        text += f" Of {times} times that a session was out, the first {_MARKED} are marked."
    return f"{text} A session was logged in anew during this step." if _is_anew(result) else text


def _is_anew(result: StepResult) -> bool:
    """Tell whether what a step ended with are other sessions, or other connections, than it began with."""
    before, after = result.before, result.after
    if before.iscsi and after.iscsi and before.iscsi.keys() != after.iscsi.keys():
        return True
    first, last = ({(one.get("remote"), one.get("local_port")) for one in edge.sockets} for edge in (before, after))
    # One that is gone alone was another's logout, one that is new alone another's login.
    return bool({remote for remote, _ in first - last} & {remote for remote, _ in last - first})


def _outages(result: StepResult) -> list[tuple[float, str]]:
    """Return when a session was first seen to be out, and when all were first seen to be there again, in s."""
    samples = result.samples
    out = [bool(one.get(SESSIONS_OUT)) for one in samples]
    return [
        (one["time.monotonic"] - samples[0]["time.monotonic"], "a session is out" if now else "logged in again")
        for one, before, now in zip(samples[1:], out, out[1:], strict=False)
        if before is not now
    ]


def _marks(record: RunRecord, result: StepResult, rows: Sequence[tuple[Cell, ...]]) -> Marks:
    """Return what was not measured, what was done to the path, and when TCP sent again, in s of the drawing."""
    samples = result.samples
    begin_s, end_s = samples[0]["time.monotonic"], samples[-1]["time.monotonic"]
    part = measured.span(result)
    shaded = [(0.0, part.begin_s - begin_s), (part.end_s - begin_s, end_s - begin_s)] if part else []
    unix_s = samples[0].get("time.unix", 0.0)
    events = [(one.unix_s - unix_s, one.what) for one in record.events if 0 <= one.unix_s - unix_s <= end_s - begin_s]
    events += _outages(result)[: 2 * _MARKED]
    resent = tuple(float(row[0] or 0) for row in rows if row[_RESENT])
    return Marks(tuple((a, b) for a, b in shaded if b - a > 0.05), tuple(events), resent)


def _drawing(title: str, rows: Sequence[tuple[Cell, ...]], marks: Marks) -> str:
    """Return throughput, depth and refusals, and latency over the same seconds; what was not seen is left out."""
    parts = []
    for label, columns in _PANELS:
        series = []
        for index in columns:
            points = tuple((float(row[0] or 0), float(row[index] or 0)) for row in rows if row[index] is not None)
            if any(y for _, y in points) or (points and label == "requests"):
                series.append(Series(_COLUMNS[index].title, points, "plain", look=_LOOKS[index]))
        if series:
            parts.append(Panel(Axis(label), tuple(series)))
    return panels(title, Axis("time, s"), parts, marks)


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
