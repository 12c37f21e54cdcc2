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
    """Mean number of commands in flight on all LUNs of SCSI host `host`, and how many it takes at once.

    `can_queue` is that of all its hardware queues together, None where it is not known whether they share them.
    """

    host: int
    mean_depth: float
    can_queue: int | None

    @property
    def full(self) -> bool:
        """Whether requests of its LUNs wait for one another, while each may be far from its own limit."""
        return self.can_queue is not None and self.mean_depth >= 0.9 * self.can_queue


def can_queue(device: CountedDevice, sys: Path | None = None) -> int | None:
    """Return how many commands the SCSI host of `device` takes at once, None where that is not known.

    Of several hardware queues each takes as many, unless they share their tags.
    """
    if device.around is not None:
        return device.around.can_queue
    most, queues = _queue(device, sys), _queues(device, sys)
    if most is None or queues == 1:
        return most
    shared = _shared(device, sys)
    return None if shared is None else most if shared else most * queues


def _queue(device: CountedDevice, sys: Path | None) -> int | None:
    return tree.whole(tree.read_text(_host(device, sys) / "can_queue"))


def _queues(device: CountedDevice, sys: Path | None) -> int:
    return tree.whole(tree.read_text(_host(device, sys) / "nr_hw_queues")) or 1


def _host(device: CountedDevice, sys: Path | None) -> Path:
    return (sys or tree.SYS) / f"class/scsi_host/host{device.hctl.split(':')[0]}"


def _shared(device: CountedDevice, sys: Path | None) -> bool | None:
    """Tell whether the hardware queues of the device's host share their tags, None where that is not known."""
    flags = tree.read_text((sys or tree.SYS) / "kernel/debug/block" / device.disk / "hctx0/flags")
    return None if flags is None else "TAG_HCTX_SHARED" in flags.replace("|", " ").split()


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
    known = ((host, can_queue(one, sys), one) for host, one in sorted(members.items()) if host not in unknown)
    return [
        HostLoad(host, depths_ns[host] / elapsed_ns[host], most)
        for host, most, one in known
        if most is not None or (one.around is None and _queue(one, sys) is not None)
    ]
