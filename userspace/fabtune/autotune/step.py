# SPDX-License-Identifier: GPL-2.0-or-later
"""One step: what lifts the limiter of now, written to both ends, looked at, and kept or taken back at both.

It is one transaction of each end, made under the dead-man's switch and felt in place: by values that count at
once, and by connections made anew under their sessions.
"""

import time
from collections.abc import Callable, Sequence
from functools import cached_property

import attrs

from fabtune.autotune import taken_back, trend
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.climbed import Climbed
from fabtune.autotune.disturbed import Disturbance, Witness, other_disks
from fabtune.autotune.goal import Aim, Figures, JudgedStep
from fabtune.autotune.learnt import Changes, Learnt
from fabtune.autotune.made import Made
from fabtune.autotune.new_connections import NewConnections, settle_s
from fabtune.autotune.tuned_ends import (
    AT_ONCE,
    AwayTarget,
    Lifting,
    NearEnd,
    NoStepError,
    TunedEnd,
    at_once_of,
    changes_of,
)
from fabtune.autotune.view import View
from fabtune.autotune.wanted import Wanted, wanted_steps
from fabtune.catalog.tunable import ROLES
from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host.sessions import live_sessions
from fabtune.model.judgement import Verdict
from fabtune.model.observation import INITIATOR
from fabtune.tune import confirm, journal, pending, reconnect, relogin, signals, unconfirmed
from fabtune.tune.far_end import FarEnd, RefusedThereError
from fabtune.tune.lift import Reason
from fabtune.tune.pending import RECONNECT
from fabtune.tune.plan import Row
from fabtune.tune.saved_plan import HostChangedError, SavedPlan
from fabtune.tune.shared_pace import spared

# What a new connection has made far slower than it ever was is not looked at for longer than this.
_GLANCE_S, _FAR_SLOWER = 4.0, 0.7
# What has so much more on average is looked at for longer before it goes back because it may be chance.
PROMISING, _LITTLE = 1.05, 1.01
# What sends less again is looked at for longer where it hardly costs anything meanwhile.
_NO_SLOWER = 0.95
# What plans and writes of both ends, and the confirmation, may take: an unconfirmed step goes back after so much more
# than everything else takes that is waited for.
_SPARE_S = 60.0


