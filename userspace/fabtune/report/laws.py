# SPDX-License-Identifier: GPL-2.0-or-later
"""Laws that hold between runs: over round trips, depths and bursts, and of A against itself.

One that does not hold says that something else than link, queue and bursts sets the speed: a TCP
window, loss, a CPU.  The runs themselves stay valid.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from fabtune.measure import checks, metrics
from fabtune.measure.checks import FAIL, NOT_APPLICABLE, PASS, LawCheck
from fabtune.model.judgement import Verdict
from fabtune.model.path import NetworkPath
from fabtune.model.runrecord import RunRecord
from fabtune.report import cells as cell_sets
from fabtune.report import compare, verdict_table
from fabtune.report.apart import said_setting
from fabtune.report.cells import Cell

TOLERANCE = 0.10
# A rate this near the link's is the link's; one this far below its bound is held down by something else.
_PLATEAU, _BELOW = 0.95, 0.80

# The knee of a curve over RTT is the round trip from which the queue no longer fills the link.
KNEE = "the knee is at (depth - 1) × size / (rate × round trips)"
DOUBLED = "twice the depth, twice the knee's round trip"
SAVED = "each R2T less saves a write a round trip"
WINDOW = "speed × round trip is one window"
A_AGAINST_A = "A against A: the set-up favours neither side"


@attrs.frozen
class Knee:
    """Where a curve over RTT bends, in ms: by the law and as measured, or why that cannot be said."""

    where: str
    family: tuple[Any, ...]
    depth: int
    predicted_ms: float
    found_ms: float | None
    why: str = ""


def of_records(records: Sequence[RunRecord]) -> list[LawCheck]:
    """Return every law held against every group of runs that it speaks of; `step` names the group."""
    whole = [record for record in records if record.complete and not checks.voiding(record)]
    block = [record for record in whole if record.workload.name != "net"]
    group = cell_sets.cells(block)
    knees = list(_knees(group))
    nets = [record for record in whole if record.workload.name == "net"]
    return [
        *map(_knee, knees), *_doubled(knees), *_saved(group), *_block_windows(group), *_net_windows(nets),
        *_a_against_a(block),
    ]  # fmt: skip


def _where(cell: Cell, *left_out: str) -> str:
    """Return how a group is called: its workload, step and label, with what its cells have in common."""
    shared = ("block_bytes", "queue_depth", "rtt_ms")
    words = [f"{name} {cell.parameters[name]}" for name in shared if name in cell.parameters and name not in left_out]
    words += [said_setting(name, value) for name, value in cell.told_apart_by.items() if name not in shared]
    return ", ".join([f"{cell.workload} {cell.step}", cell.label or "no label", *words])


def _within(found: float, expected: float) -> str:
    return PASS if abs(found / expected - 1) <= TOLERANCE else FAIL


def _path(cell: Cell) -> NetworkPath | None:
    return cell.runs[0][0].path.network


def _trips(cell: Cell) -> int:
    return checks.trips_of_request(*cell.runs[0], cell.op)


def _both_ways(cell: Cell) -> bool:
    return len(cell.runs[0][1].document.directions) > 1


def _depth(cell: Cell) -> int:
    return int(cell.runs[0][1].depth)


def _knees(group: Sequence[Cell]) -> Iterable[Knee]:
    """Yield the knee of each curve over RTT."""
    for part in _curves(group).values():
        # Where nothing moved something else stood still than a queue that is too short; and of a load both ways
        # neither has the whole queue.
        sized = [
            c for c in part
            if c.parameters.get("block_bytes") and _path(c) and c.median("mb_per_s") and not _both_ways(c)
        ]  # fmt: skip
        if len(sized) > 1 and _depth(sized[0]) > 1 and len({_trips(cell) for cell in sized}) == 1:
            yield _bend(sized)


def _curves(group: Sequence[Cell]) -> dict[tuple[Any, ...], list[Cell]]:
    """Return cells that differ in nothing but the path's RTT, by what they share."""
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in group:
        shared = tuple(item for item in cell.parameters.items() if item[0] != "rtt_ms")
        found.setdefault((cell.workload, cell.step, cell.op, cell.label, shared), []).append(cell)
    return found


def _bend(part: Sequence[Cell]) -> Knee:
    """Return where the curve through `part` bends: where what holds the far points meets the level of the near ones."""
    first = part[0]
    link = _path(first)
    assert link is not None
    size, depth, trips = int(first.parameters["block_bytes"]), _depth(first), _trips(first)
    line = link.goodput_bytes_per_s
    predicted_s = (depth - 1) * size / line / trips
    points = sorted(((cell.rtt_ms or 0.0) / 1e3, (cell.median("mb_per_s") or 0.0) * 1e6) for cell in part)
    where = _where(first, "rtt_ms")
    family = (first.workload, first.step, first.op, first.label, size)
    level = max(rate for _, rate in points)
    far = [(rtt_s, rate) for rtt_s, rate in points if rate < _PLATEAU * level and rtt_s > 0]

    def knee(found_ms: float | None, why: str = "") -> Knee:
        return Knee(where, family, depth, predicted_s * 1e3, found_ms, why)

    if points[-1][0] < predicted_s * (1 + TOLERANCE):
        return knee(None, f"no round trip beyond {predicted_s * 1e3 * (1 + TOLERANCE):.1f} ms")
    if level < _PLATEAU * line:
        return knee(None, f"{level / 1e6:.1f} MB/s at most, the link carries {line / 1e6:.1f}: no level to bend from")
    if not far:
        return knee(points[-1][0] * 1e3)
    # Round trips that each turn of the queue took, at every far point.
    taken = statistics.median((depth * size / rate - size / level) / rtt_s for rtt_s, rate in far)
    return knee((depth - 1) * size / level / taken * 1e3)


