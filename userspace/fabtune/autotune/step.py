# SPDX-License-Identifier: GPL-2.0-or-later
"""One step: what lifts the limiter of now, written to both ends, looked at, and kept or taken back at both.

It is one transaction of each end, made under the dead-man's switch and felt in place: by values that count at
once, and by connections made anew under their sessions.
"""

import time
from collections.abc import Callable, Sequence

import attrs

from fabtune.autotune import taken_back, view
from fabtune.autotune.tuned_ends import AT_ONCE, AwayTarget, Lifting, NearEnd, TunedEnd, changes_of, watched
from fabtune.autotune.view import View
from fabtune.catalog.tunable import ROLES
from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host.sessions import live_sessions
from fabtune.model.document import Json
from fabtune.model.judgement import Judgement, Verdict
from fabtune.tune import confirm, journal, pending, reconnect, relogin, signals
from fabtune.tune.far_end import FarEnd
from fabtune.tune.lift import Reason, profile_for
from fabtune.tune.pending import RECONNECT
from fabtune.tune.plan import Row
from fabtune.tune.saved_plan import SavedPlan
from fabtune.why.limiters.congestion import LOSS
from fabtune.why.summing_up import nic_bytes_per_s

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


@attrs.frozen
class ClimbAsked:
    """Which disks, at which ends, told how much of the path, and how long and how often to look."""

    disks: tuple[str, ...]
    target_netns: str | None
    rate_bit_per_s: float | None
    seconds: float
    most_steps: int
    # The host that the target is, where that is another one.
    target_host: str = ""

    def look(self) -> View:
        """Look at these disks.  Raises as `view.see` does."""
        return view.see(self.disks, self.target_netns, self.target_host, self.seconds, self.rate_bit_per_s)


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


def _rate_to_plan_for(now: View) -> float:
    """Return the line's rate where it is known, else what it cannot be above: reads to measure it wait behind the load.

    No less than what the load already has of it.
    """
    speeds = [8 * speed for one in now.seen if (speed := nic_bytes_per_s(one))]
    upper = max(speeds, default=_MOST_GAIN * 8 * now.bytes_per_s)
    return max(now.rate_bit_per_s or upper, 8 * now.bytes_per_s)


