# SPDX-License-Identifier: GPL-2.0-or-later
"""A load that pauses: how the data of its first requests comes, seen by who receives it alone."""

import math
from functools import lru_cache

import attrs

from fabtune.why.one_way import TCP_IP_HEADERS, OneWay
from fabtune.why.slices import Slice, nearest

# The least time-out for a retransmission, in s (TCP_RTO_MIN): a pause this long and a round trip cuts the window.
_LEAST_RTO_S = 0.2
# Initial window, in segments (RFC 6928): no start anew begins with less.
_INITIAL_WINDOW = 10
# From a sender of a constant rate a beginning looks half as fast where it comes late in its moment, not each of five.
_SLOWER, _BEGINNINGS = 0.5, 5
# A moment shorter than that many round trips may hold a beginning of which nothing has arrived.
_ROUND_TRIPS = 1.25


def _received_bytes_per_s(one: Slice, later_s: float = 0.0) -> float:
    return (one.after.received_bytes - one.before.received_bytes) / (one.seconds - later_s)


def _rates(one_way: OneWay) -> tuple[list[float], list[float]]:
    """Return the rates at which data came at beginnings after a pause, and later while requests were under way."""
    beginnings, later, paused_s = [], [], 0.0
    for moment in one_way.moments():
        here = moment.receiver
        disk = nearest(one_way.seen.disk.samples, here.before.at_s) if here else None
        if here is None or disk is None:
            continue
        if moment.idle:
            paused_s += here.seconds
            continue
        if disk.in_flight:
            later.append(_received_bytes_per_s(here))
        elif paused_s >= _LEAST_RTO_S + one_way.rtt_s and here.seconds >= _ROUND_TRIPS * one_way.rtt_s:
            # Its first data is a round trip away.
            beginnings.append(_received_bytes_per_s(here, one_way.rtt_s))
        paused_s = 0.0
    return beginnings, later


@attrs.frozen
class SlowBeginnings:
    """What a request's mean time has of the slow beginnings after pauses, and the rates there and later, in bytes/s."""

    each_s: float
    first_bytes_per_s: float
    later_bytes_per_s: float


@lru_cache(maxsize=1)
def slow_beginnings(one_way: OneWay) -> SlowBeginnings | None:
    """Return how much of a request's time goes by because data comes slowly after each pause; None where it does not.

    Told by who receives it: the sender and its disk are as fast as they are later, for all that was asked at once, and
    each beginning is slower by half.  No more than slow start costs: as many round trips as its window doubles in from
    the initial one until it holds what the path does.
    """
    beginnings, later = _rates(one_way)
    fastest = max(later, default=0.0)
    if len(beginnings) < _BEGINNINGS or max(beginnings) > _SLOWER * fastest:
        return None
    asked_bytes = max(one.in_flight for one in one_way.seen.disk.samples) * one_way.way.request_bytes
    explained_s = one_way.rtt_s + asked_bytes / fastest / 2
    begins_bytes = _INITIAL_WINDOW * (one_way.mtu - TCP_IP_HEADERS)
    doublings = math.log2(max(1.0, fastest * one_way.rtt_s / begins_bytes))
    each_s = min((one_way.latency_s or 0.0) - explained_s, doublings * one_way.rtt_s)
    return SlowBeginnings(each_s, max(beginnings), fastest) if each_s > 0 else None
