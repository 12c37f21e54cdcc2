# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel itself keeps open, without a process and without a claim that tells who it is.

Loop devices, targets' backstores, OCFS2's heartbeat, USB gadgets and RNBD's server.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from fabtune.host import blocks, mounts, targets, tree
from fabtune.host.blocks import BLOCK, Node, block_node, numbered, rdev
from fabtune.host.mounts import Mount

# include/uapi/linux/loop.h
_LOOP_GET_STATUS64, _LOOP_INFO_BYTES = 0x4C05, 232


def nodes(namespaces: Sequence[Sequence[Mount]] = ()) -> tuple[dict[Node, str], list[str]]:
    """Return who keeps each device open, and what cannot be told: each a reason to take any device for used.

    `namespaces` are the mounts of the other mount namespaces.
    """
    found: dict[Node, str] = {}
    doubts = [doubt for kind in targets.kinds() if (doubt := kind.hidden())]
    own = mounts.seen_by(tree.PROC / "self")
    for loop in (tree.SYS / "block").glob("loop*/loop"):
        node = _below_loop(loop.parent.name, own, namespaces, doubts)
        if node:
            found[node] = loop.parent.name
    for export in targets.exports():
        found |= {Node(BLOCK, *number): export.who for number in export.numbers}
        for path in export.paths:
            found |= dict.fromkeys(_exported(path, own, export.who, doubts), export.who)
    return found | _gadgets(own, doubts) | _rnbd(doubts) | _heartbeats(doubts), doubts


def _gadgets(own: Sequence[Mount], doubts: list[str]) -> dict[Node, str]:
    """Return the disks that this host shows to others as USB mass storage."""
    gadgets, who = tree.SYS / "kernel/config/usb_gadget", "a USB gadget's mass storage"
    # g_mass_storage is told by module parameters, and shows its LUNs below the controller.
    luns = [
        *gadgets.glob("*/functions/mass_storage.*/lun.*/file"),
        *(tree.SYS / "class/udc").glob("*/device/gadget*/lun*/file"),
    ]
    if (tree.SYS / "module/usb_f_mass_storage").is_dir() and not luns and not gadgets.is_dir():
        doubts.append(f"{who}, perhaps: {gadgets} is not there to tell its disks: mount configfs")
    found: dict[Node, str] = {}
    for lun in sorted(luns):
        path = tree.read_text(lun)
        if path is None:
            doubts.append(f"{who}, perhaps: {lun} cannot be read")
        elif path:
            found |= dict.fromkeys(_exported(path, own, who, doubts), who)
    return found


def _rnbd(doubts: list[str]) -> dict[Node, str]:
    """Return the disks that RNBD's clients have from this host, those of partitions among them."""
    found = {}
    for device in sorted((tree.SYS / "class/rnbd-server/ctl/devices").glob("*")):
        who = f"RNBD's server ({device.name})"
        node = numbered(BLOCK, tree.read_text(device / "block_dev/dev"))
        if node:
            found[node] = who
        else:
            doubts.append(f"{who}, perhaps: its disk is not told")
    return found


def _heartbeats(doubts: list[str]) -> dict[Node, str]:
    """Return the disks that OCFS2's cluster heartbeat (o2hb) writes to: it claims none of them."""
    clusters = tree.SYS / "kernel/config/cluster"
    if (tree.SYS / "module/ocfs2_nodemanager").is_dir() and not clusters.is_dir():
        doubts.append(f"OCFS2's heartbeat, perhaps: {clusters} is not there to tell its disks: mount configfs")
    found = {}
    for region in sorted(clusters.glob("*/heartbeat/*/dev")):
        # Nothing until the heartbeat is started.
        name = tree.read_text(region)
        if name == "":
            continue
        who = f"OCFS2's heartbeat in cluster {region.parents[2].name}"
        node = block_node(name.replace("/", "!")) if name else None
        if node:
            found[node] = who
        else:
            doubts.append(f"{who}, perhaps: its disk {name or ''} cannot be found")
    return found


def _exported(path: str, own: Sequence[Mount], who: str, doubts: list[str]) -> Iterator[Node]:
    """Yield the devices that an export made from `path` holds."""
    # On somebody's server it is a file like any other.
    if not mounts.answering(path, own):
        return
    try:
        node = rdev(Path(path).stat())
    except OSError as error:
        # What is gone may have been any disk's node, wherever it lay.
        doubts.append(f"{who}, perhaps: {path}: {error.strerror}")
        return
    if node:
        # A link may have led to another path of the same disk when the export was made.
        yield node
        yield from _same_disk(node)


def _same_disk(node: Node) -> Iterator[Node]:
    """Yield the disks with the WWID of the one that `node`, or the partition `node`, belongs to."""
    place = (tree.SYS / f"dev/block/{node.major}:{node.minor}").resolve()
    name = blocks.wwid(place) or blocks.wwid(place.parent)
    for disk in (tree.SYS / "block").glob("*") if name and node.kind == BLOCK else ():
        number = numbered(BLOCK, tree.read_text(disk / "dev"))
        if number and blocks.wwid(disk) == name:
            yield number


def _below_loop(
    name: str, own: Sequence[Mount], namespaces: Sequence[Sequence[Mount]], doubts: list[str]
) -> Node | None:
    """Return the device below loop device `name`, None where that is a plain file or nothing."""
    # Asked about a loop device, the kernel asks the server of its file.
    file = tree.read_text(tree.SYS / "block" / name / "loop/backing_file") or ""
    if file and not mounts.answering(file, own):
        return None
    served = [one for seen in namespaces if (one := mounts.at(file, seen)) and not one.answers]
    if served and not Path(file).exists():
        doubts.append(f"{name}, perhaps: {file} is on {served[0].source} in another mount namespace")
        return None
    try:
        fd = os.open(f"/dev/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = bytearray(_LOOP_INFO_BYTES)
            fcntl.ioctl(fd, _LOOP_GET_STATUS64, status)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENOENT):
            doubts.append(f"{name}, perhaps: {error.strerror}")
        return None
    # lo_device, lo_inode, lo_rdevice as the kernel's huge_encode_dev() writes numbers
    number = struct.unpack_from("=3Q", status)[2]
    return Node(BLOCK, number >> 8 & 0xFFF, number & 0xFF | number >> 12 & 0xFFF00) if number else None
