# SPDX-License-Identifier: GPL-2.0-or-later
"""Gives sessions that are in use a new connection in place, by an iscsid that is started anew.

It reads each session's record again and reconnects all sessions of the host at once: each request waits meanwhile, and
nothing is logged out.  So all of them must be such that they come back.
"""

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fabtune.backends import record
from fabtune.catalog.tunable import ROLES
from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host import iscsid, tree
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import Connections, Session, live_sessions, scsi_devices
from fabtune.host.sockets import established
from fabtune.host.users import Users
from fabtune.model.document import Json
from fabtune.tune import carry, depth_held, journal, logout, owed, short_queue, signals, successor
from fabtune.tune.pending import RECONNECT, TARGET_RELOGIN, Pending
from fabtune.tune.plan import CHANGE, Plan, Row
from fabtune.tune.successor import Log

# iscsid's own start and its first look at the sessions, and the round trips of a connection and a login; it sees to
# one session after the other.
_START_S, _ROUND_TRIPS = 1.2, 8
# iscsi_tcp waits this long before it connects again where a record says nothing (RFC 7143, 13.15).
TIME2WAIT_KEY, _TIME2WAIT_S = "node.session.iscsi.DefaultTime2Wait", 2
_PORTAL_WAIT_S = 3.0
# Sessions that are not back by then, beyond what was foretold, will not come back by themselves.
GRACE_S = 20.0
_DISKS_WAIT_S = 15.0
# A session that lost its connection is back within a few attempts of iscsid's, or not soon.
_BACK_WAIT_S = 20.0
# Each look at a disk that is up waits behind the load's requests: a dozen of them, for seconds each.
_BUSY_DISKS_WAIT_S = 120.0


@dataclass(frozen=True)
class Reconnected:
    """A session with its new connection, and the longest that a request may have waited for it.

    `since_s` is when it was there (CLOCK_MONOTONIC).
    """

    label: str
    pause_s: float
    since_s: float = 0.0

    def as_json(self) -> dict[str, Json]:
        """Return it with stable keys."""
        return {"label": self.label, "pause_s": round(self.pause_s, 3)}


class NotReconnectedError(FabtuneError):
    """iscsid was started anew, and a session has no new connection."""


@dataclass(frozen=True)
class Forecast:
    """What a reconnect would do here: how many sessions of this host pause, for how long, or why it is not done."""

    sessions: int
    pause_s: float
    why_not: str = ""

    def as_json(self) -> dict[str, Json]:
        """Return it with stable keys."""
        return {"sessions": self.sessions, "pause_s": round(self.pause_s, 3), "why_not": self.why_not}


def forecast(plan: Plan, sessions: Sequence[Session], waiting: bool = False) -> Forecast | None:
    """Return what a reconnect of `sessions` would do here, None where neither `plan` nor anything `waiting` asks."""
    asked = waiting or any(row.tunable.effect in (RECONNECT, "new-connections") for row in plan.changes)
    if not (asked and sessions and ROLES[0] in plan.roles):
        return None
    waits_s = {row.device.identity: row.wanted for row in plan.rows if row.tunable.key == TIME2WAIT_KEY and row.device}
    return foretold(sessions, waits_s, longest_pause_s(sessions, {}))


def foretold(sessions: Sequence[Session], waits_s: Mapping[str, str | None], back_s: float) -> Forecast:
    """Return what a reconnect of `sessions` would do here; the rest is as for `longest_pause_s` and `why_not`."""
    pause_s = longest_pause_s(sessions, waits_s)
    reasons = (_why_fails_first(one, pause_s, back_s) for one in sessions)
    return Forecast(len(sessions), pause_s, _why_not_by(iscsid.running()) or next(filter(None, reasons), ""))


def longest_pause_s(sessions: Sequence[Session], waits_s: Mapping[str, str | None]) -> float:
    """Return the longest pause to be expected; `waits_s` are DefaultTime2Waits to come, by record."""
    records: dict[str, dict[str, str]] = {}
    # Who may not read the records plans without them.
    with contextlib.suppress(FabtuneError):
        records = record.BACKEND.all()
    ends = Connections(established(), sessions)

    def pause_s(session: Session) -> float:
        text = waits_s.get(session.identity) or records.get(session.identity, {}).get(TIME2WAIT_KEY)
        wait_s = tree.whole(text)
        return (_TIME2WAIT_S if wait_s is None else wait_s) + _ROUND_TRIPS * ends.rtt_ms(session) / 1e3

    return _START_S + sum(map(pause_s, sessions))


