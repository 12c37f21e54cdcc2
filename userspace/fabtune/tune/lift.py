# SPDX-License-Identifier: GPL-2.0-or-later
"""What lifts the limiters: the rows of the path's profile that change one of their tunables at the right end."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import attrs

from fabtune.errors import CannotTellError, FabtuneError
from fabtune.host import targets
from fabtune.measure.look import Look
from fabtune.model.change import KNOWN, Change
from fabtune.model.foretell import Foretold, foretell
from fabtune.model.observation import ENDS, INITIATOR, TARGET, Observation
from fabtune.model.one_path import alike
from fabtune.tune import journal
from fabtune.tune.asked import in_model, model_value
from fabtune.tune.plan import CHANGE, NOT_LIMITED, REFUSED, Row
from fabtune.tune.request import plan_for, request
from fabtune.tune.shared_pace import HELD_AS_WELL, others
from fabtune.tune.transaction import IN_FORCE, ON_TRIAL
from fabtune.tune.unlifted import Unlifted, has_values, of_end, speaks_of, without_row
from fabtune.tune.whose import Owned, Passed, is_known
from fabtune.why import words
from fabtune.why.judging import Judged, Share, judged
from fabtune.why.limiter import CANNOT_TELL
from fabtune.why.summing_up import is_near, may_be_of, nic_bytes_per_s, with_rate

# A path this long is a wide-area one for the profiles.
_WIDE_MS, _WIDE, _NEAR = 1.0, "wan", "lan"
# A transaction that goes back unless it is confirmed.
_TRIED = "unconfirmed", ON_TRIAL
# Who a rate of the line was told to, where no NIC tells it, nor who asks.
TO_PROFILE = "told to the profile in force"
# What each network namespace has its own of.
_OF_NETWORK = ("netns", "nic", "route", "connection")
_NOT_KNOWN = "it is not known whether a session that is limited by it uses this one"


@attrs.frozen
class Lift:
    """A row of a plan, and the limiters that it lifts."""

    row: Row
    limiters: tuple[str, ...]


@attrs.frozen
class Limited:
    """One disk, and those shares of its time that settings lift, the largest first."""

    seen: Observation
    shares: tuple[Share, ...]


def limited(seen: Observation, found: Iterable[Judged]) -> Limited:
    """Return what of `found` settings lift."""
    return Limited(seen, tuple(share for one in found for share in one.liftable if share.lifts))


@attrs.frozen
class Reason:
    """What limits the sessions, as a plan needs it; `shares` are those that settings lift, `verdicts` the sentences.

    `disks` says whose they are (none: all devices are meant), `named` whether a limiter was.  `netns` is where the
    target's end is: '' elsewhere, None where each end has a plan of its own; `at_target` are the tunables to look at
    where it is elsewhere.
    """

    profile: str
    rate_bit_per_s: float | None
    verdicts: tuple[str, ...]
    shares: tuple[Share, ...]
    disks: tuple[Limited, ...] = ()
    rtt_ms: float | None = None
    named: bool = True
    netns: str | None = None
    at_target: tuple[str, ...] = ()

    @property
    def tunables(self) -> frozenset[str]:
        """Those that lift what limits, at whichever end."""
        return frozenset(name for one in self.shares for name in one.lifts)

    def lifting(self, rows: Iterable[Row]) -> list[Row]:
        """Return those of `rows` that lift what limits, in the order in which they must be written.

        What they would write to devices that no limited disk uses is refused: without such a row its device would be
        a new one to a saved plan.
        """
        lifting = {(name, end) for one in self.shares for name in one.lifts for end in one.ends}
        mine = [row for row in rows if (row.tunable.name, row.role) in lifting]
        if not self.disks:
            return mine
        wanted = {id(row) for row, _ in self._whose(mine)}
        return [row if row.state != CHANGE else self._judged(row, wanted=id(row) in wanted) for row in mine]

    def _judged(self, row: Row, *, wanted: bool) -> Row:
        """Return a row to be written, refused where it is nobody's that is limited, or somebody else's as well."""
        if not wanted:
            return replace(row, state=REFUSED, note=NOT_LIMITED if self._is_known(row) else _NOT_KNOWN)
        who = others(row, (one.seen for one in self.disks))
        return replace(row, state=REFUSED, note=f"{who} {HELD_AS_WELL}") if who else row

    def _is_known(self, row: Row) -> bool:
        """Tell whether it is known whose the device of `row` is: a NIC or a route only where all disks' NICs are."""
        if row.device is None or row.device.scope not in ("nic", "route"):
            return is_known(row.device)
        ends = (one.seen.initiator if row.role == INITIATOR else one.seen.target for one in self.disks)
        return all(end is not None and end.nic is not None for end in ends)

    def by_gain(self, rows: Sequence[Row]) -> list[Row]:
        """Return those of `rows` that are to be written, what brings most by itself first, and then the rest."""
        gains = {id(row): 0.0 for row in rows}
        for row, seen in self._whose(rows):
            gains[id(row)] += _gain(seen, row)
        return sorted(rows, key=lambda row: (row.state != CHANGE, -gains[id(row)]))

    def unlifted(self, rows: Sequence[Row], planned: str) -> list[Unlifted]:
        """Return what of the shares none of `rows`, made of profile `planned`, lifts, each once."""
        here = ENDS if self.netns else (INITIATOR,)
        whose: dict[int, list[Row]] = {}
        for row, seen in self._whose(rows):
            whose.setdefault(id(seen), []).append(row)
        found = (
            one for disk in self.disks
            for one in without_row(planned, disk.shares, whose.get(id(disk.seen), ()), here)
        )  # fmt: skip
        return list(dict.fromkeys(found))

    def _whose(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Observation]]:
        """Yield each row to be written with each disk that it lifts."""
        owned = Owned(rows)
        for one in self.disks:
            for end in ENDS:
                for row in owned.of(one.seen, end):
                    if row.state == CHANGE and _lifts(row, one.shares) and not self._elsewhere(row):
                        yield row, one.seen

    def _elsewhere(self, row: Row) -> bool:
        """Tell whether a row is meant for an end that is not here: a plan is of one namespace."""
        if self.netns is None:
            return False
        if row.role == TARGET:
            return not self.netns
        return bool(self.netns) and row.tunable.scope in _OF_NETWORK


