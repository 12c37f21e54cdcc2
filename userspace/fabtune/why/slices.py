# SPDX-License-Identifier: GPL-2.0-or-later
"""Pieces of a look: what stood between two samples, and which samples belong together."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeVar

import attrs

from fabtune.model.observation import UNPACED, DiskSample, EndSeen, SocketSample

Timed = TypeVar("Timed", SocketSample, DiskSample)
# What an end's samples say nothing without, and what tells why a sender does not send (SocketSeen.lacks).
_NEEDED = {"tcpi_bytes_acked", "tcpi_bytes_received", "tcpi_notsent_bytes", "tcpi_min_rtt", "sk_meminfo"}
HELD_BACK = {"tcpi_rwnd_limited", "tcpi_sndbuf_limited"}
# So much of what its connection carried is this disk's, if no other disk's requests are in between.
ALONE = 0.9


@attrs.frozen
class Parts:
    """A request's mean time in shares of one: on the path, in round trips for R2Ts, paced, and the rest."""

    path: float
    r2t: float
    rest: float
    paced: float = 0.0


def parted(whole_s: float, r2t_s: float, path_s: float, paced_s: float, telling: float) -> Parts:
    """Return the parts of a request's time of `whole_s`; what is less than `telling` of it is the path's."""
    r2t = min(1.0, r2t_s / whole_s)
    path = min(1.0 - r2t, path_s / whole_s)
    paced = min(1.0 - r2t - path, paced_s / whole_s)
    rest = 1.0 - r2t - path - paced
    paced = paced if paced + rest >= telling else 0.0
    rest = rest if rest >= telling else 0.0
    return Parts(1.0 - r2t - paced - rest, r2t, rest, paced)


@attrs.frozen
class Slice:
    """One end of the connection between two samples."""

    before: SocketSample
    after: SocketSample

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.after.at_s - self.before.at_s

    def share(self, counter_us: str) -> float:
        """Return the share of the slice by which a counter of us grew."""
        return float(getattr(self.after, counter_us) - getattr(self.before, counter_us)) / 1e6 / self.seconds

    def mean(self, name: str) -> float:
        """Return the mean of a member at both ends of the slice."""
        return float(getattr(self.before, name) + getattr(self.after, name)) / 2


def usable(end: EndSeen | None) -> EndSeen | None:
    """Return `end`, without its connection where its kernel does not tell what is needed."""
    useless = end is not None and end.socket is not None and not _NEEDED.isdisjoint(end.socket.lacks)
    return attrs.evolve(end, socket=None) if end and useless else end


def nearest(samples: Sequence[Timed], at_s: float) -> Timed | None:
    """Return the sample that was taken nearest to `at_s`, None where none was within what they are apart."""
    if not samples:
        return None
    place = bisect_left(samples, at_s, key=lambda one: one.at_s)
    found = min(samples[max(0, place - 1) : place + 1], key=lambda one: abs(one.at_s - at_s))
    apart_s = (samples[-1].at_s - samples[0].at_s) / max(1, len(samples) - 1)
    return found if abs(found.at_s - at_s) <= apart_s else None


def facing(one: Slice, samples: Sequence[SocketSample]) -> Slice | None:
    """Return what the other end, that has `samples` of its own, saw meanwhile; None where it did not look."""
    before, after = nearest(samples, one.before.at_s), nearest(samples, one.after.at_s)
    return Slice(before, after) if before and after else None


def paced_to(sample: SocketSample) -> float | None:
    """Return SO_MAX_PACING_RATE in bytes/s, None for none."""
    limit = sample.max_pacing_bytes_per_s
    # A socket of a 32-bit limit has all ones of 32 bits.
    return None if limit is None or limit in (UNPACED, 2**32 - 1) else float(limit)


def around(samples: Sequence[SocketSample], index: int, reach_s: float) -> tuple[SocketSample, SocketSample]:
    """Return the first and the last sample within `reach_s` of the middle of the moment that ends with `index`.

    None is beyond a change of the limit to the rate.
    """
    first, last, most = index - 1, index, len(samples) - 1
    middle_s = (samples[first].at_s + samples[last].at_s) / 2
    now = samples[last].qdisc_bytes_per_s

    def belongs(one: SocketSample) -> bool:
        return abs(one.at_s - middle_s) <= reach_s and one.qdisc_bytes_per_s == now

    if samples[first].qdisc_bytes_per_s == now:
        while first and belongs(samples[first - 1]):
            first -= 1
        while last < most and belongs(samples[last + 1]):
            last += 1
    return samples[first], samples[last]
