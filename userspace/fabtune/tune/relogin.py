# SPDX-License-Identifier: GPL-2.0-or-later
"""Which sessions must log in again before new values count, and doing so only where no data is at risk."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from fabtune.backends import record, tree
from fabtune.errors import FabtuneError
from fabtune.facts import devices
from fabtune.facts.sessions import Session, live_sessions
from fabtune.facts.surroundings import Surroundings
from fabtune.model.device import Device
from fabtune.tune import signals
from fabtune.tune.journal import Step, Transaction

# A session that is up again has its disks within this time, or something is wrong with the path.
_LOGIN_TIMEOUT_S = 60
# multipathd takes a path back in when udev tells of its disk; the next path must not go before that.
_MULTIPATH_WAIT_S = 30


@dataclass(frozen=True)
class Pending:
    """One thing still to do before everything written is felt.

    `action` is relogin (a session of this initiator), srp-relogin (an SRP login of this initiator),
    target-relogin (an initiator logged in here), leave (a write that would end sessions), reload or
    reboot; `sid` tells the session or login that has to end from its successor.
    """

    action: str
    identity: str
    label: str
    sid: str
    boot_id: str
    reason: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the line of the journal."""
        return {key: value for key, value in asdict(self).items() if key != "reason"}


class SessionDownError(FabtuneError):
    """A session was logged out and did not come back with its new values."""

    def __init__(self, message: str, device: Device) -> None:
        super().__init__(message)
        self.device = device


def needed(steps: Iterable[Step], roles: Iterable[str], boot_id: str) -> list[Pending]:
    """Return what the written `steps` need before they are felt."""
    found: dict[tuple[str, str], Pending] = {}
    live = live_sessions()
    roles = tuple(roles)
    for step in steps:
        if step.effect == "relogin" and step.device.scope == "record":
            for session in live:
                if session.identity == step.device.identity:
                    _add(found, _of_session(session, boot_id))
        elif step.effect == "relogin" and step.tunable.startswith("iscsi."):
            # A module's parameter counts for every session.
            for session in live:
                _add(found, _of_session(session, boot_id))
        elif step.effect == "relogin" and step.tunable.startswith("srp."):
            for identity, login, label in _srp_logins():
                _add(found, Pending("srp-relogin", identity, f"SRP port {label}", login, boot_id))
        elif step.effect == "new-connections":
            # iscsid lives in the first network namespace; a target's portal may be anywhere.
            if step.device.identity in ("host", "netns:init") and "initiator" in roles:
                for session in live:
                    _add(found, _of_session(session, boot_id))
            if "target" in roles:
                for tpg in devices.tpgs(Surroundings()):
                    _add_initiators(found, tpg, boot_id)
        elif step.effect == "relogin" and step.device.scope in ("tpg", "acl"):
            _add_initiators(found, step.device, boot_id)
        elif step.effect in ("reload", "reboot"):
            _add(found, Pending(step.effect, step.device.identity, step.device.label, "", boot_id))
    return list(found.values())


def _add(found: dict[tuple[str, str], Pending], pending: Pending) -> None:
    found[pending.action, pending.identity] = pending


def _add_initiators(found: dict[tuple[str, str], Pending], device: Device, boot_id: str) -> None:
    for initiator, sid in target_sessions(device):
        _add(found, Pending("target-relogin", initiator, f"initiator {initiator}", sid, boot_id))


def _srp_logins() -> list[tuple[str, str, str]]:
    """Return (port id, login, name) of each SRP port this initiator is logged in to.

    The kernel gives names and host numbers of an old login to a new one, but never an inode number of sysfs.
    """
    ports = devices.srp_ports(Surroundings())
    return [(port.identity, str(Path(port.where["directory"]).stat().st_ino), port.label) for port in ports]


def _of_session(session: Session, boot_id: str) -> Pending:
    label = f"{session.target} at {session.portal}"
    return Pending("relogin", session.identity, label, str(session.sid), boot_id)


