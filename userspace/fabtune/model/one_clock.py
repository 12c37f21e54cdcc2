# SPDX-License-Identifier: GPL-2.0-or-later
"""Both ends of a connection on one clock: hosts begin their looks at different times, and their clocks tell nothing.

What one end has sent and seen acknowledged is what the other has received: the same count, half a round trip apart.
So the time at which both counts were the same tells how much later the other look began.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import attrs

from fabtune.model.observation import EndSeen, Observation, SocketSample

# A target's look that covers less than this share of the initiator's tells of another time; less than all is said.
_COVERED, _NEARLY_ALL = 0.25, 0.75
_COUNTERS = (("received_bytes", "sent_bytes"), ("sent_bytes", "received_bytes"))
_LEFT_OUT = "the target's end: it looked at another time, or at another connection; what it saw is left out"
_UNMATCHED = (
    "the target's end of the connection: it cannot be told when it looked; its samples are left out, not what disks "
    "and CPUs did there"
)


def on_one_clock(seen: Observation) -> Observation:
    """Return `seen` with the target's samples at times of the initiator's look, without them where none can be told.

    What its disks and CPUs did needs no clock and stays, unless that was at another time.  Ends that were looked at by
    the same loop stay as they are.
    """
    mine, theirs = seen.initiator.socket, seen.target.socket if seen.target else None
    if seen.target is None or mine is None or theirs is None or _same_loop(mine.samples, theirs.samples):
        return seen
    later_s = _later_s(mine.samples, theirs.samples)
    if later_s is None and _overlap(mine.samples, theirs.samples):
        target = attrs.evolve(seen.target, socket=None)
        return attrs.evolve(seen, target=target, missing=(*seen.missing, _UNMATCHED))
    begun_s, ended_s = (theirs.samples[i].at_s + (later_s or 0.0) for i in (0, -1))
    common_s = min(ended_s, mine.samples[-1].at_s) - max(begun_s, mine.samples[0].at_s)
    if later_s is None or common_s < _COVERED * mine.elapsed_s:
        return attrs.evolve(seen, target=None, missing=(*seen.missing, _LEFT_OUT))
    text = f"the target's end: it was seen for {common_s:.1f} s of these {mine.elapsed_s:.1f} s"
    missing = seen.missing if common_s >= _NEARLY_ALL * mine.elapsed_s else (*seen.missing, text)
    return attrs.evolve(seen, target=_shifted(seen.target, later_s), missing=missing)


def _same_loop(mine: Sequence[SocketSample], theirs: Sequence[SocketSample]) -> bool:
    """Tell whether both were looked at at the same instants, which no two hosts do."""
    return {one.at_s for one in theirs} <= {one.at_s for one in mine}


def _later_s(mine: Sequence[SocketSample], theirs: Sequence[SocketSample]) -> float | None:
    """Return by how much later the other look began, 0 where nothing moved in either, None where it cannot be told."""
    ours, other = max(_COUNTERS, key=lambda names: _grown(mine, names[0]))
    found = list(_differences_s([(getattr(one, ours), one.at_s) for one in mine], theirs, other))
    if not found:
        return None if any(_grown(side, name) for side in (mine, theirs) for name in _COUNTERS[0]) else 0.0
    middle_s = median(found)
    apart_s = (mine[-1].at_s - mine[0].at_s) / (len(mine) - 1)
    return middle_s if median(abs(one - middle_s) for one in found) <= apart_s else None


def _overlap(mine: Sequence[SocketSample], theirs: Sequence[SocketSample]) -> bool:
    """Tell whether counts of both ends have values in common: else they are of other times, or of other data."""
    return all(
        max(getattr(mine[0], ours), getattr(theirs[0], other))
        <= min(getattr(mine[-1], ours), getattr(theirs[-1], other))
        for ours, other in _COUNTERS
    )


def _grown(samples: Sequence[SocketSample], counter: str) -> int:
    return int(getattr(samples[-1], counter) - getattr(samples[0], counter))


def _differences_s(counted: Sequence[tuple[int, float]], theirs: Sequence[SocketSample], other: str) -> Iterator[float]:
    """Yield for each sample in which the other end's count has grown how much later it reached that value at this end.

    Where a count stands still most of the time it is the first sample of each end that has the value: to within one.
    """
    for before, one in pairwise(theirs):
        value = getattr(one, other)
        if value == getattr(before, other):
            continue
        place = bisect_left(counted, value, key=lambda pair: pair[0])
        if 0 < place < len(counted):
            (low, from_s), (high, to_s) = counted[place - 1 : place + 1]
            yield from_s + (to_s - from_s) * (value - low) / (high - low) - one.at_s


def _shifted(end: EndSeen, by_s: float) -> EndSeen:
    assert end.socket
    samples = tuple(attrs.evolve(one, at_s=one.at_s + by_s) for one in end.socket.samples)
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=samples))
