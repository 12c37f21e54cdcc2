# SPDX-License-Identifier: GPL-2.0-or-later
"""Which looks of several hosts were at the same time: only then do two ends of a connection tell of the same data.

Times are those of the hosts' own clocks.  One that is wrong keeps ends apart that belong together, and that is said.
"""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from fabtune.model.observation import EndSeen, Observation
from fabtune.model.one_clock import on_one_clock
from fabtune.model.units import counted
from fabtune.why.summing_up import with_rate

# Looks that begin this share of their length apart, or two samples and a half, were at the same time.
_APART, _LEAST_APART_S = 0.1, 0.5


@attrs.frozen
class SameTime:
    """What each initiator (by name) saw, with the targets' ends that were seen meanwhile; `notes` say what was not."""

    observations: dict[str, tuple[Observation, ...]]
    notes: tuple[str, ...]


def at_the_same_time(seen: Mapping[str, Sequence[Observation]], ends: Iterable[EndSeen] = ()) -> SameTime:
    """Return `seen` joined with the `ends` of the same connections that were looked at at the same time."""
    by_places = {(end.socket.remote, end.socket.local): end for end in ends if end.socket}
    observations: dict[str, tuple[Observation, ...]] = {}
    off_s: list[float | None] = []
    for host, every in seen.items():
        whole = []
        for one in every:
            mine = one.initiator.socket
            theirs = by_places.get((mine.local, mine.remote)) if mine and one.target is None else None
            if theirs:
                apart_s = _apart_s(one.initiator, theirs)
                if apart_s is None or apart_s > tolerance_s(one):
                    off_s.append(apart_s)
                    theirs = None
            whole.append(_joined(one, theirs) if theirs else one)
        observations[host] = tuple(whole)
    return SameTime(observations, (*_not_joined(off_s), *_spread(seen)))


def _joined(one: Observation, theirs: EndSeen) -> Observation:
    """Return `one` with the target's end, whose NIC may be the slower: then it tells the line's rate."""
    whole = on_one_clock(attrs.evolve(one, target=theirs))
    return with_rate(whole, None) if one.rate_is_a_nics or not one.rate_bytes_per_s else whole


def tolerance_s(seen: Observation) -> float:
    """Return how far apart another look may begin to be one at the same time."""
    return max(_LEAST_APART_S, _APART * seen.elapsed_s)


def _apart_s(one: EndSeen, other: EndSeen) -> float | None:
    if one.begun_unix_s is None or other.begun_unix_s is None:
        return None
    return abs(one.begun_unix_s - other.begun_unix_s)


def _not_joined(off_s: Sequence[float | None]) -> list[str]:
    """Say of how many connections both ends were seen, and not at the same time."""
    known = [one for one in off_s if one is not None]
    notes = []
    if known:
        notes.append(
            f"the target's end of {counted(len(known), 'disk')}: by the hosts' clocks its look began up to "
            f"{max(known):.1f} s earlier or later than the initiator's, and is left out"
        )
    if len(known) < len(off_s):
        many = counted(len(off_s) - len(known), "disk")
        notes.append(f"the target's end of {many}: no word of when its look began, and it is left out")
    return notes


def _spread(seen: Mapping[str, Sequence[Observation]]) -> list[str]:
    """Say it where initiators did not look at the same time: what they are compared by may have changed meanwhile."""
    every = [one for told in seen.values() for one in told]
    begun = [one.initiator.begun_unix_s for one in every if one.initiator.begun_unix_s is not None]
    apart_s = max(begun, default=0.0) - min(begun, default=0.0)
    if not begun or apart_s <= min(tolerance_s(one) for one in every):
        return []
    return [
        f"one time for all: by the hosts' clocks their looks began up to {apart_s:.1f} s apart, and what the slow "
        "ones share may have changed meanwhile"
    ]
