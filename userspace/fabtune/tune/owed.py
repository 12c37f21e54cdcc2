# SPDX-License-Identifier: GPL-2.0-or-later
"""What a stopped re-login or reconnect owes: a session that is not back, or what was set by hand of one that is.

The next fabtune that writes brings the session back and gives it the values.
"""

import contextlib
from collections.abc import Callable, Sequence

from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host import iscsid
from fabtune.host.sessions import Session, called, live_sessions
from fabtune.model.device import Device
from fabtune.tune import carry, depth_held, journal, relogin, signals, successor
from fabtune.tune.lines import KeptLine, Logout
from fabtune.tune.pending import Pending
from fabtune.tune.transaction import Transaction
from fabtune.tune.unconfirmed import now_s

# Longer than whatever starts iscsid anew waits for the old one's end.
ANEW_S = 180.0


def label(away: Logout) -> str:
    """Return what people call the session."""
    return called(away.target, away.portal, away.interface)


def away(transactions: Sequence[Transaction], boot_id: str) -> list[tuple[Logout, str]]:
    """Return the sessions still missing, each with the reason why it cannot be looked up, '' if it can."""
    found = []
    for one in journal.owed_logins(transactions, boot_id):
        try:
            if successor.is_away(one):
                found.append((one, ""))
        except FabtuneError as error:
            found.append((one, str(error)))
    return found


def values(transactions: Sequence[Transaction], boot_id: str) -> list[tuple[Logout, carry.Difference]]:
    """Return what was set by hand of sessions that are back, and is not there again."""
    found = []
    for one, session in _owed_values(transactions, boot_id):
        found += [(one, value) for value in carry.differing(one.kept, session)] if session else []
    return found


def _owed_values(transactions: Sequence[Transaction], boot_id: str) -> list[tuple[Logout, Session | None]]:
    """Return the logouts whose values are owed, each with the session they are owed to, None where that one is gone."""
    owed = journal.owed_values(transactions, boot_id)
    present = {(str(session.sid), session.identity): session for session in live_sessions()} if owed else {}
    return [(one, present.get((sid, one.identity))) for one, sid in owed]


def settle(boot_id: str) -> None:
    """Journal which of the owed sessions are back: one that somebody logs out after that was logged out on purpose.

    Values that are all as they were are owed no longer either: what is set by hand from here on is meant.

    Where the journal cannot be written, or another fabtune is at work, the next run looks again.
    """
    # Without a lock only a look: it may be that the logout is still to come.
    with contextlib.suppress(OSError, FabtuneError):
        known = journal.transactions()
        if _back(known, boot_id) or _owed_values(known, boot_id):
            with journal.locked():
                _note(_back(journal.transactions(), boot_id))
                for one, session in _owed_values(journal.transactions(), boot_id):
                    if session and _is_over(one, session) and not carry.differing(one.kept, session):
                        with relogin.journalled() as log:
                            successor.note_given(one, log)


def _is_over(one: Logout, session: Session) -> bool:
    """Tell whether what took the values of `one` away will not do so again; the caller holds the lock."""
    if not isinstance(one, KeptLine):
        return True
    daemon = iscsid.running()
    if daemon and daemon.since == one.iscsid:
        # Whoever was to start it anew does not live, or not for long.
        return now_s() > one.at_s + ANEW_S
    return daemon is not None and session.state == "LOGGED_IN" and not iscsid.looks_at_disks(daemon)


def _note(settled: Sequence[Logout]) -> None:
    """Journal that the sessions of `settled` are back, or given up.  The caller holds the lock."""
    if settled:
        with contextlib.suppress(OSError, FabtuneError), relogin.journalled() as log:
            for one in settled:
                successor.note_login(one, log, successor.follower(one))


def _back(transactions: Sequence[Transaction], boot_id: str) -> list[Logout]:
    found = []
    for one in journal.owed_logins(transactions, boot_id):
        with contextlib.suppress(FabtuneError):
            if successor.is_back(one):
                found.append(one)
    return found


