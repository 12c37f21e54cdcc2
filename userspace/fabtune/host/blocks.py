# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes and numbers of SCSI and block devices, what is built on them, and how to claim them for a moment."""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import FabtuneError, explained
from fabtune.host import tree
from fabtune.model.device import Device

BLOCK, CHARACTER = "b", "c"
# Of every count of sectors in the kernel's files, whatever the disk's own are (include/linux/blk_types.h).
SECTOR_BYTES = 512


class InUseError(FabtuneError):
    """A disk is claimed by somebody else."""


@dataclass(frozen=True)
class Node:
    """The number behind a device node: `kind` is b (block) or c (character)."""

    kind: str
    major: int
    minor: int


def nodes_of(device: Path) -> dict[Node, str]:
    """Return every number that leads to the SCSI device in sysfs directory `device`, with the node's usual name."""
    found = {}
    for directory, names, files in os.walk(device):
        names[:] = [name for name in names if name not in ("power", "queue", "mq", "trace", "integrity")]
        if "dev" in files:
            place = Path(directory)
            kind = BLOCK if "block" in place.relative_to(device).parts else CHARACTER
            number = numbered(kind, tree.read_text(place / "dev"))
            if number:
                found[number] = place.name
    return found


def numbered(kind: str, text: str | None) -> Node | None:
    """Return the device number in the text ``major:minor``, None for other text."""
    major, minor = (tree.whole(part) for part in (text or "").partition(":")[::2])
    return None if major is None or minor is None else Node(kind, major, minor)


def blocks_of(device: Path) -> list[str]:
    """Return the names of the block devices of SCSI device `device`: the disk, then its partitions."""
    disks = sorted((device / "block").glob("*"))
    return [name.name for disk in disks for name in (disk, *(part.parent for part in sorted(disk.glob("*/partition"))))]


def directory(block: str) -> Path:
    """Return where sysfs shows block device `block`, a disk or a partition."""
    place = f"{tree.SYS}/class/block/{block}"
    return Path(place if os.path.exists(place) else f"{tree.SYS}/block/{block}")  # noqa: PTH110 - asked a thousand times


def disks_there() -> set[Path]:
    """Return the disks that are there now, each by the place that it has in its session as long as that lives."""
    return {place.resolve() for place in (tree.SYS / "block").glob("*") if (place / "device").exists()}


def kernel_name(device: Device) -> str:
    """Return what the kernel calls a disk or NIC: people call a device on top of disks by another name."""
    return device.where.get("directory", "").rpartition("/")[2] or device.label


def wwid(place: Path) -> str:
    """Return the name that the disk or SCSI device in sysfs directory `place` has for good, '' for none (a RAM disk).

    Runs of blanks in it are one blank.
    """
    texts = (tree.read_text(place / attribute) for attribute in ("device/wwid", "wwid", "dm/uuid"))
    return " ".join(next(filter(None, texts), "").split())


def partitions(block: str) -> list[str]:
    """Return the partitions of disk `block`."""
    # Partitions are named after their disk (block/partitions/core.c): a glob would ask every file of a thousand disks.
    place = directory(block)
    named = [name for name in tree.names(place) if name.startswith(block)]
    return [name for name in named if (place / name / "partition").exists()]


def holders(block: str) -> list[str]:
    """Return the block devices that are built directly on `block` or, for a disk, on its partitions."""
    return sorted({holder for name in (block, *partitions(block)) for holder in _directly_on(name)})


def _directly_on(block: str) -> list[str]:
    return tree.names(f"{directory(block)}/holders")


def heads_of(disks: Collection[str]) -> dict[str, list[str]]:
    """Return, for each of `disks`, what `holders` does; none of them is built on another."""
    found: dict[str, set[str]] = {name: set() for name in disks}
    # From above: a thousand disks may have no more than a few devices on them.
    for holder in tree.names(tree.SYS / "block"):
        for slave in () if holder in found else slaves(holder):
            for name in {slave, *disk_with(slave)} & found.keys():
                found[name].add(holder)
    return {name: sorted(above) for name, above in found.items()}


def disk_with(block: str) -> list[str]:
    """Return the disk that `block` is a partition of, nothing if it is none."""
    place = directory(block)
    return [place.resolve().parent.name] if (place / "partition").exists() else []


