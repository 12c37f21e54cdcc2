# SPDX-License-Identifier: GPL-2.0-or-later
"""How full the SCSI hosts are: the LUNs of a host share its commands, iSCSI's cmds_max among them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fabtune.host import tree
from fabtune.stat.interval import DeviceInterval
from fabtune.stat.snapshot import CountedDevice


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


def can_queue(device: CountedDevice, sys: Path | None = None) -> int | None:
    """Return how many commands the SCSI host of `device` takes at once, None where that is not known.

    Of a host with several hardware queues it is not: each may take as many, or all of them together.
    """
    if device.around is not None:
        return device.around.can_queue
    place = (sys or tree.SYS) / f"class/scsi_host/host{device.hctl.split(':')[0]}"
    several = (tree.whole(tree.read_text(place / "nr_hw_queues")) or 1) > 1
    return None if several else tree.whole(tree.read_text(place / "can_queue"))


def host_loads(devices: Sequence[DeviceInterval], sys: Path | None = None) -> list[HostLoad]:
    """Return the hosts of `devices`, over the time for which the first of their LUNs was there.

    Those that sysfs does not know any more are left out, and those with a device whose depth is not known.
    """
    depths_ns: dict[int, int] = {}
    elapsed_ns: dict[int, int] = {}
    members: dict[int, CountedDevice] = {}
    unknown = set()
    for one in devices:
        number = one.device.hctl.split(":")[0]
        if not number.isdecimal() or one.device.state == "gone":
            continue
        host = int(number)
        members[host] = one.device
        if one.mean_depth is None:
            unknown.add(host)
        # LUNs come at different times: means over these must not be added.
        depths_ns[host] = depths_ns.get(host, 0) + one.depth_ns
        elapsed_ns[host] = max(elapsed_ns.get(host, 1), one.elapsed_ns)
    known = ((host, can_queue(one, sys)) for host, one in sorted(members.items()) if host not in unknown)
    return [HostLoad(host, depths_ns[host] / elapsed_ns[host], most) for host, most in known if most is not None]
