# SPDX-License-Identifier: GPL-2.0-or-later
"""What a line that nobody told the rate of shows of itself in what its connection's sender knows to have arrived."""

import bisect
from collections.abc import Sequence

import attrs

from fabtune.model.capacity import loss_bytes_per_s
from fabtune.model.observation import SocketSeen
from fabtune.why.one_way import OneWay

# Acknowledgements come in bunches: over this long, and this many round trips, what arrives is a rate.  A line with a
# short queue is full no longer than that at a time.
_WINDOW_S, _WINDOW_RTTS = 0.5, 2
# One window of so many is often enough for no accident.
_OFTEN = 10
# Where none of all segments was lost, half of one may have been.
_NONE_LOST = 0.5
# A congestion control that makes losses of its own by probing for more.
_PROBES = "bbr"


@attrs.frozen
class ShownLine:
    """One direction's payload in bytes/s: on average, and in that tenth of the look in which most arrived.

    A line that is full in its best moments carries `most`.  `lost` is the share of its segments that was sent again,
    or may have been; `probed` whether the sender's congestion control may be at fault for that.
    """

    mean_bytes_per_s: float
    most_bytes_per_s: float
    lost: float
    sent_again: bool
    probed: bool
    mss_bytes: int
    rtt_s: float

    def full(self, but_for: float) -> bool:
        """Tell whether the mean is the most but for that share of it."""
        return self.mean_bytes_per_s >= (1 - but_for) * self.most_bytes_per_s

    def cubic_bytes_per_s(self, lost: float) -> float:
        """Return what cubic would carry at most where the path itself loses that share."""
        return loss_bytes_per_s(self.mss_bytes, self.rtt_s, lost, "cubic")


def shown_line(way: OneWay) -> ShownLine | None:
    """Return what a direction's sender saw arrive; None where it was not seen, or nothing arrived."""
    socket = way.sender.socket if way.sender else None
    arrived = _arrived_bytes(socket) if socket else []
    if not socket or not arrived:
        return None
    (first_s, _), (last_s, whole) = arrived[0], arrived[-1]
    mean = whole / (last_s - first_s)
    rates = sorted((later - now) / (later_s - now_s) for (now_s, now), (later_s, later) in _windows(arrived, way.rtt_s))
    again = socket.grown("retransmitted_bytes")
    return ShownLine(
        mean, rates[-1 - len(rates) // _OFTEN] if rates else mean, max(again / socket.mss_bytes, _NONE_LOST)
        / (whole / socket.mss_bytes), again > 0, socket.congestion_control == _PROBES, socket.mss_bytes, way.rtt_s,
    )  # fmt: skip


def blocks_sent_per_arrived(way: OneWay) -> list[float]:
    """Return what the sender sent for what arrived of it, in windows that follow each other."""
    socket = way.sender.socket if way.sender else None
    arrived = _arrived_bytes(socket) if socket else []
    if not socket or not arrived:
        return []
    again = {one.at_s: one.retransmitted_bytes for one in socket.samples}
    found, until_s = list[float](), arrived[0][0]
    for (now_s, now), (later_s, later) in _windows(arrived, way.rtt_s):
        if now_s >= until_s and later > now:
            found.append(1 + (again[later_s] - again[now_s]) / (later - now))
            until_s = later_s
    return found


def _arrived_bytes(socket: SocketSeen) -> list[tuple[float, float]]:
    """Return the payload that had arrived, by time, since the first sample; nothing where nothing did.

    What is acknowledged alone jumps by a window when a gap is closed; segments behind it count when they arrive.
    They are as long as those that were acknowledged on average.
    """
    counts = [(one.at_s, one.delivered_segments) for one in socket.samples if one.delivered_segments is not None]
    segments = _since(counts[0][1], counts[-1][1]) if counts else 0
    if not segments:
        return []
    each = socket.grown("sent_bytes") / segments
    return [(at_s, each * _since(counts[0][1], count)) for at_s, count in counts]


def _since(first: int, later: int) -> int:
    return (later - first) % 2**32


def _windows(
    arrived: Sequence[tuple[float, float]], rtt_s: float
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return the ends of all windows that begin with a sample."""
    times, window_s = [at_s for at_s, _ in arrived], max(_WINDOW_S, _WINDOW_RTTS * rtt_s)
    places = [bisect.bisect_left(times, at_s + window_s) for at_s in times]
    return [(one, arrived[place]) for one, place in zip(arrived, places, strict=True) if place < len(arrived)]
