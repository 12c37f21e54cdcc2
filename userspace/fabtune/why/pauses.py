# SPDX-License-Identifier: GPL-2.0-or-later
"""A load that pauses: how the data of its first requests comes, seen by who receives it alone."""

import math
import statistics
from functools import lru_cache

import attrs

from fabtune.why.one_way import OneWay
from fabtune.why.slices import ALONE, nearest

# The least time-out for a retransmission, in s (TCP_RTO_MIN): a pause this long and a round trip cuts the window.
_LEAST_RTO_S = 0.2
# Initial window, in segments (RFC 6928): no start anew begins with less.
_INITIAL_WINDOW = 10
# From a sender of a constant rate a beginning looks half as fast where it comes late in its moment, not each of five.
_SLOWER, _BEGINNINGS = 0.5, 5
# A moment shorter than that many round trips may hold a beginning of which nothing has arrived.
_ROUND_TRIPS = 1.25
# Of so many beginnings it must be seen that data doubles, by half a doubling or nearer in most of them, before most of
# what was asked for is there.
_DOUBLINGS, _NEAR, _NOT_ALL = 3, 0.5, 0.6


@attrs.frozen
class _Beginning:
    """The first moment after a pause, and the next: what came in the first, in both, and how long the second was."""

    bytes_per_s: float
    first_bytes: int
    both_bytes: int = 0
    next_s: float = 0.0


def _beginnings(one_way: OneWay) -> tuple[list[_Beginning], float]:
    """Return what begins after each pause, and the highest rate at which data came while requests were under way."""
    found: list[_Beginning] = []
    fastest, paused_s, begins = 0.0, 0.0, False
    for moment in one_way.moments():
        here = moment.receiver
        disk = nearest(one_way.seen.disk.samples, here.before.at_s) if here else None
        if here is None or disk is None:
            continue
        if moment.idle:
            paused_s, begins = paused_s + here.seconds, False
            continue
        got = here.after.received_bytes - here.before.received_bytes
        if disk.in_flight:
            fastest = max(fastest, got / here.seconds)
            if begins:
                both = found[-1].first_bytes + got
                found[-1] = attrs.evolve(found[-1], both_bytes=both, next_s=here.seconds)
            begins = False
        elif paused_s >= _LEAST_RTO_S + one_way.rtt_s and here.seconds >= _ROUND_TRIPS * one_way.rtt_s:
            # Its first data is a round trip away.
            found.append(_Beginning(got / (here.seconds - one_way.rtt_s), got))
            begins = True
        paused_s = 0.0
    return found, fastest


def _doubles(beginnings: list[_Beginning], begins_bytes: float, asked_bytes: float, rtt_s: float) -> bool:
    """Tell whether data comes as from a window that doubles each round trip, in what is not all there by then.

    A disk that is only slow to begin, or a cache, brings nothing for a while, or the same for a while.
    """
    off = []
    for one in beginnings:
        doubled = (one.first_bytes + begins_bytes) * 2 ** min(one.next_s / rtt_s, 30.0) - begins_bytes
        if one.first_bytes >= begins_bytes / 2 and 2 * one.first_bytes <= doubled <= _NOT_ALL * asked_bytes:
            off.append(abs(math.log2(max(one.both_bytes, 1) / doubled)))
    return len(off) >= _DOUBLINGS and statistics.median(off) <= _NEAR


@attrs.frozen
class SlowBeginnings:
    """What a request's mean time has of the slow beginnings after pauses, and the rates there and later, in bytes/s."""

    each_s: float
    first_bytes_per_s: float
    later_bytes_per_s: float


@lru_cache(maxsize=1)
def slow_beginnings(one_way: OneWay) -> SlowBeginnings | None:
    """Return how much of a request's time goes by because data comes slowly after each pause; None where it does not.

    Told by who receives it: each beginning is slower by half than what comes later, and its data comes as from a window
    that doubles.  No more than slow start costs: as many round trips as its window doubles in from the initial one
    until it holds what the path does.
    """
    beginnings, fastest = _beginnings(one_way)
    first = max((one.bytes_per_s for one in beginnings), default=0.0)
    # What other disks of the session have asked for says nothing of this one's pauses.
    shared = one_way.own_share < ALONE or len(beginnings) < _BEGINNINGS
    if shared or first > _SLOWER * fastest or not one_way.rtt_s:
        return None
    asked_bytes = max(one.in_flight for one in one_way.seen.disk.samples) * one_way.way.request_bytes
    explained_s = one_way.rtt_s + asked_bytes / fastest / 2
    begins_bytes = _INITIAL_WINDOW * one_way.seen.mss_bytes
    if not _doubles(beginnings, begins_bytes, asked_bytes, one_way.rtt_s):
        return None
    doublings = math.log2(max(1.0, fastest * one_way.rtt_s / begins_bytes))
    each_s = min((one_way.latency_s or 0.0) - explained_s, doublings * one_way.rtt_s)
    return SlowBeginnings(each_s, first, fastest) if each_s > 0 else None
