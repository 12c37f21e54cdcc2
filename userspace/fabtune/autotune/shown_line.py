# SPDX-License-Identifier: GPL-2.0-or-later
"""What a line that nobody told the rate of shows of itself in what its connections' senders know to have arrived."""

import bisect
import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise

import attrs

from fabtune.autotune.own_losses import OwnLosses, own_losses, segments_since
from fabtune.model.capacity import loss_bytes_per_s, recovery_s
from fabtune.model.observation import SocketSample, SocketSeen
from fabtune.why.one_way import OneWay

# Acknowledgements come in bunches: over this long, and this many round trips, what arrives is a rate.  A line with a
# short queue is full no longer than that at a time.
_WINDOW_S, _WINDOW_RTTS = 0.5, 2
# A mean's interval is that of such stretches, at most so many.
_STRETCHES, _STRETCH_S, _STRETCH_RTTS = 7, 1.0, 4
# One window of so many is often enough for no accident.
_OFTEN = 10
# Where none of all segments was lost, half of one may have been.
_NONE_LOST = 0.5
# A queue makes round trips longer than they vary by themselves, and than this share of them (jitter that keeps packets
# in order looks like a short one); there for that share of a look at least it says what the line leaves a sender that
# has this much waiting of what is in flight.
_DEVIATIONS, _LONGER, _FOR_LONG, _WAITING = 4, 0.3, 0.5, 0.5
# A queue that others fill, too, wanders; jitter that keeps packets in order makes all of them late by nearly as much:
# round trips differ less from moment to moment then than from packet to packet.
_WANDERS = 1.5
# Their share of a round trip from which on what arrives in one says little of a rate.
_JITTERS = 0.2
# Nearly all that its own pace lets pass.
_PACED = 0.9
# Sent again: differences count that are a fiftieth of this, a thousandth of what arrives.
HARDLY = 0.05
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
    # The path's, 0 where it is not known.
    rtt_s: float
    senders: int
    # Whether round trips vary so much from packet to packet that what single ones show is chance.
    jitters: bool
    # What arrived while more was to be sent and a queue stood on the path, None where that was not for long.
    queued_bytes_per_s: float | None
    # What the sender's kernel estimates of single round trips, in a tenth of the samples or more; 0 where it does not.
    sampled_bytes_per_s: float
    # The same where their data may have run out: those are least values, of which it keeps the highest.
    glimpsed_bytes_per_s: float
    # What the path loses by itself, as far as that shows.
    own_losses: OwnLosses = OwnLosses()

    def full(self, but_for: float) -> bool:
        """Tell whether the mean is the most but for that share of it."""
        return self.mean_bytes_per_s >= (1 - but_for) * self.most_bytes_per_s

    def steady(self, but_for: float) -> bool:
        """Tell whether single round trips were no faster than the mean but for that share of them."""
        return self.mean_bytes_per_s >= (1 - but_for) * self.sampled_bytes_per_s

    def best(self, but_for: float) -> bool:
        """Tell whether single round trips are known, and were no faster than the best moments but for that share."""
        known = self.sampled_bytes_per_s > 0 and not self.averaged
        return known and self.most_bytes_per_s >= (1 - but_for) * self.sampled_bytes_per_s

    @property
    def averaged(self) -> bool:
        """Whether its window goes up and down within a moment: then the best ones are averages, no rate of a line."""
        return 0 < self.recovery_s < _WINDOW_S

    def cubic_bytes_per_s(self, lost: float) -> float:
        """Return what cubic would carry at most where the path itself loses that share."""
        return loss_bytes_per_s(self.mss_bytes, self.rtt_s, lost, "cubic")

    @property
    def recovery_s(self) -> float:
        """How long a sender takes to have its part again after a loss, 0 where it minds none, or nobody knows."""
        window = self.most_bytes_per_s / self.senders * self.rtt_s / self.mss_bytes
        return 0.0 if self.probed else recovery_s(window, self.rtt_s)


def shown_line(ways: Sequence[OneWay]) -> ShownLine | None:
    """Return what the senders of one direction saw arrive, together; None where one was not seen, or nothing arrived.

    Sessions that share a line show its rate in their sum alone; those that do not show more than any line has.
    """
    sockets = _senders(ways)
    arrived = _arrived_together(sockets)
    if not arrived or not arrived[-1][1]:
        return None
    (first_s, _), (last_s, whole) = arrived[0], arrived[-1]
    mean, rtt_s = whole / (last_s - first_s), _longest_s(ways)
    rates = [(later - now) / (later_s - now_s) for (now_s, now), (later_s, later) in _windows(arrived, rtt_s)]
    again, mss = sum(one.grown("retransmitted_bytes") for one in sockets), max(one.mss_bytes for one in sockets)
    return ShownLine(
        mean, _often(rates) or mean, max(again, _NONE_LOST * mss) / whole, again > 0,
        any(one.congestion_control == _PROBES for one in sockets), mss, rtt_s, len(sockets),
        any(map(jitters, sockets)), _queued(ways, sockets, arrived),
        sum(_often(one.delivery_bytes_per_s for one in each.samples if not one.app_limited) for each in sockets),
        sum(_often(one.delivery_bytes_per_s for one in each.samples) for each in sockets),
        own_losses(sockets, rtt_s),
    )  # fmt: skip


def _longest_s(ways: Sequence[OneWay]) -> float:
    return max(one.rtt_s for one in ways)


