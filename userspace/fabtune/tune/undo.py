# SPDX-License-Identifier: GPL-2.0-or-later
"""Revert as the user sees it: the values, then the sessions that need them, and what is left to do afterwards."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host.sessions import live_sessions
from fabtune.tune import armed, journal, owed, pending, reconnect, relogin, signals, taken_down
from fabtune.tune.journal import Logout, Transaction, Writer
from fabtune.tune.lines import Line
from fabtune.tune.pending import Leave, Pending
from fabtune.tune.revert import StepOutcome, revert_transaction
from fabtune.tune.signals import Stop
from fabtune.tune.values_back import Report, ValuesBack, asked_for, due, told_of_damage

__all__ = ["Report", "undo"]


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
        chosen = asked_for(only(everything) if only else everything, profile, name, role, netns)

        def take(transaction: Transaction, may_end_sessions: bool) -> list[StepOutcome]:
            return _one(transaction, everything, force, may_end_sessions, host.boot_id, report.problems)

        values = ValuesBack(chosen, everything, host.boot_id, report, take)
        taken_down.wait_for_start(stop)
        owed.let_disks_go(host.boot_id)
        for transaction in chosen:
            if _stopped(report, stop):
                break
            progress(f"taking back {transaction.name} ({transaction.profile})")
            values.take_back(transaction, False)
        values.look_for_untold()
        report.relogged, missing = owed.bring_all_back(host.boot_id, progress)
        values.look(lambda: pending.merge(pending.still_pending(journal.transactions(), host.boot_id), report.pending))
        _new_connections(report, leave, progress, stop)
        in_the_way = leave.relogin and report.pending
        may_go_on = _log_in_anew(report, progress, stop) if in_the_way else leave.relogin or leave.end_sessions
        # Last what ends a target's sessions, or what they had to log in anew for: they come back to old values alone.
        if may_go_on and not stop.wanted:
            values.take_back_held(leave.end_sessions)
        report.pending += missing
        values.end()
        return _ended(report)


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
            owing = partial(due, transaction, boot_id)
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
        problems.append(told_of_damage(transaction))
        return None
    try:
        return _Writer(transaction.path, problems)
    except OSError as error:
        problems.append(_unwritten(transaction.path, error))
        return None
