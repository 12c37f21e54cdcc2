# SPDX-License-Identifier: GPL-2.0-or-later
"""By which NICs a session's packets leave, as far as facts tell it."""

from fabtune.facts.collect import Facts
from fabtune.host.nics import Nic, lowest
from fabtune.host.sessions import Connections
from fabtune.model.address import canonical


def nics_by_address(facts: Facts) -> dict[str, list[Nic]]:
    """Return the NICs by which what has an address leaves, with every layer below, by that address."""
    nics = {nic.name: nic for nic in facts.nics}
    found: dict[str, dict[str, Nic]] = {}
    for device in (one.device for one in facts.readings if one.device.scope == "nic" and one.device.label in nics):
        for address in device.where.get("addresses", "").split():
            found.setdefault(canonical(address), {})[device.label] = nics[device.label]
    return {address: list(held.values()) for address, held in found.items()}


def only_ways(facts: Facts) -> dict[str, list[str]]:
    """Return the disks of sessions that one NIC alone carries, by that NIC's name.

    A LUN has the NICs of all its paths, and a bond its members, each of which may be down for a while.
    """
    cards = {nic.name for nic in lowest(facts.nics)}
    held, ends = nics_by_address(facts), Connections(facts.sockets, facts.sessions)
    identities = {one.device.label: one.device.identity for one in facts.readings if one.device.scope == "block"}
    ways: dict[str, set[str]] = {}
    paths: dict[str, list[str]] = {}
    for session in facts.sessions:
        socket = ends.of(session)
        near = {nic.name for nic in held.get(canonical(socket.local), ())} if socket else set()
        for disk in session.luns:
            wwid = identities.get(disk, disk).removesuffix(f",{session.own_identity}")
            # Which of several it is, nothing tells: any.
            ways.setdefault(wwid, set()).update(near & cards or cards)
            paths.setdefault(wwid, []).append(disk)
    found: dict[str, list[str]] = {}
    for wwid, names in ways.items():
        if len(names) == 1:
            found.setdefault(min(names), []).extend(paths[wwid])
    return found
