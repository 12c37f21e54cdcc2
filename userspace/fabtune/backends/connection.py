# SPDX-License-Identifier: GPL-2.0-or-later
"""Socket options of the connections to, or of, one portal: what new ones are given, and what those that live have."""

from fabtune.errors import UnsupportedError
from fabtune.host import namespaces, portal_options, tree
from fabtune.host.portal_options import LIVE, Portal
from fabtune.model.device import Device

_WORDS = ("congestion",)
# The kernel silently cuts a buffer down to these.
_CEILINGS = {"sndbuf": "wmem_max", "rcvbuf": "rmem_max"}


def _portal(device: Device) -> Portal:
    where = device.where
    return Portal(where["role"], where["address"], tree.whole(where["port"]) or 0, where["netns"])


class _Connection:
    def read(self, device: Device, key: str) -> str:
        """Return what is given; where a live connection has another value, that is said behind it."""
        why = portal_options.no_means()
        if why:
            raise UnsupportedError(why)
        portal = _portal(device)
        value = portal_options.given(portal).get(key)
        if key in LIVE and value:
            have = [one.get(key) for one in portal_options.options_held(portal)]
            other = [one for one in have if one != value]
            if other:
                return f"{value} ({len(other)} of {len(have)} connections: {other[0]})"
        return str(value)

    def without_remark(self, value: str) -> str:
        """Return what was given, whatever live connections had."""
        return value.partition(" ")[0]

    def write(self, device: Device, key: str, value: str) -> None:
        why = portal_options.no_means() or _would_be_ignored(device, key, value)
        if why:
            raise UnsupportedError(why)
        portal_options.give(_portal(device), key, value if key in _WORDS else int(value))


def _would_be_ignored(device: Device, key: str, value: str) -> str:
    """Return why the kernel would not give `value` to a connection, '' if it would: it tells nobody."""
    if key in _CEILINGS:
        name = _CEILINGS[key]
        most = tree.whole(tree.read_text(tree.PROC / "sys/net/core" / name))
        return f"net.core.{name} allows {most}" if most is not None and int(value) > most else ""
    if key == "congestion" and value:
        with namespaces.inside(device.where["netns"]):
            known = tree.read_text(tree.PROC / "sys/net/ipv4/tcp_available_congestion_control") or ""
        return "" if value in known.split() else f"this kernel has loaded only: {known}"
    return ""


BACKEND = _Connection()
