# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a request's mean time goes, from the block queue to the target's disk and back.

Each part is measured by itself; their sum is the request's whole time but for `rest`, which is below zero where the
parts are more than that.
"""

import math

import attrs

from fabtune.why.one_way import OneWay
from fabtune.why.slices import ALONE


@attrs.frozen
class Part:
    """One part of a request's mean time."""

    name: str
    ms: float


def parts_of(one_way: OneWay) -> list[Part]:
    """Return the parts in the order in which a request passes them, empty where its time is not known.

    `held`: in the block queue and refused; `queue`: in iSCSI's own queue of either end, until the socket has all of
    it; `socket`: its data waits in the sender's socket for windows, pacing and the data before it; `path`: the round
    trip without queues; `queues`: what queues on the way add; `r2t`: round trips of R2Ts; `wire`: how much later its
    last byte is there than the mean one; `backstore`: in the target's disk, where that was seen; `target`: the target
    besides, where its fabstat tells, of a write without the wait for its data; `rest`: what is left: its
    turn behind others, where nobody counts in these queues, and what an end that was not seen would tell.
    """
    way = one_way.way
    whole_ms = way.block_ms or way.total_ms
    if not whole_ms:
        return []
    path_ms, socket_ms, queues_ms = 1e3 * one_way.rtt_s, 1e3 * one_way.socket_s, _queues_ms(one_way)
    wire_ms = _wire_ms(one_way, socket_ms + queues_ms)
    # The block layer counts a disk's time in ticks; the target's own count, where there is one, is of all of it.
    known_ms = one_way.seen.served_ms(one_way.way_name)
    served_ms = math.inf if known_ms is None else known_ms
    told = [
        Part("held", max(0.0, whole_ms - (way.device_ms or whole_ms))),
        Part("queue", _queued_ms(one_way)),
        Part("path", path_ms),
        # Each piece that is asked for takes as long as the last.
        Part("r2t", one_way.r2t_round_trips * (path_ms + wire_ms + queues_ms + socket_ms)),
        Part("backstore", backstore_ms := min(1e3 * one_way.backstore_s, served_ms)),
        Part("target", 0.0 if math.isinf(served_ms) else served_ms - backstore_ms),
        Part("wire", wire_ms),
        Part("queues", queues_ms),
        Part("socket", socket_ms),
    ]
    return [*told, Part("rest", whole_ms - sum(one.ms for one in told))]


def _queued_ms(one_way: OneWay) -> float:
    """Return the time in the queues of both ends: of the command or the data, and of the answer.

    They are counted by session: of several busy disks none is known.
    """
    if one_way.own_share < ALONE:
        return 0.0
    ends = (one_way.seen.initiator, one_way.seen.target)
    found = (end.queue.get(one_way.way_name) for end in ends if end)
    return sum(one.queued_ms for one in found if one)


def _wire_ms(one_way: OneWay, waits_ms: float) -> float:
    """Return how much later the last byte of a request, or of what an R2T asks for, comes than its mean one.

    The other parts are of the mean one, which `waits_ms`.  What comes at once leaves at the rate of what is behind,
    and no sooner than that takes; the longer it takes to enter the socket, the less.  Of a sender that is not seen it
    is all of its time on the line.
    """
    if one_way.sender is None or one_way.sender.socket is None:
        return 1e3 * one_way.wire_s
    queue = one_way.sender.queue.get(one_way.way_name)
    backlogged = one_way.always_backlogged and one_way.carried_bytes_per_s
    # Without the line's rate its own data is in what the round trip grows by.
    rate = one_way.carried_bytes_per_s if backlogged else one_way.goodput
    leaves_s = one_way.way.request_bytes / rate if rate else 0.0
    late_ms = (1e3 * leaves_s - (queue.sent_ms if queue else 0.0)) / (1 + one_way.r2t_round_trips)
    return max(0.0, late_ms / 2, late_ms - waits_ms)


def _queues_ms(one_way: OneWay) -> float:
    """Return what queues on the way add to the round trip while data is under way, its own included."""
    samples = one_way.sender.socket.samples if one_way.sender and one_way.sender.socket else ()
    flying = [one.rtt_ms for one in samples if one.in_flight_bytes]
    return max(0.0, sum(flying) / len(flying) - 1e3 * one_way.rtt_s) if flying else 0.0
