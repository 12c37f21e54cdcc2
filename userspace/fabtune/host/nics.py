# SPDX-License-Identifier: GPL-2.0-or-later
"""The NICs that storage traffic uses: found by the sessions' own addresses, with every layer below them."""

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import namespaces, tree
from fabtune.host.links import Link, Links, as_kernel_writes

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# A function's own port is called p0, p1, ...; other names are of ports that a switch in the NIC lends out (pf0vf3).
_OWN_PORT = re.compile(r"p\d+")
_USB = "-usb-"
# A real NIC's speed file holds Mb/s; these drivers answer with a number that means nothing.
_MADE_UP_SPEED = ("veth", "tun", "bridge", "dummy", "virtual")


@dataclass(frozen=True)
class Nic:
    """One interface: `lower` lists those at the bottom below a bond, VLAN or bridge (itself if none).

    `port` tells interfaces of one PCI function apart, '' for its first; `below` is what it lies on
    directly; `member_of` the kind of what it is a port of ('bond', 'bridge'), '' for nothing.
    """

    name: str
    driver: str
    mtu_bytes: int
    speed_bit_per_s: int
    pci_path: str
    lower: tuple[str, ...]
    port: str = ""
    below: tuple[str, ...] = ()
    member_of: str = ""
    up: bool = True
    # Who else uses it, '' if it carries storage alone.
    shared: str = ""
    # Not looked at here: `show --json` tells it, and the first fabtune reads no facts without it.
    mac: str = ""

    @property
    def identity(self) -> str:
        """PCI path, with the port where a function has several, else the name: what survives renaming, best first."""
        if self.port:
            return f"port:{self.pci_path}/{self.port}"
        if self.pci_path:
            return f"usb:{self.pci_path}" if _USB in self.pci_path else f"pci:{self.pci_path}"
        # Virtual interfaces get a random MAC at each boot; their name is what their maker chose.
        return f"name:{self.name}"


def by_address(addresses: Iterable[str], links: Links) -> list[Nic]:
    """Return the NICs that hold one of `addresses` and all layers below, the lowest first.  Raises FabtuneError."""
    wanted = {as_kernel_writes(address) for address in addresses}
    upper = [link.name for link in links.all.values() if link.addresses & wanted]
    return [nic_named(name, links) for name in links.stack(upper)]


def lowest(nics: Iterable[Nic]) -> list[Nic]:
    """Return those of `nics` that lie on no other: packets leave by them, and by each of them once."""
    # Facts of the first fabtune tell `lower` alone.
    return [nic for nic in nics if not nic.below and set(nic.lower) <= {nic.name}]


def nic_named(name: str, links: Links) -> Nic:
    """Return what sysfs and `links` tell of interface `name`."""
    directory = links.directory(name)
    device = directory / "device"
    link = links.all.get(name) or Link(name, "", "", frozenset(), frozenset(), False, "")
    driver = (device / "driver").resolve().name if (device / "driver").exists() else link.kind or "virtual"
    speed = tree.read_text(directory / "speed") or ""
    megabit = (tree.whole(speed) or 0) if speed.isdigit() and driver not in _MADE_UP_SPEED else 0
    pci_path = _pci_address(device.resolve()) if device.exists() else ""
    return Nic(
        name=name,
        driver=driver,
        mtu_bytes=tree.whole(tree.read_text(directory / "mtu")) or 1500,
        speed_bit_per_s=megabit * 10**6,
        pci_path=pci_path,
        lower=tuple(links.lowest(name)),
        port=_port(name, links, pci_path) if pci_path else "",
        below=tuple(links.below(name)),
        member_of=link.slave_kind,
        up=link.up,
        mac=tree.read_text(directory / "address") or "",
    )


def with_identity(identity: str, links: Links) -> list[Nic]:
    """Return the interfaces of `links` that `identity` names; old journals name the PCI function alone."""
    found = [nic_named(name, links) for name in sorted(links.all)]
    exact = [nic for nic in found if nic.identity == identity]
    return exact or [nic for nic in found if nic.pci_path and f"pci:{nic.pci_path.partition(_USB)[0]}" == identity]


def with_inode(inode: str, links: Links) -> Nic | None:
    """Return the interface of `links` whose directory in sysfs has that number, under whatever name.

    An interface keeps its directory when it is renamed or moved to another namespace, and the kernel gives no
    number twice in a boot (fs/kernfs/dir.c, __kernfs_new_node).
    """
    name = _named(inode, links.netns)
    return nic_named(name, links) if name else None


def name_elsewhere(inode: str, netns: str) -> str:
    """Return the name of the interface whose directory has that number in another namespace than `netns`, '' for none.

    Raises FabtuneError where a namespace cannot be looked into.
    """
    for path in namespaces.other_namespaces(netns):
        try:
            name = _named(inode, path)
        except FabtuneError:
            if Path(path).exists():
                raise
            continue
        if name:
            return name
    return ""


def _named(inode: str, netns: str) -> str:
    for path in sorted((namespaces.sysfs(netns) / "class/net").glob("*")):
        with contextlib.suppress(OSError):
            if str(path.stat().st_ino) == inode:
                return path.name
    return ""


def _pci_address(device: Path) -> str:
    """Return the PCI address of `device` or of what it sits on (a virtio device is numbered again at each boot).

    What hangs on a USB controller is told apart by where it is plugged in, in udev's words (ID_PATH).
    """
    for place in range(len(device.parts) - 1, -1, -1):
        if _PCI_ADDRESS.fullmatch(device.parts[place]):
            usb = any(part.startswith("usb") for part in device.parts[place:])
            return device.parts[place] + (f"{_USB}0:{device.name.partition('-')[2]}" if usb else "")
    return device.name


def _port(name: str, links: Links, pci_path: str) -> str:
    """Return which port of its PCI function interface `name` is, '' for the first or only one.

    The kernel's own words first (dev_port, phys_port_name); where two of one function share
    them, the permanent MAC.
    """
    words = _port_words(links.directory(name))
    twins = [
        other
        for other in links.all
        if other != name
        and (device := links.directory(other) / "device").exists()
        and _pci_address(device.resolve()) == pci_path
        and _port_words(links.directory(other)) == words
    ]
    return "/".join(filter(None, [words, links.all[name].permanent_mac if twins and name in links.all else ""]))


def _port_words(directory: Path) -> str:
    number = tree.read_text(directory / "dev_port") or "0"
    port = tree.read_text(directory / "phys_port_name") or ""
    return "/".join(
        ([f"port{number}"] if number != "0" else []) + ([] if _OWN_PORT.fullmatch(port) else [port] * bool(port))
    )
