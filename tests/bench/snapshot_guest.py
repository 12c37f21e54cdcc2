#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's part of snapshot.py: a thousand disks, some requests on each, and what reading the module costs then."""

import json
import mmap
import os
import subprocess
import time
from pathlib import Path

FABSTAT = Path("/sys/kernel/debug/fabstat")
DISKS = 1000
REQUESTS = 8


def disks() -> list[Path]:
    return [Path("/dev") / path.name for path in Path("/sys/block").glob("sd*")]


def cost(name: str) -> int:
    """Keep a reading of the module's file `name`; return the instructions that reading it takes, the best of three."""
    costs = []
    for _ in range(3):
        started = time.monotonic_ns()
        data = (FABSTAT / name).read_bytes()
        costs.append(time.monotonic_ns() - started)
    Path("/results", name).write_bytes(data)
    return min(costs)


def main() -> None:
    subprocess.run(["modprobe", "sd_mod"], check=True)
    subprocess.run(["insmod", "/fabtune/kmod/fabstat.ko"], check=True)
    subprocess.run(
        ["modprobe", "scsi_debug", "delay=0", "dev_size_mb=8", "max_luns=250", "num_tgts=4", "max_queue=64"], check=True
    )
    deadline = time.monotonic() + 600
    while not (len(disks()) == DISKS and all(disk.is_block_device() for disk in disks())):
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(disks())} disks after ten minutes, expected {DISKS}")
        time.sleep(0.5)
    buffer = mmap.mmap(-1, 4096)
    for disk in disks():
        handle = os.open(disk, os.O_RDWR | os.O_DIRECT)
        for turn in range(REQUESTS):
            os.preadv(handle, [buffer], 4096 * turn)
            os.pwritev(handle, [buffer], 4096 * turn)
        os.close(handle)
    Path("/results/read.json").write_text(
        json.dumps({"read_instructions": cost("stats"), "typed_instructions": cost("stats.bin")})
    )


if __name__ == "__main__":
    main()
