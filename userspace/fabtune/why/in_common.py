# SPDX-License-Identifier: GPL-2.0-or-later
"""What the slow ones of a fleet have in common: a target, a path to a portal, or an initiator.

A kind explains the slow ones if some of its names have all of them and no one that is well, and others have some that
are.  Who is limited by its own load or its line shows no more than that so much can be carried: it is well if that is
as much as the slow ones carry, else it shows nothing.  Where several kinds explain alike, what limits most of the slow
ones decides; where it does not, neither is said.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from fabtune.model.observation import Observation
from fabtune.why.judging import Judged, every_limiter, judged
from fabtune.why.limiter import CANNOT_TELL

KINDS = ("target", "path", "initiator")
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
        first = self.judged.first
        return not self.judged.at_the_bound and first.limiter not in (_LOAD, _LINE) and not self.untold

    @property
    def untold(self) -> bool:
        """Whether it cannot be told if it is slow."""
        first = self.judged.first
        return not self.judged.at_the_bound and (
            first.limiter == CANNOT_TELL or not {_LOAD, _LINE}.isdisjoint(first.among)
        )


@attrs.frozen
class InCommon:
    """What was found: `names` of `kind`, or none; `apart` are the kinds that could not be told apart.

    `well` carry as much as the slow ones; all others but the slow ones show nothing.
    """

    members: tuple[Member, ...]
    slow: tuple[Member, ...]
    well: tuple[Member, ...]
    limiter: str = ""
    kind: str = ""
    names: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def none_is_slow(self) -> bool:
        """Whether it is known of each that it is not slow."""
        return not self.slow and not any(one.untold for one in self.members)

    @property
    def neutral(self) -> int:
        """How many have what the slow ones have in common, and show nothing."""
        return sum(getattr(one, self.kind) in self.names and not one.slow for one in self.members) if self.kind else 0

    @property
    def sentence(self) -> str:
        """The verdict on the fleet."""
        if not self.members:
            return "no disk of the fleet moved anything: put it under its load and ask again"
        many, untold = len(self.members), sum(one.untold for one in self.members)
        if not self.slow and untold:
            return f"none of {many} is known to be slow; of {untold} it cannot be told"
        if not self.slow:
            return f"none of {many} is slow: what limits each is its own load or a full line"
        alike = sum(one.judged.first.limiter == self.limiter for one in self.slow)
        most = self.limiter.replace("-", " ")
        said = f"{len(self.slow)} of {many} are slow, {alike} of these by {most}"
        if self.kind:
            what = self.kind if len(self.names) == 1 else f"{self.kind}s"
            others = f"no others but {self.neutral} that show nothing" if self.neutral else "no others"
            return f"{said}; these and {others} have the {what} {', '.join(self.names)} in common"
        if self.apart:
            return f"{said}; cannot tell whether that is the {' or the '.join(self.apart)}, which they share alike"
        if len(self.slow) == many:
            return f"{said}; cannot tell what they have in common: none is there to hold them against"
        if not self.well:
            return f"{said}; cannot tell what they have in common: none of the others carries as much"
        return f"{said}; neither a target nor a path nor an initiator is common to these and to no others"


def members_of(seen: Mapping[str, Sequence[Observation]]) -> list[Member]:
    """Return what each initiator (by name) saw, judged."""
    return [
        Member(host, one.session.target, one.session.portal, way)
        for host, observations in seen.items()
        for one in observations
        for way in judged(one)
    ]


def in_common(members: Sequence[Member]) -> InCommon:
    """Return what the slow ones of `members` have in common."""
    members = tuple(members)
    slow = tuple(one for one in members if one.slow)
    if not slow:
        return InCommon(members, slow, ())
    # Some carry next to nothing: half of them are what is to be reached.
    enough = statistics.median(one.judged.bytes_per_s for one in slow)
    well = tuple(one for one in members if not one.slow and not one.untold and one.judged.bytes_per_s >= enough)
    limiter = Counter(one.judged.first.limiter for one in slow).most_common(1)[0][0]
    explained = {kind: names for kind in KINDS if (names := _explained(kind, slow, well))}
    fewest = min((len(names) for names in explained.values()), default=0)
    best = [kind for kind, names in explained.items() if len(names) == fewest]
    if len(best) > 1:
        best = [kind for kind in best if kind == _doing(limiter)] or best
    if len(best) == 1:
        return InCommon(members, slow, well, limiter, best[0], explained[best[0]])
    return InCommon(members, slow, well, limiter, apart=tuple(best))


def _doing(limiter: str) -> str:
    return next((one.doing for one in every_limiter() if one.name == limiter), "")


def _explained(kind: str, slow: Sequence[Member], well: Sequence[Member]) -> tuple[str, ...]:
    """Return the names of `kind` that all slow ones have and none that is well; none where that says nothing."""
    names = {getattr(one, kind) for one in slow}
    others = {getattr(one, kind) for one in well}
    if names & others or not others or (len(names) == len(slow) > 1):
        return ()
    return tuple(sorted(names))
