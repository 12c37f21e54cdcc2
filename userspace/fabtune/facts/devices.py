# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the devices of each scope on this host, named so that a journal can find them again."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fabtune.backends import record
from fabtune.errors import FabtuneError
from fabtune.facts import portals, routes
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import iscsiadm, namespaces, srp, targets, tree
from fabtune.host import nics as nics_of
from fabtune.host.blocks import wwid
from fabtune.host.links import Links
from fabtune.host.nics import Nic
from fabtune.host.sessions import called
from fabtune.model.device import Device


def host(_: HostSnapshot) -> list[Device]:
    """Return the host itself: for values that are global whatever the namespace."""
    return [Device("host", "host", "host", {"directory": str(tree.ROOT)})]


def netns(around: HostSnapshot) -> list[Device]:
    """Return the network namespace to tune: the one asked for, else our own under the name it has."""
    return [_netns(namespaces.identity(around.netns), around.netns)]


def _netns(identity: str, name: str) -> Device:
    label = f"netns {identity.removeprefix('netns:')}" if name or identity != "netns:init" else "host"
    return Device("netns", identity, label.removesuffix(" self"), {"netns": name})


def locate_netns(device: Device, around: HostSnapshot) -> Device | None:
    """Return the namespace of that name, whichever one the caller works in."""
    name = namespaces.find(device.identity, around.netns)
    return None if name is None else _netns(device.identity, name)


def nics(around: HostSnapshot) -> list[Device]:
    """Return the NICs that storage uses and every layer below them, the lowest first, by PCI path if they have one."""
    return [_with_addresses(_nic(nic, around.netns), nic, around.links) for nic in around.nics]


def _with_addresses(device: Device, nic: Nic, links: Links) -> Device:
    """Return the device of `nic` with the addresses of all whose packets leave through it."""
    tower = set().union(*(links.tower(lowest) for lowest in nic.lower))
    held = sorted(address for name in tower if name in links.all for address in links.all[name].addresses)
    return replace(device, where={**device.where, "addresses": " ".join(held)})


def _nic(nic: Nic, netns: str) -> Device:
    where = {
        "directory": f"class/net/{nic.name}", "netns": netns, "name": nic.name, "kind": nic.driver,
        "below": " ".join(nic.below), "lowest": ", ".join(nic.lower), "member_of": nic.member_of,
        "down": "" if nic.up else "yes", "shared": nic.shared,
    }  # fmt: skip
    return Device("nic", f"{nic.identity},{namespaces.identity(netns)}", nic.name, where)


def locate_nic(device: Device, around: HostSnapshot) -> Device | None:
    """Return the NIC of that identity, whether or not anything of storage still points at it."""
    identity, _, place = device.identity.rpartition(",")
    netns = namespaces.find(place, around.netns)
    if netns is None:
        return None
    found = nics_of.with_identity(identity, Links(netns))
    if len(found) > 1:
        names = ", ".join(nic.name for nic in found)
        raise FabtuneError(f"{device.label}: {names} all answer to {identity}; cannot tell which of them it was")
    function = re.match(r"(?:pci|port|usb):([0-9a-f:.]+)", identity)
    if not found and function and (tree.SYS / "bus/pci/devices" / function[1]).exists():
        raise FabtuneError(f"{device.label}: PCI device {function[1]} is there, without an interface in {place}")
    return _nic(found[0], netns) if found else None


def again(device: Device, inode: str, around: HostSnapshot) -> Device | None:
    """Return what `device` was when its directory had number `inode`, under whatever identity it is there now.

    A NIC is looked for in its namespace alone.
    """
    if device.scope != "nic":
        directory = around.numbered.get((device.scope, inode))
        return replace(device, where={"directory": str(directory)}) if directory else None
    netns = namespaces.find(device.identity.rpartition(",")[2], around.netns)
    found = None if netns is None else nics_of.with_inode(inode, Links(netns))
    return _nic(found, netns or "") if found else None


def records(around: HostSnapshot) -> list[Device]:
    """Return open-iscsi's node records, each with the initiator name used to log in."""
    devices = []
    for identity, settings in sorted(around.records.items()):
        target, portal, interface = identity.rsplit(",", 2)
        name = iscsiadm.initiator_name(settings)
        where = {"target": target, "portal": portal, "interface": interface, "initiator": name}
        devices.append(Device("record", identity, called(_tail(target), portal, interface), where))
    return devices


def _tail(iqn: str) -> str:
    return iqn.rpartition(":")[2] or iqn


