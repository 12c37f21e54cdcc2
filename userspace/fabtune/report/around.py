# SPDX-License-Identifier: GPL-2.0-or-later
"""What was read around each step: R2Ts, the sessions' TCP connections, drops and resends."""

from collections.abc import Sequence

from fabtune.measure.growth import delta, deltas
from fabtune.model.runrecord import Edge, RunRecord, StepResult, Value
from fabtune.report.page import Section
from fabtune.report.table import Cell, Column, Table, decimals, plain


def _kib(value: float) -> str:
    return f"{value / 1024:.0f}"


_COLUMNS = (
    Column("run", "run"),
    Column("step", "step"),
    Column("R2Ts", "r2ts_per_write", "a write", decimals(2)),
    Column("cwnd", "cwnd_segments", "segments", plain),
    Column("RTT", "rtt_ms", "ms", decimals(2)),
    Column("send buffer", "send_buffer_bytes", "KiB", _kib),
    Column("receive buffer", "receive_buffer_bytes", "KiB", _kib),
    Column("congestion control", "congestion_control"),
    Column("resent", "retransmitted_segments", "segments", plain),
    Column("NIC", "nic_drops", "drops", plain),
    Column("qdisc", "qdisc_drops", "drops", plain),
    Column("softnet", "softnet_drops", "drops", plain),
)


def section(records: Sequence[RunRecord]) -> Section | None:
    """Return one row for each step over an iSCSI session; None without any."""
    rows = [
        (record.file, result.name, *_row(result))
        for record in records
        for result in record.steps
        if result.before.iscsi and result.after.iscsi
    ]
    if not rows:
        return None
    text = "Counters are of the whole step, its ramp included; the connection's state is that at its end. "
    text += "With several sessions below a device R2Ts are of all, the connection is the one with the largest window."
    columns = tuple(c for i, c in enumerate(_COLUMNS) if i < 2 or any(row[i] not in (None, "") for row in rows))
    kept = [_COLUMNS.index(column) for column in columns]
    table = Table("Around each step", columns, tuple(tuple(row[i] for i in kept) for row in rows), group_by=1)
    return Section("Sessions and network", text, tables=(table,))


def _row(result: StepResult) -> tuple[Cell, ...]:
    before, after = result.before, result.after
    sessions = deltas(after.iscsi, before.iscsi).values()
    # The disk's own count: among the sessions' commands are reads, which no R2T answers.
    writes = _samples(result, "disk.dev.write")
    r2ts = sum(one.get("r2t_pdus", 0) for one in sessions) / writes if writes else None
    widest: dict[str, Value] = max(after.sockets, key=lambda one: int(one["cwnd_segments"]), default={})
    keys = ("cwnd_segments", "rtt_ms", "send_buffer_bytes", "receive_buffer_bytes", "congestion_control")
    return (r2ts, *(widest.get(key) for key in keys), _resent(result), _nics(result), _qdiscs(result), _softnet(result))


def _samples(result: StepResult, key: str) -> int | None:
    samples = [one for one in result.samples if key in one]
    return int(samples[-1][key] - samples[0][key]) if len(samples) > 1 else None


def _resent(result: StepResult) -> Cell:
    return _samples(result, "network.tcp.retranssegs")


def _softnet(result: StepResult) -> Cell:
    return _samples(result, "network.softnet.dropped")


def _nics(result: StepResult) -> Cell:
    change = deltas(result.after.nics, result.before.nics)
    return sum(one["rx_dropped"] + one["tx_dropped"] for one in change.values()) if change else None


def _qdiscs(result: StepResult) -> Cell:
    """Sum over every queueing discipline that was there before and after, by device, handle and parent."""

    def drops(edge: Edge) -> dict[str, int]:
        return {f"{one.dev} {one.handle} {one.parent or 'root'}": one.drops or 0 for one in edge.qdiscs}

    change = delta(drops(result.after), drops(result.before))
    return sum(change.values()) if change else None
