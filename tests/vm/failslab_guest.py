#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Allocations of the module fail, in a guest whose kernel has failslab.

Usage: failslab_guest.py SECONDS | again.  For SECONDS one of a hundred fails while disks come and go under load that is
refused now and then, files are read, and probes are taken off and put on again.  Or all fail while probes are to be
attached that nobody waits for.  Prints what is wrong, and exits 1 then.
"""

import errno
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TypeVar

from books import unbalanced
from endurance_guest import PARAMETERS, SCSI_DEBUG, Flock, run, together, until, use

from fabtune.stat import Snapshot, parse_typed, snapshot

_Result = TypeVar("_Result")

FILES = Path("/sys/kernel/debug/fabstat")
FAILSLAB = Path("/sys/kernel/debug/failslab")
CLOCKS = Path("/sys/devices/system/clocksource")
_MOST_FAILURES = 1_000_000


@contextmanager
def failing(percent: int) -> Iterator[Callable[[], int]]:
    """Let `percent` of the allocations below a function of the module fail; what is given tells how many have failed.

    By the stack trace, since the rest of the kernel and user space are not what is tested: with any other filter fork
    and fio fail before the module does.  A probe runs in the context of whoever issues a request or is interrupted, so
    that a filter by task would miss those in interrupts; one by cache would hit all that use kmalloc.
    """
    names = (line.split() for line in Path("/proc/kallsyms").read_text().splitlines() if line.endswith("[fabstat]"))
    places = [int(words[0], 16) for words in names if words[1] in "tT"]
    for key, value in (
        ("require-start", hex(min(places))), ("require-end", hex(max(places) + 4096)), ("verbose", "0"),
        ("interval", "1"),
        # Those that may wait fail as well: what attaches probes, and what opens a file.
        ("ignore-gfp-wait", "N"), ("times", str(_MOST_FAILURES)), ("probability", str(percent)),
    ):  # fmt: skip
        (FAILSLAB / key).write_text(value)
    try:
        yield lambda: _MOST_FAILURES - int((FAILSLAB / "times").read_text())
    finally:
        (FAILSLAB / "probability").write_text("0")
        (FAILSLAB / "require-start").write_text("0")


class Insistent:
    """Does what may fail for want of memory until it succeeds, and counts the failures."""

    failures = 0

    def do(self, work: Callable[[], _Result]) -> _Result:
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno != errno.ENOMEM:
                    raise
                self.failures += 1

    def reading(self) -> Snapshot:
        return parse_typed(self.do((FILES / "stats.bin").read_bytes), str(FILES))


def lost_silently(done: dict[str, int], now: Snapshot, untracked_before: int) -> list[str]:
    """Return the disks of which requests are missing, more of them than are said to be."""
    untracked = int(now.module["untracked"]) - untracked_before
    found = []
    for disk, requests in done.items():
        devices = [device for device in now.devices if device.disk == disk and device.state == "live"]
        told = sum(one.ops[op].completed for one in devices for op in ("read", "write") if op in one.ops)
        told += sum(one.events.get("unmatched", 0) for one in devices)
        if told + untracked < requests:
            found.append(f"{disk}: {requests} requests, {told} told of and {untracked} untracked")
    return found


def one_life(flock: Flock, chance: random.Random, patient: Insistent) -> list[str]:
    """Make the disks, use them for a minute or two, now and then, and delete them; return what is wrong."""
    flock.make()
    disks, done = flock.disks(), dict[str, int]()
    untracked_before = int(patient.reading().module["untracked"])
    wrong = []
    (SCSI_DEBUG / "every_nth").write_text(str(chance.choice((0, 3, 7))))
    (SCSI_DEBUG / "opts").write_text("0x8000")
    for burst in range(1, 6):
        together(*(partial(use, disk, done, 10 * burst + chance.randrange(10)) for disk in disks))
        for name in ("stats", "stuck", "slowest", "target"):
            patient.do((FILES / name).read_text)
        wrong += unbalanced(patient.reading())
        time.sleep(chance.random() * 40)
    wrong += lost_silently(done, patient.reading(), untracked_before)
    (SCSI_DEBUG / "opts").write_text("0")
    for parameter in ("enabled", "detail", "target"):
        for value in ("N", chance.choice("NY")) if parameter != "enabled" else "NY":
            patient.do(partial((PARAMETERS / parameter).write_text, value))
    # Some are deleted under load.
    users = [Thread(target=use, args=(disk, done)) for disk in disks[::2]]
    for user in users:
        user.start()
    time.sleep(0.2)
    flock.delete()
    for user in users:
        user.join()
    return wrong + unbalanced(patient.reading())


def attach_again() -> list[str]:
    """Let no probe be attached when SCSI comes, nor when the clock changes; return what is wrong afterwards."""

    def refused(name: str) -> bool:
        log = subprocess.run(["dmesg"], capture_output=True, check=True, text=True).stdout
        return f"cannot attach to {name}: -12" in log

    run("insmod", "/fabtune/kmod/fabstat.ko")
    current = next(CLOCKS.glob("clocksource*/current_clocksource"))
    others = set(current.with_name("available_clocksource").read_text().split()) - {current.read_text().strip()}
    # Nor can the module's files be opened meanwhile.
    with failing(100):
        run("modprobe", "scsi_mod")
        until(lambda: refused("scsi_dispatch_cmd_done"), "a probe on SCSI that is not to be had")
    until(lambda: snapshot().module["scsi"] == "1", "the probes on SCSI")
    with failing(100):
        current.write_text(min(others))
        until(lambda: refused("block_rq_complete"), "a clock that is left without probes")
    until(lambda: snapshot().module["enabled"] == "1", "the probes by the other clock")
    wanted = (PARAMETERS / "enabled").read_text().strip()
    return [] if wanted == "Y" else [f"enabled={wanted}"]


def for_long(seconds: float) -> list[str]:
    """Let one of a hundred allocations fail for `seconds`; return what is wrong."""
    chance, patient = random.Random(1), Insistent()
    run("insmod", "/fabtune/kmod/fabstat.ko")
    flock, wrong, lives = Flock(hosts=1, luns=4, null_disks=2), list[str](), 0
    flock.load()
    begun = time.monotonic()
    with failing(1) as failures:
        while time.monotonic() < begun + seconds:
            wrong += one_life(flock, chance, patient)
            lives += 1
        lasted, failed = time.monotonic() - begun, failures()
    flock.unload()
    until(lambda: all(device.state != "dying" for device in snapshot().devices), "the last to be retired")
    last = snapshot()
    wrong += unbalanced(last)
    refused = int(last.module["memory_refused"])
    print(f"{lasted:.0f} s, {lives} times the disks: {failed} allocations failed, {refused} of probes")
    print(f"{patient.failures} files and parameters not to be had at once, {last.module['untracked']} untracked")
    # What probes are refused is counted; the rest was in the context of who opened a file or wrote a parameter.
    if not 0 < refused <= failed:
        wrong.append("memory refused is not what failed")
    return wrong


def main() -> int:
    wrong = attach_again() if sys.argv[1] == "again" else for_long(float(sys.argv[1]))
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
