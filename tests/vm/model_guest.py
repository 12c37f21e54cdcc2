#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's part of model.py: random load and random trouble on one stack, by the module and by blktrace.

Usage: model_guest.py STACK REQUESTS SEED.  A model counts what blktrace saw, one event after the other, and its books
are compared with the module's, round by round.  The round ends with a removal under load.  Writes model.json:
`requests`, `differences`, `rounds`, `highest` in flight at once, `errors` and what else took place (`troubles`).
"""

import json
import mmap
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path[:0] = ["/fabtune/userspace", "/fabtune/tests/vm"]

from model_books import Model, model_of  # noqa: E402
from model_compare import DiskStat, Known, differences, differences_of_removed, disk_stat, since  # noqa: E402
from model_stacks import Stack, run, until  # noqa: E402
from model_troubles import Troubles  # noqa: E402

from fabtune.stat import DeviceInterval, Snapshot, diff, snapshot  # noqa: E402

ROUND = 20_000
# What is under way when its disk is removed.
REMOVED = 500
# Of a request: what a merged one may have.
MOST_BYTES = 1 << 20
_FIO = Path("/tmp/fio.json")


@dataclass
class Seen:
    """What has been seen of a stack."""

    requests: int = 0
    rounds: int = 0
    highest: int = 0
    errors: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)


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

    def models(self) -> dict[str, Model]:
        """Stop it; return the model of each device."""
        self._process.send_signal(2)
        said = self._process.communicate()[0]
        if any(int(count) for count in re.findall(r"dropped (\d+)", said)):
            raise SystemExit(f"blktrace lost events: {said}")
        return {device: model_of(trace) for device, trace in self._traces.items()}


def fio(stack: Stack, requests: int, chance: random.Random) -> subprocess.Popen[bytes]:
    """Begin to load the head with so many requests."""
    sizes, mean_bytes = chance.choice((("4k-4k", 4096), ("4k-64k", 34816), ("512-8k", 4352)))
    words = [
        "fio", "--name=load", f"--filename=/dev/{stack.head}", "--direct=1", "--ioengine=libaio", "--size=60m",
        f"--rw={chance.choice(('randread', 'randwrite', 'randrw', 'read', 'write', 'randrw'))}",
        f"--bsrange={sizes}", f"--iodepth={chance.choice((1, 4, 16, 48, 48))}", f"--io_size={requests * mean_bytes}",
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


def ended(process: subprocess.Popen[bytes]) -> Counter[str]:
    """Wait for fio; return the bytes that it moved, by op, and how often it flushed."""
    process.wait()
    said = _FIO.read_text()
    job = json.loads(said[said.index("{") :])["jobs"][0]
    return Counter(
        read=int(job["read"]["io_bytes"]), write=int(job["write"]["io_bytes"]), flush=int(job["sync"]["total_ios"])
    )


def load(stack: Stack, requests: int, troubles: Troubles) -> Counter[str]:
    """Load the head, with trouble, until all `requests` are done; return the bytes that were moved, and the flushes."""
    process = fio(stack, requests, troubles.chance)
    while process.poll() is None:
        troubles.one()
        go_on(stack, process, troubles.chance.randrange(20, 200))
    troubles.end()
    moved = ended(process)
    # The limits that the module shows are those of a last request.
    for device in stack.devices:
        count = read_once(device)
        if device == stack.head:
            moved["read"] += count
    return moved


def go_on(stack: Stack, process: subprocess.Popen[bytes], requests: int) -> None:
    """Wait until so many more have ended, or nothing does for as long as it takes a lost command to be given up."""
    file = Path(f"/sys/block/{stack.head}/stat")
    before = sum(disk_stat(file.read_text()).requests.values())
    for turn in range(30):
        # A look costs more than a request; most of a second is waited where nothing ends.
        time.sleep(min(0.002 * 1.2**turn, 0.05))
        if process.poll() is not None or sum(disk_stat(file.read_text()).requests.values()) >= before + requests:
            return


def stats(stack: Stack) -> dict[str, DiskStat]:
    return {device: disk_stat(Path(f"/sys/block/{device}/stat").read_text()) for device in stack.devices}


def known(
    stack: Stack, troubles: Troubles, device: str, highest_before: int, stat: DiskStat, moved: Counter[str]
) -> Known:
    """Return what is known of a device after its load."""
    head, injector = device == stack.head, troubles.injectors.get(device)
    injected = injector.followed if injector else None
    depths = troubles.depths.get(device)
    # The midlayer takes a device's depth back that answers TASK SET FULL.
    lowest = 1 if injected is None or injected["task_set_full"] else min(depths or [1])
    scsi = stack.kind(device) == "scsi"
    return Known(
        kind=stack.kind(device), path=not head, highest_before=highest_before, injected=injected,
        loses=bool(troubles.done["resets"]), limits=(lowest, max(depths)) if scsi and depths else None, stat=stat,
        fio={op: moved[op] for op in ("read", "write")} if head else None,
        flushes=moved["flush"] if head and stack.can_flush() else 0,
    )  # fmt: skip


def one_round(stack: Stack, requests: int, chance: random.Random, seen: Seen) -> None:
    """Load the stack with its troubles; add what was seen."""
    stack.make(window=chance.choice((2, 8, 64)), delay_ns=chance.choice((100_000, 300_000, 1_000_000)))
    troubles = Troubles(stack, chance)
    tracer = Tracer(stack.devices)
    earlier, before = stats(stack), snapshot()
    moved = load(stack, requests, troubles)
    after, later = snapshot(), stats(stack)
    interval = diff(before, after)
    models = tracer.models()
    # By their ids: a former disk may have had the name.
    highest = {one.id: one.highest for one in before.devices}
    for device, model in models.items():
        was = highest.get(interval.device(device).device.id, 0)
        knows = known(stack, troubles, device, was, since(earlier[device], later[device]), moved)
        if device != stack.head:
            knows = replace(knows, refused_above=models[stack.head].requeued + models[stack.head].held)
        found = differences(model, interval.device(device), knows)
        seen.found += [f"{device}: {line}" for line in found]
        add(seen, model)
    seen.troubles += troubles.done
    for injector in troubles.injectors.values():
        seen.troubles["timeouts"] += injector.followed["timeout"]


def add(seen: Seen, model: Model) -> None:
    """Add what the trace shows to have taken place."""
    seen.requests += sum(books.completed for books in model.ops.values())
    seen.highest = max(seen.highest, model.highest)
    seen.errors += model.errors
    seen.troubles["errors"] += model.errors
    seen.troubles["refusals"] += model.requeued
    for op, name in (("flush", "flushes"), ("discard", "discards"), ("other", "passthrough")):
        seen.troubles[name] += model.ops[op].completed


def removal(stack: Stack, chance: random.Random, seen: Seen) -> None:
    """Remove a disk under load; compare what is left of its books, and the head's with the model where it stays."""
    disk, before = chance.choice(stack.disks), snapshot()
    number = diff(before, before).device(disk).device.id
    tracer = Tracer([stack.head]) if disk != stack.head else None
    process = fio(stack, 4 * REMOVED, chance)
    until(lambda: issued(number, before) > REMOVED or process.poll() is not None, "a load to remove a disk from")
    loaded = process.poll() is None
    stack.remove(disk)
    moved = ended(process)
    del moved["flush"]
    until(lambda: of(number, before).device.state != "live", f"{disk} to go")
    one = of(number, before)
    if tracer:
        # What its path had to move, another one may have.
        model = tracer.models()[stack.head]
        found = differences(
            model, diff(before, snapshot()).device(stack.head), Known(kind="dm", highest_before=1 << 20)
        )
        seen.found += [f"{stack.head}, a path removed: {line}" for line in found if not line.startswith("highest")]
        add(seen, model)
    found = differences_of_removed(one, moved if not tracer else Counter[str](), MOST_BYTES)
    seen.found += [f"{disk}, removed: {line}" for line in found]
    seen.requests += one.completed
    seen.troubles["removals"] += loaded


