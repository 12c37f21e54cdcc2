# SPDX-License-Identifier: GPL-2.0-or-later
"""What a target keeps behind its LUNs: RAM, with or without a medium, as fast as asked for."""

from dataclasses import dataclass
from pathlib import Path

from fabtune.host.run import run
from fabtune.host.targets import null_blk
from fabtune.host.targets.kind import Kind, Store

_MIB_SECTORS = 2048


@dataclass(frozen=True)
class Disk:
    """One disk.  `keeps_data` False: reads return what they like, and no memory is used.  `mb_per_s` (MiB) 0: no limit.

    `stalls` makes a disk that `stall` can stop; `tail_delay_ms` is what its last MiB takes longer than the rest.
    """

    size_mib: int = 1024
    keeps_data: bool = False
    mb_per_s: int = 0
    stalls: bool = False
    tail_delay_ms: int = 0


# What a fabric exports unless told otherwise.
USUAL = Disk()


def null_block(disk: Disk, index: int) -> Path:
    """Make null_blk device `index` as `disk` says and return its path."""
    return null_blk.make(index, disk.size_mib, disk.keeps_data, disk.mb_per_s)


def add_store(kind: Kind, disk: Disk, index: int) -> str:
    """Make `disk` what LUNs of a target of `kind` export and return its name there."""
    device = None
    if disk.mb_per_s or disk.stalls or disk.tail_delay_ms:
        device = null_block(disk, index)
        if disk.stalls or disk.tail_delay_ms:
            device = _mapping(disk, device, index)
    return kind.add_store(Store(index, disk.size_mib, disk.keeps_data, device))


def stall(index: int) -> None:
    """Let disk `index` take requests and answer none from now on."""
    run(["dmsetup", "suspend", "--nolockfs", "--noflush", f"lab-disk{index}"], what="stalling the target's disk")


def _mapping(disk: Disk, device: Path, index: int) -> Path:
    """Return a device-mapper device over `device` that can be suspended, its last MiB delayed if so wished."""
    for module in ("dm_mod", "dm_delay"):
        run(["modprobe", module], what=f"loading {module}")
    sectors = int(Path(f"/sys/block/{device.name}/size").read_text())
    tail = _MIB_SECTORS if disk.tail_delay_ms else 0
    table = f"0 {sectors - tail} linear {device} 0\n"
    if tail:
        table += f"{sectors - tail} {tail} delay {device} {sectors - tail} {disk.tail_delay_ms}\n"
    run(["dmsetup", "create", f"lab-disk{index}", "--noudevsync"], what="creating the target's disk", stdin=table)
    return Path("/dev") / mapped(f"lab-disk{index}")


def mapped(name: str) -> str:
    """Return the kernel's name (``dm-0``) of device-mapper's device `name`."""
    shown = run(["dmsetup", "info", "--columns", "--noheadings", "-o", "minor", name], what=f"looking up {name}")
    return f"dm-{shown.strip()}"
