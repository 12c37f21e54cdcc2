#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's part of model.py: random load and random trouble on one stack, seen by the module and by blktrace.

Usage: model_guest.py STACK REQUESTS SEED.  Each round leaves a file as it ends, ROUND.json.gz in /results, with all
that model_judge.py compares: the module's readings, the traces, what was injected, what fio, the disks and the kernel
counted.  A round ends with a removal under load.
"""

import json
import mmap
import os
import platform
import random
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path[:0] = ["/fabtune/userspace", "/fabtune/tests/vm"]

import model_answers  # noqa: E402
from model_kept import COMPLETE, Columns, condensed, events_of, write  # noqa: E402
from model_stacks import Stack, run, until  # noqa: E402
from model_troubles import Troubles  # noqa: E402

ROUND = 20_000
# What is under way when its disk is removed.
REMOVED = 500
# A lost command is given up after a second, several times, and then its host is reset.
MOST_STILL_S = 300
# How a round goes: with all troubles; with a depth that stays and is reached; without what hides a refusal.
MANNERS = ("any", "any", "steady", "refusals")
_FIO = Path("/tmp/fio.json")
_READING = Path("/sys/kernel/debug/fabstat/stats")
Row = dict[str, Any]


class Tracer:
    """blktrace of some devices."""

    def __init__(self, devices: list[str]) -> None:
        for path in Path("/tmp").glob("*.blktrace.*"):
            path.unlink()
        words = [word for device in devices for word in ("-d", f"/dev/{device}")]
        masks = [word for mask in ("issue", "complete", "requeue") for word in ("-a", mask)]
        self._traces = {device: Path(f"/tmp/{device}.blktrace.0") for device in devices}
        self._process = subprocess.Popen(
            ["blktrace", *words, *masks, "-D", "/tmp", "-b", "4096", "-n", "32"], stdout=subprocess.PIPE, text=True
        )
        until(lambda: all(path.exists() for path in self._traces.values()), "blktrace")

    def traces(self) -> dict[str, Columns]:
        """Stop it; return the trace of each device."""
        self._process.send_signal(2)
        said = self._process.communicate()[0]
        if any(int(count) for count in re.findall(r"dropped (\d+)", said)):
            raise SystemExit(f"blktrace lost events: {said}")
        if self._process.returncode or "Total:" not in said:
            raise SystemExit(f"blktrace ended with exit {self._process.returncode}: {said}")
        return {device: condensed(events_of(trace)) for device, trace in self._traces.items()}


def fio(stack: Stack, requests: int, chance: random.Random, depths: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Begin to load the head with so many requests, one of `depths` at once."""
    sizes, mean_bytes = chance.choice((("4k-4k", 4096), ("4k-64k", 34816), ("512-8k", 4352)))
    words = [
        "fio", "--name=load", f"--filename=/dev/{stack.head}", "--direct=1", "--ioengine=libaio", "--size=60m",
        f"--rw={chance.choice(('randread', 'randwrite', 'randrw', 'read', 'write', 'randrw'))}",
        f"--bsrange={sizes}", f"--iodepth={chance.choice(depths)}", f"--io_size={requests * mean_bytes}",
        f"--randseed={chance.randrange(1 << 30)}", f"--fsync={chance.choice((0, 64))}", "--continue_on_error=all",
        f"--output={_FIO}", "--output-format=json", "--eta=never",
    ]  # fmt: skip
    return subprocess.Popen(words, stderr=subprocess.DEVNULL)


def read_once(device: str) -> int:
    """Read one block past everybody's caches; return its bytes."""
    handle = os.open(f"/dev/{device}", os.O_RDONLY | os.O_DIRECT)
    try:
        return os.preadv(handle, [mmap.mmap(-1, 4096)], 0)
    finally:
        os.close(handle)


def ended(process: subprocess.Popen[bytes]) -> Row:
    """Wait for fio; return what it moved, how many I/Os these were and how long each took, by op."""
    process.wait(MOST_STILL_S)
    said = _FIO.read_text()
    job = json.loads(said[said.index("{") :])["jobs"][0]
    moved = {
        op: {"bytes": job[op]["io_bytes"], "ios": job[op]["total_ios"],
             "latency_ns": job[op]["lat_ns"]["mean"] * job[op]["lat_ns"]["N"]}
        for op in ("read", "write")
    }  # fmt: skip
    return moved | {"flush": {"ios": job["sync"]["total_ios"]}}


def load(stack: Stack, requests: int, troubles: Troubles) -> Row:
    """Load the head, with trouble, until all `requests` are done; return what fio says of them, and its last reads."""
    depths = (16, 48) if troubles.manner == "steady" else (1, 4, 16, 48, 48)
    process = fio(stack, requests, troubles.chance, depths)
    moved_s = time.monotonic()
    while process.poll() is None:
        troubles.one()
        if go_on(stack, process, troubles.chance.randrange(20, 200)):
            moved_s = time.monotonic()
        elif time.monotonic() > moved_s + MOST_STILL_S:
            raise SystemExit(f"{stack.head}: no request has ended for {MOST_STILL_S} s")
        else:
            troubles.done["paths_let_go"] += let_go(stack)
    troubles.end()
    moved = ended(process)
    # The module looks at the limits when it is read, and shows those of a last request.
    _READING.read_text()
    for device in stack.devices:
        count = read_once(device)
        if device == stack.head:
            moved["read"]["bytes"] += count
    return moved