def is_multipath(block: str) -> bool:
    """Tell whether `block` is a device of dm-multipath."""
    return (tree.read_text(tree.SYS / "block" / block / "dm/uuid") or "").startswith("mpath-")


def multipath_above(block: str) -> list[str]:
    """Return the devices of dm-multipath that are built directly on `block` or, for a disk, on its partitions."""
    return [holder for holder in holders(block) if is_multipath(holder)]


def slaves(block: str) -> list[str]:
    """Return the block devices that `block` is built on, partitions by their own names."""
    return sorted(slave.name for slave in (tree.SYS / "block" / block / "slaves").glob("*"))


def carrying(nodes: Iterable[Node]) -> set[str]:
    """Return the names of the block devices with the numbers `nodes`, and of all that these are built on."""
    places = (tree.SYS / f"dev/block/{node.major}:{node.minor}" for node in nodes)
    left = [place.resolve().name for place in places if place.exists()]
    found: set[str] = set()
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += slaves(name) + disk_with(name)
    return found


def waits_with(block: str, away: Callable[[str], bool]) -> bool:
    """Tell whether requests of `block` wait where those of disks that are `away` do; a multipath needs one path."""
    if away(block):
        return True
    below = [waits_with(name, away) for name in slaves(block) + disk_with(block)]
    return all(below) and bool(below) if is_multipath(block) else any(below)


def above(block: str) -> list[str]:
    """Return `block`, its partitions and everything built on them, directly or not."""
    found: list[str] = []
    left = [block]
    while left:
        name = left.pop(0)
        if name in found:
            continue
        found.append(name)
        left += partitions(name) + _directly_on(name)
    return found


def block_node(name: str) -> Node | None:
    """Return the number of block device `name`."""
    return numbered(BLOCK, tree.read_text(directory(name) / "dev"))


@contextlib.contextmanager
def claimed(blocks: Iterable[str]) -> Iterator[frozenset[int]]:
    """Keep `blocks` from being mounted or claimed by others within the block; yields the descriptors that do it.

    Raises InUseError where somebody has claimed one already, or where that cannot be told.
    """
    with contextlib.ExitStack() as stack:
        descriptors = []
        for name in blocks:
            descriptors.append(_claim(name))
            stack.callback(os.close, descriptors[-1])
        yield frozenset(descriptors)


def _claim(name: str) -> int:
    path = f"/dev/{name.replace('!', '/')}"
    try:
        # O_NONBLOCK: a drive without a medium shall not wait for one.
        fd = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        who = "the kernel" if error.errno == errno.EBUSY else f"somebody, perhaps ({path}: {error.strerror})"
        raise InUseError(f"{name} is in use by {who}") from None
    if rdev(os.fstat(fd)) != block_node(name):
        os.close(fd)
        raise InUseError(f"{name} is in use by somebody, perhaps ({path} is another device)")
    return fd


def ownership(name: str) -> str:
    """Return owner, group and mode of the node of block device `name`, '' where it has none."""
    try:
        status = _place(name).lstat()
    except OSError:
        return ""
    if rdev(status) is None or rdev(status) != block_node(name):
        return ""
    return f"{status.st_uid}:{status.st_gid} {stat.S_IMODE(status.st_mode):04o}"


def set_ownership(name: str, wanted: str) -> None:
    """Give the node of block device `name` the owner, group and mode `wanted`.  Raises FabtuneError."""
    found = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10}) ([0-7]{4})", wanted)
    if found is None or not ownership(name):
        raise FabtuneError("it has no node" if found else f"'{wanted}' names no owner, group and mode")
    with explained(str(_place(name))):
        os.chown(_place(name), int(found[1]), int(found[2]), follow_symlinks=False)
        _place(name).chmod(int(found[3], 8))


def _place(name: str) -> Path:
    return tree.ROOT / "dev" / name.replace("!", "/")


def rdev(status: os.stat_result) -> Node | None:
    """Return the number behind a device node, None for any other file."""
    if stat.S_ISBLK(status.st_mode):
        return Node(BLOCK, os.major(status.st_rdev), os.minor(status.st_rdev))
    if stat.S_ISCHR(status.st_mode):
        return Node(CHARACTER, os.major(status.st_rdev), os.minor(status.st_rdev))
    return None


def node_at(path: Path) -> Node | None:
    """Return the number of the device node at `path`, None where there is none."""
    try:
        return rdev(path.stat())
    except OSError:
        return None
