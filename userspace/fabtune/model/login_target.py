# SPDX-License-Identifier: GPL-2.0-or-later
"""Which portal group of a target the node record of an initiator logs in to."""

import ipaddress

from fabtune.model.device import Device


def serves(tpg: Device, record: Device) -> bool:
    """Tell whether `record` logs in to `tpg`: the same target, by a portal that the TPG has."""
    if tpg.identity.split(",")[0] != record.identity.split(",")[0]:
        return False
    portals = tpg.where.get("portals")
    wanted = _address(record.where.get("portal", ""))
    # Facts of an older version name no portals; a name served on every address fits each of them.
    if portals is None or wanted is None:
        return True
    return any(_fits(_address(portal), wanted) for portal in portals.split())


def _address(portal: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str] | None:
    """Return address and port of ``10.2.0.1:3260`` or ``[fd00::1]:3260``; None for a host's name."""
    address, _, port = portal.rpartition(":")
    try:
        return ipaddress.ip_address(address.strip("[]").partition("%")[0]), port
    except ValueError:
        return None


def _fits(portal: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str] | None, wanted: object) -> bool:
    if portal is None or not isinstance(wanted, tuple):
        return True
    return portal[1] == wanted[1] and (portal[0] == wanted[0] or portal[0].is_unspecified)