def bring_all_back(boot_id: str, progress: Callable[[str], None]) -> tuple[list[str], list[Pending]]:
    """Log the missing sessions in again; return those that are back and those that are not.  The caller holds the lock.

    What was set by hand of those that came back otherwise is given to them.
    """
    back: list[str] = []
    left: list[Pending] = []
    _note(_back(journal.transactions(), boot_id))
    missing = away(journal.transactions(), boot_id)
    for one, problem in missing:
        if not problem and _given_up(one):
            progress(f"{label(one)} stays logged out: its node record was deleted since")
            _note([one])
            continue
        if not problem:
            progress(f"login of {label(one)}, which an earlier run left logged out")
            # A second stop must not leave it half way again.
            with signals.held_back():
                problem = _log_in(one, progress)
        if problem:
            left.append(Pending("login", one.identity, label(one), one.sid, boot_id, problem))
        else:
            back.append(label(one))
    give_values_back(boot_id, progress)
    return back, left


def let_disks_go(boot_id: str) -> None:
    """Give disks that are held short since a reconnect that was killed their depth.  The caller holds the lock.

    That of a session without a connection, too: no request is sent for it.
    """
    for one, session in _owed_values(journal.transactions(), boot_id):
        if session and _holds_short(one):
            with contextlib.suppress(OSError, FabtuneError):
                if not carry.give_depths_back(one.kept, session):
                    with relogin.journalled() as log:
                        successor.note_let_go(session, log)


def held_depths(transactions: Sequence[Transaction], boot_id: str) -> list[tuple[Device, str]]:
    """Return the disks that `let_disks_go` would give their depth, each with that."""
    return [
        (disk, was)
        for one, session in _owed_values(transactions, boot_id)
        for place, disk in (carry.disks_by_place(session) if session else {}).items()
        if (was := depth_held.depth_before(one.kept.get(place, {}), disk, transactions))
    ]


def let_leftovers_go() -> None:
    """Let disks go before a load is looked at: what it gains of that is no step's.  Else the next write does."""
    boot_id = this_host().boot_id
    with contextlib.suppress(OSError, FabtuneError):
        if any(_holds_short(one) for one, _ in _owed_values(journal.transactions(), boot_id)):
            with journal.locked():
                let_disks_go(boot_id)


def _holds_short(one: Logout) -> bool:
    return any(map(depth_held.is_short, one.kept.values()))


def give_values_back(boot_id: str, progress: Callable[[str], None]) -> None:
    """Give the sessions that are back what was set by hand of them.  The caller holds the lock."""
    for one, session in _owed_values(journal.transactions(), boot_id):
        # A write to a disk whose session is down would wait for it.
        if session is None or not isinstance(one, KeptLine) or session.state == "LOGGED_IN":
            _give_back(one, session, progress)


def _give_back(one: Logout, session: Session | None, progress: Callable[[str], None]) -> None:
    """Give `session`, which is back, the values that are still owed to it."""
    # What cannot be journalled is looked at again.
    with contextlib.suppress(OSError, FabtuneError), signals.held_back(), relogin.journalled() as log:
        if session is None:
            progress(f"what was set by hand of {label(one)} before its {one.act} is lost: it was logged out since")
            successor.note_given(one, log)
            return
        for value in carry.differing(one.kept, session):
            progress(
                f"{value.what} of {value.device} was {value.was} before a {one.act}, and is {value.now}: giving it back"
            )
        for what, why in carry.give_back(one.kept, session, progress):
            progress(f"{what} is no longer as it was: {why}")
        # Else the next run looks again.
        if _is_over(one, session):
            successor.note_given(one, log)


def _given_up(one: Logout) -> bool:
    try:
        return successor.is_given_up(one)
    except FabtuneError:
        return False


def _log_in(one: Logout, progress: Callable[[str], None]) -> str:
    try:
        with relogin.journalled() as log:
            return relogin.bring_back(one, log, progress)
    except (OSError, FabtuneError) as error:
        # It may be back all the same; the next run looks.
        return str(error)