def _often(found: Iterable[float]) -> float:
    """Return what one in so many is at least, 0 of none."""
    rates = sorted(found)
    return float(rates[-1 - len(rates) // _OFTEN]) if rates else 0.0


def _queued(
    ways: Sequence[OneWay], sockets: Sequence[SocketSeen], arrived: Sequence[tuple[float, float]]
) -> float | None:
    """Return what arrived per second while the first of `sockets` had more to send and a queue stood on the path."""
    first = sockets[0]
    looks = zip(first.samples, first.samples[1:], strict=False)
    moments = [(one.at_s, two.at_s) for one, two in looks if _waits(one) and _waits(two)]
    queued_s = sum(end_s - begun_s for begun_s, end_s in moments)
    if queued_s < max(_FOR_LONG * first.elapsed_s, _WINDOW_S) or not wanders(first):
        return None
    found = sum(_at(arrived, end_s) - _at(arrived, begun_s) for begun_s, end_s in moments) / queued_s
    pace = ways[0].paced_at(first.samples[-1])
    # What is sent as fast as it may waits for its own pace, in this host.
    return found if pace is None or found < _PACED * pace * len(sockets) else None


def jitters(socket: SocketSeen) -> bool:
    """Tell whether round trips vary so much from packet to packet that single ones tell nothing."""
    deviations_ms = [one.rtt_deviation_ms or 0.0 for one in socket.samples]
    return statistics.mean(deviations_ms) >= _JITTERS * statistics.mean(one.rtt_ms for one in socket.samples)


def wanders(socket: SocketSeen) -> bool:
    """Tell whether they vary more from moment to moment than from packet to packet, as with a queue."""
    deviations_ms = [one.rtt_deviation_ms or 0.0 for one in socket.samples]
    return statistics.pstdev(one.rtt_ms for one in socket.samples) >= _WANDERS * statistics.mean(deviations_ms)


def _waits(one: SocketSample) -> bool:
    deviation_ms = one.rtt_deviation_ms
    if deviation_ms is None or not one.in_flight_bytes or one.notsent_bytes < _WAITING * one.in_flight_bytes:
        return False
    return one.rtt_ms - one.min_rtt_ms >= max(_DEVIATIONS * deviation_ms, _LONGER * one.min_rtt_ms)


def blocks_sent_again(ways: Sequence[OneWay]) -> list[float]:
    """Return what the senders of one direction sent again for what arrived of it, in windows that follow each other.

    It has a share added to it beside which less is of no account: so that nothing sent again compares with something.
    """
    sockets = _senders(ways)
    arrived = _arrived_together(sockets)
    again = [[(one.at_s, float(one.retransmitted_bytes)) for one in socket.samples] for socket in sockets]
    found, until_s = list[float](), 0.0
    for (now_s, now), (later_s, later) in _windows(arrived, _longest_s(ways)):
        if now_s >= until_s and later > now:
            sent = sum(_at(one, later_s) - _at(one, now_s) for one in again)
            found.append(sent / (later - now) + HARDLY)
            until_s = later_s
    return found


def stretches_bytes_per_s(ways: Sequence[OneWay]) -> list[float]:
    """Return what arrived in one direction, of all senders together, in stretches that follow each other."""
    arrived = _arrived_together(_senders(ways))
    if not arrived:
        return []
    begun_s, whole_s = arrived[0][0], arrived[-1][0] - arrived[0][0]
    count = min(_STRETCHES, int(whole_s / max(_STRETCH_S, _STRETCH_RTTS * _longest_s(ways))))
    counts = [_at(arrived, begun_s + turn * whole_s / count) for turn in range(count + 1)] if count else []
    return [(later - now) * count / whole_s for now, later in pairwise(counts)]


def _senders(ways: Sequence[OneWay]) -> list[SocketSeen]:
    """Return each connection that sends in one of `ways` once, disks may share it; none where one is not seen."""
    ends = [one.sender.socket if one.sender else None for one in ways]
    found = {(one.local, one.remote): one for one in ends if one}
    return list(found.values()) if all(ends) else []


def _arrived_together(sockets: Sequence[SocketSeen]) -> list[tuple[float, float]]:
    """Return the payload of all that had arrived, by time of the first one's samples."""
    each = [arrived_bytes(one) for one in sockets]
    times = [at_s for at_s, _ in each[0]] if each and all(each) else []
    return [(at_s, sum(_at(one, at_s) for one in each)) for at_s in times]


def _at(counts: Sequence[tuple[float, float]], at_s: float) -> float:
    """Return what a count was at a time, from the looks around it."""
    place = bisect.bisect_left(counts, (at_s,))
    if place in (0, len(counts)) or counts[place][0] == at_s:
        return counts[min(place, len(counts) - 1)][1]
    (before_s, before), (after_s, after) = counts[place - 1 : place + 1]
    return before + (after - before) * (at_s - before_s) / (after_s - before_s)


def arrived_bytes(socket: SocketSeen) -> list[tuple[float, float]]:
    """Return the payload that had arrived, by time, since the first sample; nothing where nothing did.

    What is acknowledged alone jumps by a window when a gap is closed; segments behind it count when they arrive.
    They are as long as those that were acknowledged on average.
    """
    counts = [(one.at_s, one.delivered_segments) for one in socket.samples if one.delivered_segments is not None]
    segments = segments_since(counts[0][1], counts[-1][1]) if counts else 0
    if not segments:
        return []
    each = socket.grown("sent_bytes") / segments
    return [(at_s, each * segments_since(counts[0][1], count)) for at_s, count in counts]


def _windows(
    arrived: Sequence[tuple[float, float]], rtt_s: float
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return the ends of all windows that begin with a sample."""
    times, window_s = [at_s for at_s, _ in arrived], max(_WINDOW_S, _WINDOW_RTTS * rtt_s)
    places = [bisect.bisect_left(times, at_s + window_s) for at_s in times]
    return [(one, arrived[place]) for one, place in zip(arrived, places, strict=True) if place < len(arrived)]
