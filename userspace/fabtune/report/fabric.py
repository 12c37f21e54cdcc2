# SPDX-License-Identifier: GPL-2.0-or-later
"""The network beside the storage, so that a slow path is not blamed on iSCSI; and what captures proved."""

import math
import statistics
from collections.abc import Sequence

from fabtune.measure import checks, metrics
from fabtune.model.runrecord import RunRecord
from fabtune.report import runs
from fabtune.report.cells import cells
from fabtune.report.page import Section
from fabtune.report.table import Cell, Column, Table, decimals, percent, plain

# Which way data flows for each block direction, seen from the initiator.
_TCP_OF = {"read": "receive", "write": "send"}
# How far a round trip that was told may lie from the one that was measured of the same path.
_SHARE_OFF, _OFF_MS = 0.1, 0.5


def section(records: Sequence[RunRecord]) -> Section | None:
    """Return raw TCP, the bound and the block result in one line for each label; None without a network run."""
    whole = [record for record in records if record.complete and not checks.voiding(record)]
    nets = [record for record in whole if record.workload.name == "net"]
    if not nets:
        return None
    rows: list[tuple[Cell, ...]] = []
    for net in nets:
        for op, way in _TCP_OF.items():
            tcp = max((rate for way_of, rate in _rates(net) if way_of == way), default=None)
            block, bound, name = _best_block([one for one in whole if _over_path_of(net, one, nets)], op)
            rows.append(
                (
                    net.label, op, runs.network_json(net).get("rtt_p50_ms"), net.path_mtu_bytes, tcp, bound,
                    block, block / tcp if block and tcp else None, name,
                )
            )  # fmt: skip
    columns = (
        Column("label", "label"),
        Column("op", "op"),
        Column("RTT", "rtt_ms", "ms", decimals(3)),
        Column("MTU", "path_mtu_bytes", "bytes", plain),
        Column("raw TCP", "tcp_mb_per_s", "MB/s", decimals(1)),
        Column("bound", "bound_mb_per_s", "MB/s", decimals(1)),
        Column("block", "block_mb_per_s", "MB/s", decimals(1)),
        Column("block", "block_of_tcp", "of TCP", percent),
        Column("block workload", "workload"),
    )
    text = "The fastest raw TCP of each label, and its fastest block result from the same host over that round trip. "
    text += "What TCP cannot carry, no storage setting brings."
    tables = (Table("In one line", columns, tuple(rows)), _paths(nets), _tests(nets))
    return Section("Network, bound and block", text, tables=tables)


def _rates(net: RunRecord) -> list[tuple[str, float]]:
    """Return direction and MB/s of each TCP test."""
    return [
        (str(step.parameters.get("op", "")), metric.value) for step in net.steps for metric in metrics.of_step(step)
    ]


def _over_path_of(net: RunRecord, block: RunRecord, nets: Sequence[RunRecord]) -> bool:
    """Tell whether a block run of the same label went over the path of a network run, as far as that is known.

    One that was told no round trip did where all network runs from there found the same.
    """
    if block.workload.name == "net" or _from(block) != _from(net):
        return False
    told_ms = block.path.rtt_ms
    held_ms = [_measured_ms(one) for one in nets if _from(one) == _from(net)] if told_ms is None else [told_ms]
    return all(math.isclose(one, _measured_ms(net), rel_tol=_SHARE_OFF, abs_tol=_OFF_MS) for one in held_ms)


def _from(record: RunRecord) -> tuple[str, str]:
    return record.label, record.host.name


def _measured_ms(net: RunRecord) -> float:
    return statistics.median(net.round_trips_ms) if net.round_trips_ms else math.nan


def _best_block(records: Sequence[RunRecord], op: str) -> tuple[float | None, float | None, str]:
    """Return throughput, bound and name of the fastest block result in direction `op`."""
    found = [(cell.median("mb_per_s") or 0.0, cell) for cell in cells(records) if cell.op == op]
    if not found:
        return None, None, ""
    rate, cell = max(found, key=lambda one: one[0])
    name = cell.workload if cell.step == op else f"{cell.workload} {cell.step}"
    return rate, cell.bound_mb_per_s, name


def _paths(nets: Sequence[RunRecord]) -> Table:
    """Return round trip and MTU of each network run, with what its MTU means."""
    tables = [(net.label, runs.network(net)) for net in nets]
    rows = tuple((label, *row) for label, table in tables for row in table.rows)
    return Table("The path", (Column("label", "label"), *tables[0][1].columns), rows)


def _tests(nets: Sequence[RunRecord]) -> Table:
    rows = [(net.label, step.name, m.value) for net in nets for step in net.steps for m in metrics.of_step(step)]
    columns = (Column("label", "label"), Column("test", "test"), Column("TCP", "tcp_mb_per_s", "MB/s", decimals(1)))
    return Table("Raw TCP", columns, tuple(rows), group_by=1)


def proofs(records: Sequence[RunRecord]) -> Section | None:
    """Return what captures said of the sessions, run by run; None without a capture."""
    keys = ("claim", "configured", "seen", "verdict")
    rows = [(one.file, *(getattr(finding, key) for key in keys)) for one in records for finding in one.proof]
    if not rows:
        return None
    columns = (Column("run", "run"), *(Column(key, key) for key in keys))
    text = "Each claim held against a capture of a short load of the same kind."
    return Section("From the wire", text, tables=(Table("From the wire", columns, tuple(rows), group_by=1),))