def of(number: int, before: Snapshot) -> DeviceInterval:
    """Return what has been counted since `before` of the device with that id, which may have been removed."""
    return next(one for one in diff(before, snapshot()).devices if one.device.id == number)


def issued(number: int, before: Snapshot) -> int:
    return sum(op.issued for op in of(number, before).ops.values())


def main() -> None:
    stack, requests, chance = Stack(sys.argv[1]), int(sys.argv[2]), random.Random(sys.argv[3])
    run("insmod", "/fabtune/kmod/fabstat.ko")
    stack.once()
    seen = Seen()
    while seen.requests < requests:
        already = len(seen.found)
        one_round(stack, min(ROUND, requests - seen.requests + 1000), chance, seen)
        removal(stack, chance, seen)
        stack.unmake()
        seen.rounds += 1
        print(f"{stack.name}: {seen.requests} requests, {len(seen.found)} differences", *seen.found[already:],
              f"{dict(seen.troubles)}, highest {seen.highest}", sep="\n  ", flush=True)  # fmt: skip
    Path("/results/model.json").write_text(json.dumps({
        "stack": stack.name, "requests": seen.requests, "differences": len(seen.found), "rounds": seen.rounds,
        "highest": seen.highest, "errors": seen.errors, "troubles": seen.troubles, "found": seen.found[:100],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
