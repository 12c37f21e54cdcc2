# SPDX-License-Identifier: GPL-2.0-or-later
"""The dead-man's switch at work: waits for each limit, and takes back what nobody has confirmed by then."""

import contextlib
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from fabtune import backends
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode, FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host import systemd, targets
from fabtune.host.sessions import live_sessions
from fabtune.tune import armed, journal, pending, reconnect, relogin, signals, taken_down
from fabtune.tune.journal import Transaction
from fabtune.tune.pending import Leave, Pending
from fabtune.tune.revert import Outcome
from fabtune.tune.unconfirmed import awaited, overdue
from fabtune.tune.undo import undo

_TOLD = (Outcome.FOREIGN, Outcome.FAILED, Outcome.HELD, Outcome.WAITING)
_LOOK_EVERY_S = 1.0
# A boot waits a minute for its look, and stops it then.
_BOOT_WAIT_S = 45.0
# What is somebody else's by now is looked at so often; what is refused is tried again, soon and then seldom.
_TRIES, _TRY_EVERY_S, _SELDOM_S = 3, 5.0, 60.0
# Tools of a fabtune that is gone have limits of half a minute for themselves, if they are well.
_TOOLS_END_S = 45.0
# A session that is down when its values go back is given its old ones as soon as it is up, within a day.
_LATE_S = 86400.0


def watch(progress: Callable[[str], None]) -> int:
    """Wait until nothing is unconfirmed, and take back what is overdue; return the worst exit code.

    Raises FabtuneError where another one waits already.
    """
    progress = _new_words(signals.unfailing(progress))
    if not journal.state_dir().is_dir():
        progress("nothing was applied from here: nothing to wait for")
        return ExitCode.DONE
    _read_what_is_needed(progress)
    watching = _Watch(armed.hold_watch(), progress)
    # Where systemd starts us anew after a signal, a stop of the host is to end us; elsewhere nobody would take over.
    with contextlib.nullcontext() if systemd.manages_host() else signals.held_back():
        while not watching.has_ended():
            time.sleep(watching.look())
        armed.forget()
        if watching.reconnects:
            _connect_late(watching.reconnects, progress)
    return watching.worst


def _read_what_is_needed(progress: Callable[[str], None]) -> None:
    """Read now what is otherwise read when it is first used: by then an upgrade may have put other files there.

    What cannot be read is tried again when the time is up, and keeps nobody from watching.
    """
    of_backends = [partial(backends.get, name) for name in backends.NAMES]
    needed: list[Callable[[], object]] = [shipped_catalog, targets.kinds, *of_backends]
    for read in needed:
        try:
            read()
        except (FabtuneError, ImportError, OSError) as error:
            progress(f"cannot be read ahead: {error}")


