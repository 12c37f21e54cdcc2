# SPDX-License-Identifier: GPL-2.0-or-later
"""Revert as the user sees it: which transactions, newest first, and what is left to do afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fabtune.catalog.profile import available
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.facts.collect import this_host
from fabtune.host.sessions import live_sessions
from fabtune.tune import armed, journal, owed, pending, reconnect, relogin, saved_target, signals, taken_down, unpaced
from fabtune.tune.boot_images import still_packed
from fabtune.tune.journal import Logout, Transaction, Writer
from fabtune.tune.lines import Line
from fabtune.tune.pending import Leave, Pending
from fabtune.tune.reconnect import Reconnected
from fabtune.tune.revert import Outcome, StepOutcome, revert_transaction
from fabtune.tune.signals import Stop


@dataclass
class Report:
    """What revert did to each step, and which sessions still run with the values taken back."""

    outcomes: list[StepOutcome] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    relogged: list[str] = field(default_factory=list)
    reconnected: list[Reconnected] = field(default_factory=list)
    # Of these, the sessions that a reconnect had taken down.
    brought_up: list[str] = field(default_factory=list)
    # What could not be done beside the values: journals that cannot be read or written, sessions that stay away.
    problems: list[str] = field(default_factory=list)
    # By a signal, with something still to do.
    interrupted: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """130 if interrupted, 1 if something failed, 3 if a value is somebody else's, 4 if something is due, else 0.

        Due is a leave, a re-login or a device.
        """
        if self.interrupted:
            return ExitCode.INTERRUPTED
        states = {outcome.state for outcome in self.outcomes}
        if Outcome.FAILED in states or self.problems:
            return ExitCode.FAILED
        if Outcome.FOREIGN in states:
            return ExitCode.DRIFT
        owed = self.pending or {Outcome.HELD, Outcome.WAITING} & states
        return ExitCode.NEEDS_ACTION if owed else ExitCode.DONE

    def interrupt(self) -> None:
        """Say that a signal came with something still to do."""
        if not self.interrupted:
            self.problems.append("interrupted; `fabtune revert` goes on")
        self.interrupted = True


def _chosen(
    everything: list[Transaction], profile: str | None, name: str | None, role: str | None, netns: str
) -> list[Transaction]:
    # An empty word is no leave to take back everything: a script's variable may have been empty.
    if name is not None and name not in [transaction.name for transaction in everything]:
        known = ", ".join(transaction.name for transaction in everything) or "none"
        raise InputError(f"--transaction {name}: not in the journal; known: {known}")
    if profile and profile.endswith(".toml"):
        # `apply ./mine.toml` is journalled as mine.
        profile = Path(profile).stem
    applied = sorted({transaction.profile for transaction in everything})
    if profile is not None and profile not in applied and profile not in available():
        raise InputError(f"unknown profile '{profile}'; in the journal: {', '.join(applied) or 'none'}")
    return [
        transaction
        for transaction in reversed(everything)
        if not transaction.closed
        and (not name or name in (transaction.name, transaction.root))
        and (not profile or transaction.profile == profile)
        and (not role or role == "both" or role in transaction.header.roles)
        and (not netns or transaction.header.netns == netns)
    ]


def _due(transaction: Transaction, boot_id: str, outcomes: list[StepOutcome]) -> list[Pending]:
    """Return what must happen before the old values are felt; a value that was back already may not be felt yet."""
    back = [
        outcome.step
        for outcome in outcomes
        if outcome.state == Outcome.RESTORED or (outcome.state == Outcome.ALREADY and outcome.step.boot_id == boot_id)
    ]
    # iscsid keeps a session's record: who is still logged in from before the write never had what it wrote.  A new
    # connection of the same session has today's sysctls and module parameters, and what an earlier transaction
    # wrote may be in any.
    record = [step for step in back if step.device.scope == "record" and not (step.ours or step.claim)]
    waits = [Pending.of(line) for line in transaction.pending if line.boot_id == boot_id]
    before = {(one.identity, one.sid) for one in waits if not one.reconnected}
    roles = transaction.header.roles
    felt = [one for one in pending.needed(record, roles, boot_id) if (one.identity, one.sid) not in before]
    others = pending.merge(felt, pending.needed([step for step in back if step not in record], roles, boot_id))
    return pending.merge(others, unpaced.by_undoing(back, roles, transaction.header.netns, boot_id))


def _untold(chosen: list[Transaction], outcomes: dict[str, dict[int, StepOutcome]], boot_id: str) -> list[Pending]:
    """Return which initiators a revert noted as due and, killed, told nobody of.

    It left values open that are back already; a revert that ends marks what it leaves open as waiting.
    """
    killed = [
        one
        for one in chosen
        if any(
            outcome.state == Outcome.ALREADY and not (outcome.step.empty or outcome.step.waiting)
            for outcome in outcomes.get(one.name, {}).values()
        )
    ]
    return pending.untold(killed, boot_id)


def undo(
    profile: str | None,
    name: str | None,
    role: str | None,
    netns: str,
    force: bool,
    leave: Leave,
    progress: Callable[[str], None],
    only: Callable[[list[Transaction]], list[Transaction]] | None = None,
) -> Report:
    """Take back the chosen open transactions, newest first, under the lock, until a signal.  Raises FabtuneError."""
    progress = signals.unfailing(progress)
    with journal.locked(), signals.noted() as stop:
        report, host = Report(), this_host()
        everything = journal.transactions()
        chosen = _chosen(only(everything) if only else everything, profile, name, role, netns)
        outcomes: dict[str, dict[int, StepOutcome]] = {}

        def take_back(transaction: Transaction, may_end_sessions: bool) -> None:
            found = _one(transaction, everything, force, may_end_sessions, host.boot_id, report.problems)
            outcomes[transaction.name] = outcomes.get(transaction.name, {}) | {one.step.number: one for one in found}
            look(lambda: pending.merge(report.pending, _due(transaction, host.boot_id, found)))

        def look(find: Callable[[], list[Pending]]) -> None:
            # The values have gone back by then, and the report is to say so.
            try:
                report.pending = find()
            except (FabtuneError, OSError) as error:
                report.problems.append(f"cannot tell which sessions must log in again: {error}")

        taken_down.wait_for_start(stop)
        owed.let_disks_go(host.boot_id)
        for transaction in chosen:
            if _stopped(report, stop):
                break
            progress(f"taking back {transaction.name} ({transaction.profile})")
            take_back(transaction, False)
        look(lambda: pending.merge(report.pending, _untold(chosen, outcomes, host.boot_id)))
        report.relogged, missing = owed.bring_all_back(host.boot_id, progress)
        look(lambda: pending.merge(pending.still_pending(journal.transactions(), host.boot_id), report.pending))
        _new_connections(report, leave, progress, stop)
        in_the_way = leave.relogin and report.pending
        may_go_on = _log_in_anew(report, progress, stop) if in_the_way else leave.relogin or leave.end_sessions
        # Last what ends a target's sessions, or what they had to log in anew for: they come back to old values alone.
        for transaction in chosen if may_go_on and not stop.wanted else []:
            if any(one.state == Outcome.HELD for one in outcomes[transaction.name].values()):
                take_back(transaction, leave.end_sessions)
        report.outcomes = [one for found in outcomes.values() for one in found.values()]
        report.pending += [*missing, *_brought_by_boot(report, chosen, everything, host.boot_id)]
        return _ended(report)


def _brought_by_boot(
    report: Report, chosen: list[Transaction], everything: list[Transaction], boot_id: str
) -> list[Pending]:
    """Return what the next boot may set again of what went back."""
    return [*still_packed(chosen, everything, boot_id), *saved_target.still_saved(report.outcomes, boot_id)]


def _ended(report: Report) -> Report:
    armed.disarm(report.problems.append)
    report.problems = list(dict.fromkeys(report.problems))
    return report


def _stopped(report: Report, stop: Stop) -> bool:
    """Tell whether a signal came; then the report says so."""
    if stop.wanted:
        report.interrupt()
    return stop.wanted


def _new_connections(report: Report, leave: Leave, progress: Callable[[str], None], stop: Stop) -> None:
    """Bring up what a reconnect took down, and with `leave` for it make the other connections anew."""
    _bring_up(report, progress, stop, patient=not leave.reconnect)
    if leave.reconnect and any(one.action == pending.RECONNECT for one in report.pending):
        _connect_anew(report, progress, stop)


def _bring_up(report: Report, progress: Callable[[str], None], stop: Stop, patient: bool) -> None:
    """Bring up the sessions that a reconnect took down: no leave is asked for, as they have no connection to lose.

    The values have gone back by then, and the report says so whatever becomes of the sessions.
    """
    try:
        down = taken_down.waiting(report.pending, stop, patient)
        if not down or _stopped(report, stop):
            return
        with relogin.journalled() as log:
            done = taken_down.bring_up(down, progress, log)
    except (FabtuneError, OSError) as error:
        report.problems.append(taken_down.told_of(error))
    else:
        if done.why_not:
            away = {(one.identity, str(one.sid)) for one in down}
            report.pending = [
                replace(one, reason=done.why_not) if (one.identity, one.sid) in away else one for one in report.pending
            ]
            return
        report.reconnected = done.reconnected
        report.problems += done.problems
        report.brought_up += [] if done.problems else [one.label for one in down]
    report.pending = reconnect.left_to_do(report.pending, live_sessions())


def _connect_anew(report: Report, progress: Callable[[str], None], stop: Stop) -> None:
    """Make the connections anew that still have the values taken back; what fails is reported, with all values back."""
    try:
        with relogin.journalled() as log:
            report.reconnected, report.pending = reconnect.in_place(report.pending, progress, log, stop, way_back=False)
    except KeyboardInterrupt:
        report.interrupt()
    except (FabtuneError, OSError) as error:
        report.problems.append(str(error))


def _log_in_anew(report: Report, progress: Callable[[str], None], stop: Stop) -> bool:
    """Log in again the sessions that need it; tell whether every session that was logged out is back.

    The values have gone back by then, and the report says so whatever becomes of the sessions: one that stays
    away is put among the problems and what is pending, and stops the others.
    """
    waiting = report.pending
    try:
        with relogin.journalled() as log:
            again, report.pending = relogin.perform(waiting, progress, log, stop)
            report.relogged += again
            return True
    except relogin.SessionDownError as error:
        lost, problem = error.away, f"the re-login of {owed.label(error.away)} failed"
        progress(str(error))
    except KeyboardInterrupt:
        lost, problem = None, "interrupted"
        report.interrupt()
    except (FabtuneError, OSError) as error:
        lost, problem = None, str(error)
        report.problems.append(problem)
    there = {(session.identity, str(session.sid)) for session in live_sessions()}
    ours = (pending.RECONNECT, pending.RELOGIN)
    rest = [one for one in waiting if one.action not in ours or (one.identity, one.sid) in there]
    away = [one for one in waiting if lost and (one.identity, one.sid) == (lost.identity, lost.sid)]
    report.relogged += [one.label for one in waiting if one not in rest and one not in away]
    report.pending = [replace(one, reason=one.reason or f"not tried: {problem}") for one in rest]
    if lost:
        _bring_back(lost, report, progress)
    return False


def _bring_back(lost: Logout, report: Report, progress: Callable[[str], None]) -> None:
    """Try once more to log `lost` in, and report what came of it."""
    label = owed.label(lost)
    progress(f"login of {label} once more")
    try:
        with signals.held_back(), relogin.journalled() as log:
            why = relogin.bring_back(lost, log, progress)
    except (FabtuneError, OSError) as error:
        why = str(error)
    if not why:
        report.relogged.append(label)
        return
    report.problems.append(f"session {label} is DOWN, its LUNs are away; `fabtune revert` tries again")
    report.pending.append(Pending("login", lost.identity, label, lost.sid, lost.boot_id, why))


def _one(
    transaction: Transaction,
    everything: list[Transaction],
    force: bool,
    may_end_sessions: bool,
    boot_id: str,
    problems: list[str],
) -> list[StepOutcome]:
    """Take one transaction back as far as possible now."""
    # Half a revert is safe to repeat, but finishing one transaction before stopping is kinder.
    with signals.held_back():
        writer = _writer(transaction, problems)
        try:
            owing = partial(_due, transaction, boot_id)
            return revert_transaction(transaction, writer, force, may_end_sessions, everything, boot_id, owing)
        finally:
            if writer:
                writer.close()


class _Writer(Writer):
    """Puts what its disk refuses among the problems: whoever writes a line here goes on without it."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__(path)
        self._problems = problems

    def append(self, line: Line) -> None:
        """Write one line and wait until the disk has it.  Raises OSError."""
        try:
            super().append(line)
        except OSError as error:
            self._problems.append(_unwritten(self.path, error))
            raise


def _unwritten(path: Path, error: OSError) -> str:
    return (
        f"journal {path}: {error.strerror}; values go back all the same, and stay listed until a revert can write "
        "that down; before that a boot, `fabtune guard --heal` or fabtune-pull would write them again"
    )


def _writer(transaction: Transaction, problems: list[str]) -> Writer | None:
    """Return the writer of the transaction's file, None with the reason in `problems` where nothing can be added."""
    if transaction.damage:
        problems.append(
            f"{transaction.damage}; what followed it is not known, so only what precedes it is taken back: "
            "compare the values by hand, then move the file out of the journal directory"
        )
        return None
    try:
        return _Writer(transaction.path, problems)
    except OSError as error:
        problems.append(_unwritten(transaction.path, error))
        return None
