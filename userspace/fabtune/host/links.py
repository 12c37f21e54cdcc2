# SPDX-License-Identifier: GPL-2.0-or-later
"""The interfaces of one network namespace: kinds, addresses, and which lies on which."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import iproute, namespaces

# Addresses that only name the interface itself (fe80::, 127.0.0.1) are nobody's to talk to.
_LOCAL_SCOPES = ("link", "host")
# What the kernel lets be a name (net/core/dev.c, dev_valid_name); it is also that of a directory in sysfs.
_NAME = re.compile(r"(?!\.{1,2}$)[^\s/:\0]{1,15}")


@dataclass(frozen=True)
class Link:
    """One interface: `kind` is '' for hardware, `slave_kind` the kind of what it is a port of ('' for none)."""

    name: str
    kind: str
    slave_kind: str
    addresses: frozenset[str]
    local_addresses: frozenset[str]
    up: bool
    permanent_mac: str
    # The interface that it names as the one it lies on or sends through.
    over: str = ""


def as_kernel_writes(address: str) -> str:
    """Return an IP address as the kernel and inet_diag write it; other text comes back as it is."""
    bare, percent, zone = address.strip("[]").partition("%")
    try:
        return f"{ipaddress.ip_address(bare)}{percent}{zone}"
    except ValueError:
        return address


class Links:
    """Every interface of namespace `netns` ('' = our own), read once."""

    def __init__(self, netns: str = "") -> None:
        self.netns = netns

    @cached_property
    def all(self) -> dict[str, Link]:
        """The interfaces by name.  Raises FabtuneError."""
        rows = iproute.read_json("ip", "-details", "address", netns=self.netns, texts=("ifname",))
        odd = next((name for name in (str(row["ifname"]) for row in rows) if not _NAME.fullmatch(name)), None)
        if odd is not None:
            raise FabtuneError(f"ip -j -details address: no interface can be called {odd:.60}")
        return {link.name: link for link in map(_link, rows)}

    def directory(self, name: str) -> Path:
        """Return the directory of interface `name` in a sysfs that shows it."""
        return namespaces.sysfs(self.netns) / "class/net" / name

    def below(self, name: str) -> list[str]:
        """Return what `name` lies on directly: a VLAN's device, a bond's slaves, a bridge's ports."""
        return sorted(path.name.removeprefix("lower_") for path in self.directory(name).glob("lower_*"))

    def above(self, name: str) -> list[str]:
        """Return what lies on `name` directly."""
        return sorted(path.name.removeprefix("upper_") for path in self.directory(name).glob("upper_*"))

    def lowest(self, name: str) -> list[str]:
        """Return the interfaces at the bottom below `name`, itself if there are none."""
        deeper = [bottom for below in self.below(name) for bottom in self.lowest(below)]
        return list(dict.fromkeys(deeper)) or [name]

    def stack(self, names: Iterable[str]) -> list[str]:
        """Return `names` and everything below them, each after all that it lies on."""
        found: list[str] = []
        for name in sorted(names):
            found += [one for one in (*self.stack(self.below(name)), name) if one not in found]
        return list(dict.fromkeys(found))

    def tower(self, name: str) -> set[str]:
        """Return `name` and everything above it."""
        return {name}.union(*(self.tower(one) for one in self.above(name)))


def _link(row: iproute.Listed) -> Link:
    info = row.get("linkinfo")
    info = info if isinstance(info, dict) else {}
    held = row.get("addr_info")
    rows = [one for one in held if isinstance(one, dict) and "local" in one] if isinstance(held, list) else []
    near = frozenset(str(one["local"]) for one in rows if one.get("scope") in _LOCAL_SCOPES)
    flags = row.get("flags")
    return Link(
        name=str(row["ifname"]),
        kind=str(info.get("info_kind", "")),
        slave_kind=str(info.get("info_slave_kind", "")),
        addresses=frozenset(str(one["local"]) for one in rows),
        local_addresses=near,
        up=isinstance(flags, list) and "UP" in flags,
        permanent_mac=str(row.get("permaddr", row.get("address", ""))),
        over=str(row.get("link") or ""),
    )
