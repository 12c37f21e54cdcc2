# SPDX-License-Identifier: GPL-2.0-or-later
"""null_blk: disks of RAM, or of nothing, that lab targets of every kind export; made in configfs."""

from pathlib import Path

from fabtune.host import tree
from fabtune.host.run import run

# The largest request of a disk with a limit; one tick of it must let that through.
LIMITED_REQUEST_BYTES = 256 * 1024


def make(index: int, size_mib: int, keeps_data: bool, mb_per_s: int) -> Path:
    """Make null_blk device `index` and return its path; `mb_per_s` (MiB) 0 is no limit.

    A limit is held in ticks of 20 ms: what does not fit into what is left of a tick waits for the next one, and the
    rest is lost.  MiB/s are rounded down to 20,971 bytes a tick each, 13 bytes less than two requests of 256 KiB at
    25 MiB/s, so one is added; and requests stay whole, or their pieces would not fill the tick.
    """
    run(["modprobe", "null_blk", "nr_devices=0"], what="loading null_blk")
    directory = tree.SYS / f"kernel/config/nullb/nullb{index}"
    directory.mkdir()
    settings = {"size": size_mib, "memory_backed": int(keeps_data), "irqmode": 0}
    if mb_per_s:
        settings |= {"mbps": mb_per_s + 1, "max_sectors": LIMITED_REQUEST_BYTES // 512}
    for name, value in settings.items():
        (directory / name).write_text(str(value))
    (directory / "power").write_text("1")
    return Path("/dev") / directory.name
