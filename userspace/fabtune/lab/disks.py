# SPDX-License-Identifier: GPL-2.0-or-later
"""What a target keeps behind its LUNs: RAM, with or without a medium, as fast as asked for."""

from dataclasses import dataclass
from pathlib import Path

from fabtune.host.run import run

_NULL_BLK = Path("/sys/kernel/config/nullb")
_LIO_CORE = Path("/sys/kernel/config/target/core")
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


# The largest request of a disk with a limit; one tick of it must let that through.
LIMITED_REQUEST_BYTES = 256 * 1024
LEAST_MB_PER_S = 13
# What a fabric exports unless told otherwise.
USUAL = Disk()


def null_block(disk: Disk, index: int) -> Path:
    """Make null_blk device `index` and return its path.

    A limit is held in ticks of 20 ms: what does not fit into what is left of a tick waits for the next one, and the
    rest is lost.  MiB/s are rounded down to 20,971 bytes a tick each, 13 bytes less than two requests of 256 KiB at
    25 MiB/s, so one is added; and requests stay whole, or their pieces would not fill the tick.
    """
    run(["modprobe", "null_blk", "nr_devices=0"], what="loading null_blk")
    directory = _NULL_BLK / f"nullb{index}"
    directory.mkdir()
    settings = {"size": disk.size_mib, "memory_backed": int(disk.keeps_data), "irqmode": 0}
    if disk.mb_per_s:
        settings |= {"mbps": disk.mb_per_s + 1, "max_sectors": LIMITED_REQUEST_BYTES // 512}
    for name, value in settings.items():
        (directory / name).write_text(str(value))
    (directory / "power").write_text("1")
    return Path("/dev") / directory.name


def lio_backstore(disk: Disk, index: int) -> Path:
    """Make LIO's backstore ``disk<index>`` and return its directory in configfs."""
    run(["modprobe", "target_core_mod"], what="loading target_core_mod")
    if disk.mb_per_s or disk.stalls or disk.tail_delay_ms:
        run(["modprobe", "target_core_iblock"], what="loading target_core_iblock")
        device = null_block(disk, index)
        backstore, control = (
            _LIO_CORE / "iblock_0",
            f"udev_path={_mapping(disk, device, index) if disk.stalls or disk.tail_delay_ms else device}",
        )
    else:
        control = f"rd_pages={disk.size_mib * 256},rd_nullio={int(not disk.keeps_data)}"
        backstore = _LIO_CORE / "rd_mcp_0"
    directory = backstore / f"disk{index}"
    directory.mkdir(parents=True)
    (directory / "control").write_text(control)
    (directory / "wwn/vpd_unit_serial").write_text(f"fabtune-lab-disk{index}")
    (directory / "enable").write_text("1")
    return directory


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
