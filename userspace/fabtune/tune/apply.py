# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes a plan: journal line first, then the value, then read back; any failure takes everything back."""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from fabtune import backends
from fabtune.catalog.tunable import Tunable, shipped_catalog
from fabtune.errors import ExitCode, FabtuneError, UnsupportedError
from fabtune.facts.collect import Host, read
from fabtune.host import targets
from fabtune.host.blocks import kernel_name
from fabtune.host.sessions import Session, live_sessions, why_waits
from fabtune.model.device import Device
from fabtune.model.units import counted
from fabtune.tune import armed, confirm, fault, journal, owed, pending, reconnect, relogin, signals, taken_down, unpaced
from fabtune.tune.claims import rows_to_claim
from fabtune.tune.journal import Step, Transaction, Writer
from fabtune.tune.lines import (
    AppliedLine,
    ClaimLine,
    ClosedLine,
    HoldsLine,
    Line,
    LoginLine,
    PendingLine,
    RestoredLine,
    WriteLine,
)  # fmt: skip
from fabtune.tune.locate import instance, is_as_before
from fabtune.tune.moved_beside import give_back_moved
from fabtune.tune.pending import Leave, Pending
from fabtune.tune.plan import CHANGE, KEPT, NOT_LIMITED, REFUSED, SAME, Plan, Row, better
from fabtune.tune.reconnect import NotReconnectedError, Reconnected
from fabtune.tune.revert import Locator, Outcome, StepOutcome, revert_transaction
from fabtune.tune.saved_target import saved_now
from fabtune.tune.signals import Stop
from fabtune.tune.transaction import as_line

Progress = Callable[[str], None]
# These cannot be written to a running kernel.
AT_LOAD = ("reload", "reboot")
# A re-login makes these devices anew, with default values: they are written after it.
_BORN_AT_LOGIN = ("block", "session")
_NEEDS_LEAVE = "would end live sessions, used or not; give --end-sessions"


@dataclass
class Result:
    """What apply did: rows written, rows that could not be, what is to be said of others, and what is still to do."""

    transaction: str = ""
    written: list[Row] = field(default_factory=list)
    refused: list[tuple[Row, str]] = field(default_factory=list)
    remarks: list[tuple[Row, str]] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    relogged: list[str] = field(default_factory=list)
    reconnected: list[Reconnected] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        """4 while something still needs an action, else 0."""
        return ExitCode.NEEDS_ACTION if self.pending else ExitCode.DONE


class RolledBackError(FabtuneError):
    """Ctrl-C, or a signal to end: everything written so far has been taken back."""

    exit_code = ExitCode.INTERRUPTED


class TakenBackError(FabtuneError):
    """Something failed, no signal came, and what was written has been taken back as far as the message says."""


def apply(
    plan: Plan,
    host: Host,
    leave: Leave,
    progress: Progress,
    confirm_within_s: float | None = None,
    how: "type[Applying] | None" = None,
) -> Result:
    """Write `plan` as far as the user gave `leave`; with a limit it goes back unless confirmed.  Caller holds the lock.

    Raises FabtuneError (RolledBackError after Ctrl-C, TakenBackError after a failure) with every value taken back,
    whatever the exception was.
    """
    progress = signals.unfailing(progress)
    # The caller has tried already; what is away still is said.
    missing = [
        Pending("login", one.identity, owed.label(one), one.sid, host.boot_id, why or "see above")
        for one, why in owed.away(journal.transactions(), host.boot_id)
    ]
    known = journal.transactions()
    carried = pending.still_pending(known, host.boot_id)
    claims = rows_to_claim(plan, known)
    if not plan.changes and not claims and not (carried and (leave.relogin or leave.reconnect)):
        return Result(refused=_left_alone(plan), pending=[*carried, *missing])
    limited = confirm_within_s is not None
    with signals.noted() as stop, signals.unstopped() if limited else contextlib.nullcontext():
        writer, transaction = journal.begin(plan, host)
        result = Result(refused=_left_alone(plan))
        work = (how or Applying)(plan, host, leave, confirm_within_s, progress, writer, transaction, stop, result)
        try:
            work.run(carried, claims)
        except BaseException as error:
            with signals.held_back():
                raise work.rolled_back(error) from error
        finally:
            writer.close()
    work.result.pending += missing
    return work.result