def most_s(sessions: Sequence[Session]) -> float:
    """Return how long it takes at most until all `sessions` are connected anew, if they come back at all."""
    waits_s = _BACK_WAIT_S + _BUSY_DISKS_WAIT_S + iscsid.START_WAIT_S + GRACE_S + _DISKS_WAIT_S
    return longest_pause_s(sessions, {}) + waits_s


def _why_not_by(daemon: Daemon | None) -> str:
    return iscsid.why_not_anew(daemon) if daemon else "no iscsid runs that could make connections anew"


def _why_not_all(sessions: Sequence[Session], pause_s: float, back_s: float, down: Collection[Session] = ()) -> str:
    present = Users()
    for session in sessions:
        waits_already = session in down
        reason = (
            logout.why_not_connected_again(session, waits_already)
            or ("" if waits_already else _why_fails_first(session, pause_s, back_s))
            or why_not_waited_for(session, present)
        )  # fmt: skip
        if reason:
            return f"session {session.label}: {reason}"
    return ""


def why_not_waited_for(session: Session, present: Users) -> str:
    """Return why fabtune could not go on while requests of `session` wait, '' if it can; or what would be undone."""
    for device in scsi_devices(session):
        if tree.read_text(device / "state") == "offline":
            return f"its SCSI device {device.name} was set offline by hand, and would be running afterwards"
    for disk in session.luns:
        if system := present.system_on(disk, journal.state_dir()):
            return f"{disk} carries {system}, which would wait with it; FABTUNE_STATE_DIR moves the journal"
    return ""


def _why_fails_first(session: Session, pause_s: float, back_s: float) -> str:
    """Return why requests of `session` would fail before it is back, '' if they wait for it.

    Where the target refuses what is new, everything goes back first, which takes another `back_s`.
    """
    text = tree.read_text(session.directory / "recovery_tmo") or ""
    limit_s = int(text) if text.lstrip("-").isdecimal() else -1
    needed_s = pause_s + back_s + GRACE_S + iscsid.START_WAIT_S
    if 0 <= limit_s < needed_s:
        worst = "where the target refuses the new values" if back_s else "at worst"
        return (
            f"its requests fail after {limit_s} s without a connection (recovery_tmo); {pause_s:.1f} s are to be "
            f"expected, and {needed_s:.0f} s {worst}; raise iscsi.recovery_timeout "
            "first, or fast_io_fail_tmo where multipathd sets it"
        )
    return ""


def _why_no_answer(session: Session, interface: int) -> str:
    """Return why the portal of `session` takes no connection now, '' if it does.

    Over the interface of that number, as iscsid binds the connections of a record that names one; 0 is any.
    """
    family = socket.AF_INET6 if ":" in session.address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.settimeout(_PORTAL_WAIT_S)
            if interface:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, socket.if_indextoname(interface).encode())
            probe.connect((session.address, session.port))
            return ""
    except OSError as error:
        why = error.strerror or str(error)
        return f"session {session.label}: its portal does not answer now: {why}"


def why_not(sessions: Sequence[Session], pause_s: float, back_s: float, down: Collection[Session] = ()) -> str:
    """Return why the connections of `sessions`, all that this host has, must not be made anew; '' if they may.

    That takes `pause_s`, and another `back_s` where the old values must come back.  Those that are `down` have no
    connection to lose; where there are no others, their portals may be out of reach.
    """
    if reason := _why_not_by(iscsid.running()) or _why_not_all(sessions, pause_s, back_s, down):
        return reason
    if down and len(down) == len(sessions):
        return ""
    ends = Connections(established(), sessions)
    ways: dict[tuple[str, int, int], Session] = {}
    for one in sessions:
        bounds = {end.bound for end in ends.perhaps_of(one)} or {0}
        ways |= {(one.address, one.port, bound): one for bound in bounds}
    return next((why for (*_, bound), one in ways.items() if (why := _why_no_answer(one, bound))), "")


