# SPDX-License-Identifier: GPL-2.0-or-later
"""Shares of the time by limiter: each moment is given to who claims it, in the order of the questions."""

import importlib
import pkgutil
from functools import cache
from itertools import groupby

import attrs

from fabtune.model.limits import Evidence
from fabtune.model.observation import WAYS, Observation
from fabtune.model.path import is_at_bound
from fabtune.model.served_seen import ServedSeen
from fabtune.why import limiters as package
from fabtune.why.limiter import CANNOT_TELL, OWED, Limiter
from fabtune.why.one_way import Moment, OneWay
from fabtune.why.request_time import Part, parts_of

# A direction with less than this share of the disk's bytes is not looked at by itself.
_MINOR = 0.01
# So much of the time, and the line is full; where its rate is not known, others' data may be in what fills it.
_NEARLY_ALL, _LINE, _LINE_UNTOLD = 0.9, "line", "cannot-tell-line"
# A share that is named first if a setting lifts it, before a longer one of the load, the line or the disk: of the time
# in which the load asks for something, and worth a change.
_TELLING = 0.15
# With so much of the time, what waits and is not told apart waits for it.
_MOSTLY = 0.5
# A share of the time that is worth a change.
_WORTH = 0.1


@attrs.frozen
class Share:
    """How much of the time one limiter accounts for, 0..1, and what shows it; `among` are those it may be instead."""

    limiter: str
    share: float
    subject: str
    evidence: tuple[Evidence, ...] = ()
    among: tuple[str, ...] = ()
    lifts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    advice: str = ""
    profile: str = ""


@attrs.frozen
class Judged:
    """One direction of one disk: its shares, which sum to one, and the parts of a request's time.

    The largest share comes first, but what settings lift before what they do not.
    """

    device: str
    way: str
    bytes_per_s: float
    both_ends: bool
    goodput_bytes_per_s: float | None
    shares: tuple[Share, ...]
    request: tuple[Part, ...] = ()
    # What its connection carried this way, that may have other disks' data.
    session_bytes_per_s: float = 0.0
    # What the rest of a request's time passes behind, '' where that is not known.
    rest_behind: str = ""
    # What this host's sessions carried over the line together, as far as that is known; and whose disks the others are,
    # '' where they have no part that matters.
    together_bytes_per_s: float = 0.0
    shared_with: str = ""
    # Whether it is known that requests of this direction wait, where nothing moves.
    way_told: bool = True
    # What the target's own fabstat counted of its session's commands, None where it does not tell.
    served: ServedSeen | None = None

    @property
    def first(self) -> Share:
        """What limits most."""
        return self.shares[0]

    @property
    def at_the_bound(self) -> bool:
        """Whether the line carries so much that no setting gains anything worth a change."""
        carried = max(self.bytes_per_s, self.session_bytes_per_s, self.together_bytes_per_s)
        known = self.goodput_bytes_per_s is not None and is_at_bound(carried, self.goodput_bytes_per_s)
        return known or self._held_by(_LINE) >= _NEARLY_ALL

    @property
    def line_is_full(self) -> bool:
        """Whether it is at the bound, or nobody told the line's rate and it is full, by others' traffic as well maybe.

        Whoever fills it, no setting gains anything worth a change.
        """
        return self.at_the_bound or self._held_by(_LINE, _LINE_UNTOLD) >= _NEARLY_ALL

    def _held_by(self, *limiters: str) -> float:
        return sum(one.share for one in self.shares if one.limiter in limiters)

    @property
    def liftable(self) -> list[Share]:
        """What takes a share of the time worth a change, and settings can lift, the largest first."""
        if self.line_is_full:
            return []
        return [one for one in self.shares if one.share >= _WORTH and (one.lifts or one.advice)]


