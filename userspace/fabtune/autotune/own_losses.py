# SPDX-License-Identifier: GPL-2.0-or-later
"""What a path loses by itself: a queue that overflows loses many segments at a time, and none between."""

from collections.abc import Sequence

import attrs

from fabtune.model.observation import SocketSample, SocketSeen

# Between two samples no path loses as many by itself, but one that always does.
_BURST_SEGMENTS, _BURST_SHARE = 5, 0.005
# The next one might have been lost.
_ONE_MORE = 1


@attrs.frozen
class OwnLosses:
    """How many segments arrived away from the bursts in which a queue overflowed, and how many were lost there."""

    segments: float = 0.0
    lost: float = 0.0

    def __add__(self, other: "OwnLosses") -> "OwnLosses":
        """Return what two looks saw together."""
        return OwnLosses(self.segments + other.segments, self.lost + other.lost)

    @property
    def share(self) -> float:
        """The share of its segments that the path may lose, 1 where nothing is known of it."""
        return (self.lost + _ONE_MORE) / self.segments if self.segments else 1.0


def own_losses(sockets: Sequence[SocketSeen], rtt_s: float) -> OwnLosses:
    """Return what each of `sockets` sent again, and what arrived, more than `rtt_s` from any burst of losses."""
    return sum((_away_from_bursts(one, rtt_s) for one in sockets), OwnLosses())


def _away_from_bursts(socket: SocketSeen, rtt_s: float) -> OwnLosses:
    looks = list(zip(socket.samples, socket.samples[1:], strict=False))
    bursts = [(one.at_s, two.at_s) for one, two in looks if is_burst(one, two, socket.mss_bytes)]
    found = OwnLosses()
    for one, two in looks:
        # What is sent again comes a round trip after its loss, before the burst's sample and behind it as well.
        if not any(begun_s <= two.at_s + rtt_s and end_s >= one.at_s - rtt_s for begun_s, end_s in bursts):
            found += OwnLosses(_arrived(one, two), _again(one, two, socket.mss_bytes))
    return found


def is_burst(one: SocketSample, two: SocketSample, mss_bytes: int) -> bool:
    """Tell whether so many losses lie between two samples that they have one cause."""
    lost = _again(one, two, mss_bytes)
    return lost >= _BURST_SEGMENTS and lost >= _BURST_SHARE * _arrived(one, two)


def _again(one: SocketSample, two: SocketSample, mss_bytes: int) -> float:
    return (two.retransmitted_bytes - one.retransmitted_bytes) / mss_bytes


def _arrived(one: SocketSample, two: SocketSample) -> int:
    return segments_since(one.delivered_segments or 0, two.delivered_segments or 0)


def segments_since(first: int, later: int) -> int:
    """Return how many segments arrived between two counts, which have 32 bits."""
    return (later - first) % 2**32