def go_on(stack: Stack, process: subprocess.Popen[bytes], requests: int) -> bool:
    """Wait until so many more have ended, or for as long as it takes a lost command to be given up.

    Return whether any has ended.
    """
    before = ended_by_stat(stat(stack.head))
    for turn in range(30):
        # A look costs more than a request; most of a second is waited where nothing ends.
        time.sleep(min(0.002 * 1.2**turn, 0.05))
        if process.poll() is not None or ended_by_stat(stat(stack.head)) >= before + requests:
            return True
    return ended_by_stat(stat(stack.head)) > before


def let_go(stack: Stack) -> int:
    """Read from paths that dm waits for, as multipathd's checkers do; return from how many.

    dm sends nothing to a path whose driver has refused a command as busy, and only a further command clears that: where
    all have refused their last ones, nothing ends any more (fabstat_stacks.bats has it alone).
    """
    waited_for = [disk for disk in stack.disks if disk != stack.head and stack.is_blocked(disk)]
    for disk in waited_for:
        with suppress(OSError):
            read_once(disk)
    return len(waited_for)


def stat(device: str) -> str:
    return Path(f"/sys/block/{device}/stat").read_text().strip()


def ended_by_stat(text: str) -> int:
    words = [int(word) for word in text.split()]
    return words[0] + words[4] + words[11] + words[15]


def one_round(stack: Stack, requests: int, manner: str, chance: random.Random) -> Row:
    """Load the stack with its troubles; return what was seen."""
    delay_ns = chance.choice((100_000, 300_000, 1_000_000))
    # A closed window would keep requests from reaching the depth.
    stack.make(window=64 if manner == "steady" else chance.choice((2, 8, 64)), delay_ns=delay_ns)
    troubles = Troubles(stack, chance, manner)
    if manner == "steady":
        troubles.keep_depth(chance.choice((4, 8)))
        _READING.read_text()
        for device in stack.devices:
            read_once(device)
    hctl = {device: stack.hctl(device) for device in stack.devices}
    tracer = Tracer(stack.devices)
    told: list[Row] = [{}, {}]
    told[0] = look(stack)
    limits = [{device: stack.limits(device) for device in stack.devices}]
    moved = load(stack, requests, troubles)
    told[1] = look(stack)
    limits.append({device: stack.limits(device) for device in stack.devices})
    traces = tracer.traces()
    devices = {
        device: {
            "kind": stack.kind(device), "hctl": hctl[device], "trace": traces[device],
            "limits": [limit[device] for limit in limits], "depths": troubles.depths.get(device),
            "injected": troubles.injectors[device].followed if device in troubles.injectors else None,
        }
        for device in stack.devices
    }  # fmt: skip
    return {
        "stack": stack.name, "manner": manner, "kernel": platform.release(), "head": stack.head, "devices": devices,
        "looks": told, "moved": moved, "can_flush": stack.can_flush(), "troubles": troubles.done,
        "least_ns": stack.least_ns(delay_ns),
    }  # fmt: skip


def look(stack: Stack) -> Row:
    """Return what the module, the disks and the kernel have counted until now."""
    stats = {device: stat(device) for device in stack.devices}
    return {"stats": stats, "answers": model_answers.read(), "reading": _READING.read_text()}


def removal(stack: Stack, chance: random.Random) -> Row:
    """Remove a disk under load; return what was seen of it, and of the head where that stays."""
    disk, before = chance.choice(stack.disks), look(stack)
    tracer = Tracer([stack.head]) if disk != stack.head else None
    process = fio(stack, 4 * REMOVED, chance, (1, 4, 16, 48, 48))
    least = ended_by_stat(stat(disk)) + REMOVED
    until(lambda: ended_by_stat(stat(disk)) >= least or process.poll() is not None, "a load to remove a disk from")
    # Counted by the disk itself, which takes this along.
    last, loaded = stat(disk), process.poll() is None
    stack.remove(disk)
    moved = ended(process)
    until(lambda: is_gone(disk, before["reading"]), f"{disk} to go")
    trace = tracer.traces()[stack.head] if tracer else None
    return {
        "disk": disk, "loaded": loaded, "moved": moved, "stats": [before["stats"][disk], last], "head_trace": trace,
        "looks": [before, {"answers": model_answers.read(), "reading": _READING.read_text()}],
    }  # fmt: skip


def is_gone(disk: str, before: str) -> bool:
    """Return whether the device that was last of that name in `before` is no longer live."""
    number = re.findall(rf"^device id=(\d+) .*\bdisk={disk} ", before, re.MULTILINE)[-1]
    return not re.search(rf"^device id={number} state=live ", _READING.read_text(), re.MULTILINE)


def completed(trace: Columns) -> int:
    """Return how many requests `trace` saw to end, roughly: parts are taken for several, what has no bytes for none.

    Of a request of dm the data end first, and then it ends once more.
    """
    ends = {number for number, (action, size, _) in enumerate(trace["kinds"]) if action & 0xFFFF == COMPLETE and size}
    return sum(kind in ends for kind in trace["kind"])


def main() -> None:
    stack, requests, chance = Stack(sys.argv[1]), int(sys.argv[2]), random.Random(sys.argv[3])
    run("insmod", "/fabtune/kmod/fabstat.ko")
    model_answers.begin()
    stack.once()
    seen, number, manners = 0, 0, chance.sample(MANNERS, len(MANNERS))
    while seen < requests:
        number += 1
        file = Path(f"/results/{number}.json.gz")
        row = one_round(stack, min(ROUND, requests - seen + 1000), manners[number % len(manners)], chance)
        write(file, row | {"removal": None})
        write(file, row | {"removal": removal(stack, chance)})
        stack.unmake()
        seen += completed(row["devices"][stack.head]["trace"])
        print(f"{stack.name}: {seen} requests in {number} rounds, the last one {row['manner']}", flush=True)


if __name__ == "__main__":
    main()
