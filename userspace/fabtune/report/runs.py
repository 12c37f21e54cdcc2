# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures of one run record as tables."""

import math
import statistics

import attrs

from fabtune.measure import checks, metrics
from fabtune.model.document import Json
from fabtune.model.runrecord import RunRecord, StepResult
from fabtune.report import openloops, reasons
from fabtune.report.table import Cell, Column, Table, decimals, percent, plain, significant

_COLUMNS = (
    Column("step", "step"),
    Column("op", "op"),
    Column("rate", "mb_per_s", "MB/s", decimals(1)),
    Column("bound", "bound_mb_per_s", "MB/s", decimals(1)),
    Column("of", "fraction_of_bound", "bound", percent),
    Column("requests", "iops", "1/s", decimals(0)),
    Column("p50", "p50_ms", "ms", significant(3)),
    Column("p99", "p99_ms", "ms", significant(3)),
    Column("CPU", "cpu_s_per_gb", "s/GB", decimals(2)),
)
_CHECK_COLUMNS = (
    Column("verdict", "verdict"),
    Column("step", "step"),
    Column("law", "law"),
    Column("found", "found"),
    Column("expected", "expected"),
)


def title(record: RunRecord) -> str:
    """Return what was run and under which label."""
    label = f" with {record.label}" if record.label else ""
    return f"{record.workload.name} on {record.target.path}{label}"


def figures(record: RunRecord) -> Table:
    """Return one row a step and direction."""
    return Table(title(record), _COLUMNS, tuple(row for result in record.steps for row in _rows(record, result)))


def _rows(record: RunRecord, result: StepResult) -> list[tuple[Cell, ...]]:
    values = {metric.key: metric.value for metric in metrics.of_step(result)}
    rows: list[tuple[Cell, ...]] = []
    for op in result.fio.directions if values and result.fio else []:
        limit = checks.bound(record, result, op)
        rate = values.get(f"{op}_mb_per_s")
        requests = values.get("files_per_s", values.get(f"{op}_iops"))
        cells = [requests, *(values.get(f"{op}_{key}") for key in ("p50_ms", "p99_ms"))]
        fraction = rate * 1e6 / limit if rate is not None and limit else None
        rows.append(
            (result.name, op, rate, limit / 1e6 if limit else None, fraction, *cells, values.get("cpu_s_per_gb"))
        )
    if "tcp_mb_per_s" in values:
        rows.append((result.name, "tcp", values["tcp_mb_per_s"], *([None] * 6)))
    if not rows:
        why = result.skipped or result.problem or result.failed_as_expected or "nothing measured"
        rows.append((f"{result.name}: {why}", "", *([None] * 7)))
    return rows


def untold_figures(record: RunRecord) -> Table:
    """Return which of the figures that `figures` has columns for are not told, and why."""
    columns = Column("step", "step"), Column("not told", "figure"), Column("why", "why")
    keys = tuple(column.key for column in _COLUMNS)
    rows = tuple(
        (result.name, one.title, one.why)
        for result in record.steps
        for one in metrics.told_and_untold(result)
        if isinstance(one, metrics.Untold) and one.key.endswith(keys)
    )
    return Table(f"Not told, {title(record)}", columns, rows, group_by=1)


def laws(record: RunRecord, *, only_failed: bool = False) -> Table:
    """Return the laws held against the record."""
    found = checks.failed(record) if only_failed else checks.of_record(record)
    rows = tuple((check.verdict, check.step, check.law, check.found, check.expected) for check in found)
    return Table(f"Self-checks, {title(record)}", _CHECK_COLUMNS, rows)


def proof(record: RunRecord) -> Table:
    """Return what a capture said of the session; no rows without a capture."""
    columns = tuple(Column(key, key) for key in ("claim", "configured", "seen", "verdict"))
    rows = tuple(tuple(getattr(one, column.key) for column in columns) for one in record.proof)
    return Table("From the wire", columns, rows)


def network(record: RunRecord) -> Table:
    """Return what was found of the path itself; no rows but for a network run."""
    columns = (
        Column("RTT p50", "rtt_p50_ms", "ms", decimals(3)),
        Column("RTT p99", "rtt_p99_ms", "ms", decimals(3)),
        Column("MTU", "interface_mtu_bytes", "interface", plain),
        Column("MTU", "path_mtu_bytes", "path", plain),
        Column("the path is", "path_mtu_verdict"),
    )
    found = network_json(record)
    return Table("The path", columns, (tuple(found.get(column.key) for column in columns),) if found else ())


def network_json(record: RunRecord) -> dict[str, float | str]:
    """Return the path's round trip and MTU of a network run under stable keys, as far as it came."""
    found: dict[str, float | str] = {}
    if times := sorted(record.round_trips_ms):
        found |= {"rtt_p50_ms": statistics.median(times), "rtt_p99_ms": times[math.ceil(0.99 * len(times)) - 1]}
    keys = ("interface_mtu_bytes", "path_mtu_bytes", "path_mtu_verdict")
    return found | {key: value for key in keys if (value := getattr(record, key))}


def as_json(record: RunRecord) -> dict[str, Json]:
    """Return the figures and checks of a record under stable keys."""
    return {
        "workload": record.workload.name,
        "label": record.label,
        "target": record.target.path,
        "complete": record.complete,
        "problem": record.problem,
        **network_json(record),
        "steps": [
            {
                "name": result.name,
                "parameters": result.parameters,
                "skipped": result.skipped,
                "problem": result.problem,
                **{metric.key: metric.value for metric in metrics.of_step(result)},
                **openloops.as_json(result.offered, result.replayed),
                "limits": reasons.as_json(result.limits),
                "untold": metrics.why_untold(result),
                **{f"{one.key}_error": one.error for one in metrics.of_step(result) if one.error is not None},
                **{f"{end}_cpu_share": share for end, share in (result.cpu_shares or {}).items()},
            }
            for result in record.steps
        ],
        "proof": [attrs.asdict(one) for one in record.proof],
        "checks": [attrs.asdict(one) for one in checks.of_record(record)],
    }