def target_sessions(device: Device) -> list[tuple[str, str]]:
    """Return (initiator, session id) of each session that the TPG or ACL `device` serves now."""
    tpg_name = ",".join(device.identity.split(",")[:2])
    target, _, tpg = tpg_name.partition(",")
    directory = tree.CONFIGFS / "iscsi" / target / tpg
    found = dict.fromkeys((tree.read_text(directory / "dynamic_sessions") or "").replace("\x00", "\n").split(), "")
    for acl in directory.glob("acls/*"):
        info = tree.read_text(acl / "info") or ""
        if info and "no active iscsi session" not in info.lower():
            found[acl.name] = _session_id(info)
    wanted = device.identity.split(",")[2:] if device.scope == "acl" else []
    return [(name, sid) for name, sid in sorted(found.items()) if not wanted or name in wanted]


def _session_id(info: str) -> str:
    """Return LIO's session id from an ACL's info text, '' where it has none."""
    for word in info.replace(":", " ").split():
        if word.isdigit():
            return word
    return ""


def in_use(device: Device) -> bool:
    """Tell whether a live session depends on `device` (a TPG, an ACL, a backstore)."""
    if device.scope in ("tpg", "acl"):
        return bool(target_sessions(device))
    if device.scope == "srpt-tpg":
        # ib_srpt does not show who is logged in.
        return tree.read_text(Path(device.where.get("directory", "")) / "enable") == "1"
    store = Path(device.where.get("directory", "")).resolve()
    return any(link.resolve() == store for link in tree.CONFIGFS.glob("*/*/*/lun/*/*") if link.is_symlink())


def merge(first: list[Pending], second: list[Pending]) -> list[Pending]:
    """Return both lists, each thing once."""
    return list({(one.action, one.identity): one for one in (*first, *second)}.values())


def still_pending(transactions: Iterable[Transaction], boot_id: str) -> list[Pending]:
    """Return what earlier transactions, or taking them back, left to do and nobody has done since."""
    alive = {(session.identity, str(session.sid)) for session in live_sessions()}
    alive |= {(identity, login) for identity, login, _ in _srp_logins()}
    found: dict[tuple[str, str], Pending] = {}
    for transaction in transactions:
        for line in (*([] if transaction.closed else transaction.pending), *transaction.due):
            pending = Pending(**line)
            if pending.boot_id != boot_id:
                continue
            if pending.action in ("relogin", "srp-relogin") and (pending.identity, pending.sid) not in alive:
                continue
            if pending.action == "target-relogin":
                # The target cannot tell an old login from a new one for every kernel; it asks once.
                continue
            _add(found, pending)
    return list(found.values())


def perform(pending: list[Pending], progress: Callable[[str], None]) -> tuple[list[str], list[Pending]]:
    """Log sessions out and in again, one at a time, where that is safe.

    Returns the sessions done and what is left, each with its reason.  Raises FabtuneError when
    a session that was logged out does not come back.
    """
    done: list[str] = []
    left: list[Pending] = []
    for one in pending:
        session = next((s for s in live_sessions() if s.identity == one.identity and str(s.sid) == one.sid), None)
        if one.action != "relogin":
            left.append(one)
            continue
        if session is None:
            continue
        reason = why_not(session)
        if reason:
            left.append(Pending(**(asdict(one) | {"reason": reason})))
            continue
        progress(f"re-login of {one.label}")
        # Between logout and login nothing may stop us: the LUNs are away.
        with signals.ignored():
            _again(session)
        done.append(one.label)
    return done, left


