# SPDX-License-Identifier: GPL-2.0-or-later
"""What lifts the limiters: the rows of the path's profile that change one of their tunables at the right end."""

from collections.abc import Collection, Iterable, Sequence

import attrs

from fabtune.catalog.tunable import Value
from fabtune.errors import FabtuneError
from fabtune.measure.look import Look
from fabtune.model.change import KNOWN, Change
from fabtune.model.foretell import Foretold, foretell
from fabtune.model.observation import TARGET, Observation
from fabtune.tune import journal
from fabtune.tune.plan import Row
from fabtune.tune.request import plan_for, request
from fabtune.why import words
from fabtune.why.judging import Judged, Share, judged
from fabtune.why.summing_up import is_near, nic_bytes_per_s, with_rate

# A path this long is a wide-area one for the profiles.
_WIDE_MS = 1.0
# A line does not carry more than this above the rate that was told of it.
_TOO_MUCH = 1.02


@attrs.frozen
class Lift:
    """A row of a plan, and the limiters that it lifts."""

    row: Row
    limiters: tuple[str, ...]


@attrs.frozen
class Reason:
    """What limits the sessions, as a plan needs it; `shares` are those that settings lift, `verdicts` the sentences."""

    profile: str
    rate_bit_per_s: float | None
    verdicts: tuple[str, ...]
    shares: tuple[Share, ...]

    @property
    def tunables(self) -> frozenset[str]:
        """Those that lift what limits, at whichever end."""
        return frozenset(name for one in self.shares for name in one.lifts)

    def lifting(self, rows: Iterable[Row]) -> list[Row]:
        """Return those of `rows` that lift what limits, in the order in which they must be written."""
        return [row for row in rows if _lifts(row, self.shares)]


def _lifts(row: Row, shares: Iterable[Share]) -> bool:
    return any(row.tunable.name in one.lifts and row.role in one.ends for one in shares)


def reason(seconds: float, target_netns: str | None, rate_bit_per_s: float | None) -> Reason:
    """Look for `seconds` at all sessions and return why they are not faster.

    Raises InputError without a session, FabtuneError where all are idle.
    """
    look = Look([], target_netns)
    seen = with_known_rate(look.over(seconds), rate_bit_per_s)
    found = [(one, way) for one in seen for way in judged(one)]
    if not found:
        raise FabtuneError("no session moved anything: put them under their load, and plan then")
    shares = tuple(share for _, way in found for share in way.liftable if share.lifts)
    rates = [one.rate_bytes_per_s for one in seen if one.rate_bytes_per_s]
    verdicts = tuple(words.verdict(way) for _, way in found)
    return Reason(profile_for(found[0][0], shares), 8 * max(rates) if rates else None, verdicts, shares)


def with_known_rate(seen: Sequence[Observation], told_bit_per_s: float | None) -> list[Observation]:
    """Return `seen` with the line's rate: as told, as the last profile was told, or the NIC's on a short path."""
    if told_bit_per_s is not None:
        return [with_rate(one, told_bit_per_s / 8) for one in seen]
    applied = _applied_bytes_per_s()
    return [_with_applied(one, applied) for one in seen]


def _with_applied(seen: Observation, applied: float | None) -> Observation:
    # A plan that was told none took the NIC's, which a long path need not have.
    if applied is not None and (is_near(seen) or applied != nic_bytes_per_s(seen)) and _possible(seen, applied):
        return attrs.evolve(seen, rate_bytes_per_s=applied, rate_by="told to the profile in force")
    return with_rate(seen, None)


def _applied_bytes_per_s() -> float | None:
    """Return the rate that the last applied profile was computed for, None without one."""
    try:
        known = [one.header.rate_bit_per_s for one in journal.transactions()]
    except FabtuneError:
        return None
    return next((rate / 8 for rate in reversed(known) if rate), None)


def _possible(seen: Observation, rate_bytes_per_s: float) -> bool:
    moved = max((way.moved_bytes for way in seen.disk.ways.values()), default=0)
    return moved / max(seen.disk.elapsed_s, 1e-9) <= _TOO_MUCH * rate_bytes_per_s


def profile_for(seen: Observation, shares: Iterable[Share]) -> str:
    """Return the profile that speaks of what limits."""
    own = next((one.profile for one in shares if one.profile), "")
    return own or ("wan" if (seen.rtt_ms or 0.0) >= _WIDE_MS else "lan")


def lifting_rows(seen: Observation, found: Sequence[Judged], target_netns: str | None) -> tuple[list[Lift], str]:
    """Return the plan's rows that lift what limits, on the ends that are here, or why there is no plan."""
    shares = [share for one in found for share in one.liftable if share.lifts]
    if not shares:
        return [], ""
    lifts: list[Lift] = []
    rate = None if seen.rate_bytes_per_s is None else f"{seen.rate_bytes_per_s * 8:.0f}bit"
    ends = {"initiator": ""} if target_netns is None else {"initiator": "", TARGET: target_netns}
    for end, netns in ends.items():
        wanted = {name for share in shares if end in share.ends for name in share.lifts}
        if not wanted:
            continue
        rtt = None if seen.rtt_ms is None else f"{seen.rtt_ms}ms"
        try:
            plan, _ = plan_for(request(profile_for(seen, shares), end, netns, rtt, rate, []))
        except FabtuneError as error:
            return lifts, str(error)
        lifts += [Lift(row, _of(row, end, shares)) for row in plan.changes if row.tunable.name in wanted]
    # What brings most by itself first.
    return sorted(lifts, key=lambda one: -sum(way.low for way in brought(seen, [one]).values())), ""


def brought(seen: Observation, lifts: Iterable[Lift]) -> dict[str, Foretold]:
    """Return what the rows of `lifts` together would bring each direction, as far as the model knows them."""
    changes = {
        Change(one.row.role, one.row.tunable.name): _plain(one.row.tunable.parse(one.row.wanted))
        for one in lifts
        if one.row.tunable.name in KNOWN and one.row.wanted is not None
    }
    return {one.way: one for one in foretell(seen, changes)} if changes else {}


def _plain(value: Value) -> float | str:
    return value if isinstance(value, str) else float(value)


# Tunables of an initiator alone.
_INITIATORS = ("iscsi.", "block.")


def at_the_target(found: Sequence[Judged]) -> list[str]:
    """Return the tunables of a target that lift what limits."""
    names = (name for one in found for share in one.liftable if TARGET in share.ends for name in share.lifts)
    return [name for name in dict.fromkeys(names) if not name.startswith(_INITIATORS)]


def _of(row: Row, end: str, shares: Collection[Share]) -> tuple[str, ...]:
    return tuple(one.limiter for one in shares if row.tunable.name in one.lifts and end in one.ends)
