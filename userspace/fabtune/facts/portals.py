# SPDX-License-Identifier: GPL-2.0-or-later
"""The portals whose TCP connections can be told apart: those that this initiator reaches, and those served here."""

import ipaddress
from collections.abc import Iterator

from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import iscsiadm, namespaces, sockets, tree
from fabtune.model.address import EVERY, canonical
from fabtune.model.device import Device

_TCP = "tcp"
_TCP_DRIVER = "iscsi_tcp"


def portals(around: HostSnapshot) -> list[Device]:
    """Return the portals of sessions and node records as the initiator's, then those of this namespace's targets."""
    reached = dict.fromkeys((*_of_sessions(around), *_of_records(around)))
    found = [_device("initiator", address, port, "") for address, port in sorted(reached)]
    served = [(address, port) for address, port in dict.fromkeys(around.portals) if _is_here(address, around)]
    return found + [_device("target", address, port, around.netns) for address, port in sorted(served)]


def _of_sessions(around: HostSnapshot) -> Iterator[tuple[str, int]]:
    found = set()
    for session in around.sessions:
        # A target may have sent it on to another portal than its record's.
        portal = canonical(session.address), session.port
        # Of a thousand sessions with one portal, one is asked.
        if portal not in found and session.transport == _TCP_DRIVER and _is_address(session.address):
            found.add(portal)
            yield portal


def _of_records(around: HostSnapshot) -> Iterator[tuple[str, int]]:
    for settings in around.records.values():
        address = settings.get("node.conn[0].address", "")
        # A name may stand for another address at each login.
        if settings.get("iface.transport_name", _TCP) == _TCP and _is_address(address):
            yield canonical(address), tree.whole(settings.get("node.conn[0].port")) or sockets.ISCSI_PORT


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(canonical(text))
    except ValueError:
        return False
    return True


def _is_here(address: str, around: HostSnapshot) -> bool:
    return address in EVERY or (_is_address(address) and address not in around.elsewhere)


def _device(role: str, address: str, port: int, netns: str) -> Device:
    text = iscsiadm.portal_text(address, str(port))
    identity = f"{role} {text},{namespaces.identity(netns)}"
    where = {"role": role, "address": address, "port": str(port), "netns": netns}
    return Device("connection", identity, f"{text} as {role}", where)


def locate(device: Device, around: HostSnapshot) -> Device | None:
    """Return the portal of that identity: nobody needs to use it, but its namespace must be there."""
    role, address, port, place = parts(device)
    netns = namespaces.find(place, around.netns)
    return None if netns is None or not _is_address(address) else _device(role, address, port, netns)


def parts(device: Device) -> tuple[str, str, int, str]:
    """Return role, address, port and namespace that make up the identity of a portal."""
    end, _, place = device.identity.rpartition(",")
    role, _, text = end.partition(" ")
    address, _, port = text.rpartition(":")
    return role, canonical(address), tree.whole(port) or sockets.ISCSI_PORT, place
