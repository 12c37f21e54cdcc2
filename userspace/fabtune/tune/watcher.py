# SPDX-License-Identifier: GPL-2.0-or-later
"""The dead-man's switch at work: waits for each limit, and takes back what nobody has confirmed by then."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from fabtune.errors import ExitCode, FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host import systemd
from fabtune.host.sessions import live_sessions
from fabtune.tune import armed, journal, pending, reconnect, relogin, signals, taken_down
from fabtune.tune.journal import Transaction
from fabtune.tune.pending import Leave, Pending
from fabtune.tune.unconfirmed import awaited, overdue
from fabtune.tune.undo import undo

_LOOK_EVERY_S = 1.0
# A revert that is refused something, by a disk or a device that is not there yet, is tried again.
_TRIES, _TRY_EVERY_S = 3, 5.0
# A session that is down when its values go back is given its old ones as soon as it is up, within a day.
_LATE_S = 86400.0


def watch(progress: Callable[[str], None]) -> int:
    """Wait until nothing is unconfirmed, and take back what is overdue; return the worst exit code.

    Raises FabtuneError where another one waits already.
    """
    progress = _new_words(signals.unfailing(progress))
    watching = _Watch(armed.hold_watch(), progress)
    # Where systemd starts us anew after a signal, a stop of the host is to end us; elsewhere nobody would take over.
    with contextlib.nullcontext() if systemd.manages_host() else signals.held_back():
        while not watching.has_ended():
            time.sleep(watching.look())
        if watching.reconnects:
            _connect_late(watching.reconnects, progress)
    return watching.worst


def at_boot(progress: Callable[[str], None]) -> int:
    """Take back what a boot finds unconfirmed, as far as it can be now; return the worst exit code.

    The boot waits for this one look.  What must wait for a device, or was refused, is left to a program that watches.
    """
    if awaited(journal.transactions()):
        try:
            # First, for whatever becomes of us.
            armed.start_watching(wait=False)
        except FabtuneError as error:
            progress(f"what is not back after this look waits for `fabtune revert`: {error}")
    codes = [_take_back(one, progress) for one in overdue(journal.transactions())]
    with journal.locked():
        armed.disarm(progress)
    return max([ExitCode.DONE, *codes])


def _new_words(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Return `progress` without sentences that were said before: each is said once, however often it is tried."""
    said: set[str] = set()

    def told(text: str) -> None:
        if text not in said:
            said.add(text)
            progress(text)

    return told


@dataclass
class _Watch:
    """What the program that watches has seen; `fd` tells others that it is there."""

    fd: int
    progress: Callable[[str], None]
    worst: ExitCode = ExitCode.DONE
    tries: int = 0
    # Transactions of which some connections were made anew.
    reconnects: set[str] = field(default_factory=set)
    # Stopped processes that were asked to end.
    asked: set[int] = field(default_factory=set)

    def look(self) -> float:
        """Take back what is overdue; return the seconds until the next look."""
        try:
            late = overdue(journal.transactions())
            self.reconnects |= {one.name for one in late if one.unconfirmed and one.unconfirmed.reconnect}
            if late:
                self._free_lock()
            codes = [_take_back(one, self.progress) for one in late]
        except Exception as error:
            # Another fabtune is at work: perhaps it confirms, or is being interrupted.  A disk that gives an error
            # now may not the next time.  Whatever it is, nobody else watches.
            self.progress(f"not yet: {type(error).__name__}: {error}")
            return _LOOK_EVERY_S
        self.worst = max([self.worst, *codes])
        # What waits for its device, or a session that is down, waits on.
        self.tries += any(code not in (ExitCode.DONE, ExitCode.NEEDS_ACTION) for code in codes)
        return _TRY_EVERY_S if any(codes) else _LOOK_EVERY_S

    def _free_lock(self) -> None:
        """Let a fabtune end that was stopped and keeps the lock: what it has written would stay beyond the limit.

        Asked to end it takes back what it wrote; one that is stopped again is killed.
        """
        holder = journal.stopped_holder()
        if holder is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(holder)
            try:
                numbers = [signal.SIGKILL] if holder in self.asked else [signal.SIGTERM, signal.SIGCONT]
                self.progress(
                    f"fabtune (process {holder}) is stopped and holds the lock beyond the time to confirm: "
                    f"{', '.join(number.name for number in numbers)}"
                )
                for number in numbers:
                    signal.pidfd_send_signal(process, number)
            finally:
                os.close(process)
            self.asked.add(holder)

    def has_ended(self) -> bool:
        """Tell whether nothing is left to wait for, or all that is was refused again and again; then nobody watches.

        Under the lock: an apply holds it from before it looks who watches until what is to be watched is journalled.
        """
        with contextlib.suppress(FabtuneError, OSError):
            if self._is_left():
                return False
            with journal.locked():
                if self._is_left():
                    return False
                armed.disarm(self.progress)
                os.close(self.fd)
                return True
        return False

    def _is_left(self) -> bool:
        waiting = awaited(journal.transactions())
        late = [one.name for one in overdue(waiting)]
        return any(self.tries < _TRIES or one.name not in late for one in waiting)