@cache
def every_limiter() -> tuple[Limiter, ...]:
    """Return every limiter in the modules of `fabtune.why.limiters`, in the order in which they are asked."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    found: list[Limiter] = [one for module in modules for one in module.LIMITERS]
    return tuple(sorted(found, key=lambda one: (one.stage, one.order)))


def judged(seen: Observation) -> list[Judged]:
    """Return what limits each direction of the disk that moved anything; an idle disk has none.

    Of a disk on which requests wait and nothing moves, it is the directions in which they do.  One that went away has
    none: what it moved until then is not known, and its requests did not wait for what the others wait for.
    """
    if seen.disk.went_away:
        return []
    moved = sum(way.moved_bytes for way in seen.disk.ways.values())
    if not moved and all(one.in_flight for one in seen.disk.samples) and seen.disk.samples:
        told = _waiting_ways(seen)
        return [attrs.evolve(_judge(OneWay(seen, way)), way_told=bool(told)) for way in told or WAYS[:1]]
    ways = seen.disk.ways
    busy = [name for name in WAYS if name in ways and ways[name].moved_bytes > _MINOR * moved]
    return [_judge(OneWay(seen, name)) for name in busy]


def _waiting_ways(seen: Observation) -> list[str]:
    """Return the directions of requests that wait while nothing moves, by the block layer or by the data that does."""
    socket = seen.initiator.socket
    data = max((one.in_flight_bytes + one.notsent_bytes for one in socket.samples), default=0) if socket else 0
    written = WAYS[1:] if socket and data > socket.mss_bytes else ()
    return [name for name in WAYS if seen.disk.in_flight.get(name)] or list(written)


def _judge(one_way: OneWay) -> Judged:
    held_s: dict[str, float] = {}
    whole_s = asked_s = 0.0
    for moment in one_way.moments():
        whole_s += moment.seconds
        asked_s += 0.0 if moment.idle else moment.seconds
        for limiter, share in _claims(moment).items():
            held_s[limiter] = held_s.get(limiter, 0.0) + share * moment.seconds
    by_name = {one.name: one for one in reversed(every_limiter())}
    shares = [_share(by_name[name], seconds / whole_s, one_way) for name, seconds in held_s.items() if seconds > 0]
    rest = 1 - sum(one.share for one in shares)
    if rest > 1e-6 or not shares:
        shares.append(Share(CANNOT_TELL, rest, "what could not be told"))
    telling = max(_WORTH, _TELLING * asked_s / whole_s) if whole_s else _TELLING
    shares.sort(key=lambda one: (not (one.lifts and one.share >= telling), -one.share))
    first = by_name.get(shares[0].limiter)
    mostly = shares[0].share >= _MOSTLY and first is not None and first.holds_up
    return Judged(
        one_way.seen.device, one_way.way_name, one_way.bytes_per_s, one_way.both_ends, one_way.goodput,
        tuple(shares), tuple(parts_of(one_way)), one_way.carried_bytes_per_s,
        shares[0].subject if mostly and one_way.both_ends else "",
        one_way.own.together, one_way.own.shared_with, served=one_way.seen.served,
    )  # fmt: skip


def _claims(moment: Moment) -> dict[str, float]:
    """Return the shares of one moment by limiter."""
    found: dict[str, float] = {}
    left = 1.0
    for stage, asked in groupby(every_limiter(), key=lambda one: one.stage):
        if stage == OWED and (moment.one_way.always_backlogged or moment.one_way.untold):
            break
        # Those who are owed divide what the stages before have left, the others take theirs in turn.
        before = left
        for one in asked:
            wanted = one.claim(moment) * (before if stage == OWED else 1.0)
            taken = min(left, max(0.0, wanted))
            if taken:
                found[one.name] = found.get(one.name, 0.0) + taken
                left -= taken
        if left <= 0:
            break
    return found


def _share(limiter: Limiter, share: float, one_way: OneWay) -> Share:
    lifts = limiter.lifts if limiter.felt(one_way) else ()
    return Share(
        limiter.name, share, limiter.subject(one_way), tuple(limiter.evidence(one_way)),
        (*limiter.among, *limiter.also(one_way)),
        lifts, limiter.ends(one_way) if lifts else (), limiter.advice(one_way),
        limiter.profile,
    )  # fmt: skip
