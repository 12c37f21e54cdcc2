# SPDX-License-Identifier: GPL-2.0-or-later
"""Step by step to the bound: each step lifts what limits now, and stays only if the load is faster for it.

A step is one transaction of each end, made under the dead-man's switch and felt in place: by values that count at
once, and by connections made anew under their sessions.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import attrs

from fabtune.autotune import view
from fabtune.autotune.view import View
from fabtune.catalog.tunable import ROLES, shipped_catalog
from fabtune.errors import ExitCode, FabtuneError
from fabtune.facts.collect import Facts, this_host
from fabtune.host import systemd
from fabtune.host.sessions import live_sessions
from fabtune.model.document import Json
from fabtune.model.judgement import Judgement, Verdict
from fabtune.tune import confirm, journal, pending, reconnect, relogin, saved_plan, signals
from fabtune.tune.carry_out import carry_out
from fabtune.tune.lift import Reason, profile_for
from fabtune.tune.pending import RECONNECT, Leave
from fabtune.tune.plan import Plan, Row, ordered
from fabtune.tune.request import plan_for, request
from fabtune.tune.undo import undo
from fabtune.why.limiters.congestion import LOSS
from fabtune.why.summing_up import nic_bytes_per_s

# What counts without a login: a session is not logged out.
_AT_ONCE = "live"
_IN_PLACE = (_AT_ONCE, "new-connections", RECONNECT)
# How long iscsid waits before it connects anew.
_PAUSE = "iscsi.time2wait"
# A new connection has found its window by then.
_SETTLE_S, _SETTLE_RTTS = 2.0, 30
# An unconfirmed step goes back after so much more than the look at it takes.
_SPARE_S = 60.0

# What paces.
_WAN = "wan"
# Where not even a NIC tells how fast it is.
_MOST_GAIN = 100

OVERFLOW = "queue-overflow"
_AS_SHOWN = "wire_overhead=0"
_PACING = ("connection.pacing", "qdisc.kind", "qdisc.maxrate")

AT_THE_BOUND, NOTHING_LEFT, NO_MORE_STEPS = "at the bound", "nothing left that settings lift", "no more steps"


@attrs.frozen
class ClimbAsked:
    """Which disks, at which ends, told how much of the path, and how long and how often to look."""

    disks: tuple[str, ...]
    target_netns: str | None
    rate_bit_per_s: float | None
    seconds: float
    most_steps: int


@attrs.frozen
class Climbed:
    """One step: what limited before it, what was written to lift that, and what came of it."""

    limiters: tuple[str, ...]
    written: tuple[str, ...]
    before_bytes_per_s: float
    after_bytes_per_s: float
    judgement: Judgement
    pause_s: float
    kept: bool

    def as_json(self) -> dict[str, Json]:
        """Return it with stable keys."""
        found = self.judgement
        return {
            "limiters": list(self.limiters), "written": list(self.written),
            "before_bytes_per_s": round(self.before_bytes_per_s), "after_bytes_per_s": round(self.after_bytes_per_s),
            "ratio": found.ratio, "ratio_low": found.low, "ratio_high": found.high, "verdict": found.verdict.value,
            "pause_s": round(self.pause_s, 3), "kept": self.kept,
        }  # fmt: skip


@attrs.define
class Climb:
    """All steps, and why there are no more; `first` and `last` are what was seen before and after all of them."""

    first: View
    last: View
    ended: str = ""
    steps: list[Climbed] = attrs.field(factory=list)
    remarks: list[str] = attrs.field(factory=list)

    @property
    def exit_code(self) -> ExitCode:
        """5 where nothing was changed and what limits cannot be told."""
        told = any(share.limiter and not share.among for way in self.last.ways for share in way.shares[:1])
        return ExitCode.DONE if told or self.steps else ExitCode.CANNOT_TELL


def climb(asked: ClimbAsked, progress: Callable[[str], None]) -> Climb:
    """Tune until the bound, or until nothing is left.  Raises FabtuneError, KeyboardInterrupt, the step taken back."""
    progress(f"looking for {asked.seconds:g} s ...")
    now = view.see(asked.disks, asked.target_netns, asked.seconds, asked.rate_bit_per_s)
    found = Climb(now, now)
    if not systemd.manages_host():
        found.remarks.append("no systemd runs here: a step that a power cut interrupts is left to `fabtune revert`")
    # What did not help once is not tried again.
    tried: set[str] = set()
    while not found.ended:
        progress(now.verdict)
        if rate := now.filled_bit_per_s:
            found.remarks.append(f"the line carries {rate / 1e6:.1f} Mb/s, as the load shows that fills it")
        step = None
        if now.at_the_bound:
            found.ended = AT_THE_BOUND
        elif len(found.steps) == asked.most_steps:
            found.ended = NO_MORE_STEPS
        else:
            step = _Step.next(asked, now, tried, progress)
            found.ended = "" if step else NOTHING_LEFT
        if step:
            climbed, after = step.take()
            found.steps.append(climbed)
            now = found.last = after if climbed.kept else now
            tried |= {one.limiter for one in step.reason.shares} if not climbed.kept else set()
    return found


def _rate_to_plan_for(now: View) -> float:
    """Return the line's rate where it is known, else what it cannot be above: reads to measure it wait behind the load.

    No less than what the load already has of it.
    """
    speeds = [8 * speed for one in now.seen if (speed := nic_bytes_per_s(one))]
    upper = max(speeds, default=_MOST_GAIN * 8 * now.bytes_per_s)
    return max(now.rate_bit_per_s or upper, 8 * now.bytes_per_s)


@attrs.define
class _Step:
    """One step under way."""

    asked: ClimbAsked
    before: View
    reason: Reason
    progress: Callable[[str], None]
    # Whether nobody vouches for the rate that is planned for.
    estimated: bool
    made: list[str] = attrs.field(factory=list)
    written: list[str] = attrs.field(factory=list)
    pause_s: float = 0.0
    # What each end's plan is, as long as this step has written nothing.
    _plans: dict[str, tuple[Plan, Facts]] = attrs.field(factory=dict)

    @classmethod
    def next(cls, asked: ClimbAsked, now: View, tried: set[str], progress: Callable[[str], None]) -> "_Step | None":
        """Return the step that lifts what limits now and was not tried yet, None without one."""
        paced = cls._pacing(asked, now, tried, progress, now.overflowing_bit_per_s)
        if paced:
            return paced
        shares = tuple(
            share for way in now.ways for share in way.liftable if share.lifts and share.limiter not in tried
        )
        profile = profile_for(now.seen[0], shares)
        while shares:
            reason = Reason(profile, _rate_to_plan_for(now), (), shares)
            step = cls(asked, now, reason, progress, estimated=now.rate_bit_per_s is None)
            if any(step._rows(role, netns) for role, netns in step._ends()):
                return step
            # Nothing to write against the largest ones: the others may have something.
            shares = shares[1:]
        # A queue too short to be seen overflows all the same.
        return cls._pacing(asked, now, tried, progress, now.delivered_bit_per_s)

    @classmethod
    def _pacing(
        cls, asked: ClimbAsked, now: View, tried: set[str], progress: Callable[[str], None], rate: float | None
    ) -> "_Step | None":
        """Return the step that sends no faster than `rate`, in bit/s, so that the path's queue does not overflow."""
        shares = tuple(
            attrs.evolve(share, limiter=OVERFLOW, lifts=_PACING, profile=_WAN)
            for way in now.ways for share in way.liftable if share.limiter == LOSS.name
        )  # fmt: skip
        if rate is None or not shares or OVERFLOW in tried:
            return None
        step = cls(asked, now, Reason(_WAN, rate, (), shares), progress, estimated=False)
        return step if any(step._rows(role, netns) for role, netns in step._ends()) else None

    def _ends(self) -> list[tuple[str, str]]:
        """Return role and namespace of each end that is here, the target's first: a login asks it."""
        initiator, target = ROLES
        away = self.asked.target_netns
        return [*([(target, away)] if away is not None else []), (initiator, "")]

    def _rows(self, role: str, netns: str) -> list[Row]:
        return self._plan(role, netns)[0].changes

    def _plan(self, role: str, netns: str) -> tuple[Plan, Facts]:
        if role not in self._plans:
            self._plans[role] = self._planned(role, netns)
        return self._plans[role]

    def _planned(self, role: str, netns: str) -> tuple[Plan, Facts]:
        rtt = None if self.before.rtt_ms is None else f"{self.before.rtt_ms}ms"
        rate = None if self.reason.rate_bit_per_s is None else f"{self.reason.rate_bit_per_s:.0f}bit"
        # A rate that payload showed has no room for what Linux does not count of a packet: it shows in the payload.
        shown = [_AS_SHOWN] if any(one.limiter == OVERFLOW for one in self.reason.shares) else []
        wanted = request(self.reason.profile, role, netns, rtt, rate, shown)
        profile = self.reason.only_lifting(wanted.profile, (_PAUSE,))
        plan, facts = plan_for(replace(wanted, profile=profile, estimated=self.estimated))
        shorter = [row for row in plan.rows if row.tunable.name == _PAUSE]
        self.reason.narrow(plan)
        plan.rows = [row for row in plan.rows if row.tunable.effect in _IN_PLACE]
        if any(row.tunable.effect != _AT_ONCE for row in plan.changes):
            # What comes into force by a new connection should not take longer than it must.
            plan.rows = ordered([*plan.rows, *shorter])
        return plan, facts

    def take(self) -> tuple[Climbed, View]:
        """Write, look and judge; keep what is better, else take it back."""
        try:
            self._write()
            time.sleep(max(_SETTLE_S, _SETTLE_RTTS * (self.before.rtt_ms or 0.0) / 1e3))
            asked = self.asked
            after = view.see(asked.disks, asked.target_netns, asked.seconds, asked.rate_bit_per_s)
        except BaseException:
            with signals.held_back():
                self._take_back()
            raise
        judgement = view.compared(self.before, after)
        kept = judgement.verdict is Verdict.BETTER
        if kept:
            if self._watched:
                confirm.accept(self.progress)
        else:
            self._take_back()
        limiters = tuple(dict.fromkeys(one.limiter for one in self.reason.shares))
        return Climbed(
            limiters, tuple(self.written), self.before.bytes_per_s, after.bytes_per_s, judgement, self.pause_s, kept
        ), after

    def _write(self) -> None:
        limit_s = self.asked.seconds + _SPARE_S if self._watched else None
        connected, waits = False, False
        for role, netns in self._ends():
            plan, facts = self._plan(role, netns)
            if not plan.changes:
                continue
            self.progress(f"{role}: {', '.join(dict.fromkeys(row.tunable.name for row in plan.changes))}")
            done, result = carry_out(
                saved_plan.of(plan, facts, shipped_catalog()), persist=False,
                leave=Leave(reconnect=role == ROLES[0]), confirm_within_s=limit_s, beside=self.made,
                progress=self.progress,
            )  # fmt: skip
            self.made.append(result.transaction)
            # What both ends share has another value now.
            self._plans.clear()
            self.written += dict.fromkeys(f"{role}: {row.tunable.name}" for row in done.changes)
            self._felt(result.reconnected, result.pending)
            connected = connected or bool(result.reconnected)
            waits = waits or any(row.tunable.effect != _AT_ONCE for row in done.changes)
        if waits and not connected:
            self._connect_anew()

    @property
    def _watched(self) -> bool:
        """Whether this host can take the step back after a power cut, too: only then the switch promises anything."""
        return systemd.manages_host()

    def _felt(self, anew: Sequence[reconnect.Reconnected], left: Sequence[pending.Pending]) -> None:
        """Note the pause.  Raises FabtuneError where what was written is not felt."""
        self.pause_s = max([self.pause_s, *(one.pause_s for one in anew)])
        for one in left:
            if one.action == RECONNECT and one.reason:
                raise FabtuneError(f"{one.label} cannot be connected anew in place: {one.reason}")

    def _connect_anew(self) -> None:
        boot_id = this_host().boot_id
        wanted = [pending.of_session(one, boot_id, RECONNECT) for one in live_sessions()]
        with journal.locked(), relogin.journalled() as log, signals.noted() as stop:
            self._felt(*reconnect.in_place(wanted, self.progress, log, stop))

    def _take_back(self) -> None:
        """Take back what this step wrote, the target's first: the initiator's new connections are to find it so."""
        names, self.made = self.made, []
        connected = False
        for name in names:
            report = undo(None, name, None, "", False, Leave(reconnect=name == names[-1]), self.progress)
            connected = connected or bool(report.reconnected)
            for problem in report.problems:
                self.progress(problem)
        if self.pause_s and not connected:
            self._connect_anew()