def _take_back(one: Transaction, progress: Callable[[str], None]) -> ExitCode:
    progress(f"the time to confirm {one.name} is up")
    limit = one.unconfirmed
    leave = Leave(limit.reconnect, limit.relogin) if limit else Leave()

    def still(found: list[Transaction]) -> list[Transaction]:
        return [late for late in overdue(found) if late.name == one.name]

    report = undo(None, None, None, "", False, leave, progress, only=still)
    for text in report.problems:
        progress(text)
    return report.exit_code


def _connect_late(names: Collection[str], progress: Callable[[str], None]) -> None:
    """Connect sessions anew that could not be when `names` went back: their path may come back any time.

    That would also bring into force what was applied since: then it is left to whoever did that.
    """
    deadline = time.monotonic() + _LATE_S
    while time.monotonic() < deadline:
        if any(one.state != "LOGGED_IN" for one in live_sessions()):
            _bring_up(names, progress)
            time.sleep(_TRY_EVERY_S)
            continue
        with contextlib.suppress(FabtuneError, OSError), journal.locked(), signals.noted() as stop:
            asked, others = _reconnects_due(names)
            if not asked or others:
                for one in others if asked else ():
                    progress(
                        f"{one.label} would also take what was applied since; `fabtune apply --reconnect` does that"
                    )
                return
            with relogin.journalled() as log:
                done, rest = reconnect.in_place(asked, progress, log, stop, way_back=False)
            if done:
                return
            for one in rest:
                progress(f"{one.label} is not connected anew yet: {one.reason}")
        time.sleep(_TRY_EVERY_S)


def _bring_up(names: Collection[str], progress: Callable[[str], None]) -> None:
    """Start iscsid anew for sessions that the reconnect of `names` took down: it goes on with what it has read."""
    with contextlib.suppress(FabtuneError, OSError), journal.locked(), signals.noted() as stop:
        down = taken_down.waiting(_reconnects_due(names)[0], stop, patient=False)
        if not down:
            return
        with relogin.journalled() as log:
            done = taken_down.bring_up(down, progress, log)
        for text in (*done.problems, *filter(None, [done.why_not])):
            progress(text)


def _reconnects_due(names: Collection[str]) -> tuple[list[Pending], list[Pending]]:
    """Return what must connect anew for the transactions `names`, and what for others."""
    known, boot_id = journal.transactions(), this_host().boot_id
    ours = [one for one in known if one.name in names]
    others = [one for one in known if one.name not in names]
    asked, more = (
        [task for task in pending.still_pending(found, boot_id) if task.action == pending.RECONNECT]
        for found in (ours, others)
    )
    return asked, more
