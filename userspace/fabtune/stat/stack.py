# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks with several paths: which devices are the paths of one disk, from the names that the kernel gives them.

A request to a dm-multipath disk is counted twice, at the head and at the path that it took.  NVMe's own multipath
disk has no queue: its requests are counted at its paths alone, which have names such as nvme0c1n1 and no device node.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from fabtune.stat.endpoint import SYS
from fabtune.stat.snapshot import CountedDevice

_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")


def head_of(device: CountedDevice, sys: Path = SYS) -> str:
    """Return the disk that `device` is a path of; empty where it is none."""
    if found := _NVME_PATH.fullmatch(device.disk):
        return found[1] + found[2]
    try:
        holders = sorted((sys / "block" / device.disk / "holders").iterdir())
    except OSError:
        return ""
    return next((holder.name for holder in holders if _is_multipath(holder.name, sys)), "")


def paths_of(disk: str, devices: Iterable[CountedDevice], sys: Path = SYS) -> list[CountedDevice]:
    """Return the devices among `devices` that are paths of `disk`, by name."""
    live = (device for device in devices if device.state != "gone")
    return sorted((device for device in live if head_of(device, sys) == disk), key=lambda device: device.disk)


def _is_multipath(disk: str, sys: Path) -> bool:
    try:
        return (sys / "block" / disk / "dm/uuid").read_text().startswith("mpath-")
    except OSError:
        return False
