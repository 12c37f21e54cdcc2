# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of the counted devices a name stands for that people use: links in /dev, partitions, what lies on disks."""

from pathlib import Path

from fabtune.errors import InputError
from fabtune.host import blocks
from fabtune.stat.interval import DeviceInterval, Interval
from fabtune.stat.stack import head_above


def kernel_names(interval: Interval, name: str) -> tuple[str, str]:
    """Return the kernel's names of what `name` stands for: itself, and the whole disk that it is or is a partition of.

    Of saved readings they are as given: this host's are nothing to them.
    """
    bare = name.removeprefix("/dev/")
    if _is_counted(interval, bare) or any(one.device.around is not None for one in interval.devices):
        return bare, bare
    place = Path(name) if name.startswith("/") else Path("/dev", name)
    bare = place.resolve().name if place.exists() else place.name
    return bare, _whole(bare)


def _whole(block: str) -> str:
    directory = blocks.directory(block)
    return directory.resolve().parent.name if (directory / "partition").exists() else block


def with_paths(interval: Interval, name: str) -> list[DeviceInterval]:
    """Return the device called `name`, and its paths where it has several.  Raises InputError."""
    _, disk = kernel_names(interval, name)
    live = (one for one in interval.devices if one.device.state != "gone")
    paths = sorted((one for one in live if head_above(one.device) == disk), key=lambda one: one.device.disk)
    try:
        return [interval.device(disk), *paths]
    except InputError as error:
        # NVMe's multipath disk has no queue of its own.
        if paths:
            return paths
        if why := _why_not(interval, disk):
            raise InputError(f"device '{name}': {why}") from None
        raise error from None


def _is_counted(interval: Interval, disk: str) -> bool:
    return any(one.device.disk == disk for one in interval.devices)


def _why_not(interval: Interval, disk: str) -> str:
    """Return why there is nothing of `disk`, '' where it is that no request was seen, or that it is gone."""
    counted = sorted({one.device.disk for one in interval.devices if one.device.state != "gone"})
    if _is_counted(interval, disk):
        return ""
    if any(one.device.around is not None for one in interval.devices):
        return f"the saved readings have no such disk; they have: {', '.join(counted) or 'none'}"
    if not blocks.directory(disk).exists():
        return f"no such block device here; fabstat has seen requests on: {', '.join(counted) or 'none'}"
    there = _counted_below(interval, disk)
    if not there:
        return ""
    return f"{disk} passes requests on to the disks below it, and fabstat counts them there: {', '.join(there)}"


def _counted_below(interval: Interval, disk: str) -> list[str]:
    """Return which of the counted disks `disk` is built on, those that are paths of what it is built on as such."""
    below, found = _below(disk), set()
    for one in interval.devices:
        if one.device.state == "gone":
            continue
        name, head = one.device.disk, head_above(one.device)
        if name in below:
            found.add(name)
        elif head in below:
            # sysfs knows nothing below NVMe's multipath disk, which has no queue to be counted.
            found.add(f"{name} (path of {head})")
    return sorted(found)


def _below(disk: str) -> set[str]:
    """Return what `disk` is built on, directly or not, partitions by their disks."""
    found: set[str] = set()
    for name in blocks.slaves(disk):
        found |= {_whole(name)} | _below(_whole(name))
    return found
