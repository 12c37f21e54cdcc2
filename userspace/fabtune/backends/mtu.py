# SPDX-License-Identifier: GPL-2.0-or-later
"""The MTU of one layer of a NIC (sysfs), with the rules that hold between layers.

A bond or team sets its members' MTU with its own; a VLAN cannot carry more than what it lies on,
and is cut down in silence when that shrinks; a bridge drops what one of its ports is too small for.
"""

import errno
from pathlib import Path

from fabtune.backends import Refusal
from fabtune.errors import FabtuneError, UnsupportedError, explained
from fabtune.host import iproute, namespaces, tree
from fabtune.model.device import Device

_MASTERS = ("bond", "team")
# RFC 8200, 5: below it the kernel ends IPv6 on the NIC, its addresses and sysctls with it.
_LEAST_IPV6 = 1280
_BRIDGES = ("bridge", "openvswitch")


def _directory(device: Device) -> Path:
    if "name" not in device.where:
        raise UnsupportedError(f"{device.label}: not a NIC")
    return namespaces.sysfs(device.where.get("netns", "")) / "class/net" / device.where["name"]


def _neighbours(device: Device, prefix: str) -> dict[str, int]:
    """Return the MTU in bytes of what lies directly on (``upper_``) or below (``lower_``) `device`, by name."""
    paths = _directory(device).glob(f"{prefix}*")
    return {path.name.removeprefix(prefix): tree.whole(tree.read_text(path / "mtu")) or 0 for path in paths}


def _ipv6_addresses(device: Device) -> list[str]:
    """Return the IPv6 addresses of `device` that the kernel does not make by itself from its name."""
    netns = device.where.get("netns", "")
    rows = iproute.read_json("ip", "-6", "address", "show", "dev", device.where["name"], netns=netns)
    listed = [row.get("addr_info") for row in rows]
    found = [one for some in listed if isinstance(some, list) for one in some if isinstance(one, dict)]
    return [str(one.get("local")) for one in found if one.get("family") == "inet6" and one.get("scope") != "link"]


class _Mtu:
    def read(self, device: Device, key: str) -> str:
        with explained(f"{device.label}: {key}"):
            return (_directory(device) / key).read_text(errors="replace").strip()

    def write(self, device: Device, key: str, value: str) -> None:
        wanted, now = tree.whole(value), tree.whole(self.read(device, key))
        if wanted is None or now is None:
            raise FabtuneError(f"{device.label}: {key}={value:.60}: expected a whole number of bytes instead of {now}")
        cut = [name for name, mtu in _neighbours(device, "upper_").items() if mtu > wanted]
        if cut and wanted < now:
            raise UnsupportedError(
                f"{device.label}: {key}={value} would cut {cut[0]}, which lies on it and carries more"
            )
        if wanted < _LEAST_IPV6 <= now and (lost := _ipv6_addresses(device)):
            raise UnsupportedError(
                f"{device.label}: {key}={value} is below IPv6's {_LEAST_IPV6} bytes, and would take {lost[0]} away, "
                "which nothing brings back"
            )
        with explained(f"{device.label}: {key}={value}"):
            try:
                tree.write_text(_directory(device) / key, value)
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ERANGE, errno.EPERM):
                    raise UnsupportedError(
                        f"{device.label}: its driver or what it lies on refuses {key}={value}"
                    ) from error
                raise

    def why_not(self, device: Device, key: str) -> Refusal | None:
        """Return why the MTU of `device` is not its own to change."""
        if device.where.get("member_of") in _MASTERS:
            return Refusal(f"its {device.where['member_of']} sets the MTU of its members")
        if device.where.get("kind") in _BRIDGES or device.where.get("member_of") in _BRIDGES:
            return Refusal("every port of a bridge needs the same MTU, and not all of them are storage's")
        if device.where.get("kind") in _MASTERS:
            own = tree.whole(self.read(device, key))
            odd = [name for name, mtu in _neighbours(device, "lower_").items() if mtu != own]
            if odd:
                return Refusal(f"its member {odd[0]} has an MTU of its own, which it would overwrite")
        return None


BACKEND = _Mtu()