@attrs.define(slots=False)
class TuningStep:
    """One step under way."""

    asked: ClimbAsked
    aim: Aim
    before: View
    learnt: Learnt
    wanted: Wanted
    progress: Callable[[str], None]
    # What the journal had before the look that it is judged against.
    witness: Witness = attrs.field(factory=Witness)
    # The transactions of this host, and that of the target's where it is another one.
    made: list[str] = attrs.field(factory=list)
    made_away: str | None = None
    ends: list[Made] = attrs.field(factory=list)
    written: list[str] = attrs.field(factory=list)
    pause_s: float = 0.0
    # Whether it left others less than half of what it brought, in one of its looks at least.
    unfair: bool = False
    # After how long each end's part goes back unless it is confirmed.
    _limit_s: float = 0.0
    # When its connections were made, 0 before.
    _since_s: float = 0.0
    # Whether it is felt by connections made anew, and what each end's plan is as long as it has written nothing.
    _connects: bool = False
    _plans: dict[str, SavedPlan] = attrs.field(factory=dict)
    # Whether nothing is written that only new connections would feel, as none can be made.
    _at_once: bool = False
    _far: FarEnd | None = None
    # Whether the target's host was asked to keep what was written there.
    _perhaps_kept: bool = False

    @classmethod
    def next(
        cls,
        asked: ClimbAsked,
        aim: Aim,
        now: View,
        learnt: Learnt,
        progress: Callable[[str], None],
        witness: Witness,
        anew: NewConnections,
    ) -> "TuningStep | None":
        """Return the first step that serves `aim`, has something to write and was not tried yet, None without one.

        What was tried against one limiter is no other step against the next.
        """
        anew.ask_again()
        steps = (cls(asked, aim, now, learnt, wanted, progress, witness) for wanted in wanted_steps(now, aim, learnt))
        return next((one for one in steps if one._is_new(anew)), None)

    @property
    def limiters(self) -> tuple[str, ...]:
        """What it is against."""
        return tuple(dict.fromkeys(one.limiter for one in self.wanted.reason.shares))

    @cached_property
    def changes(self) -> Changes:
        """What is written, as it is planned before anything is."""
        rows = [row for one in self._ends() for row in self._rows(one)]
        named = ((row, row.device.label if row.device else None) for row in rows)
        return frozenset((row.role, row.tunable.name, device, row.wanted) for row, device in named)

    def _ends(self) -> list[TunedEnd]:
        """Return each end that is to be tuned, the target's first: a login asks it."""
        initiator, target = ROLES
        asked, found = self.asked, list[TunedEnd]()
        if asked.target_host:
            self._far = self._far or self.witness.far or FarEnd(asked.target_host)
            found.append(AwayTarget(self._far))
        elif asked.target_netns is not None:
            found.append(NearEnd(target, asked.target_netns))
        return [*found, NearEnd(initiator, "")]

    def _is_new(self, anew: NewConnections) -> bool:
        """Tell whether it has something to write that was not tried yet; why it cannot be planned is noted."""
        try:
            return self._any_rows(anew) and self.changes not in self.learnt.in_vain
        except NoStepError as error:
            self.learnt.no_step.setdefault(error.role, str(error))
            return False

    def _any_rows(self, anew: NewConnections) -> bool:
        """Tell whether there is anything to write that is felt here."""
        rows, needs = [row for one in self._ends() for row in self._rows(one)], self.wanted.needs
        self.learnt.left_alone |= {text for plan in self._plans.values() for text in spared(plan.rows)}
        at_once = [row for row in rows if row.tunable.effect == AT_ONCE]
        self._connects = len(at_once) < len(rows)
        if needs and needs not in {row.tunable.name for row in rows}:
            return False
        if not self._connects:
            return bool(rows)
        # More is written then.
        planned, self._plans = self._plans, {}
        if not (why := anew.why_not(self._rows_here)):
            anew.tries(self.limiters)
            return True
        self._connects, self._at_once = False, True
        self._plans = {role: at_once_of(one) for role, one in planned.items()}
        self.wanted = anew.without(self.wanted, rows, why)
        return any(needs in ("", row.tunable.name) for row in at_once)

    def _rows_here(self) -> list[Row]:
        return [row for one in self._ends() if one.role == INITIATOR for row in self._rows(one)]

    def _rows(self, end: TunedEnd) -> list[Row]:
        # What has nothing to do with an end is not asked there.
        pauses = self._connects and end.role == INITIATOR
        if not pauses and not any(end.role in share.ends for share in self._reason.shares):
            return []
        return changes_of(self._plan(end).rows)

    @property
    def _reason(self) -> Reason:
        return self.wanted.whole if self._connects else self.wanted.reason

    def _plan(self, end: TunedEnd) -> SavedPlan:
        if end.role not in self._plans:
            one = self.wanted
            reason = self._reason
            lifting = Lifting(
                reason, reason.rtt_ms, one.estimated, one.settings, one.disks, self._connects, self._at_once
            )
            self._plans[end.role] = end.plan(lifting)
        return self._plans[end.role]

    def take(self) -> tuple[Climbed, View]:
        """Write, look and judge; keep what is better, else take it back."""
        try:
            self._write()
            made = tuple(self.made)
            self.witness.note(made)
            self._settle()
            after, outcome, disturbance = self._seen_after(made)
            kept = outcome.serves(self.aim.goal) and not self.unfair
            if kept:
                self._keep()
        except BaseException as error:
            left = self._take_back()
            if left and isinstance(error, (HostChangedError, RefusedThereError)):
                # Nobody is to plan anew on what is left of this step.
                raise FabtuneError(f"{error}; {left}") from error
            raise
        if not kept:
            if left := self._take_back():
                raise FabtuneError(left)
            self.witness.note(made)
        return Climbed(
            self.limiters, tuple(self.written), self.before.bytes_per_s, after.bytes_per_s,
            self.aim.p99_ms(self.before.times), self.aim.p99_ms(after.times), outcome, self.pause_s, kept, self.unfair,
            disturbance, tuple(self.ends), (self.before.looks, after.looks), self.changes,
        ), after  # fmt: skip

    def _check_in_force(self) -> None:
        """Raise FabtuneError where some of what was written has gone back: what was seen since is not the step's."""
        mine = [one for one in journal.transactions() if one.name in self.made]
        back = [one.name for one in (*(one for one in mine if one.closed), *unconfirmed.overdue(mine))]
        if self.made_away and self._far and not self._far.waits(self.made_away):
            back.append(f"{self.made_away} ({self.asked.target_host})")
        if back:
            raise FabtuneError(
                f"{', '.join(back)} went back while the step was looked at, as its time was up or by another hand: it "
                "is not judged; tune again"
            )

    def _seen_after(self, made: Sequence[str]) -> tuple[View, JudgedStep, Disturbance | None]:
        """Look at what the step came to; for longer where the load's own growth, or chance, may be all of it."""
        glanced = self._glance()
        after = self._noted(glanced or self.asked.look())
        outcome, disturbance = self._compared(after, made)
        grows = self._grows(after, outcome)
        if grows or not (glanced or disturbance) and self._promises(outcome):
            why = "the load may grow by itself" if grows else "it cannot be told yet whether that helped"
            self.progress(f"{why}; looking for {self.asked.seconds:g} s more ...")
            after = self._noted(self.asked.look()).behind(after)
            outcome, disturbance = self._compared(after, made)
            if self._grows(after, outcome):
                disturbance = Disturbance("the load grew by itself, before the step and after it, by as much")
                outcome = self._judge(after, disturbance)
        return after, outcome, disturbance

    def _noted(self, look: View) -> View:
        """Note what one look shows of the path, and of others that use it."""
        self.learnt.saw(look)
        self.unfair |= self.learnt.unfair(look)
        return look

    def _promises(self, outcome: JudgedStep) -> bool:
        """Tell whether it is worth a longer look: what a pace gains is little where nearly all is there already."""
        ratio = outcome.throughput.ratio or 1.0
        more = ratio >= (_LITTLE if self.wanted.spares else PROMISING) or outcome.sends_less and ratio >= _NO_SLOWER
        return more and not self.aim.by_times and outcome.undecided(self.aim.goal)

    def _compared(self, after: View, made: Sequence[str]) -> tuple[JudgedStep, Disturbance | None]:
        self._check_in_force()
        disturbance = other_disks(self.before, after) or self.witness.disturbance(made)
        return self._judge(after, disturbance), disturbance

    def _grows(self, after: View, outcome: JudgedStep) -> bool:
        """Tell whether it counts as faster, and a load that grows by itself would be as much faster by now."""
        speed = outcome.throughput
        if speed.verdict is not Verdict.BETTER or speed.low is None:
            return False
        return trend.explains(self.before.blocks_bytes_per_s, after.blocks_bytes_per_s, speed.low)

    def _judge(self, after: View, disturbance: Disturbance | None) -> JudgedStep:
        was, came = map(self._figures, (self.before, after))
        return self.aim.outcome(was, attrs.evolve(came, disturbed=disturbance.why if disturbance else ""))

    def look_again(self) -> View:
        """Look at the load as it is since the step went back."""
        self.witness.renew()
        self._since_s = time.monotonic()
        self._settle()
        return self._noted(self.asked.look())

    @property
    def _settles_s(self) -> float:
        """How long a new connection takes to find its window.

        One that loses nothing any more has its window back when it has grown from its last loss.
        """
        shown = None if self._connects or not self.wanted.spares else self.before.shown
        return max(settle_s(self.before.rtt_ms or 0.0), shown.recovery_s if shown else 0.0)

    def _settle(self) -> None:
        """Wait until that is over; iscsid's looks at disks have taken some of that time."""
        time.sleep(max(0.0, (self._since_s or time.monotonic()) + self._settles_s - time.monotonic()))

    def _glance(self) -> View | None:
        """Return a short look where a new connection is far slower than the load ever was before, else nothing."""
        if not self._connects or self.aim.by_times or self.asked.seconds <= _GLANCE_S:
            return None
        found, slowest = self.asked.look(_GLANCE_S), min(self.before.blocks_bytes_per_s, default=0.0)
        return found if found.bytes_per_s < _FAR_SLOWER * slowest else None

    def _figures(self, seen: View) -> Figures:
        sent = seen.sent_again_shares if self.wanted.spares else ()
        return self.aim.figures(seen.blocks_bytes_per_s, seen.times, sent)

    def _write(self) -> None:
        connected, waits = False, False
        self._limit_s = self._longest_s()
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
            if wrote.transaction:
                self.ends.append(Made(end.role, end.host, wrote.transaction, tuple(wrote.rows)))
            # What both ends share has another value now.
            self._plans.clear()
            self.written += dict.fromkeys(f"{end.role}: {row.tunable.name}" for row in wrote.rows)
            self._felt(wrote.reconnected, wrote.pending)
            connected = connected or bool(wrote.reconnected)
            waits = waits or any(row.tunable.effect != AT_ONCE for row in wrote.rows)
        if waits and not connected:
            self._connect_anew()

    def _longest_s(self) -> float:
        """Return how long it may take from its first write to its confirmation, if sessions come back at all."""
        connect_s = reconnect.most_s(live_sessions()) + _GLANCE_S if self._connects else 0.0
        # It may be looked at twice.
        return _SPARE_S + connect_s + self._settles_s + 2 * self.asked.seconds

    def _keep(self) -> None:
        """Confirm what was written, the end first that may be out of reach.  Raises FabtuneError."""
        if self.made_away and self._far:
            self._perhaps_kept = True
            self._far.confirm(self.made_away)
        if self.made:
            confirm.accept(self.progress, self.made)

    def _felt(self, anew: Sequence[reconnect.Reconnected], left: Sequence[pending.Pending]) -> None:
        """Note the pause.  Raises FabtuneError where what was written is not felt."""
        self.pause_s = max([self.pause_s, *(one.pause_s for one in anew)])
        self._since_s = max([self._since_s, *(one.since_s for one in anew)])
        for one in left:
            if one.action == RECONNECT and one.reason:
                raise FabtuneError(f"{one.label} cannot be connected anew in place: {one.reason}")

    def _connect_anew(self) -> None:
        boot_id = this_host().boot_id
        wanted = [pending.of_session(one, boot_id, RECONNECT) for one in live_sessions()]
        with journal.locked(), relogin.journalled() as log, signals.noted() as stop:
            self._felt(*reconnect.in_place(wanted, self.progress, log, stop))
            # A signal that came meanwhile was held back.
            stop.check()

    def _take_back(self) -> str:
        """Take back what this step wrote, the target's first: the initiator's new connections are to find it so.

        No signal ends that midway.  Return what is left to be said of what is not back.
        """
        with signals.held_back():
            names, self.made, away = self.made, [], self.made_away is not None
            if names or away:
                self.progress("taking the step back")
            left = [self._take_back_away()]
            back = taken_back.here(names, self.progress, self._may_connect(""))
            # What an earlier step left is none of this one's.
            owes = away and self._far is not None and self._far.owes_logins
            due = self.pause_s or back.due or (owes and self._may_connect(self.asked.target_host))
            if due and not back.connected:
                try:
                    self._connect_anew()
                except (FabtuneError, OSError) as error:
                    back.left.append(str(error))
        for text in back.left:
            self.progress(text)
        return "; ".join(filter(None, [*left, *back.left]))

    def _may_connect(self, host: str) -> bool:
        """Tell whether new connections may be due once what was written on `host` is gone, as far as that is known."""
        mine = [one for one in self.ends if one.host == host]
        return not mine or any(one.connects for one in mine)

    def _take_back_away(self) -> str:
        """Take back what was written at a target on another host; return why it is not, where it is not."""
        name, self.made_away = self.made_away, None
        if name is None or self._far is None:
            return ""
        left = self._far.given_back(name, self._limit_s, self._perhaps_kept)
        if left:
            self.progress(left)
        return left
