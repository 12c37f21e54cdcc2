# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions that fabtune logged out for a re-login and never saw back: whoever comes next brings them back."""

import contextlib
from collections.abc import Callable, Sequence

from fabtune.errors import FabtuneError
from fabtune.tune import journal, relogin, signals
from fabtune.tune.relogin import Pending
from fabtune.tune.transaction import Logout, Transaction


def label(away: Logout) -> str:
    """Return what people call the session."""
    return f"{away.target} at {away.portal}"


def away(transactions: Sequence[Transaction], boot_id: str) -> list[tuple[Logout, str]]:
    """Return the sessions still missing, each with what keeps it from being looked up, '' where nothing does."""
    found = []
    for one in journal.owed_logins(transactions, boot_id):
        try:
            if relogin.is_away(one):
                found.append((one, ""))
        except FabtuneError as error:
            found.append((one, str(error)))
    return found


def settle(boot_id: str) -> None:
    """Journal which of the owed sessions are back: one that somebody logs out after that was logged out on purpose.

    Where the journal cannot be written, or another fabtune is at work, the next run looks again.
    """
    # Without a lock only a look: it may be that the logout is still to come.
    with contextlib.suppress(OSError, FabtuneError):
        if _back(boot_id):
            with journal.locked():
                _settle(boot_id)


def _settle(boot_id: str) -> None:
    """Journal which of the owed sessions are back.  The caller holds the lock."""
    _note(_back(boot_id))


def _note(settled: Sequence[Logout]) -> None:
    if settled:
        with contextlib.suppress(OSError, FabtuneError), relogin.journalled() as log:
            for one in settled:
                log("login", sid=one.sid, identity=one.identity)


def _back(boot_id: str) -> list[Logout]:
    found = []
    for one in journal.owed_logins(journal.transactions(), boot_id):
        with contextlib.suppress(FabtuneError):
            if relogin.is_back(one):
                found.append(one)
    return found


def bring_back(boot_id: str, progress: Callable[[str], None]) -> tuple[list[str], list[Pending]]:
    """Log the missing sessions in again; return those that are back and those that are not.  The caller holds the lock."""
    back: list[str] = []
    left: list[Pending] = []
    _settle(boot_id)
    missing = away(journal.transactions(), boot_id)
    for one, problem in missing:
        if not problem and _given_up(one):
            progress(f"{label(one)} stays logged out: its node record was deleted since")
            _note([one])
            continue
        if not problem:
            progress(f"login of {label(one)}, which an earlier run left logged out")
            # A second stop must not leave it half way again.
            with signals.ignored():
                problem = _log_in(one, progress)
        if problem:
            left.append(Pending("login", one.identity, label(one), one.sid, boot_id, problem))
        else:
            back.append(label(one))
    return back, left


def _given_up(one: Logout) -> bool:
    try:
        return relogin.is_given_up(one)
    except FabtuneError:
        return False


def _log_in(one: Logout, progress: Callable[[str], None]) -> str:
    try:
        with relogin.journalled() as log:
            return relogin.bring_back(one, log, progress)
    except (OSError, FabtuneError) as error:
        # It may be back all the same; the next run looks.
        return str(error)
