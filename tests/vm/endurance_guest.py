#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Loops of fabstat_endurance.bats, in one process: a program started is dear in a guest.

Usage: endurance_guest.py loads TURNS SECONDS | deletions DEVICES.  Prints what is wrong, and exits 1 then.
"""

import math
import mmap
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, "/fabtune/userspace")

from books import unbalanced  # noqa: E402

from fabtune.stat import snapshot  # noqa: E402

PARAMETERS = Path("/sys/module/fabstat/parameters")
SCSI_DEBUG = Path("/sys/bus/pseudo/drivers/scsi_debug")
NULL_BLK = Path("/sys/kernel/config/nullb")
BLOCK_BYTES, DISK_BYTES = 4096, 8 << 20
# Several CPUs have the real clock: requests take longer there, or so many disks keep each CPU busy.
LONGER = 1 if os.cpu_count() == 1 else 8


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(30000):
        if condition():
            return
        time.sleep(0.02)
    raise SystemExit(f"waited in vain for {what}")


def together(*works: Callable[[], object]) -> None:
    """Do all of `works` at once; an error of one is the error of all."""
    errors: list[BaseException] = []

    def one(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def loads(turns: int, seconds: float) -> list[str]:
    """Load the module for `seconds` each turn, read its books and unload it, all under the caller's load.

    With everything on or not, and unloaded while it is switched off, just on again, or has counted for a while since.
    """
    wrong: list[str] = []
    completed = forgotten = 0
    for turn in range(turns):
        words = ["target=Y"] if turn % 4 == 0 else []
        run("insmod", "/fabtune/kmod/fabstat.ko", *words, *(["detail=Y"] if turn % 2 == 0 else []))
        time.sleep(seconds)
        # Now nothing is in flight by the books, however busy the disks are: what was is forgotten.
        (PARAMETERS / "enabled").write_text("N")
        reading = snapshot()
        wrong += unbalanced(reading)
        completed += sum(op.completed for device in reading.devices for op in device.ops.values())
        forgotten += sum(device.forgotten for device in reading.devices)
        if turn % 3:
            (PARAMETERS / "enabled").write_text("Y")
            time.sleep(seconds / 2 if turn % 3 == 1 else 0.01)
        run("rmmod", "fabstat")
    print(f"{turns} loads and unloads, {completed} completed and {forgotten} forgotten")
    return wrong if completed and forgotten else [*wrong, "there was no load"]


@dataclass
class Flock:
    """Disks that are made, used by a thread each, and deleted: `luns` of each of `hosts` of scsi_debug, and null_blk's.

    The removals of different hosts go on side by side.
    """

    hosts: int
    luns: int
    null_disks: int
    _others: set[str] = field(default_factory=set)
    _scans: list[Path] = field(default_factory=list)

    def load(self) -> None:
        self._others = _disks()
        run("modprobe", "sd_mod")
        run("modprobe", "null_blk", "nr_devices=0")
        run("modprobe", "scsi_debug", f"add_host={self.hosts}", f"max_luns={self.luns}", "dev_size_mb=8",
            "statistics=1", "ndelay=10000")  # fmt: skip

    def disks(self) -> list[str]:
        return sorted(_disks() - self._others)

    def make(self) -> None:
        (SCSI_DEBUG / "ndelay").write_text("10000")
        # The first time they are there already.
        together(*(partial(scan.write_text, "- - -") for scan in self._scans))
        self._scans = [host / "scan" for host in Path("/sys/class/scsi_host").iterdir()
                       if (host / "proc_name").read_text().strip() == "scsi_debug"]  # fmt: skip
        for number in range(self.null_disks):
            place = NULL_BLK / f"nullb{number}"
            place.mkdir()
            for key, value in (
                ("size", "8"),
                ("irqmode", "2"),
                ("completion_nsec", str(LONGER * 20_000_000)),
                ("power", "1"),
            ):
                (place / key).write_text(value)
        wanted = self.hosts * self.luns + self.null_disks
        until(lambda: len(self.disks()) == wanted and all(map(_is_ready, self.disks())), f"{wanted} disks")
        # From now on requests are under way for so long that a deletion finds some.
        (SCSI_DEBUG / "ndelay").write_text(str(LONGER * 80_000_000))

    def delete(self) -> None:
        by_host: dict[str, list[Path]] = {}
        for disk in self.disks():
            device = Path(f"/sys/block/{disk}/device")
            if device.exists():
                by_host.setdefault(device.resolve().name.split(":")[0], []).append(device / "delete")
        together(_delete_null, *(partial(_delete_scsi, files) for files in by_host.values()))

    def unload(self) -> None:
        run("modprobe", "-r", "scsi_debug", "null_blk")


def _disks() -> set[str]:
    return {path.name for path in Path("/sys/block").iterdir()}


def _is_ready(disk: str) -> bool:
    try:
        os.close(os.open(f"/dev/{disk}", os.O_RDONLY))
        return int(Path(f"/sys/block/{disk}/size").read_text()) > 0
    except OSError:
        return False


def _delete_scsi(files: Iterable[Path]) -> None:
    for file in files:
        file.write_text("1")


def _delete_null() -> None:
    for place in sorted(NULL_BLK.glob("nullb*")):
        (place / "power").write_text("0")
        place.rmdir()


def use(disk: str, done: dict[str, int], requests: float = math.inf) -> None:
    """Read and write `requests` times, or until the disk is gone."""
    chance = random.Random(disk)
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    with suppress(OSError):
        handle = os.open(f"/dev/{disk}", os.O_RDWR | os.O_DIRECT)
        try:
            while done.get(disk, 0) < requests:
                offset = BLOCK_BYTES * chance.randrange(DISK_BYTES // BLOCK_BYTES)
                (os.preadv if chance.random() < 0.5 else os.pwritev)(handle, [buffer], offset)
                done[disk] = done.get(disk, 0) + 1
        finally:
            os.close(handle)


def deletions(devices: int) -> list[str]:
    """Delete so many devices under load, some dozens at a time, and look at the books of all that can still be read."""
    wrong: list[str] = []
    read: set[int] = set()
    flock, deleted, memory = Flock(hosts=4, luns=16, null_disks=16), 0, list[int]()
    flock.load()
    while deleted < devices:
        flock.make()
        disks, done = flock.disks(), dict[str, int]()
        users = [threading.Thread(target=use, args=(disk, done)) for disk in disks]
        for user in users:
            user.start()
        until(lambda done=done, disks=disks: len(done) == len(disks), "a request of each disk")  # type: ignore[misc]
        flock.delete()
        for user in users:
            user.join()
        deleted += len(disks)
        reading = snapshot()
        read |= {device.id for device in reading.devices if device.state != "live"}
        wrong += unbalanced(reading)
        if deleted == len(disks) or deleted >= devices:
            until(lambda: all(device.state != "dying" for device in snapshot().devices), "the last to be retired")
            memory.append(int(snapshot().module["memory_bytes"]))
    flock.unload()
    module = snapshot().module
    print(f"{deleted} devices deleted, the books of {len(read)} read afterwards, {module['devices_seen']} seen")
    print(f"{memory[0]} and {memory[-1]} bytes, {module['untracked']} untracked, {module['memory_refused']} refused")
    # How much is kept depends on which disks were the last.
    if memory[-1] > memory[0] * 1.25:
        wrong.append("memory was not given back")
    return wrong if read else ["no deleted device was read"]


def main() -> int:
    what, times, *seconds = sys.argv[1:]
    wrong = loads(int(times), *map(float, seconds)) if what == "loads" else deletions(int(times))
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
