# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions that a new connection in place took down and did not bring back, and their way back to the old values.

iscsid goes on with the records that it read when it started: where the target refuses what they said then, a session
stays down although its values have gone back.  Only an iscsid that is started once more brings it up.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host import iscsid
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import Session, live_sessions
from fabtune.model.negotiate import Value, preview
from fabtune.tune import journal, owed, pending, reconnect, signals
from fabtune.tune.lines import KeptLine
from fabtune.tune.logins import RECORD_KEYS
from fabtune.tune.pending import RECONNECT, Pending
from fabtune.tune.reconnect import NotReconnectedError, Reconnected
from fabtune.tune.signals import Stop
from fabtune.tune.successor import Log
from fabtune.tune.unconfirmed import now_s

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# iscsid's start is told in ticks.
_SLACK_S = 1.0
# Whoever was killed may have sent the signal that ends iscsid just before.
_ENDING_S = 5.0
_LOOK_EVERY_S = 0.2


def all_due(boot_id: str) -> list[Pending]:
    """Return that each session needs a connection by an iscsid which reads its record from now on."""
    return [pending.of_session(one, boot_id, RECONNECT) for one in live_sessions()]


def once_more(progress: Callable[[str], None], log: Log) -> str:
    """Let iscsid read the records again, after a reconnect whose values went back; return why not all is as before."""
    sessions, kept = live_sessions(), _kept(this_host().boot_id)
    known = [one for one in sessions if _key(one) in kept or one.state != "LOGGED_IN"]
    try:
        reconnect.connect_anew(sessions, reconnect.longest_pause_s(sessions, {}), progress, log, known)
        return "; ".join(unlike_records(live_sessions()))
    except (FabtuneError, OSError) as error:
        return told_of(error)


def told_of(error: FabtuneError | OSError) -> str:
    """Return what `error` says of sessions whose values went back."""
    anew = isinstance(error, NotReconnectedError)
    return f"iscsid was started once more, with the records as they are now: {error}" if anew else str(error)


def unlike_records(sessions: Sequence[Session]) -> list[str]:
    """Return which of `sessions` agreed on what their records cannot lead to, or might have, as far as can be read."""
    record.BACKEND.forget()
    try:
        records = record.BACKEND.all()
    except FabtuneError as error:
        return [f"all sessions are back; with which values cannot be told: {error}"]
    return [f"session {one.label} is back, but {why}" for one in sessions for why in _unlike(one, records)]


def _unlike(session: Session, records: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    settings = records.get(session.identity)
    if settings is None:
        yield "its node record is gone"
        return
    catalog = shipped_catalog().tunables
    ours, agreed = dict[str, Value](), dict[str, Value]()
    for name, key in RECORD_KEYS.items():
        tunable = catalog[name]
        for found, text in ((ours, settings.get(tunable.key)), (agreed, session.negotiated.get(key))):
            if text is not None and tunable.fits(value := tunable.parse(text)):
                found[key] = value
    # What was agreed on stays so if a target offers no more than that.
    for one in preview(ours, agreed):
        if one.name in ours and one.name in agreed and one.result != agreed[one.name]:
            yield f"{one.name} is {session.negotiated[one.name]}, and its record says {one.initiator}"


def wait_for_start(stop: Stop) -> None:
    """Wait for the iscsid that a reconnect which was stopped is starting: it is not to read half of the old values."""
    lines = _kept(this_host().boot_id).values()
    while not stop.wanted and any(_may_start(one, iscsid.running()) for one in lines):
        time.sleep(_LOOK_EVERY_S)


def _may_start(line: KeptLine, daemon: Daemon | None) -> bool:
    """Tell whether the iscsid that followed the one of `line` is still to come."""
    age_s = now_s() - line.at_s
    return age_s < iscsid.START_WAIT_S if daemon is None else daemon.since == line.iscsid and age_s < _ENDING_S


def waiting(tasks: Sequence[Pending], stop: Stop, patient: bool) -> dict[Session, float]:
    """Return the sessions that a reconnect took down, each with the time (CLOCK_BOOTTIME) at which it did.

    They are down still, and the iscsid that reconnect started has not read what `tasks` say.  Who is `patient` waits
    as long as the reconnect would have for those that come back by themselves.
    """
    boot_id = this_host().boot_id
    foretold_s = None
    while found := _down(tasks, boot_id):
        if foretold_s is None:
            foretold_s = reconnect.longest_pause_s(live_sessions(), {})
        if not patient or stop.wanted or now_s() > max(found.values()) + foretold_s + reconnect.GRACE_S:
            break
        time.sleep(_LOOK_EVERY_S)
    return found


def _down(tasks: Sequence[Pending], boot_id: str) -> dict[Session, float]:
    daemon = iscsid.running()
    asked = {(one.sid, one.identity) for one in tasks if one.action == RECONNECT and not one.reconnected}
    if daemon is None or not asked:
        return {}
    kept = {key: one for key, one in _kept(boot_id).items() if key in asked and _started_by(one, daemon)}
    return {one: kept[_key(one)].at_s for one in live_sessions() if one.state != "LOGGED_IN" and _key(one) in kept}


def _started_by(line: KeptLine, daemon: Daemon) -> bool:
    """Tell whether `daemon` is the iscsid that followed the one of `line` at once."""
    since_s = int(daemon.since) / _TICKS_PER_S - line.at_s
    return daemon.since != line.iscsid and -_SLACK_S < since_s < owed.ANEW_S


def _kept(boot_id: str) -> dict[tuple[str, str], KeptLine]:
    """Return the newest line of each session whose values are owed since its connection was made anew."""
    lines = [one for one, _ in journal.owed_values(journal.transactions(), boot_id)]
    return {one.session: one for one in lines if isinstance(one, KeptLine)}


def _key(session: Session) -> tuple[str, str]:
    return str(session.sid), session.identity


@dataclass(frozen=True)
class BroughtUp:
    """Which sessions have new connections, what is not as it was before, or why nothing was done."""

    reconnected: list[Reconnected] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    why_not: str = ""


def bring_up(down: Mapping[Session, float], progress: Callable[[str], None], log: Log) -> BroughtUp:
    """Start iscsid anew for the sessions that are `down`, whose values have gone back; the caller holds the lock.

    Raises FabtuneError, NotReconnectedError among them where one is still down, and OSError.
    """
    sessions, kept = live_sessions(), _kept(this_host().boot_id)
    ours = [one for one in sessions if _key(one) in map(_key, down)]
    pause_s = reconnect.longest_pause_s(sessions, {})
    if reason := reconnect.why_not(sessions, pause_s, 0.0, ours):
        return BroughtUp(why_not=reason)
    for one in ours:
        progress(f"session {one.label} is down since a reconnect, and iscsid goes on with the values taken back")
    known = [one for one in sessions if one in ours or _key(one) in kept]
    with signals.held_back():
        done = reconnect.connect_anew(sessions, pause_s, progress, log, known)
    # Their requests have waited since then.
    waited_s = {one.label: now_s() - at_s for one, at_s in down.items()}
    done = [Reconnected(one.label, waited_s.get(one.label, one.pause_s)) for one in done]
    return BroughtUp(done, unlike_records(live_sessions()))