@attrs.define
class TuningStep:
    """One step under way."""

    asked: ClimbAsked
    before: View
    reason: Reason
    progress: Callable[[str], None]
    # Whether nobody vouches for the rate that is planned for.
    estimated: bool
    # The transactions of this host, and that of the target's where it is another one.
    made: list[str] = attrs.field(factory=list)
    made_away: str | None = None
    written: list[str] = attrs.field(factory=list)
    pause_s: float = 0.0
    # What each end's plan is, as long as this step has written nothing.
    _plans: dict[str, SavedPlan] = attrs.field(factory=dict)
    _far: FarEnd | None = None
    # Whether the target's host was asked to keep what was written there.
    _perhaps_kept: bool = False

    @classmethod
    def next(
        cls, asked: ClimbAsked, now: View, tried: set[str], progress: Callable[[str], None]
    ) -> "TuningStep | None":
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
            if step._any_rows():
                return step
            # Nothing to write against the largest ones: the others may have something.
            shares = shares[1:]
        # A queue too short to be seen overflows all the same.
        return cls._pacing(asked, now, tried, progress, now.delivered_bit_per_s)

    @classmethod
    def _pacing(
        cls, asked: ClimbAsked, now: View, tried: set[str], progress: Callable[[str], None], rate: float | None
    ) -> "TuningStep | None":
        """Return the step that sends no faster than `rate`, in bit/s, so that the path's queue does not overflow."""
        shares = tuple(
            attrs.evolve(share, limiter=OVERFLOW, lifts=_PACING, profile=_WAN)
            for way in now.ways for share in way.liftable if share.limiter == LOSS.name
        )  # fmt: skip
        if rate is None or not shares or OVERFLOW in tried:
            return None
        step = cls(asked, now, Reason(_WAN, rate, (), shares), progress, estimated=False)
        return step if step._any_rows() else None

    def _ends(self) -> list[TunedEnd]:
        """Return each end that is to be tuned, the target's first: a login asks it."""
        initiator, target = ROLES
        asked, found = self.asked, list[TunedEnd]()
        if asked.target_host:
            self._far = self._far or FarEnd(asked.target_host)
            found.append(AwayTarget(self._far))
        elif asked.target_netns is not None:
            found.append(NearEnd(target, asked.target_netns))
        return [*found, NearEnd(initiator, "")]

    def _any_rows(self) -> bool:
        """Tell whether there is anything to write."""
        return any(self._rows(one) for one in self._ends())

    def _rows(self, end: TunedEnd) -> list[Row]:
        # What has nothing to do with an end is not asked there.
        if not any(end.role in share.ends for share in self.reason.shares):
            return []
        return changes_of(self._plan(end).rows)

    def _plan(self, end: TunedEnd) -> SavedPlan:
        if end.role not in self._plans:
            # A rate that payload showed has no room for what Linux does not count of a packet: it shows in the payload.
            shown = (_AS_SHOWN,) if any(one.limiter == OVERFLOW for one in self.reason.shares) else ()
            self._plans[end.role] = end.plan(Lifting(self.reason, self.before.rtt_ms, self.estimated, shown))
        return self._plans[end.role]

    def take(self) -> tuple[Climbed, View]:
        """Write, look and judge; keep what is better, else take it back."""
        try:
            self._write()
            time.sleep(max(_SETTLE_S, _SETTLE_RTTS * (self.before.rtt_ms or 0.0) / 1e3))
            after = self.asked.look()
            judgement = view.compared(self.before, after)
            kept = judgement.verdict is Verdict.BETTER
            if kept:
                self._keep()
        except BaseException:
            self._take_back()
            raise
        if not kept and (left := self._take_back()):
            raise FabtuneError(left)
        limiters = tuple(dict.fromkeys(one.limiter for one in self.reason.shares))
        return Climbed(
            limiters, tuple(self.written), self.before.bytes_per_s, after.bytes_per_s, judgement, self.pause_s, kept
        ), after

    def _write(self) -> None:
        connected, waits = False, False
        for end in self._ends():
            rows = self._rows(end)
            if not rows:
                continue
            self.progress(f"{end.role}: {', '.join(dict.fromkeys(row.tunable.name for row in rows))}")
            if end.host:
                # Whether it has written anything is not known before its answer has come.
                self.made_away = ""
            wrote = end.write(self._plan(end), self._limit_s, self.made, self.progress)
            if end.host:
                self.made_away = wrote.transaction
            elif wrote.transaction:
                self.made.append(wrote.transaction)
            # What both ends share has another value now.
            self._plans.clear()
            self.written += dict.fromkeys(f"{end.role}: {row.tunable.name}" for row in wrote.rows)
            self._felt(wrote.reconnected, wrote.pending)
            connected = connected or bool(wrote.reconnected)
            waits = waits or any(row.tunable.effect != AT_ONCE for row in wrote.rows)
        if waits and not connected:
            self._connect_anew()

    @property
    def _limit_s(self) -> float:
        return self.asked.seconds + _SPARE_S

    def _keep(self) -> None:
        """Confirm what was written, the end first that may be out of reach.  Raises FabtuneError."""
        if self.made_away and self._far:
            self._perhaps_kept = True
            self._far.confirm(self.made_away)
        if self.made and watched():
            confirm.accept(self.progress, self.made)

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

    def _take_back(self) -> str:
        """Take back what this step wrote, the target's first: the initiator's new connections are to find it so.

        No signal ends that midway.  Return what is left to be said of what is not back.
        """
        names, self.made = self.made, []
        if names or self.made_away is not None:
            self.progress("taking the step back")
        with signals.held_back():
            left = [self._take_back_away()]
            connected, not_back = taken_back.here(names, self.progress)
            if self.pause_s and not connected:
                try:
                    self._connect_anew()
                except (FabtuneError, OSError) as error:
                    not_back.append(str(error))
        for text in not_back:
            self.progress(text)
        return "; ".join(filter(None, [*left, *not_back]))

    def _take_back_away(self) -> str:
        """Take back what was written at a target on another host; return why it is not, where it is not."""
        name, self.made_away = self.made_away, None
        if name is None or self._far is None:
            return ""
        left = self._far.given_back(name, self._limit_s, self._perhaps_kept)
        if left:
            self.progress(left)
        return left