def in_place(
    pending: Sequence[Pending],
    progress: Callable[[str], None],
    log: Log,
    interrupt: signals.Stop,
    way_back: bool = True,
) -> tuple[list[Reconnected], list[Pending]]:
    """Make the connections of all sessions anew where `pending` asks for one; return those, and what is left to do.

    With `way_back` the values from before would come back, by new connections, where that fails.  What was set by hand
    is told to `log` before.  Raises NotReconnectedError where a session is not back in time, OSError where the journal
    cannot be written and KeyboardInterrupt, both before anything is done.
    """
    asked = [one for one in pending if one.action == RECONNECT]
    rest = [one for one in pending if one.action != RECONNECT]
    if not asked:
        return [], rest
    wait_for_lost(progress, interrupt.check)
    sessions = live_sessions()
    foretold_s = longest_pause_s(sessions, {})
    reason = why_not(sessions, foretold_s, longest_pause_s(sessions, _waits_before()) if way_back else 0.0)
    if reason:
        return [], [*rest, *(replace(one, reason=reason) for one in asked)]
    interrupt.check()
    with signals.held_back():
        done = connect_anew(sessions, foretold_s, progress, log)
    return done, left_to_do(rest, sessions)


def wait_for_lost(progress: Callable[[str], None], check: Callable[[], None], disks: Collection[str] = ()) -> bool:
    """Wait until the sessions that have just lost their connection have one, if that is soon; tell whether any had not.

    Of `disks` alone, where some are named.  `check` is called meanwhile, and what it raises is raised.
    """

    def lost() -> list[Session]:
        failed = [one for one in live_sessions() if one.state == "FAILED"]
        return [one for one in failed if not disks or not set(disks).isdisjoint(one.luns)]

    if _why_not_by(iscsid.running()) or not (found := lost()):
        return False
    progress(f"without a connection now, waiting for it: {', '.join(one.label for one in found)}")
    deadline = time.monotonic() + _BACK_WAIT_S
    while lost() and iscsid.running() and time.monotonic() < deadline:
        check()
        time.sleep(0.1)
    return True


def left_to_do(tasks: Sequence[Pending], sessions: Sequence[Session]) -> list[Pending]:
    """Return what of `tasks` is left when the connections of `sessions` were made anew."""
    # A target on this very host has its own sessions logged in anew, too.
    ours = {tree.read_text(one.directory / "initiatorname") or "" for one in sessions}
    return [one for one in tasks if not one.reconnected and (one.action != TARGET_RELOGIN or one.identity not in ours)]


def why_not_for(rows: Iterable[Row], sessions: Sequence[Session]) -> str:
    """Return why `sessions`, all of this host, would not be connected anew once `rows` are written, '' if they would.

    As `why_not`, but that no portal is asked.
    """
    ours = (row for row in rows if row.tunable.key == TIME2WAIT_KEY and row.device and row.state == CHANGE)
    waits_s = {row.device.identity: row.wanted for row in ours if row.device}
    pause_s, back_s = longest_pause_s(sessions, waits_s), longest_pause_s(sessions, _waits_before())
    return _why_not_by(iscsid.running()) or _why_not_all(sessions, pause_s, back_s)


def _waits_before() -> dict[str, str]:
    """Return the DefaultTime2Wait that each record would go back to, where fabtune has written another one."""
    steps = [step for one in journal.transactions() for step in one.open_steps if step.key == TIME2WAIT_KEY]
    return {step.device.identity: step.old for step in reversed(steps)}


def connect_anew(
    sessions: Sequence[Session],
    foretold_s: float,
    progress: Callable[[str], None],
    log: Log,
    known: Collection[Session] = (),
) -> list[Reconnected]:
    """Start iscsid anew and wait until it has logged in all sessions.

    Of those that are `known` the journal has what a new connection takes, but for a depth that is held short.  Raises
    NotReconnectedError, FabtuneError, OSError.
    """
    daemon = iscsid.running()
    if daemon is None:
        raise FabtuneError("no iscsid runs; start it, and it makes the connections anew")
    progress(f"new connections in place: {len(sessions)} sessions of this host pause for about {foretold_s:.1f} s")
    # What an earlier run has held short is nobody's wish.
    owed.let_disks_go(this_host().boot_id)
    present = {one.sid: carry.of(one) for one in sessions}
    queues = short_queue.of(sessions, present)
    kept = {one.sid: present[one.sid] for one in sessions if one not in known}
    lines = {sid: {place: dict(values) for place, values in found.items()} for sid, found in kept.items()}
    for queue in queues:
        # Who comes after a kill gives it back.
        depth_held.hold_short(lines.setdefault(queue.sid, {}).setdefault(queue.place, {}), queue.few, queue.was)
    for one in sessions:
        if one.sid in lines:
            log(successor.connecting(one, lines[one.sid], daemon.since))

    def let_go(sids: set[int]) -> None:
        for one in sessions:
            if one.sid in sids:
                successor.note_let_go(one, log)

    with short_queue.held(queues, progress, let_go) as hold_again:
        iscsid.let_look(daemon, _DISKS_WAIT_S if known else _BUSY_DISKS_WAIT_S, hold_again)
        found = _start_anew(daemon, sessions, foretold_s, hold_again)
        if len({queue.sid for queue in queues}) > 1:
            # None is to be kept from the line by the others while its connection is new; one alone has it for itself.
            _wait_for_disks(hold_again)
    if not _wait_for_disks():
        progress(
            "iscsid still looks at disks, and may set their depth and timeout again: `fabtune verify` tells, and the "
            "next `fabtune apply`, `tune` or `revert` gives back what is not as it was"
        )
    owed.give_values_back(this_host().boot_id, progress)
    for session in live_sessions():
        for what, why in carry.follow_record(kept[session.sid], session) if session.sid in kept else ():
            progress(f"{what} is not what the record says: {why}")
    return found


