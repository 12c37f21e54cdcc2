# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the devices of each scope on this host, named so that a journal can find them again."""

from collections.abc import Callable
from pathlib import Path

from fabtune.backends import record, tree
from fabtune.errors import FabtuneError
from fabtune.facts.sessions import Session
from fabtune.model.device import Device


def host(_: str, __: list[Session]) -> list[Device]:
    """Return the host itself: for values that are global whatever the namespace."""
    return [Device("host", "host", "host")]


def netns(name: str, _: list[Session]) -> list[Device]:
    """Return the network namespace to tune: `name`, else our own under the name it has."""
    if name:
        return [Device("netns", f"netns:{_netns_name(name)}", f"netns {_netns_name(name)}", {"netns": name})]
    own = _inode(Path("/proc/self/ns/net"))
    if own == _inode(Path("/proc/1/ns/net")):
        return [Device("netns", "netns:init", "host", {"netns": ""})]
    named = next((path.name for path in Path("/run/netns").glob("*") if _inode(path) == own), None)
    if named:
        return [Device("netns", f"netns:{named}", f"netns {named}", {"netns": ""})]
    return [Device("netns", "netns:self", "netns", {"netns": ""})]


def _netns_name(name: str) -> str:
    path = tree.netns_path(name)
    return path.name if path.parent == Path("/run/netns") else str(path)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def records(_: str, __: list[Session]) -> list[Device]:
    """Return the node records of open-iscsi; none without iscsiadm or its rights."""
    try:
        known = record.BACKEND.all()
    except FabtuneError:
        return []
    devices = []
    for identity in sorted(known):
        target, portal, interface = identity.rsplit(",", 2)
        where = {"target": target, "portal": portal, "interface": interface}
        devices.append(Device("record", identity, _session_label(target, portal), where))
    return devices


def _session_label(target: str, portal: str) -> str:
    tail = target.rpartition(":")[2] or target
    return f"{tail} at {portal}"


def sessions(_: str, live: list[Session]) -> list[Device]:
    """Return the live sessions (their sysfs attributes)."""
    base = tree.SYS / "class/iscsi_session"
    return [
        Device(
            "session",
            session.identity,
            _session_label(session.target, session.portal),
            {"directory": str(base / f"session{session.sid}"), "sid": str(session.sid)},
        )
        for session in live
    ]


def tpgs(_: str, __: list[Session]) -> list[Device]:
    """Return LIO's iSCSI target portal groups."""
    return [
        Device(
            "tpg",
            f"{tpg.parent.name},{tpg.name}",
            f"{tpg.parent.name.rpartition(':')[2]} {tpg.name}",
            {"directory": str(tpg)},
        )
        for tpg in sorted((tree.CONFIGFS / "iscsi").glob("iqn.*/tpgt_*"))
    ]


def acls(_: str, __: list[Session]) -> list[Device]:
    """Return the ACLs of LIO's iSCSI TPGs, one an initiator."""
    return [
        Device(
            "acl",
            f"{acl.parents[2].name},{acl.parents[1].name},{acl.name}",
            f"{acl.parents[2].name.rpartition(':')[2]} {acl.name.rpartition(':')[2]}",
            {"directory": str(acl)},
        )
        for acl in sorted((tree.CONFIGFS / "iscsi").glob("iqn.*/tpgt_*/acls/*"))
    ]


def blocks(_: str, live: list[Session]) -> list[Device]:
    """Return the disks behind iSCSI sessions and SRP ports, by WWID."""
    names = {lun for session in live for lun in session.luns}
    names |= {disk.name for disk in (tree.SYS / "class/srp_remote_ports").glob("*/device/target*/*/block/*")}
    devices = []
    for name in sorted(names):
        directory = tree.SYS / "block" / name
        wwid = tree.read_text(directory / "device/wwid") or f"name:{name}"
        # Two paths to one LUN share its WWID; the SCSI address below its session tells them apart.
        session = next((session.identity for session in live if name in session.luns), "")
        devices.append(Device("block", f"{' '.join(wwid.split())},{session}", name, {"directory": str(directory)}))
    return devices


_FINDERS: dict[str, Callable[[str, list[Session]], list[Device]]] = {
    "host": host,
    "netns": netns,
    "record": records,
    "session": sessions,
    "tpg": tpgs,
    "acl": acls,
    "block": blocks,
}


def find(scope: str, netns_name: str, live: list[Session]) -> list[Device]:
    """Return the devices of `scope`; an unknown scope has none here."""
    finder = _FINDERS.get(scope)
    return finder(netns_name, live) if finder else []