def _lifts(row: Row, shares: Iterable[Share]) -> bool:
    return any(row.tunable.name in one.lifts and row.role in one.ends for one in shares)


def reason(seconds: float, target_netns: str | None, rate_bit_per_s: float | None) -> Reason:
    """Look for `seconds` at all sessions and return why they are not faster.

    Raises InputError without a session, CannotTellError where all are idle.
    """
    look = Look([], target_netns)
    seen = with_known_rate(look.over(seconds), rate_bit_per_s)
    found = [(one, judged(one)) for one in seen]
    ways = [way for _, judged_ways in found for way in judged_ways]
    if not ways:
        raise CannotTellError("; ".join(words.idle(one) for one in seen))
    every = [one for one in (limited(*pair) for pair in found) if one.shares]
    # SRP logins have a profile of their own: they are planned for where nothing else is limited.
    disks = [one for one in every if not one.seen.session.rdma] or every
    shares = tuple(share for one in disks for share in one.shares)
    # As of several sessions ever: the longest round trip and the fastest line; what they ask for are upper limits.
    asking = [one.seen for one in disks] or [one for one, judged_ways in found if judged_ways]
    longest = max(asking, key=lambda one: one.rtt_ms or 0.0)
    rates = [one.rate_bytes_per_s for one in asking]
    known = [8 * rate for rate in rates if rate]
    return Reason(
        profile_for(longest, shares), max(known) if len(known) == len(rates) else None,
        tuple(map(words.verdict, ways)), shares, tuple(disks), longest.rtt_ms, any(map(is_named, ways)),
        target_netns or "", () if target_netns else tuple(at_the_target(ways)),
    )  # fmt: skip


def is_named(way: Judged) -> bool:
    """Tell whether what limits a direction most has a name, and one alone."""
    return way.first.limiter != CANNOT_TELL and not way.first.among


def with_known_rate(seen: Sequence[Observation], told_bit_per_s: float | None) -> list[Observation]:
    """Return `seen` with the line's rate: as told, as a profile in force for that path was, or a near NIC's."""
    if told_bit_per_s is not None:
        return [with_rate(one, told_bit_per_s / 8) for one in seen]
    applied = _in_force()
    return [_with_applied(one, applied) for one in seen]


@attrs.frozen
class _Applied:
    """A profile in force: the path that it was computed for, and what it wrote to."""

    rtt_ms: float | None
    rate_bytes_per_s: float
    wrote: Passed

    def for_path_of(self, seen: Observation) -> bool:
        """Tell whether the path is that of `seen`: by its round trip, and by what was written to."""
        told, found = self.rtt_ms, seen.rtt_ms
        if told is None or found is None or not alike(told, found):
            return False
        return self.wrote.by(seen)


def _with_applied(seen: Observation, applied: Iterable[_Applied]) -> Observation:
    rate = next((one.rate_bytes_per_s for one in applied if one.for_path_of(seen)), None)
    by_nics = with_rate(seen, None)
    nics_rate = by_nics.rate_bytes_per_s
    # A plan that was told none took the NIC's, which a long path need not have.  A near one has no more than its own.
    if rate is None or (nics_rate is not None and rate > nics_rate and may_be_of(seen, nics_rate)):
        return by_nics
    if is_near(seen) or rate != nic_bytes_per_s(seen):
        return with_rate(seen, rate, TO_PROFILE, f"as {TO_PROFILE}")
    return by_nics


def _in_force() -> list[_Applied]:
    """Return the profiles that were computed for a rate and are not taken back, the newest first."""
    try:
        known = journal.transactions()
    except FabtuneError:
        return []
    return [
        _Applied(one.header.rtt_ms, one.header.rate_bit_per_s / 8, Passed(step.device for step in one.open_steps))
        for one in reversed(known)
        if one.state in (IN_FORCE, *_TRIED) and one.header.rate_bit_per_s and not one.header.rate_by_nic
    ]


