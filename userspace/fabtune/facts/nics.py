# SPDX-License-Identifier: GPL-2.0-or-later
"""The NICs that storage traffic uses: found by the sessions' own addresses, resolved below bonds and VLANs."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fabtune.backends import tree

# A real NIC's speed file holds Mb/s; these drivers answer with a number that means nothing.
_MADE_UP_SPEED = ("veth", "tun", "bridge", "dummy", "virtio_net")


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
    names = {link for address, link in _addresses(netns) if address in wanted}
    return [describe(name, netns) for name in sorted(names)]


def _addresses(netns: str) -> list[tuple[str, str]]:
    """Return (address, interface) of every address in `netns`."""
    program = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
    if program is None:
        return []
    with tree.inside(netns):
        done = subprocess.run([program, "-j", "address"], capture_output=True, text=True, check=False, timeout=30)
    try:
        links = json.loads(done.stdout or "[]")
    except ValueError:
        return []
    return [(one["local"], link["ifname"]) for link in links for one in link.get("addr_info", []) if "local" in one]


def describe(name: str, netns: str = "") -> Nic:
    """Return what sysfs tells of interface `name`."""
    directory = tree.sysfs(netns) / "class/net" / name
    device = directory / "device"
    driver = (device / "driver").resolve().name if (device / "driver").exists() else _kind(directory)
    speed = tree.read_text(directory / "speed") or ""
    megabit = int(speed) if speed.isdigit() and driver not in _MADE_UP_SPEED else 0
    lower = tuple(sorted(_lower(directory)))
    return Nic(
        name=name,
        driver=driver,
        mtu_bytes=int(tree.read_text(directory / "mtu") or 1500),
        speed_bit_per_s=megabit * 10**6,
        pci_path=device.resolve().name if device.exists() else "",
        mac=tree.read_text(directory / "address") or "",
        lower=lower or (name,),
    )


def _kind(directory: Path) -> str:
    for line in (tree.read_text(directory / "uevent") or "").splitlines():
        if line.startswith("DEVTYPE="):
            return line.removeprefix("DEVTYPE=")
    # A veth's link is the other end's interface, in another namespace.
    return "veth" if tree.read_text(directory / "iflink") != tree.read_text(directory / "ifindex") else "virtual"


def _lower(directory: Path) -> Iterable[str]:
    """Yield the physical interfaces below `directory`."""
    for link in directory.glob("lower_*"):
        below = link.resolve()
        deeper = list(_lower(below))
        yield from deeper or [below.name]
