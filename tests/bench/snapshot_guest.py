#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's part of snapshot.py: a thousand disks, some requests on each, and what reading the module costs then."""

import json
import mmap
import os
import subprocess
import time
from pathlib import Path

STATS = Path("/sys/kernel/debug/fabstat/stats")
DISKS = 1000
REQUESTS = 8


def disks() -> list[Path]:
    return [Path("/dev") / path.name for path in Path("/sys/block").glob("sd*")]


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
    costs = []
    for _ in range(3):
        started = time.monotonic_ns()
        text = STATS.read_text()
        costs.append(time.monotonic_ns() - started)
    Path("/results/stats.txt").write_text(text)
    Path("/results/read.json").write_text(json.dumps({"read_instructions": min(costs)}))


if __name__ == "__main__":
    main()
