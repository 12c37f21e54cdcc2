# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a session that was logged out for a re-login is back, as which one, and what the journal is told of it."""

import contextlib
from collections.abc import Callable

from fabtune.backends import record
from fabtune.facts.collect import this_host
from fabtune.host import iscsiadm
from fabtune.host.sessions import Session, live_sessions
from fabtune.tune import logout
from fabtune.tune.lines import GivenBackLine, KeptLine, LetGoLine, Line, LoginLine, Logout, PathLine, RefusedLine
from fabtune.tune.unconfirmed import now_s

# Puts one line into the journal; it is on disk when the call returns.  Raises OSError.
Log = Callable[[Line], None]


def leaving(session: Session, kept: dict[str, dict[str, str]]) -> Logout:
    """Return what the journal says of the logout of `session`, with what is `kept` of it."""
    return Logout(*_named(session), kept, newest=_newest())


def connecting(session: Session, kept: dict[str, dict[str, str]], iscsid_since: str) -> KeptLine:
    """Return what the journal says of a new connection of `session`, with what is `kept` of it."""
    return KeptLine(*_named(session), kept, iscsid_since, now_s(), newest=_newest())


def _newest() -> str:
    return str(max((one.sid for one in live_sessions()), default=""))


def _named(session: Session) -> tuple[str, str, str, str, str, str]:
    boot_id = this_host().boot_id
    return str(session.sid), session.identity, session.target, session.portal, session.interface, boot_id


def of(away: Logout) -> list[Session]:
    """Return the sessions of the record of `away`."""
    return [session for session in live_sessions() if session.identity == away.identity]


def follower(away: Logout) -> Session | None:
    """Return the session of the same record that logged in last after `away` ended, None where it has not ended."""
    present = of(away)
    if any(str(one.sid) == away.sid for one in present):
        return None
    later = [one for one in present if one.state == "LOGGED_IN" and away.precedes(one.sid)]
    return max(later, key=lambda one: one.sid) if later else None


def note_login(away: Logout, log: Log, successor: Session | None) -> None:
    """Journal that the session of `away` is back as `successor`, or with None that it never went or is given up."""
    # Without this line it is looked up again whether the session is there.
    with contextlib.suppress(OSError):
        log(LoginLine(*away.session, str(successor.sid) if successor else ""))


def note_given(away: Logout, log: Log) -> None:
    """Journal that the session of `away` has its kept values again, or that their loss was reported."""
    # Without this line the values are looked at again.
    with contextlib.suppress(OSError):
        log(GivenBackLine(*away.session))


def note_let_go(session: Session, log: Log) -> None:
    """Journal that the disks of `session` that were held short have their depth again."""
    # Without this line a depth that small is taken for one that is still held.
    with contextlib.suppress(OSError):
        log(LetGoLine(str(session.sid), session.identity))


def note_path(away: Logout, log: Log) -> None:
    """Journal that a multipath device has not taken its path through the session of `away` back."""
    # Without this line `verify` does not say it.
    with contextlib.suppress(OSError):
        log(PathLine(*away.session, away.boot_id))


def note_refused(away: Logout, log: Log, why: str) -> None:
    """Journal why the login of the session of `away` failed."""
    # Without this line it is told that a run was stopped.
    with contextlib.suppress(OSError):
        log(RefusedLine(*away.session, away.boot_id, why))


def is_away(away: Logout) -> bool:
    """Tell whether the session of `away` is still missing.  Raises FabtuneError where that cannot be told."""
    return _lacks(away, of(away))


def is_back(away: Logout) -> bool:
    """Tell whether the session of `away`, or one in its place, is logged in.  Raises FabtuneError."""
    return not _lacks(away, [session for session in of(away) if session.state == "LOGGED_IN"])


def _lacks(away: Logout, present: list[Session]) -> bool:
    """Tell whether the session of `away` is missing among `present`, sessions of its record."""
    if any(str(session.sid) == away.sid for session in present):
        # The process died before the logout.
        return False
    if not present:
        return True
    # Unlike one record by its name, all of them can be read beside a damaged one.
    record.BACKEND.forget()
    settings = record.BACKEND.all().get(away.identity)
    return settings is not None and len(present) < logout.sessions_wanted(settings)


def is_given_up(away: Logout) -> bool:
    """Tell whether a missing session's node record was deleted, so that nobody waits for it.  Raises FabtuneError."""
    gone = iscsiadm.one(away.target, away.portal, away.interface) is None and iscsiadm.absent(away.identity)
    return gone and is_away(away)