def sessions(around: HostSnapshot) -> list[Device]:
    """Return the live sessions (their sysfs attributes)."""
    return [
        Device(
            "session",
            session.own_identity,
            called(_tail(session.target), session.portal, session.interface, session.place),
            {"directory": str(session.directory), "sid": str(session.sid)},
        )
        for session in around.sessions
    ]


def srp_ports(_: HostSnapshot) -> list[Device]:
    """Return the SRP targets this initiator is logged in to, by their port id."""
    return [
        Device("srp-port", tree.read_text(port / "port_id") or port.name, port.name, {"directory": str(port)})
        for port in srp.ports()
    ]


def modules(_: HostSnapshot) -> list[Device]:
    """Return the place of all module parameters; a module that is not loaded has none there."""
    return [Device("module", "modules", "kernel modules", {"directory": str(tree.SYS / "module")})]


def blocks(around: HostSnapshot) -> list[Device]:
    """Return the disks behind iSCSI sessions and SRP ports, by WWID and session, and devices built on them alone."""
    paths = {lun: session.own_identity for session in around.sessions for lun in session.luns}
    paths |= srp.ports_of_disks()
    devices = []
    for name, session in sorted(paths.items()):
        directory = tree.SYS / "block" / name
        # Two paths to one LUN share its WWID; the session tells them apart.
        devices.append(
            Device("block", f"{wwid(directory) or f'name:{name}'},{session}", name, {"directory": str(directory)})
        )
    return devices + _stacked(set(paths))


def _stacked(disks: set[str]) -> list[Device]:
    """Return the devices (multipath, LVM, md, bcache) that lie on `disks` and nothing else, by UUID, else name.

    A filesystem above them reads ahead as they say, not as their disks do.
    """
    below = set(disks)
    found: dict[str, Device] = {}
    upper = [slave.parent.parent for slave in (tree.SYS / "block").glob("*/slaves/*")]
    maps = {directory.name: directory for directory in upper}
    grew = True
    while grew:
        grew = False
        for name, directory in sorted(maps.items()):
            slaves = {_whole_disk(slave) for slave in directory.glob("slaves/*")}
            if name not in found and slaves and slaves <= below:
                label = tree.read_text(directory / "dm/name") or name
                uuids = {kind: tree.read_text(directory / kind / "uuid") for kind in ("dm", "md")}
                identity = next((f"{kind}:{uuid}" for kind, uuid in uuids.items() if uuid), f"name:{label}")
                found[name] = Device("block", identity, label, {"directory": str(directory)})
                below.add(name)
                grew = True
    return list(found.values())


def _whole_disk(slave: Path) -> str:
    """Return the name of the disk that `slave` is or is a partition of."""
    real = slave.resolve()
    return real.parent.name if (real / "partition").exists() else real.name


_FINDERS: dict[str, Callable[[HostSnapshot], list[Device]]] = {
    "host": host,
    "netns": netns,
    "nic": nics,
    "route": routes.routes,
    "record": records,
    "session": sessions,
    "block": blocks,
    "srp-port": srp_ports,
    "module": modules,
    "connection": portals.portals,
}


def find(scope: str, around: HostSnapshot) -> list[Device]:
    """Return the devices of `scope`, one of model.device.SCOPES or of a kind of target."""
    return _FINDERS[scope](around) if scope in _FINDERS else targets.devices(scope)


def locate(device: Device, around: HostSnapshot) -> Device | None:
    """Return the journalled `device` as it is reached today, or None where it is positively absent.

    It is found by its identity alone: no session needs to use it.  Raises FabtuneError where it
    cannot be told whether it is there; that must never be taken for absence.
    """
    return _LOCATORS.get(device.scope, _listed)(device, around)


def _listed(device: Device, around: HostSnapshot) -> Device | None:
    """Look for `device` among all of its scope: right only where the listing is complete or raises."""
    return next((one for one in find(device.scope, around) if one.key == device.key), None)


def _record(device: Device, around: HostSnapshot) -> Device | None:
    """Look for a node record; what iscsiadm does not show is absent only where it has no file either."""
    around.records = record.BACKEND.all()
    found = _listed(device, around)
    if found is None and not iscsiadm.absent(device.identity):
        raise FabtuneError(f"node record {device.label}: its file is there, but iscsiadm does not show it: damaged?")
    return found


# Finders by identity, of the scopes whose listing depends on sessions or leaves out what it cannot read.
_LOCATORS: dict[str, Callable[[Device, HostSnapshot], Device | None]] = {
    "netns": locate_netns,
    "nic": locate_nic,
    "route": routes.locate,
    "connection": portals.locate,
    "record": _record,
}
