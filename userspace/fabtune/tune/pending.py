# SPDX-License-Identifier: GPL-2.0-or-later
"""What must happen before values that were written, or given back, are felt: who must connect or log in again."""

import contextlib
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from fabtune.errors import FabtuneError
from fabtune.facts import devices, portals
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import iscsid, targets
from fabtune.host.sessions import Session, live_sessions
from fabtune.model.address import canonical
from fabtune.model.device import Device
from fabtune.tune.lines import TodoLine
from fabtune.tune.transaction import Step, Transaction

# A session of this initiator: its connection under the same session, or the session itself.
RECONNECT, RELOGIN = "reconnect", "relogin"
# An initiator that is logged in here.
TARGET_RELOGIN = "target-relogin"
# A target whose saved configuration has values that were taken back.
SAVED = "saved"
# An initramfs that may set values which were taken back.
INITRAMFS = "initramfs"
_Line = TypeVar("_Line", bound=TodoLine)


@dataclass(frozen=True)
class Leave:
    """What the user allows beside values that count at once: new connections in place, re-logins, ended sessions."""

    reconnect: bool = False
    relogin: bool = False
    end_sessions: bool = False


@dataclass(frozen=True)
class Pending:
    """One thing still to do before everything written is felt.

    `action` is reconnect (a session of this initiator needs no more than a new connection by an iscsid that has read
    its record since), relogin (it must be logged out and in), path (a session that is back, but not in its multipath
    device), value (set by hand before a re-login, and not given back after it), srp-relogin (an SRP login of this
    initiator), target-relogin (an initiator logged in here), leave (a write that would end sessions), saved (the next
    boot gives a target what was taken back), initramfs (it may set what was taken back), reload or reboot; `sid` tells
    the session or login that has to end from its successor, `iscsid` the daemon that has not read the new record.
    """

    action: str
    identity: str
    label: str
    sid: str
    boot_id: str
    reason: str = ""
    iscsid: str = ""
    # The tunables that ask for it, where this run wrote them.
    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: TodoLine) -> Self:
        """Return it from the journal."""
        return cls(line.action, line.identity, line.label, line.sid, line.boot_id, iscsid=line.iscsid)

    def line(self, kind: type[_Line]) -> _Line:
        """Return it as the journal has it."""
        return kind(self.action, self.identity, self.label, self.sid, self.boot_id, self.iscsid)

    @property
    def reconnected(self) -> bool:
        """Tell whether another iscsid than the one that had the old record makes the session's connections now."""
        now = iscsid.since()
        return self.action == RECONNECT and bool(now) and self.iscsid != now


def needed(
    steps: Iterable[Step], roles: Iterable[str], boot_id: str, live: Callable[[], list[Session]] | None = None
) -> list[Pending]:
    """Return what the written `steps` need before they are felt; `live` returns the sessions, None for those of now."""
    found: dict[tuple[str, str, str], Pending] = {}
    # Read when the first step asks for it: most ask for none.
    live = live or functools.cache(live_sessions)
    roles = tuple(roles)
    for step in steps:
        if step.effect in (RECONNECT, RELOGIN) and step.device.scope == "record":
            for session in live():
                if session.identity == step.device.identity:
                    _add(found, of_session(session, boot_id, step.effect), step)
        elif step.effect == RECONNECT and step.device.scope == "connection":
            _add_ends(found, step, boot_id, live)
        elif step.effect == RELOGIN and step.tunable.startswith("iscsi."):
            # A module's parameter counts for every session.
            for session in live():
                _add(found, of_session(session, boot_id), step)
        elif step.effect == RELOGIN and step.tunable.startswith("srp."):
            for identity, login, label in _srp_logins():
                _add(found, Pending("srp-relogin", identity, f"SRP port {label}", login, boot_id))
        elif step.effect == "new-connections":
            # iscsid lives in the first network namespace; a target's portal may be anywhere.
            if step.device.identity in ("host", "netns:init") and "initiator" in roles:
                for session in live():
                    _add(found, of_session(session, boot_id, RECONNECT), step)
            if "target" in roles:
                for tpg in targets.groups():
                    _add_initiators(found, tpg, boot_id)
        elif step.effect in (RECONNECT, RELOGIN) and targets.of_scope(step.device.scope):
            _add_initiators(found, step.device, boot_id)
        elif step.effect in ("reload", "reboot"):
            _add(found, Pending(step.effect, step.device.identity, step.device.label, "", boot_id))
    return list(found.values())