def profile_for(seen: Observation, shares: Iterable[Share]) -> str:
    """Return the profile that speaks of what limits.

    Within a site, too, that of wide-area paths where the near one's has no word of something: it includes that.
    """
    shares = tuple(shares)
    if own := next((one.profile for one in shares if one.profile), ""):
        return own
    is_wide = (seen.rtt_ms or 0.0) >= _WIDE_MS
    return _WIDE if is_wide or any(speaks_of(_WIDE, one) and not speaks_of(_NEAR, one) for one in shares) else _NEAR


@attrs.frozen
class Advice:
    """What is to be done for one disk: rows of plans, or why there are none, and what no row lifts."""

    rows: tuple[Lift, ...] = ()
    no_plan: str = ""
    unlifted: tuple[Unlifted, ...] = ()


class _Plans:
    """The plans of this host for what limits its disks: one for all that ask for the same."""

    def __init__(self, disks: Iterable[Limited], target_netns: str | None) -> None:
        self.ends = {INITIATOR: ""} if target_netns is None else {INITIATOR: "", TARGET: target_netns}
        self._rtts_ms: dict[tuple[str, str | None], list[float]] = {}
        self._made: dict[tuple[str, str | None, str], Owned] = {}
        for one in disks:
            self._rtts_ms.setdefault(_asked(one), []).extend([one.seen.rtt_ms] if one.seen.rtt_ms else [])

    def of(self, one: Limited, end: str) -> Owned:
        """Return the rows to be written at `end` for such a disk.  Raises FabtuneError."""
        asked = _asked(one)
        if (*asked, end) not in self._made:
            profile, rate = asked
            # What is computed for the longest is an upper limit for others.
            rtt = f"{max(self._rtts_ms[asked])}ms" if self._rtts_ms[asked] else None
            plan, _ = plan_for(request(profile, end, self.ends[end], rtt, rate, []))
            self._made[*asked, end] = Owned(plan.rows)
        return self._made[*asked, end]


def _asked(one: Limited) -> tuple[str, str | None]:
    rate = one.seen.rate_bytes_per_s
    return profile_for(one.seen, one.shares), None if rate is None else f"{rate * 8:.0f}bit"


def advised(disks: Sequence[Limited], target_netns: str | None) -> list[Advice]:
    """Return the plan's rows that lift what limits each of `disks`, on the ends that are here."""
    plans = _Plans([one for one in disks if one.shares], target_netns)
    return [_advice(one, plans) if one.shares else Advice() for one in disks]


def _advice(one: Limited, plans: _Plans) -> Advice:
    lifts: list[Lift] = []
    for end in plans.ends:
        if any(end in share.ends for share in one.shares):
            try:
                mine = (row for row in plans.of(one, end).of(one.seen, end) if row.state == CHANGE)
                rows = [row for row in mine if not others(row, [one.seen])]
            except FabtuneError as error:
                return Advice(tuple(lifts), str(error))
            lifts += [Lift(row, of) for row in rows if (of := _of(row, end, one.shares))]
    # What brings most by itself first.
    lifts.sort(key=lambda found: -_gain(one.seen, found.row))
    profile, _ = _asked(one)
    rest = without_row(profile, one.shares, [found.row for found in lifts], tuple(plans.ends))
    return Advice(tuple(lifts), "", tuple(rest))


def _gain(seen: Observation, row: Row) -> float:
    """Return what a row alone would bring, in bytes per second; 0 where the model does not know it.

    Of disks that share session or line each keeps its part: by itself none is sure of any.
    """
    return sum(
        (way.low if way.in_step_bytes_per_s is None else way.in_step_bytes_per_s) - way.now_bytes_per_s
        for way in brought(seen, [Lift(row, ())]).values()
    )


def brought(seen: Observation, lifts: Iterable[Lift]) -> dict[str, Foretold]:
    """Return what the rows of `lifts` together would bring each direction, as far as the model knows them."""
    changes = {
        change: model_value(one.row.tunable.parse(one.row.wanted))
        for one in sorted(lifts, key=lambda found: found.row.tunable.name in targets.acl_offers())
        for change in [in_model(Change(one.row.role, one.row.tunable.name))]
        if change.tunable in KNOWN and one.row.wanted is not None
    }
    return {one.way: one for one in foretell(seen, changes)} if changes else {}


def at_the_target(found: Sequence[Judged]) -> list[str]:
    """Return the tunables of a target that lift what limits, as far as a profile has values for any of them."""
    return lifted_at_the_target(share for one in found for share in one.liftable)


def lifted_at_the_target(shares: Iterable[Share]) -> list[str]:
    """Return the tunables of a target that lift `shares`, as far as a profile has values for any of them."""
    mine = (share for share in shares if TARGET in share.ends and has_values(share, TARGET))
    return of_end((name for share in mine for name in share.lifts), TARGET)


def _of(row: Row, end: str, shares: Collection[Share]) -> tuple[str, ...]:
    return tuple(one.limiter for one in shares if row.tunable.name in one.lifts and end in one.ends)
