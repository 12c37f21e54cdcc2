# SPDX-License-Identifier: GPL-2.0-or-later
"""The ends that a step writes to: this host's own, in a namespace or not, and a target on another host."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import attrs

from fabtune.catalog.tunable import ROLES, shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.host import systemd
from fabtune.model.observation import INITIATOR
from fabtune.tune import memory, saved_plan, unpaced
from fabtune.tune.carry_out import carry_out
from fabtune.tune.far_end import FarEnd
from fabtune.tune.lift import Reason
from fabtune.tune.pending import RECONNECT, Leave, Pending
from fabtune.tune.plan import CHANGE, NOT_LIMITED, REFUSED, PathUnknownError, Row, ordered
from fabtune.tune.reconnect import Reconnected
from fabtune.tune.request import plan_for, request
from fabtune.tune.saved_plan import SavedPlan
from fabtune.tune.whose import Owned

# What counts without a login: a session is not logged out.
AT_ONCE = "live"
_IN_PLACE = (AT_ONCE, "new-connections", RECONNECT)
# How long iscsid waits before it connects anew.
_PAUSE = "iscsi.time2wait"

Progress = Callable[[str], None]


@attrs.frozen
class Lifting:
    """What a step asks of each end; `estimated` where nobody vouches for the rate that is planned for.

    Rows of disks are for those of `disks` alone where there are any.
    """

    reason: Reason
    rtt_ms: float | None
    estimated: bool
    settings: tuple[str, ...] = ()
    disks: frozenset[str] = frozenset()
    # Whether some end's rows come into force by a new connection.
    connects: bool = False
    # Whether no new connection can be made: nothing is written then that only one would feel.
    at_once: bool = False

    @property
    def tunables(self) -> frozenset[str]:
        """The only ones to plan for."""
        return self.reason.tunables | {_PAUSE}

    def in_place(self, saved: SavedPlan) -> SavedPlan:
        """Return `saved` with no rows but those that lift what limits, and are felt without a login."""
        felt = (AT_ONCE,) if self.at_once else _IN_PLACE
        rows = [self._left_alone(row) for row in self.reason.lifting(saved.rows) if row.tunable.effect in felt]
        if self.connects:
            # What comes into force by a new connection should not take longer than it must.
            rows = ordered([*rows, *self._pauses(saved.rows)])
        return replace(saved, rows=tuple(rows))

    def _pauses(self, rows: Iterable[Row]) -> list[Row]:
        """Return how long iscsid waits before it connects each session, refused where that has none of the disks."""
        pauses = [row for row in rows if row.tunable.name == _PAUSE]
        owned = Owned(pauses)
        ours = {id(row) for one in self.reason.disks for row in owned.of(one.seen, INITIATOR)}
        return [
            row if row.state != CHANGE or id(row) in ours else replace(row, state=REFUSED, note=NOT_LIMITED)
            for row in pauses
        ]

    def _left_alone(self, row: Row) -> Row:
        """Return a row, refused if it is of another disk: a plan without it would take that disk for a new one."""
        if not self.disks or row.device is None or row.device.scope != "block" or row.device.label in self.disks:
            return row
        return replace(row, state=REFUSED, note="its requests are in nobody's way")


class NoStepError(FabtuneError):
    """What is asked for cannot be planned, or not be written as it is planned, at the end of `role`."""

    def __init__(self, role: str, why: str) -> None:
        super().__init__(why)
        self.role = role


@attrs.frozen
class Wrote:
    """What writing to an end came to."""

    transaction: str
    rows: Sequence[Row]
    reconnected: Sequence[Reconnected] = ()
    pending: Sequence[Pending] = ()


def changes_of(rows: Sequence[Row]) -> list[Row]:
    """Return the rows to write."""
    return [row for row in rows if row.state == CHANGE]


def may_connect(row: Row) -> bool:
    """Tell whether a row is felt by new connections, or may ask for some when it is taken back.

    A step of others connects nothing anew: what waits for that is somebody else's, and its gain would be no step's.
    """
    return row.tunable.effect != AT_ONCE or unpaced.may_ask(row.tunable)


def at_once_of(plan: SavedPlan) -> SavedPlan:
    """Return `plan` without the tunables that are felt by a new connection alone."""
    return replace(plan, rows=tuple(row for row in plan.rows if row.tunable.effect == AT_ONCE))


def watched() -> bool:
    """Tell whether this host can take a step back after a power cut, too: only then the switch promises anything.

    Where it cannot, the journal alone says that a step was not judged.
    """
    return systemd.manages_host()


class TunedEnd(Protocol):
    """One end of the sessions."""

    role: str
    # The host, where it is another one.
    host: str

    def plan(self, wanted: Lifting) -> SavedPlan:
        """Return what is to be written there.  Raises FabtuneError, NoStepError where that is not possible."""

    def write(self, plan: SavedPlan, limit_s: float, beside: Collection[str], progress: Progress) -> Wrote:
        """Write it, to go back after `limit_s` unless confirmed, beside transactions that wait for that as well.

        Raises FabtuneError.
        """


class NearEnd:
    """An end in a network namespace of this host."""

    host = ""

    def __init__(self, role: str, netns: str) -> None:
        self.role, self._netns = role, netns

    def plan(self, wanted: Lifting) -> SavedPlan:
        """Return what is to be written there.  Raises FabtuneError, NoStepError where that is not possible."""
        rtt, rate = _path(wanted)
        asked = request(
            wanted.reason.profile, self.role, self._netns, rtt, rate, wanted.settings,
            only=wanted.tunables, estimated=wanted.estimated,
        )  # fmt: skip
        try:
            plan, facts = plan_for(asked)
        except PathUnknownError:
            raise _unseen(wanted, self) from None
        return _within_memory(wanted.in_place(saved_plan.of(plan, facts, shipped_catalog())), self)

    def write(self, plan: SavedPlan, limit_s: float, beside: Collection[str], progress: Progress) -> Wrote:
        """Write it; the initiator's sessions are connected anew where that is due.  Raises FabtuneError."""
        connects = self.role == ROLES[0] and any(map(may_connect, changes_of(plan.rows)))
        _, result = carry_out(
            plan, persist=False, leave=Leave(reconnect=connects),
            confirm_within_s=limit_s if watched() else None, beside=beside, on_trial=True, progress=progress,
        )  # fmt: skip
        return Wrote(result.transaction, result.written, result.reconnected, result.pending)


