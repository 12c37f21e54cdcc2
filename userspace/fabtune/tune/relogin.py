# SPDX-License-Identifier: GPL-2.0-or-later
"""Logs sessions out and in again, only where no data is at risk."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host import iscsiadm
from fabtune.host.sessions import Session, live_sessions, scsi_devices
from fabtune.tune import carry, fault, journal, logout, map_paths, signals, successor
from fabtune.tune.journal import Logout, Writer
from fabtune.tune.lines import ClosedLine
from fabtune.tune.pending import RECONNECT, RELOGIN, Pending
from fabtune.tune.plan import Plan
from fabtune.tune.signals import Stop
from fabtune.tune.successor import Log

# A session that is up again has its disks within this time, or something is wrong with the path.
_LOGIN_TIMEOUT_S = 60


class SessionDownError(FabtuneError):
    """A session was logged out and did not come back with its new values."""

    def __init__(self, message: str, away: Logout) -> None:
        super().__init__(message)
        self.away = away


@contextlib.contextmanager
def journalled() -> Iterator[Log]:
    """Journal into the newest transaction, or one without values where lines of that one could not be read back.

    The caller holds the lock.
    """
    newest = next(iter(reversed(journal.transactions())), None)
    if newest is None or newest.damage:
        writer, _ = journal.begin(Plan("relogin", (), "", None, {}), this_host())
        writer.append(ClosedLine())
    else:
        writer = Writer(newest.path)
    try:
        yield writer.append
    finally:
        writer.close()


def perform(
    pending: list[Pending], progress: Callable[[str], None], log: Log, interrupt: Stop
) -> tuple[list[str], list[Pending]]:
    """Log sessions out and in again, one at a time, where that is safe.

    Each logout and each login is told to `log`, the logout before it happens.  Returns the sessions done
    and what is left, each with its reason.  Raises SessionDownError when a session that was logged out
    does not come back, OSError when the journal cannot be written, with nothing logged out, and KeyboardInterrupt
    before the next logout once a signal came (`interrupt`).
    """
    done: list[str] = []
    left: list[Pending] = []
    # Once a path stays away, no other one may go.
    stop = ""
    for one in pending:
        if one.action not in (RECONNECT, RELOGIN):
            left.append(one)
            continue
        session = next((s for s in live_sessions() if s.identity == one.identity and str(s.sid) == one.sid), None)
        if session is None:
            continue
        reason = stop or logout.why_not(session)
        if not reason:
            interrupt.check()
            progress(f"re-login of {one.label}")
            # Between logout and login nothing may stop us: the LUNs are away.
            with signals.held_back():
                reason, stop, lost = _anew(session, one, progress, log)
                left += lost
        if reason:
            left.append(replace(one, reason=reason))
        else:
            done.append(one.label)
    return done, left


def _anew(session: Session, one: Pending, progress: Callable[[str], None], log: Log) -> tuple[str, str, list[Pending]]:
    """Log `session` out and in; return why it was left alone, why no other may follow, and what is left to do."""
    maps, away = map_paths.maps_above(session), successor.leaving(session, carry.of(session))
    reason, again = _again(session, away, progress, log)
    if again is None:
        return reason, "", []
    left: list[Pending] = []
    late = map_paths.wait_until_back(maps, again)
    stop = f"{late} has not taken its path through {one.label} back yet" if late else ""
    if late:
        successor.note_path(away, log)
        left.append(replace(one, action="path", reason=stop))
    # multipathd and udev have their say first.
    lost = _given_back(away, again, log, progress)
    return "", stop, [*left, *(replace(one, action="value", label=what, reason=why) for what, why in lost)]


def _again(session: Session, away: Logout, progress: Callable[[str], None], log: Log) -> tuple[str, Session | None]:
    """Log `session` out and in; return why it was left alone, or the session that follows it."""
    wanted = len(scsi_devices(session)), len(session.luns)
    log(away)
    try:
        # Asked again at the last moment, and from here on nobody mounts one of its disks.
        with logout.kept(session) as reason:
            if not reason:
                logout.end(session)
    except FabtuneError as error:
        if not session.directory.exists():
            raise SessionDownError(str(error), away) from error
        reason = str(error)
    if reason:
        successor.note_login(away, log, None)
        return reason, None
    try:
        return "", _log_in(away, wanted, log)
    except FabtuneError as error:
        follows = successor.follower(away)
        if follows is None or successor.is_away(away):
            raise SessionDownError(str(error), away) from error
        successor.note_login(away, log, follows)
        give_back(away, follows, log, progress)
        raise FabtuneError(f"{error}; the session is logged in, with its new values") from error


def give_back(away: Logout, session: Session, log: Log, progress: Callable[[str], None]) -> None:
    """Give `session` what `away` kept, and tell `progress` what of it is lost."""
    for what, why in _given_back(away, session, log, progress):
        progress(f"{what} is no longer as it was: {why}")


def _given_back(away: Logout, session: Session, log: Log, progress: Callable[[str], None]) -> list[tuple[str, str]]:
    lost = carry.give_back(away.kept, session, progress)
    successor.note_given(away, log)
    return lost


def _log_in(away: Logout, wanted: tuple[int, int], log: Log) -> Session:
    """Log the session of `away` in and return it once it has so many SCSI devices and disks.  Raises FabtuneError."""
    before = {session.sid for session in successor.of(away)}
    fault.checkpoint(writes=False)
    try:
        iscsiadm.iscsiadm(*iscsiadm.node(away.target, away.portal, away.interface), "--login")
    except FabtuneError:
        # What failed may be another session of the record, or a stale record of the same portal.
        if not any(one.sid not in before and one.state == "LOGGED_IN" for one in successor.of(away)):
            raise
    fault.checkpoint(writes=False)
    deadline = time.monotonic() + _LOGIN_TIMEOUT_S
    noted = False
    while time.monotonic() < deadline:
        for session in successor.of(away):
            if session.sid in before or session.state != "LOGGED_IN":
                continue
            # Its disks may take long, and whoever logs it out from here on means it.
            if not noted:
                successor.note_login(away, log, session)
                noted = True
            if len(scsi_devices(session)) >= wanted[0] and len(session.luns) >= wanted[1]:
                return session
        time.sleep(0.1)
    raise FabtuneError(
        f"session {away.target} at {away.portal}: not back with its {wanted[0]} LUNs "
        f"{_LOGIN_TIMEOUT_S} s after its re-login; see `iscsiadm -m session -P 3` and the kernel log"
    )


def bring_back(away: Logout, log: Log, progress: Callable[[str], None]) -> str:
    """Log the session of `away` in with whatever its record says now; return why that failed, '' if it is there.

    Other sessions of the same record stay as they are.  What it carried and does not get back is told to `progress`.
    """
    why = _why_not_back(away, log, progress)
    if why:
        successor.note_refused(away, log, why)
    return why


def _why_not_back(away: Logout, log: Log, progress: Callable[[str], None]) -> str:
    try:
        # iscsid goes on trying with the values that failed, and takes no second login beside that.  What has disks was
        # logged in once, and is another session that lost its network: perhaps the last path of what is in use.
        for session in successor.of(away):
            if session.state != "LOGGED_IN" and away.precedes(session.sid) and not scsi_devices(session):
                with contextlib.suppress(FabtuneError):
                    logout.end(session)
        if successor.is_away(away):
            # A damaged record of another target hides this one, but does not keep it from logging in.
            with contextlib.suppress(FabtuneError):
                if iscsiadm.one(away.target, away.portal, away.interface) is None:
                    return "its node record is gone; discover the target and log in by hand"
            give_back(away, _log_in(away, (0, 0), log), log, progress)
        elif successor.is_back(away):
            follows = successor.follower(away)
            successor.note_login(away, log, follows)
            if follows:
                give_back(away, follows, log, progress)
        else:
            return "it is there, but not logged in"
    except FabtuneError as error:
        return str(error)
    return ""