def _knee(knee: Knee) -> LawCheck:
    if knee.found_ms is None:
        return LawCheck(knee.where, KNEE, NOT_APPLICABLE, knee.why, "")
    verdict = _within(knee.found_ms, knee.predicted_ms)
    return LawCheck(knee.where, KNEE, verdict, f"{knee.found_ms:.1f} ms", f"{knee.predicted_ms:.1f} ms within 10 %")


def _doubled(knees: Sequence[Knee]) -> Iterable[LawCheck]:
    for one in knees:
        for other in knees:
            if other.family == one.family and other.depth == 2 * one.depth and one.found_ms and other.found_ms:
                found, expected = other.found_ms / one.found_ms, other.predicted_ms / one.predicted_ms
                said = f"{one.found_ms:.1f} to {other.found_ms:.1f} ms: {found:.2f} times"
                yield LawCheck(
                    other.where, DOUBLED, _within(found, expected), said, f"{expected:.2f} times within 10 %"
                )


def _saved(group: Sequence[Cell]) -> Iterable[LawCheck]:
    """Two labels with one write outstanding, whose bursts make it wait for different numbers of R2Ts."""
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in (one for one in group if one.op == "write" and _depth(one) == 1):
        if cell.rtt_ms and cell.parameters.get("block_bytes") and checks.negotiated_bursts(cell.runs[0][1]):
            found.setdefault((cell.workload, cell.step, tuple(cell.parameters.items())), []).append(cell)
    for part in found.values():
        slow, *others = sorted(part, key=_trips, reverse=True)
        for quick in (cell for cell in others if _trips(cell) < _trips(slow)):
            saved_ms = _latency_ms(slow) - _latency_ms(quick)
            expected_ms = (slow.rtt_ms or 0.0) * (_trips(slow) - _trips(quick))
            where = f"{_where(slow)}, against {quick.label or 'no label'}"
            said = f"{saved_ms:.2f} ms for {_trips(slow)} round trips made {_trips(quick)}"
            yield LawCheck(where, SAVED, _within(saved_ms, expected_ms), said, f"{expected_ms:.2f} ms within 10 %")


def _latency_ms(cell: Cell) -> float:
    return statistics.median(result.document.mean_latency_ns(cell.op) or 0.0 for _, result in cell.runs) / 1e6


def _block_windows(group: Sequence[Cell]) -> Iterable[LawCheck]:
    """What lies far below its bound over two or more round trips: held by one window, or by something else."""
    for part in _curves(group).values():
        held: list[tuple[float, float]] = []
        for cell in part:
            rate, bound, rtt_ms = cell.median("mb_per_s"), cell.bound_mb_per_s, cell.rtt_ms
            if rate and bound and rtt_ms and rate < _BELOW * bound:
                held.append((rtt_ms, rate * 1e6 * rtt_ms / 1e3))
        if len(held) > 1:
            yield _one_window(_where(part[0], "rtt_ms"), [product for _, product in held], None)


def _net_windows(nets: Sequence[RunRecord]) -> Iterable[LawCheck]:
    """Raw TCP with a window that was asked for, at different round trips."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for net in (one for one in nets if one.round_trips_ms):
        rates = [(step, metric.value * 1e6) for step in net.steps for metric in metrics.of_step(step)]
        most = max((rate for _, rate in rates), default=0.0)
        rtt_s = statistics.median(net.round_trips_ms) / 1e3
        for step, rate in rates:
            if step.parameters.get("window_bytes") and rate < _BELOW * most and rate * rtt_s > 0:
                found.setdefault((net.label, step.name), []).append((rtt_s, rate * rtt_s))
    for (label, name), products in found.items():
        if len({round(rtt_s, 3) for rtt_s, _ in products}) > 1:
            where = f"net {name}, {label or 'no label'}"
            yield _one_window(where, [product for _, product in products], FAIL)


def _one_window(where: str, products: Sequence[float], otherwise: str | None) -> LawCheck:
    """Judge rate × RTT in bytes; with no window asked for, different products only say that there is none."""
    low, high = min(products) / 1024, max(products) / 1024
    same = high / low <= 1 + TOLERANCE
    said = f"{low:.0f} to {high:.0f} KiB" + ("" if same else ": no single window")
    return LawCheck(where, WINDOW, PASS if same else otherwise or NOT_APPLICABLE, said, "the same within 10 %")


def _a_against_a(records: Sequence[RunRecord]) -> Iterable[LawCheck]:
    verdicts = {Verdict.SAME: PASS, Verdict.CANNOT_TELL: NOT_APPLICABLE}
    for name, mine in compare.split(records):
        if (same := compare.a_against_a(mine)) is None:
            continue
        for row in same.primary:
            where = f"{mine[0].workload.name} {same.point(row)}, session {name}"
            found = verdict_table.change(row.judgement) or row.judgement.why
            yield LawCheck(where, A_AGAINST_A, verdicts.get(row.judgement.verdict, FAIL), found, "no proven bias")
