# SPDX-License-Identifier: GPL-2.0-or-later
"""How full the SCSI hosts are: the LUNs of a host share its commands, iSCSI's cmds_max among them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fabtune.stat.endpoint import SYS
from fabtune.stat.interval import DeviceInterval


@dataclass(frozen=True, slots=True)
class HostLoad:
    """Mean number of commands in flight on all LUNs of SCSI host `host`, and how many it takes at once."""

    host: int
    mean_depth: float
    can_queue: int

    @property
    def full(self) -> bool:
        """Whether requests of its LUNs wait for one another, while each may be far from its own limit."""
        return self.mean_depth >= 0.9 * self.can_queue


def host_loads(devices: Sequence[DeviceInterval], sys: Path = SYS) -> list[HostLoad]:
    """Return the hosts of `devices`.

    Those that sysfs does not know any more are left out, and those with a device whose depth is not known.
    """
    depths: dict[int, float] = {}
    unknown = set()
    for one in devices:
        number = one.device.hctl.split(":")[0]
        if not number.isdecimal() or one.device.state == "gone":
            continue
        if one.mean_depth is None:
            unknown.add(int(number))
        else:
            depths[int(number)] = depths.get(int(number), 0.0) + one.mean_depth
    loads = []
    for host, depth in sorted(depths.items()):
        if host in unknown:
            continue
        try:
            can_queue = int((sys / f"class/scsi_host/host{host}/can_queue").read_text())
        except (OSError, ValueError):
            continue
        loads.append(HostLoad(host, depth, can_queue))
    return loads
