# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the queue of a path's bottleneck was seen to be, and whether it overflowed there."""

import math
from collections.abc import Iterable
from itertools import pairwise

import attrs

from fabtune.autotune.own_losses import is_burst, segments_since
from fabtune.autotune.shown_line import arrived_bytes, jitters, wanders
from fabtune.model.observation import SocketSample, SocketSeen

# Round trips longer by less than they vary from packet to packet, or than a busy host makes them, show no queue.
_DEVIATIONS, _SHORTEST_MS = 4, 0.5
# Nearly as long as it ever was.
_TOP = 0.8
# Losses that strike at any moment are all at such ones no oftener.
_BY_CHANCE = 0.05


@attrs.frozen
class QueueFound:
    """The longest that a queue was seen to be, in time and in payload of the connection's (None: nobody knows).

    It holds about that where it was seen to overflow, else that at least.
    """

    most_ms: float
    most_bytes: float | None
    overflowed: bool


def queue_found(socket: SocketSeen, *, sends: bool) -> QueueFound | None:
    """Return what the round trips of a connection's end show of it, which `sends` the data or not.

    None where they show none: what makes them vary may be jitter.
    """
    queues_ms = [_queue_ms(one) for one in socket.samples]
    most_ms = max(queues_ms, default=0.0)
    if not most_ms or jitters(socket) or not wanders(socket):
        return None
    if not sends:
        # What it sent again, and what arrived of that, is the other direction's.
        return QueueFound(most_ms, None, overflowed=False)
    rate = _bytes_per_s(socket, queues_ms)
    most_bytes = None if rate is None else rate * most_ms / 1e3
    return QueueFound(most_ms, most_bytes, _overflowed(socket, [one >= _TOP * most_ms for one in queues_ms]))


def longest(found: Iterable[QueueFound]) -> QueueFound | None:
    """Return the longest queue, or the one that overflowed at nearly as much; None of none."""
    queues = list(found)
    most_ms = max((one.most_ms for one in queues), default=0.0)
    near = sorted((one.overflowed, one.most_ms, at) for at, one in enumerate(queues) if one.most_ms >= _TOP * most_ms)
    return queues[near[-1][2]] if near else None


def _queue_ms(one: SocketSample) -> float:
    if one.rtt_deviation_ms is None or not one.min_rtt_ms:
        return 0.0
    more_ms = one.rtt_ms - one.min_rtt_ms
    return more_ms if more_ms >= max(_DEVIATIONS * one.rtt_deviation_ms, _SHORTEST_MS) else 0.0


def _bytes_per_s(socket: SocketSeen, queues_ms: list[float]) -> float | None:
    """Return what arrived per second while a queue stood, None where that is not known."""
    arrived = arrived_bytes(socket)
    if len(arrived) != len(queues_ms):
        return None
    queued = [both for both, stood in zip(pairwise(arrived), pairwise(queues_ms), strict=True) if all(stood)]
    elapsed_s = sum(later_s - now_s for (now_s, _), (later_s, _) in queued)
    return sum(later - now for (_, now), (_, later) in queued) / elapsed_s if elapsed_s else None


def _overflowed(socket: SocketSeen, longest_at: list[bool]) -> bool:
    """Tell whether losses came while it was longest: in a burst, or oftener than chance puts them there."""
    between = list(pairwise(socket.samples))
    top = [(one, two) for (one, two), ends in zip(between, pairwise(longest_at), strict=True) if any(ends)]
    if any(is_burst(one, two, socket.mss_bytes) for one, two in top):
        return True
    lost, then = (sum(two.retransmitted_bytes > one.retransmitted_bytes for one, two in of) for of in (between, top))
    # Chance strikes packets, of which there are more while a queue stands.
    passed = sum(segments_since(one.delivered_segments or 0, two.delivered_segments or 0) for one, two in top)
    whole = segments_since(socket.samples[0].delivered_segments or 0, socket.samples[-1].delivered_segments or 0)
    share = passed / whole if whole else 1.0
    by_chance = sum(math.comb(lost, one) * share**one * (1 - share) ** (lost - one) for one in range(then, lost + 1))
    return by_chance <= _BY_CHANCE
