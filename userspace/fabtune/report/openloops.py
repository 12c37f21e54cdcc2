# SPDX-License-Identifier: GPL-2.0-or-later
"""Open loops: what was offered, what came back of it, and so what their latencies are worth."""

from collections.abc import Sequence

import attrs

from fabtune.model.document import Json
from fabtune.model.offered import Offered, Replayed, tells_latency
from fabtune.model.runrecord import RunRecord
from fabtune.model.units import counted
from fabtune.report.page import Section
from fabtune.report.table import Cell, Column, Table, decimals, plain

_COLUMNS = (
    Column("run", "run"),
    Column("step", "step"),
    Column("offered", "offered_per_s", "1/s", decimals(1)),
    Column("reached", "reached_per_s", "1/s", decimals(1)),
    Column("outstanding", "most_outstanding", "at most", plain),
    Column("left late", "behind_p99_ms", "ms, p99", decimals(3)),
    Column("by itself", "late_p99_ms", "ms, p99", decimals(3)),
    Column("latency", "latency"),
)
_TOLD, _NOT_TOLD = "from the instant", "cannot tell"


def said(record: RunRecord) -> list[str]:
    """Return a sentence for each open loop of a run."""
    return [
        f"{result.name}: {_sentence(result.offered, result.replayed)}"
        + (f" {_replay(result.replayed, result.offered)}" if result.replayed else "")
        for result in record.steps
        if result.offered
    ]


def _replay(found: Replayed, sent: Offered) -> str:
    changed = {
        "folded back, as they lay beyond the device's end": found.folded,
        "aligned to the device's blocks": found.aligned,
        "left out, as they move no data": found.left_out,
    }
    words = [f"{count} {what}" for what, count in changed.items() if count]
    delays = "/".join(f"{ns / 1e6:.3f}" for ns in (sent.behind_p50_ns, sent.behind_p99_ns, sent.behind_max_ns))
    told = f"Of the {counted(found.requests, 'request')} of the trace "
    told += f"{', '.join(words)}; " if words else "none is changed; "
    return f"{told}they left {delays} ms (p50/p99/most) after their instants."


def _sentence(found: Offered, replayed: Replayed | None) -> str:
    offered, counts = f"open loop, {found.per_s:.1f} requests/s offered", "latency counts from the instant at which"
    rates = f"{offered}, {found.reached_per_s:.1f} reached"
    if replayed:
        after = f"{max(0, found.requests - found.completed)} of {found.requests}"
        rates = f"{offered}, {after} came back after the trace's end"
    if tells_latency(found, replayed):
        return f"{rates}; {counts} a request was to leave."
    return f"{rates}: cannot tell the latency, which grew for as long as the load lasted; offer less."


def section(records: Sequence[RunRecord]) -> Section | None:
    """Return a row for each open loop; None without any."""
    rows = tuple(
        (record.file, result.name, *_row(result.offered, result.replayed))
        for record in records
        for result in record.steps
        if result.offered
    )
    text = "Requests left at instants given beforehand, and what each took counts from its instant. Where fewer came "
    text += "back than were sent, latency grew for as long as the load lasted, and is not said; a trace has an end of "
    text += "its own, and what its requests took is."
    return Section("Open loops", text, tables=(Table("Open loops", _COLUMNS, rows, group_by=1),)) if rows else None


def _row(found: Offered, replayed: Replayed | None) -> tuple[Cell, ...]:
    return (
        found.per_s, found.reached_per_s, found.most_outstanding, found.behind_p99_ns / 1e6, found.late_p99_ns / 1e6,
        _TOLD if tells_latency(found, replayed) else _NOT_TOLD,
    )  # fmt: skip


def as_json(found: Offered | None, replayed: Replayed | None) -> dict[str, Json]:
    """Return the same of one step under stable keys; nothing of another load."""
    if found is None:
        return {}
    names = [column.key for column in _COLUMNS[2:]]
    told: dict[str, Json] = dict(zip(names, _row(found, replayed), strict=True))
    if replayed:
        told["replayed"] = attrs.asdict(replayed)
    return told | {"behind_p50_ms": found.behind_p50_ns / 1e6, "behind_max_ms": found.behind_max_ns / 1e6}