def at_boot(progress: Callable[[str], None]) -> int:
    """Take back what a boot finds unconfirmed, as far as it can be now; return the worst exit code.

    The boot waits for this one look.  What must wait for a device, or was refused, is left to a program that watches.
    """
    progress = _new_words(signals.unfailing(progress))
    if found := armed.is_of_elsewhere():
        raise FabtuneError(f"{found}, which is not there; `fabtune revert` takes it back once it is")
    deadline = time.monotonic() + _BOOT_WAIT_S
    code = None
    try:
        while code is None:
            try:
                code = max([ExitCode.DONE, *(_take_back(one, progress) for one in overdue(journal.transactions()))])
                with journal.locked():
                    armed.disarm(progress)
            except FabtuneError as error:
                # Another fabtune is at work.
                progress(f"not yet: {error}")
                if time.monotonic() > deadline:
                    return ExitCode.FAILED
                time.sleep(_LOOK_EVERY_S)
        return code
    finally:
        if awaited(journal.transactions()):
            armed.start_watching(wait=False)


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
    # How often each transaction was refused something, or found somebody else's values, and since when.
    tries: Counter[str] = field(default_factory=Counter)
    since_s: dict[str, float] = field(default_factory=dict)
    # Transactions of which some connections were made anew.
    reconnects: set[str] = field(default_factory=set)
    # Stopped processes that were asked to end, and when tools were first seen to hold the lock for nobody.
    asked: set[int] = field(default_factory=set)
    alone_s: dict[int, float] = field(default_factory=dict)

    def look(self) -> float:
        """Take back what is overdue; return the seconds until the next look."""
        codes: dict[str, ExitCode] = {}
        try:
            late = overdue(journal.transactions())
            self.reconnects |= {one.name for one in late if one.unconfirmed and one.unconfirmed.reconnect}
            if late:
                self._free_lock()
            for one in late:
                codes[one.name] = _take_back(one, self.progress)
        except Exception as error:
            # Another fabtune is at work: perhaps it confirms, or is being interrupted.  A disk that gives an error
            # now may not the next time.  Whatever it is, nobody else watches.
            self.progress(f"not yet: {type(error).__name__}: {error}")
            return _LOOK_EVERY_S
        self.worst = max([self.worst, *codes.values()])
        for name, code in codes.items():
            # What waits for its device, or a session that is down, waits on.
            if code not in (ExitCode.DONE, ExitCode.NEEDS_ACTION):
                self.tries[name] += 1
                self.since_s.setdefault(name, time.monotonic())
                # Somebody else's value stays one; what was refused may not be for ever.
                final = _TRIES if code == ExitCode.DRIFT else math.inf
                if self.tries[name] >= final or time.monotonic() > self.since_s[name] + _LATE_S:
                    self.since_s[name] = -math.inf
                    self.progress(f"{name} is not tried any more; `fabtune revert` says what stays, and why")
        if not any(codes.values()):
            return _LOOK_EVERY_S
        return _SELDOM_S if all(self.tries[name] > _TRIES for name, code in codes.items() if code) else _TRY_EVERY_S

    def _free_lock(self) -> None:
        """End who keeps the lock and does not go on: what was written would stay beyond the limit.

        A fabtune that was stopped is asked to end, and takes back what it wrote; stopped again it is killed.  So is a
        tool whose fabtune is gone, if it does not end within its own time.
        """
        stopped, alone = journal.lock_keepers()
        for pid in stopped:
            numbers = [signal.SIGKILL] if pid in self.asked else [signal.SIGTERM, signal.SIGCONT]
            self._send(pid, numbers, "is stopped and holds the lock beyond the time to confirm")
            self.asked.add(pid)
        now_s = time.monotonic()
        self.alone_s = {pid: self.alone_s.get(pid, now_s) for pid in alone}
        for pid, seen_s in self.alone_s.items():
            if now_s > seen_s + _TOOLS_END_S:
                self._send(pid, [signal.SIGKILL], "holds the lock for a fabtune that is gone")

    def _send(self, pid: int, numbers: Sequence[signal.Signals], what: str) -> None:
        self.progress(f"process {pid} {what}: {', '.join(number.name for number in numbers)}")
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            try:
                for number in numbers:
                    signal.pidfd_send_signal(process, number)
            finally:
                os.close(process)

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
        return any(self.since_s.get(one.name) != -math.inf for one in awaited(journal.transactions()))


def _take_back(one: Transaction, progress: Callable[[str], None]) -> ExitCode:
    progress(f"the time to confirm {one.name} is up")
    limit = one.unconfirmed
    leave = Leave(limit.reconnect, limit.relogin) if limit else Leave()

    def still(found: list[Transaction]) -> list[Transaction]:
        return [late for late in overdue(found) if late.name == one.name]

    report = undo(None, None, None, "", False, leave, progress, only=still)
    if report.interrupted:
        raise KeyboardInterrupt
    for outcome in report.outcomes:
        if outcome.state in _TOLD:
            step = outcome.step
            progress(
                f"{step.tunable} of {step.device.label} ({step.wrote}) is not back: {outcome.state}, {outcome.note}"
            )
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
