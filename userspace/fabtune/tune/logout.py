# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a session may be logged out, asked while its disks are kept from being claimed, and the logout itself."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import blocks, iscsiadm, luns, tree
from fabtune.host.sessions import Session, connections, live_sessions, scsi_devices
from fabtune.host.users import Users
from fabtune.tune import journal, login_identity, map_paths

# Drivers whose sessions iscsid makes; an offload card's own sessions live by other rules.
_SOFTWARE = ("iscsi_tcp", "iscsi_iser", "iser")
_GONE_WAIT_S = 30
# udev looks at a new disk for a moment, and nothing of its is lost.
_UDEV_WAIT_S = 5
_UDEV = ("(udev-worker)", "(systemd-udevd)", "(udevd)")
# A session that has just logged in may still be looking for its disks.
_OFFERS = "offers LUN"


def why_not(session: Session) -> str:
    """Return why logging out `session` could lose data or access, '' if it cannot."""
    deadline = time.monotonic() + _UDEV_WAIT_S
    while True:
        with kept(session) as reason:
            pass
        if not any(name in reason for name in (*_UDEV, _OFFERS)) or time.monotonic() > deadline:
            return reason
        time.sleep(0.1)


@contextlib.contextmanager
def kept(session: Session) -> Iterator[str]:
    """Keep the disks of `session` from being mounted or claimed within the block.

    Yields why logging it out could lose data or access, '' if it cannot.  A disk that anybody uses must
    be a path of multipath devices that can do without it.
    """
    reason = _why_not_back(session)
    if reason:
        yield reason
        return
    devices = scsi_devices(session)
    free = [name for device in devices if not _maps(device) for name in blocks.blocks_of(device)[:1]]
    try:
        with blocks.claimed(free) as own:
            yield _used(session, devices, Users(own)) or _why_not_the_same(session, devices)
    except blocks.InUseError as error:
        # Who it is says more than that there is somebody.
        yield _used(session, devices, Users()) or f"{error} and has no other path"


def _used(session: Session, devices: list[Path], present: Users) -> str:
    for device in devices:
        name = _named(device)
        maps = _maps(device)
        user = present.of_device(device, passing=maps)
        if user:
            return f"{name} is in use by {user}" + (" directly" if maps else " and has no other path")
        for holder in maps:
            system = present.system_on(holder, journal.state_dir())
            if system:
                return f"{name} carries {system}"
            reason = map_paths.why_not_without(holder, session)
            if reason:
                return f"{name} is in use: {reason}"
    return ""


def _why_not_the_same(session: Session, devices: list[Path]) -> str:
    """Return which of the SCSI `devices` of `session` would not come back as it was, or beside them; '' for none."""
    try:
        for device in luns.luns_gone(devices):
            return f"its target has no LUN {device.name.rpartition(':')[2]} any more, and {_named(device)} would go"
        for lun in luns.beyond(devices):
            return (
                f"its target {_OFFERS} {lun}, which this session does not have, and a login would bring it; "
                f"`iscsiadm -m session -r {session.sid} --rescan` brings it now, or log the session out and in yourself"
            )
        for device in devices:
            if luns.has_registrations(device):
                # They hold for one session alone, and the next one may log in under another ISID.
                return f"{_named(device)} has persistent reservations, which a new session may not have"
    except FabtuneError as error:
        return f"whether all of its LUNs come back cannot be told: {error}"
    return ""


def _named(device: Path) -> str:
    return map_paths.disk_of(device) or f"SCSI device {device.name}"


def _maps(device: Path) -> list[str]:
    disk = map_paths.disk_of(device)
    return blocks.multipath_above(disk) if disk else []


def why_not_connected_again(session: Session, may_be_down: bool = False) -> str:
    """Return why an iscsid that starts might not bring `session` back in place, '' if it will.

    One that `may_be_down` is looked at as if it were logged in.
    """
    driver = session.transport
    if driver in _SOFTWARE[1:]:
        return f"its driver is {driver}; only connections of {_SOFTWARE[0]} are made anew in place"
    there = replace(session, state="LOGGED_IN") if may_be_down else session
    return _by_record(there)[0] or login_identity.why_another_by_conf(session)


