# SPDX-License-Identifier: GPL-2.0-or-later
"""What the slow ones of a fleet have in common: a target, a path to a portal, or an initiator.

A kind explains the slow ones if they are exactly all that some of its members have, and others of its members have
none.  Where several kinds explain alike, what limits most of the slow ones decides; where it does not, neither is said.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from fabtune.model.observation import EndSeen, Observation
from fabtune.model.one_clock import on_one_clock
from fabtune.why.judging import Judged, judged

KINDS = ("target", "path", "initiator")
# Whose doing a limiter is where it is the same for many.
_OF_KIND = {
    "target": ("target-disk", "target-cpu", "cannot-tell-target", "task-set-full", "command-window"),
    "path": ("line", "competing-traffic", "cannot-tell-queue", "loss", "mtu-black-hole", "blocked-session"),
    "initiator": ("initiator-cpu", "nr-requests", "queue-depth", "session-commands", "cannot-tell-depth"),
}
_LOAD, _LINE = "load", "line"


@attrs.frozen
class Member:
    """One direction of one disk of a fleet: on which initiator, to which target, by which portal."""

    initiator: str
    target: str
    path: str
    judged: Judged

    @property
    def slow(self) -> bool:
        """Whether something but its own load and a full line holds it back."""
        return not self.judged.at_the_bound and self.judged.first.limiter not in (_LOAD, _LINE)


@attrs.frozen
class InCommon:
    """What was found: `names` of `kind`, or none; `apart` are the kinds that could not be told apart."""

    slow: tuple[Member, ...]
    members: int
    limiter: str = ""
    kind: str = ""
    names: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The verdict on the fleet."""
        if not self.members:
            return "no disk of the fleet moved anything: put it under its load and ask again"
        if not self.slow:
            return f"none of {self.members} is slow: what limits each is its own load or a full line"
        alike = sum(one.judged.first.limiter == self.limiter for one in self.slow)
        most = self.limiter.replace("-", " ")
        said = f"{len(self.slow)} of {self.members} are slow, {alike} of these by {most}"
        if self.kind:
            what = self.kind if len(self.names) == 1 else f"{self.kind}s"
            return f"{said}; these and no others have the {what} {', '.join(self.names)} in common"
        if self.apart:
            return f"{said}; cannot tell whether that is the {' or the '.join(self.apart)}, which they share alike"
        if len(self.slow) == self.members:
            return f"{said}; cannot tell what they have in common: none is there to hold them against"
        return f"{said}; neither a target nor a path nor an initiator is common to these and to no others"


def members_of(seen: Mapping[str, Sequence[Observation]], ends: Iterable[EndSeen] = ()) -> list[Member]:
    """Return what each initiator (by name) saw, judged, with the targets' `ends` where there are."""
    by_places = {(end.socket.remote, end.socket.local): end for end in ends if end.socket}
    found = []
    for host, observations in seen.items():
        for one in observations:
            mine = one.initiator.socket
            theirs = by_places.get((mine.local, mine.remote)) if mine else None
            whole = on_one_clock(attrs.evolve(one, target=theirs)) if theirs and one.target is None else one
            found += [Member(host, one.session.target, one.session.portal, way) for way in judged(whole)]
    return found


def in_common(members: Sequence[Member]) -> InCommon:
    """Return what the slow ones of `members` have in common."""
    slow = tuple(one for one in members if one.slow)
    if not slow:
        return InCommon(slow, len(members))
    limiter = Counter(one.judged.first.limiter for one in slow).most_common(1)[0][0]
    explained = {kind: names for kind in KINDS if (names := _explained(kind, members, slow))}
    fewest = min((len(names) for names in explained.values()), default=0)
    best = [kind for kind, names in explained.items() if len(names) == fewest]
    if len(best) > 1:
        best = [kind for kind in best if limiter in _OF_KIND[kind]] or best
    if len(best) == 1:
        return InCommon(slow, len(members), limiter, best[0], explained[best[0]])
    return InCommon(slow, len(members), limiter, apart=tuple(best))


def _explained(kind: str, members: Sequence[Member], slow: Sequence[Member]) -> tuple[str, ...]:
    """Return the names of `kind` that all slow ones have and none of the others; none where that says nothing."""
    names = {getattr(one, kind) for one in slow}
    others = {getattr(one, kind) for one in members if not one.slow}
    if names & others or not others or (len(names) == len(slow) > 1):
        return ()
    return tuple(sorted(names))
