# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks with several paths: which disk a device is a path of, from the names that the kernel gives them.

A request to a dm-multipath disk is counted twice, at the head and at the path that it took.  NVMe's own multipath
disk has no queue: its requests are counted at its paths alone, which have names such as nvme0c1n1 and no device node.
"""

import re
from collections.abc import Callable

from fabtune.host import blocks, tree
from fabtune.stat.snapshot import CountedDevice

_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")


def head_of(disk: str) -> str:
    """Return the disk that `disk` is a path of; empty where it is none."""
    if found := _NVME_PATH.fullmatch(disk):
        return found[1] + found[2]
    return next(iter(blocks.multipath_above(disk)), "")


def head_above(device: CountedDevice) -> str:
    """Return the disk that `device` is a path of, in a saved reading as it was then; empty where it is none."""
    if device.around is not None:
        return device.around.path_of
    # The name of one that is gone may be another's by now; NVMe's own names tell it themselves.
    return head_of(device.disk) if device.state != "gone" or _NVME_PATH.fullmatch(device.disk) else ""


def heads() -> Callable[[str], str]:
    """Return `head_of` for many disks: dm-multipath is asked once, now."""
    paths = {
        path: disk.name
        for disk in sorted((tree.SYS / "block").glob("dm-*"))
        if blocks.is_multipath(disk.name)
        for path in blocks.slaves(disk.name)
    }

    def head(disk: str) -> str:
        found = _NVME_PATH.fullmatch(disk)
        return found[1] + found[2] if found else paths.get(disk, "")

    return head