class AwayTarget:
    """A target on another host, whose switch is always armed: nobody may reach it to take a step back."""

    role = ROLES[1]

    def __init__(self, far: FarEnd) -> None:
        self.far, self.host = far, far.host

    def plan(self, wanted: Lifting) -> SavedPlan:
        """Return what is to be written there.  Raises FabtuneError, NoStepError where that is not possible."""
        rtt, rate = _path(wanted)
        path = [*(["--rtt", rtt] if rtt else []), *(["--rate", rate] if rate else [])]
        try:
            found = self.far.plan(wanted.reason.profile, wanted.tunables, path, wanted.settings, wanted.estimated)
        except PathUnknownError:
            raise _unseen(wanted, self) from None
        return _within_memory(wanted.in_place(found), self)

    def write(self, plan: SavedPlan, limit_s: float, _: Collection[str], __: Progress) -> Wrote:
        """Write it.  Raises FabtuneError."""
        return Wrote(*self.far.apply(replace(plan, on_trial=True), limit_s))


def _path(wanted: Lifting) -> tuple[str | None, str | None]:
    """Return round trip and rate as words of a command line."""
    rtt = None if wanted.rtt_ms is None else f"{wanted.rtt_ms}ms"
    rate = wanted.reason.rate_bit_per_s
    return rtt, None if rate is None else f"{rate:.0f}bit"


def _unseen(wanted: Lifting, end: TunedEnd) -> NoStepError:
    """Return the error that says which part of the path is not known by which a row's value is reckoned."""
    lifts = {name for one in wanted.reason.shares if end.role in one.ends for name in one.lifts}
    names, profile = sorted(lifts or {_PAUSE}), wanted.reason.profile
    if wanted.rtt_ms is None:
        only = " ".join(f"--only {name}" for name in names)
        why = "the round trip is not seen, as of a session over RDMA, or of an adapter that does TCP by itself"
        where = f"on {end.host} " if end.host else ""
        how = (
            f"for one that you know, such as by ping, {where}`fabtune plan {profile} --role {end.role} --rtt TIME "
            f"--rate RATE {only} --out FILE` plans it, `fabtune apply --plan FILE` writes it"
        )
    else:
        why, how = "the line's rate is not known, as no NIC tells its speed", "give it by --rate"
    return _left_alone(", ".join(names), end, f"{why}, and profile '{profile}' needs it; {how}")


def _left_alone(names: str, end: TunedEnd, why: str) -> NoStepError:
    where = f"{end.host}: " if end.host else ""
    return NoStepError(end.role, f"{where}left alone at the {end.role}: {names}: {why}")


def _within_memory(plan: SavedPlan, end: TunedEnd) -> SavedPlan:
    """Return `plan`.  Raises NoStepError where its buffers may take more memory than an apply at that end lets them."""
    if why := memory.excess_of(plan):
        names = ", ".join(dict.fromkeys(row.tunable.name for row in changes_of(plan.rows)))
        raise _left_alone(names, end, why)
    return plan