def _again(session: Session) -> None:
    device = Device(
        "record",
        session.identity,
        f"{session.target} at {session.portal}",
        {"target": session.target, "portal": session.portal, "interface": session.interface},
    )
    holders = _multipaths(session)
    record.iscsiadm(*record.select(device), "--logout")
    try:
        record.iscsiadm(*record.select(device), "--login")
    except FabtuneError as error:
        raise SessionDownError(str(error), device) from error
    deadline = time.monotonic() + _LOGIN_TIMEOUT_S
    while time.monotonic() < deadline:
        again = [s for s in live_sessions() if s.identity == session.identity and s.sid != session.sid]
        if again and again[0].state == "LOGGED_IN" and len(again[0].luns) >= len(session.luns):
            _wait_for_multipath(holders, again[0])
            return
        time.sleep(0.1)
    raise SessionDownError(
        f"session {session.target} at {session.portal}: not back with its {len(session.luns)} LUNs "
        f"{_LOGIN_TIMEOUT_S} s after its re-login; see `iscsiadm -m session -P 3` and the kernel log",
        device,
    )


def _multipaths(session: Session) -> list[Path]:
    """Return the dm-multipath devices that have a path through `session`."""
    holders = [path for lun in session.luns for path in (tree.SYS / "block" / lun).glob("holders/*")]
    found = [tree.SYS / "block" / holder.name for holder in holders]
    return [path for path in found if (tree.read_text(path / "dm/uuid") or "").startswith("mpath-")]


def _wait_for_multipath(holders: list[Path], session: Session) -> None:
    """Wait until each of `holders` has a path through `session` again; one that has not keeps its other paths."""
    deadline = time.monotonic() + _MULTIPATH_WAIT_S
    while time.monotonic() < deadline:
        if all(any((holder / "slaves" / lun).exists() for lun in session.luns) for holder in holders):
            return
        time.sleep(0.1)


def bring_back(device: Device) -> str:
    """Log the session of `device` in once more, with whatever its record says now; return how it went."""
    try:
        # iscsid goes on trying with the values that failed, and takes no second login beside that.
        with contextlib.suppress(FabtuneError):
            record.iscsiadm(*record.select(device), "--logout")
        record.iscsiadm(*record.select(device), "--login")
    except FabtuneError as error:
        return f"session {device.label} is DOWN, its LUNs are away: {error}"
    return f"session {device.label} logged in again with its old values"


def why_not(session: Session) -> str:
    """Return why logging out `session` could lose data or access, '' if it cannot.

    A LUN that anybody uses must have another live path below the same multipath device.
    """
    for lun in session.luns:
        block = tree.SYS / "block" / lun
        holders = [holder.name for holder in block.glob("holders/*")]
        if holders:
            if all(_other_live_path(holder, lun) for holder in holders):
                continue
            return f"{lun} is held by {', '.join(holders)} and has no other live path"
        user = _user(lun)
        if user:
            return f"{lun} is in use by {user} and has no other path"
    return ""


def _other_live_path(holder: str, lun: str) -> bool:
    """Tell whether dm-multipath device `holder` has a running path besides `lun`."""
    directory = tree.SYS / "block" / holder
    if not (tree.read_text(directory / "dm/uuid") or "").startswith("mpath-"):
        return False
    others = [slave for slave in directory.glob("slaves/*") if slave.name != lun]
    return any(tree.read_text(slave / "device/state") == "running" for slave in others)


def _user(lun: str) -> str:
    """Return who has disk `lun` or one of its partitions open or mounted, '' for nobody."""
    names = {lun, *(part.parent.name for part in (tree.SYS / "block" / lun).glob("*/partition"))}
    for name in names:
        held = [holder.name for holder in (tree.SYS / "class/block" / name).glob("holders/*")]
        if held:
            return held[0]
        number = tree.read_text(tree.SYS / "class/block" / name / "dev") or ""
        for line in (tree.read_text(tree.PROC / "self/mountinfo") or "").splitlines():
            if line.split()[2] == number:
                return f"a mount on {line.split()[4]}"
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"the kernel ({error.strerror})"
    return _opener({f"/dev/{name}" for name in names})


def _opener(paths: set[str]) -> str:
    for process in tree.PROC.glob("[0-9]*"):
        try:
            for fd in (process / "fd").iterdir():
                if str(fd.readlink()) in paths:
                    return f"process {process.name} ({tree.read_text(process / 'comm')})"
        except OSError:
            continue
    return ""