def _start_anew(
    daemon: Daemon, sessions: Sequence[Session], foretold_s: float, meanwhile: Callable[[], None]
) -> list[Reconnected]:
    """Start `daemon` anew and wait until it has logged in all `sessions`; `meanwhile` is called again and again."""
    begun_s = time.monotonic()
    try:
        iscsid.start_anew(daemon)
    except iscsid.EndedError as error:
        # It may come up yet, and has read the new records then.
        raise NotReconnectedError(str(error)) from error
    try:
        return _watch(sessions, daemon, begun_s, foretold_s + GRACE_S, meanwhile)
    except NotReconnectedError:
        raise
    except (FabtuneError, OSError) as error:
        # Whatever it is: iscsid has read the new records.
        raise NotReconnectedError(str(error)) from error


def _wait_for_disks(meanwhile: Callable[[], None] = lambda: None) -> bool:
    """Wait until iscsid has looked at all disks: what it sets of them then would undo ours; tell whether it has.

    `meanwhile` is called again and again.
    """
    deadline = time.monotonic() + _DISKS_WAIT_S
    while (daemon := iscsid.running()) and (looks := iscsid.looks_at_disks(daemon)) and time.monotonic() < deadline:
        meanwhile()
        time.sleep(0.1)
    return not (daemon and looks)


def _watch(
    sessions: Sequence[Session], ended: Daemon, begun_s: float, limit_s: float, meanwhile: Callable[[], None]
) -> list[Reconnected]:
    """Wait until each session is logged in by another iscsid than the one that has `ended`, so long from now.

    Their pause has `begun_s` before that; `meanwhile` is called again and again.
    """
    found: dict[int, Reconnected] = {}
    deadline = time.monotonic() + limit_s
    wanted = {one.sid: one.label for one in sessions}
    while len(found) < len(wanted):
        now_s = time.monotonic()
        pause_s = now_s - begun_s
        now = live_sessions()
        for sid in _logged_in_anew(now, ended):
            if sid in wanted:
                found.setdefault(sid, Reconnected(wanted[sid], pause_s, now_s))
        if time.monotonic() > deadline:
            states = {one.sid: one.state or "in an unknown state" for one in now}
            late = [f"{label} ({states.get(sid, 'gone')})" for sid, label in wanted.items() if sid not in found]
            raise NotReconnectedError(f"not back {pause_s:.0f} s after iscsid was started anew: {', '.join(late)}")
        meanwhile()
        time.sleep(0.1)
    return list(found.values())


def _logged_in_anew(sessions: Sequence[Session], ended: Daemon) -> set[int]:
    """Return the ids of those of `sessions`, all that there are, that another iscsid than `ended` has logged in.

    An iscsid that has just started leaves a session as it is until it makes its connection anew, so that a session
    that is logged in is not back for that: its connection must be one of the new iscsid's.
    """
    daemon = iscsid.running()
    if daemon is None or daemon.since == ended.since:
        return set()
    own, ends = daemon.sockets(), Connections(established(), sessions)
    portals = Counter((one.address, one.port) for one in sessions)
    found = set()
    for one in sessions:
        here = [end for end in ends.to_portal(one) if end.inode in own]
        # Kernels before 6.x do not tell which of them is the session's: there all sessions of a portal must have one.
        mine = any(end.local_port == one.local_port for end in here)
        if one.state == "LOGGED_IN" and (mine if one.local_port else len(here) >= portals[one.address, one.port]):
            found.add(one.sid)
    return found