def _add_ends(
    found: dict[tuple[str, str, str], Pending], step: Step, boot_id: str, live: Callable[[], list[Session]]
) -> None:
    """Add who has connections of a portal: sessions of this initiator, or initiators of this target."""
    role, address, port, _ = portals.parts(step.device)
    if role == "target":
        for tpg in targets.groups():
            _add_initiators(found, tpg, boot_id)
    else:
        for session in live():
            if (canonical(session.address), session.port) == (address, port):
                _add(found, of_session(session, boot_id, RECONNECT), step)


def _key(one: Pending) -> tuple[str, str, str]:
    """Return the key by which two tasks are the same; several sessions of one record are separate tasks."""
    return one.action, one.identity, one.sid if one.action in (RECONNECT, RELOGIN) else ""


def _add(found: dict[tuple[str, str, str], Pending], pending: Pending, step: Step | None = None) -> None:
    known = found.get(_key(pending), pending)
    names = dict.fromkeys((*known.values, *([step.tunable] if step else ())))
    found[_key(pending)] = replace(pending, values=tuple(names))


def _add_initiators(found: dict[tuple[str, str, str], Pending], device: Device, boot_id: str) -> None:
    try:
        logins = targets.logins(device)
    except FabtuneError as error:
        why = f"who is logged in cannot be told: {error}"
        everyone = f"every initiator of {device.label}"
        _add(found, Pending(TARGET_RELOGIN, device.identity, everyone, "", boot_id, why))
        return
    for initiator, sid in sorted((login.initiator, login.sid) for login in logins):
        _add(found, Pending(TARGET_RELOGIN, initiator, f"initiator {initiator}", sid, boot_id))


def of_initiators(group: Device, boot_id: str) -> list[Pending]:
    """Return that every initiator that is logged in to the portal group `group` must log in again."""
    found: dict[tuple[str, str, str], Pending] = {}
    _add_initiators(found, group, boot_id)
    return list(found.values())


def _srp_logins() -> list[tuple[str, str, str]]:
    """Return (port id, login, name) of each SRP port this initiator is logged in to.

    The kernel gives names and host numbers of an old login to a new one, but never an inode number of sysfs.
    """
    found = []
    for port in devices.srp_ports(HostSnapshot()):
        # One that goes while we look is logged out.
        with contextlib.suppress(FileNotFoundError):
            found.append((port.identity, str(Path(port.where["directory"]).stat().st_ino), port.label))
    return found


def of_session(session: Session, boot_id: str, action: str = RELOGIN) -> Pending:
    """Return that `session` must log in again, or connect again by an iscsid that reads its record."""
    since = iscsid.since() if action == RECONNECT else ""
    return Pending(action, session.identity, session.label, str(session.sid), boot_id, iscsid=since)


def merge(first: list[Pending], second: list[Pending]) -> list[Pending]:
    """Return both lists, each thing once."""
    return list({_key(one): one for one in (*first, *second)}.values())


def _alive() -> set[tuple[str, str]]:
    """Return (identity, login) of every session and SRP login there is."""
    sessions = {(session.identity, str(session.sid)) for session in live_sessions()}
    return sessions | {(identity, login) for identity, login, _ in _srp_logins()}


def still_pending(transactions: Iterable[Transaction], boot_id: str) -> list[Pending]:
    """Return what earlier transactions or reverts left to do and nobody has done since."""
    alive = functools.cache(_alive)
    found: dict[tuple[str, str, str], Pending] = {}
    for transaction in transactions:
        for line in (*([] if transaction.closed else transaction.pending), *transaction.due):
            pending = Pending.of(line)
            if pending.boot_id != boot_id:
                continue
            if pending.action in (RECONNECT, RELOGIN, "srp-relogin") and (
                pending.reconnected or (pending.identity, pending.sid) not in alive()
            ):
                continue
            if pending.action == TARGET_RELOGIN:
                # The target cannot tell an old login from a new one for every kernel; it asks once.
                continue
            _add(found, pending)
    return list(found.values())


def untold(transactions: Iterable[Transaction], boot_id: str) -> list[Pending]:
    """Return the initiators that a revert noted as due in `transactions`, which a kill kept from telling.

    Whose login is gone has done it, as far as the target tells logins apart.  Raises FabtuneError.
    """
    noted = [Pending.of(line) for one in transactions for line in one.due]
    noted = [one for one in noted if one.action == TARGET_RELOGIN and one.boot_id == boot_id]
    there = {(one.initiator, one.sid) for tpg in targets.groups() for one in targets.logins(tpg)} if noted else set()
    return [one for one in noted if not one.sid or (one.identity, one.sid) in there]