def _left_alone(plan: Plan) -> list[tuple[Row, str]]:
    """Return the rows that the plan leaves alone to protect somebody, with the reason."""
    return [(row, row.note) for row in plan.rows if row.state == REFUSED and row.note != NOT_LIMITED]


def _told(row: Row) -> str:
    """Return one line about what is written; for a file its name, not its text."""
    assert row.device is not None
    if row.tunable.backend in ("textfile", "link"):
        return f"/{row.tunable.key}"
    name = row.tunable.name if not row.tunable.name.startswith("persist.") else f"{row.tunable.name} {row.tunable.key}"
    return f"{name} {row.device.label}: {row.now} -> {row.wanted}"


@dataclass
class Applying:
    """One apply under way."""

    plan: Plan
    host: Host
    leave: Leave
    confirm_within_s: float | None
    progress: Progress
    writer: Writer
    transaction: Transaction
    stop: Stop
    result: Result = field(default_factory=Result)
    # Asked for again by the next apply, so no matter for the journal.
    waiting: list[Pending] = field(default_factory=list)
    # Sessions that logged in again, by identity.
    relogged: set[str] = field(default_factory=set)
    # Read once for all rows: that a session logged in meanwhile is noted when all are written.
    live: Callable[[], list[Session]] = field(default_factory=lambda: functools.cache(live_sessions))
    # Which devices were asked already, by effect, and what is journalled of that.
    asked: set[tuple[str, tuple[str, str]]] = field(default_factory=set)
    noted: set[PendingLine] = field(default_factory=set)
    # Devices of what moves beside a value, by the number of its step.
    beside: dict[int, Device] = field(default_factory=dict)

    def run(self, carried: list[Pending], claims: list[Row]) -> None:
        """Write everything; re-login after what sessions are made from, before what they bring with them."""
        if self.confirm_within_s is not None:
            # Before its line: killed in between, it leaves nothing that waits, and who watches ends.
            armed.arm(self.transaction.name)
            self._journal(confirm.line(self.confirm_within_s, self.leave))
        for row in claims:
            assert row.device is not None and row.now is not None
            self._journal_write(ClaimLine, row.tunable, row.device, row.now, row.now, share=row.share, form=row.form)
        for row in self.plan.changes:
            if row.tunable.scope not in _BORN_AT_LOGIN:
                self._write(row)
        written = [step for step in self.transaction.steps if not step.claim]
        needed = pending.needed(written, self.plan.roles, self.host.boot_id)
        needed += unpaced.by_writing(written, self.plan.roles, self.transaction.header.netns, self.host.boot_id)
        self.result.pending = pending.merge(carried, needed)
        self._journal_pending(self.result.pending)
        if self.leave.reconnect:
            self.result.reconnected, self.result.pending = reconnect.in_place(
                self.result.pending, self.progress, self._log, self.stop
            )
        if self.leave.relogin:
            self.result.relogged, self.result.pending = relogin.perform(
                self.result.pending, self.progress, self._log, self.stop
            )
        for row in self._late_rows():
            self._write(row)
        self.result.remarks += give_back_moved(self.transaction, self.beside, self.result.remarks, self.stop)
        self.result.pending += self.waiting
        self.result.transaction = self.transaction.name
        # The last moment: what comes after it finds everything applied, and says so.
        self.stop.check()
        if self.confirm_within_s is not None:
            # Whoever is to confirm has the whole time from now on.
            self._journal(confirm.line(self.confirm_within_s, self.leave))
        self.writer.append(AppliedLine() if self.transaction.steps else ClosedLine())

    def _log(self, line: Line) -> None:
        """Journal a logout, a login or what a new connection takes away."""
        self.writer.append(line)
        if isinstance(line, LoginLine):
            self.relogged.add(line.identity)

    def _journal(self, line: Line) -> None:
        """Write one line to disk and apply it to the transaction."""
        self.writer.append(line)
        journal.take(self.transaction, line)

    def _journal_pending(self, found: Iterable[Pending]) -> None:
        for line in dict.fromkeys(one.line(PendingLine) for one in found):
            if line not in self.noted:
                self._journal(line)
                self.noted.add(line)

    def _journal_needed(self, step: Step) -> None:
        """Journal what `step` needs to be felt, before it is written: whoever is killed after that cannot say it."""
        place = step.effect, step.device.key
        if place not in self.asked:
            self.asked.add(place)
            self._journal_pending(pending.needed([step], self.plan.roles, self.host.boot_id, self.live))

    def _owing(self, outcomes: list[StepOutcome]) -> list[Pending]:
        """Return the sessions that logged in meanwhile: they keep values that are being taken back, of either end."""
        if not any(outcome.state == Outcome.RESTORED for outcome in outcomes):
            return []
        live, boot_id = live_sessions(), self.host.boot_id
        again = [pending.of_session(session, boot_id) for session in live if session.identity in self.relogged]
        if self.result.reconnected:
            again += [pending.of_session(session, boot_id, pending.RECONNECT) for session in live]
        return again

    def _late_rows(self) -> list[Row]:
        """Return what to write to disks and sessions, read again if some of them are new."""
        late = [row for row in self.plan.rows if row.tunable.scope in _BORN_AT_LOGIN and row.device is not None]
        if not self.result.relogged:
            return [row for row in late if row.state == CHANGE]
        locate = Locator(self.plan.netns)
        found = []
        for row in late:
            device = locate(row.device) if row.device and row.state in (CHANGE, SAME, KEPT) else None
            now = read(row.tunable, device).value if device else None
            if now is None or row.wanted is None or row.tunable.same(now, row.wanted):
                continue
            if not better(row.tunable, row.form, row.tunable.parse(now), row.tunable.parse(row.wanted)):
                found.append(replace(row, device=device, now=now, state=CHANGE))
        return found

    def _write(self, row: Row) -> None:
        tunable, device = row.tunable, row.device
        assert device is not None and row.now is not None and row.wanted is not None
        reason = self._why_not(tunable, device)
        if reason:
            self.result.refused.append((row, reason))
            if reason == _NEEDS_LEAVE:
                label = f"{tunable.name} of {device.label}"
                self.waiting.append(Pending("leave", device.identity, label, "", self.host.boot_id, reason))
            return
        self.stop.check()
        backend = backends.get(tunable.backend)
        with contextlib.suppress(UnsupportedError):
            # What was planned may have moved since, by a stranger or by a row before this one.
            row = replace(row, now=backend.read(device, tunable.key))
        assert row.now is not None and row.wanted is not None
        if better(tunable, row.form, tunable.parse(row.now), tunable.parse(row.wanted)):
            # A bound takes nothing away.
            self.result.remarks.append((row, f"is left alone: it is {row.now} by now"))
            return
        disturbed = self._journal_disturbed(tunable, device)
        step = self._journal_write(WriteLine, tunable, device, row.now, row.wanted, share=row.share, form=row.form)
        self._journal_needed(self.transaction.steps[step - 1])
        self.progress(_told(row))
        try:
            with signals.deferred():
                backend.write(device, tunable.key, row.wanted)
        except UnsupportedError as error:
            self.result.refused.append((row, str(error)))
            self._leave_as_before([*(place for _, place in disturbed), step], device, str(error))
            return
        fault.checkpoint()
        now = backend.read(device, tunable.key)
        if now.split() != row.wanted.split():
            # Also where that is refused: what was made of our value is ours to take back.
            self._journal(HoldsLine(step, now))
        as_wanted = tunable.same(now, row.wanted)
        if not as_wanted and not tunable.rounds:
            raise FabtuneError(f"{tunable.name} of {device.label}: wrote {row.wanted}, but it reads {now}")
        for other, place in disturbed:
            self._journal(HoldsLine(place, backends.get(other.backend).read(device, other.key)))
        if not as_wanted and now.split() == row.now.split():
            # The journal's step stays open: pause frames count when the link has been agreed on anew.
            self.result.refused.append((row, f"the device took {row.wanted}, and reads {now} as before"))
            return
        self.result.remarks += [] if as_wanted else [(row, f"was given {row.wanted}, and reads {now}")]
        self.result.written.append(row)

    def _leave_as_before(self, numbers: list[int], device: Device, why: str) -> None:
        """Settle the steps of a value that was refused: one that takes several writes may have had some of them."""
        if not all(is_as_before(self.transaction.steps[number - 1], device) for number in numbers):
            self._give_back(numbers, why)
            return
        for number in numbers:
            self._journal(RestoredLine(number))

    def _give_back(self, numbers: Collection[int], why: str) -> None:
        """Take back these steps and no others.  Raises FabtuneError, which begins with `why`, where one stays."""
        steps = [one if one.number in numbers else replace(one, restored=True) for one in self.transaction.steps]
        # What reads as before may lie beside what one of the writes has moved: none of it is anybody else's here.
        part = replace(self.transaction, steps=steps, reverting=True)
        for outcome in revert_transaction(part, None, False, False, (), self.host.boot_id, lambda _: []):
            if outcome.state not in (Outcome.RESTORED, Outcome.ALREADY, Outcome.GONE):
                raise FabtuneError(f"{why}; {outcome.step.tunable} does not go back: {outcome.note}")
            self._journal(RestoredLine(outcome.step.number))

    def _why_not(self, tunable: Tunable, device: Device) -> str:
        """Return why a value must not be written now, '' if it may."""
        if tunable.effect in AT_LOAD:
            return f"takes effect at {tunable.effect} only; --persist writes it for the next one"
        if device.scope == "block" and (why := why_waits(kernel_name(device))):
            return f"{why}, and the write would wait for it"
        if tunable.effect == "refused-while-exported" and targets.in_use(device):
            return "the kernel refuses it while a LUN exports the backstore"
        if tunable.effect == "kills-session" and not self.leave.end_sessions and targets.in_use(device):
            return _NEEDS_LEAVE
        return ""

    def _journal_write(
        self,
        kind: type[WriteLine] | type[ClaimLine],
        tunable: Tunable,
        device: Device,
        old: str,
        wrote: str,
        disturbed: bool = False,
        share: str = "",
        form: str = "value",
    ) -> int:
        """Journal one step before it happens; return its number."""
        number = len(self.transaction.steps) + 1
        step = Step(
            number, self.host.boot_id, tunable.name, tunable.backend, tunable.key, device,
            backends.without_remark(tunable.backend, old), wrote,
            tunable.effect, tunable.rounds, disturbed=disturbed, share=share,
            form="" if form == "value" else form, saved=saved_now(tunable, device),
        )  # fmt: skip
        self._journal(as_line(step, kind, step.instance or instance(step.device), self.transaction.name))
        return number

    def _journal_disturbed(self, tunable: Tunable, device: Device) -> list[tuple[Tunable, int]]:
        """Journal what else writing `tunable` may change (a scheduler resets nr_requests)."""
        found = []
        for name in tunable.disturbs:
            other = shipped_catalog().tunables[name]
            value = read(other, device).value
            if value is not None:
                found.append((other, self._journal_write(WriteLine, other, device, value, value, disturbed=True)))
                self.beside[found[-1][1]] = device
        return found

    def rolled_back(self, error: BaseException) -> FabtuneError:
        """Take back what was written and return the error to raise."""
        self.progress("taking back what was written")
        # Where a session is not back, iscsid has read what is being taken back all the same.
        refused = isinstance(error, NotReconnectedError)

        def owing(found: list[StepOutcome]) -> list[Pending]:
            more = taken_down.all_due(self.host.boot_id) if refused else []
            return pending.merge(self._owing(found), more)

        outcomes = revert_transaction(
            self.transaction, self.writer, False, self.leave.end_sessions, (), self.host.boot_id, owing
        )
        left = [
            outcome for outcome in outcomes if outcome.state not in (Outcome.RESTORED, Outcome.ALREADY, Outcome.GONE)
        ]
        tail = "everything written was taken back"
        if left:
            tail = f"{counted(len(left), 'value')} could not be taken back; see `fabtune revert`"
        # A session that logged in with the new values keeps them until its next login.
        relogged = ", ".join(one.label for one in self._owing(outcomes) if one.action == pending.RELOGIN)
        if relogged:
            tail += f"; these sessions logged in with the new values and need a re-login: {relogged}"
        if refused or self.result.reconnected:
            why = taken_down.once_more(self.progress, self.writer.append)
            values = "what their records say now" if left or relogged else "their old values"
            tail += f"; {why or f'all sessions are back with {values}'}"
        if isinstance(error, relogin.SessionDownError):
            label = f"session {error.away.target} at {error.away.portal}"
            why = relogin.bring_back(error.away, self.writer.append, self.progress)
            tail += (
                f"; {label} is DOWN, its LUNs are away: {why}"
                if why
                else f"; {label} logged in again with its old values"
            )
        # Ctrl-C reaches the tools that we run as well, and one of them may have failed first.
        if isinstance(error, KeyboardInterrupt) or self.stop.wanted:
            return FabtuneError(f"interrupted; {tail}") if left else RolledBackError(f"interrupted; {tail}")
        what = (
            str(error) if isinstance(error, FabtuneError | OSError) else f"unexpected {type(error).__name__}: {error}"
        )
        return TakenBackError(f"{what}; {tail}")
