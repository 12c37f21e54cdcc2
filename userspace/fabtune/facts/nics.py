# SPDX-License-Identifier: GPL-2.0-or-later
"""The NICs that storage traffic uses: found by the sessions' own addresses, resolved below bonds and VLANs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fabtune.backends import iproute, tree

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# A real NIC's speed file holds Mb/s; these drivers answer with a number that means nothing.
_MADE_UP_SPEED = ("veth", "tun", "bridge", "dummy", "virtual")


@dataclass(frozen=True)
class Nic:
    """One interface: `lower` lists the physical ones below a bond, VLAN or bridge (itself if none)."""

    name: str
    driver: str
    mtu_bytes: int
    speed_bit_per_s: int
    pci_path: str
    mac: str
    lower: tuple[str, ...]

    @property
    def identity(self) -> str:
        """PCI path, else MAC, else the name: what survives renaming, best first."""
        if self.pci_path:
            return f"pci:{self.pci_path}"
        # Virtual interfaces get a random MAC at each boot; their name is what their maker chose.
        return f"name:{self.name}"


def by_address(addresses: Iterable[str], netns: str = "") -> list[Nic]:
    """Return the NICs that hold one of `addresses` in `netns`, by name."""
    wanted = set(addresses)
    links = _links(netns)
    names = [name for name, (_, held) in links.items() if held & wanted]
    return [describe(name, netns, links[name][0]) for name in sorted(names)]


def _links(netns: str) -> dict[str, tuple[str, set[str]]]:
    """Return the kind (`veth`, `bond`, '' for hardware) and the addresses of each interface in `netns`."""
    found = {}
    for link in iproute.read_json("ip", "-details", "address", netns=netns):
        addresses = {one["local"] for one in link.get("addr_info", []) if "local" in one}
        found[str(link["ifname"])] = str(link.get("linkinfo", {}).get("info_kind", "")), addresses
    return found


def describe(name: str, netns: str = "", kind: str = "") -> Nic:
    """Return what sysfs tells of interface `name`; `kind` names a virtual one."""
    directory = tree.sysfs(netns) / "class/net" / name
    device = directory / "device"
    driver = (device / "driver").resolve().name if (device / "driver").exists() else kind or "virtual"
    speed = tree.read_text(directory / "speed") or ""
    megabit = int(speed) if speed.isdigit() and driver not in _MADE_UP_SPEED else 0
    lower = tuple(sorted(_lower(directory)))
    return Nic(
        name=name,
        driver=driver,
        mtu_bytes=int(tree.read_text(directory / "mtu") or 1500),
        speed_bit_per_s=megabit * 10**6,
        pci_path=_pci_address(device.resolve()) if device.exists() else "",
        mac=tree.read_text(directory / "address") or "",
        lower=lower or (name,),
    )


def _pci_address(device: Path) -> str:
    """Return the PCI address of `device` or of what it sits on (a virtio device's own name counts anew each boot)."""
    for part in reversed(device.parts):
        if _PCI_ADDRESS.fullmatch(part):
            return part
    return device.name


def _lower(directory: Path) -> Iterable[str]:
    """Yield the physical interfaces below `directory`."""
    for link in directory.glob("lower_*"):
        below = link.resolve()
        deeper = list(_lower(below))
        yield from deeper or [below.name]