def _by_record(session: Session) -> tuple[str, dict[str, str]]:
    """Return why open-iscsi might not connect `session` again, '' if it will, and its node record."""
    if session.state != "LOGGED_IN":
        return f"it is {session.state or 'in an unknown state'}, not LOGGED_IN", {}
    driver = session.transport
    if driver not in _SOFTWARE:
        return f"its driver is {driver or 'unknown'}; only sessions of {' and '.join(_SOFTWARE[:2])} are logged out", {}
    count = connections(session)
    if count != 1:
        return f"it has {count} connections; only sessions with one are logged out", {}
    if session.target in (tree.read_text(tree.PROC / "cmdline") or "") or _of_firmware(session):
        return "this host was booted from its target", {}
    try:
        found = iscsiadm.records_named(session.target, session.portal, session.interface)
    except FabtuneError as error:
        return f"its node record cannot be read: {error}", {}
    if not found:
        return "it has no node record to log in by", {}
    if len(found) > 1:
        return _of_two(session, sorted(one.get("node.tpgt", "") for one in found)), {}
    settings = found[0]
    if "onboot" in (settings.get("node.startup"), settings.get("node.conn[0].startup")):
        return "its record says onboot: this host was booted from it", {}
    if settings.get("node.discovery_type") == "fw":
        return "its record is the firmware's", {}
    return "", settings


def _why_not_back(session: Session) -> str:
    """Return why `session` might not come back, or not as it was, '' if it will."""
    reason, settings = _by_record(session)
    if reason:
        return reason
    if settings.get("node.session.scan", "auto") != "auto":
        return "its record asks for no scan (node.session.scan), so a login would not bring its LUNs back"
    wanted = sessions_wanted(settings)
    live = sum(one.identity == session.identity for one in live_sessions())
    if live > wanted:
        return f"its record asks for {wanted} sessions and {live} are there: a login would not bring it back"
    if live < wanted:
        return f"its record asks for {wanted} sessions and {live} are there: a login would bring up the others as well"
    return login_identity.why_another(session, settings)


def _of_two(session: Session, tpgts: list[str]) -> str:
    """Return what is wrong with several records of one session."""
    own = tree.read_text(session.directory / "tpgt")
    stale = [
        str(place) for tpgt, place in iscsiadm.portal_directories(session.target, session.portal).items() if tpgt != own
    ]
    # iscsiadm deletes neither of them while the session is there.
    return f"it has {len(tpgts)} node records (TPGT {' and '.join(tpgts)}), and a login would try each; " + (
        f"remove the stale one, {' and '.join(stale)}" if own in tpgts and stale else "remove the stale one"
    )


def _of_firmware(session: Session) -> bool:
    names = [
        *tree.SYS.glob("firmware/ibft/target*/target-name"),
        *tree.SYS.glob("firmware/iscsi_boot*/target*/target-name"),
    ]
    return any(tree.read_text(name) == session.target for name in names)


def sessions_wanted(settings: dict[str, str]) -> int:
    """Return how many sessions a node record asks for."""
    return max(1, tree.whole(settings.get("node.session.nr_sessions")) or 1)


def end(session: Session) -> None:
    """Log out this one session and wait until the kernel has forgotten it.  Raises FabtuneError where it stays."""
    # By its id: by its record, all of the record's sessions would end.
    error = None
    try:
        iscsiadm.iscsiadm("-m", "session", "-r", str(session.sid), "--logout")
    except FabtuneError as caught:
        error = caught
    # An iscsiadm that ran out of time does not stop iscsid from going on.
    deadline = time.monotonic() + _GONE_WAIT_S
    while session.directory.exists():
        if time.monotonic() > deadline:
            raise error or FabtuneError(f"session {session.sid} of {session.target}: still there after its logout")
        time.sleep(0.05)
