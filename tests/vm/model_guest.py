#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's part of model.py: random load and random trouble on one stack, by the module and by blktrace.

Usage: model_guest.py STACK REQUESTS SEED.  A model counts what blktrace saw, one event after the other, and its books
are compared with the module's, round by round.  Writes model.json: `requests`, `differences`, `rounds`.
"""

import json
import random
import re
import struct
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, "/fabtune/userspace")

from fabtune.stat import CountedDevice, DeviceInterval, diff, snapshot  # noqa: E402

SCSI_DEBUG = Path("/sys/bus/pseudo/drivers/scsi_debug")
ROUND = 20_000
# struct blk_io_trace: magic, sequence, time, sector, bytes, action, pid, device, cpu, error, pdu_len
_EVENT = struct.Struct("<IIQQIIIIIHH")
_REQUEUE, _ISSUE, _COMPLETE = 6, 7, 8
_CATEGORY = 16
_WRITE, _FLUSH, _PASSTHROUGH, _NOTIFY, _DISCARD = 1 << 1, 1 << 2, 1 << 9, 1 << 10, 1 << 13
# The two take their time a moment apart, in the order in which they were attached.
_APART_NS = 3000


@dataclass
class Books:
    """One op's, by the model."""

    issued: int = 0
    completed: int = 0
    sent_back: int = 0
    bytes: int = 0  # noqa: A003
    errors: int = 0
    times_ns: list[int] = field(default_factory=list)


@dataclass
class Model:
    """What should have been counted of one device, told event by event."""

    ops: dict[str, Books] = field(default_factory=lambda: defaultdict(Books))
    flying: dict[tuple[str, int], deque[tuple[int, int]]] = field(default_factory=lambda: defaultdict(deque))
    depth: int = 0
    highest: int = 0
    requeued: int = 0

    def event(self, action: int, when_ns: int, sector: int, size: int, error: int) -> None:
        kind = action >> _CATEGORY
        op = "read" if not kind & (_WRITE | _FLUSH | _DISCARD) else "write"
        op = "flush" if kind & _FLUSH and not size else "discard" if kind & _DISCARD else op
        op = "other" if kind & _PASSTHROUGH else op
        books, flying = self.ops[op], self.flying[op, sector]
        what = action & 0xFFFF
        if what == _ISSUE:
            books.issued += 1
            self.depth += 1
            self.highest = max(self.highest, self.depth)
            flying.append((when_ns, size))
        elif what == _REQUEUE:
            self.requeued += 1
            if flying:
                flying.popleft()
                books.sent_back += 1
                self.depth -= 1
        elif what == _COMPLETE and flying:
            begun_ns, whole = flying.popleft()
            books.bytes += size
            if size < whole:
                flying.appendleft((begun_ns, whole - size))
                return
            books.completed += 1
            books.errors += bool(error)
            books.times_ns.append(when_ns - begun_ns)
            self.depth -= 1


def model_of(trace: Path) -> Model:
    """Return the model after all events of `trace`, in the order of their times."""
    data = trace.read_bytes()
    events = []
    place = 0
    while place + _EVENT.size <= len(data):
        _, _, when, sector, size, action, _, _, _, error, more = _EVENT.unpack_from(data, place)
        if not (action >> _CATEGORY) & _NOTIFY:
            events.append((when, place, action, sector, size, error))
        place += _EVENT.size + more
    model = Model()
    for when, _, action, sector, size, error in sorted(events):
        model.event(action, when, sector, size, error)
    return model


def differences(model: Model, one: DeviceInterval) -> list[str]:
    """Return what the module counted otherwise than the model."""
    found: list[tuple[str, float, float]] = []
    device: CountedDevice = one.device
    for name in sorted({*model.ops, *one.ops}):
        ours, theirs = one.ops.get(name), model.ops[name]
        if ours is None:
            found.append((f"{name} seen", 0, theirs.issued))
            continue
        found += [
            (f"{name} {key}", getattr(ours, key), getattr(theirs, key))
            for key in ("issued", "completed", "sent_back", "bytes", "errors")
        ]
        found.append((f"{name} in the histogram", ours.histograms["device"].count, theirs.completed))
        times = sorted(theirs.times_ns)
        allowed_ns = _APART_NS * len(times)
        if abs(ours.device_ns - sum(times)) > allowed_ns:
            found.append((f"{name} device_ns", ours.device_ns, sum(times)))
        for percent in (1, 50, 90, 99) if times else ():
            bucket = ours.histograms["device"].percentile(percent)
            exact = times[max(0, -(-len(times) * percent // 100) - 1)]
            if bucket and not bucket.low_ns - _APART_NS <= exact <= bucket.high_ns + _APART_NS:
                found.append((f"{name} p{percent} ns", bucket.value_ns, exact))
    requeued = sum(one.events[f"requeued_{by}"] for by in ("unstarted", "by_driver", "by_target"))
    found += [
        ("in flight", device.in_flight, model.depth), ("unmatched", one.events["unmatched"], 0),
        ("untracked", one.events["untracked"], 0), ("forgotten", device.forgotten, 0),
        ("requeued", requeued, model.requeued),
    ]  # fmt: skip
    return [f"{name}: {ours}, the model says {theirs}" for name, ours, theirs in found if ours != theirs]


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.02)


def scsi_disk() -> str:
    run("modprobe", "sd_mod")
    run("modprobe", "scsi_debug", "delay=0", "dev_size_mb=64", "statistics=1", "max_queue=64")
    found: list[str] = []

    def look() -> bool:
        found[:] = [path.name for path in Path("/sys/block").glob("sd*")
                    if "scsi_debug" in (path / "device/model").read_text()]  # fmt: skip
        return bool(found) and Path("/dev", found[0]).is_block_device()

    until(look, "the disk of scsi_debug")
    run("dd", f"if=/dev/{found[0]}", "of=/dev/null", "bs=4k", "count=1", "status=none")
    return found[0]


def refuse(chance: random.Random) -> None:
    """Let scsi_debug refuse one command in some, or none."""
    (SCSI_DEBUG / "every_nth").write_text(str(chance.choice((0, 5, 17, 101))))
    (SCSI_DEBUG / "opts").write_text("0x8000" if chance.random() < 0.7 else "0")


class Stack:
    """Devices to load and to compare, and what can happen to them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.head = ""
        self.devices: list[str] = []
        self.lab = ["env", "PYTHONPATH=/fabtune/userspace", "/usr/bin/python3", "-m", "fabtune.lab.guest"]

    def make(self) -> None:
        if self.name in ("scsi_debug", "multipath"):
            self.devices = [scsi_disk()]
            if self.name == "multipath":
                self.devices.insert(0, self._multipath(self.devices[0]))
        else:
            self.devices = [run(*self.lab, "login", "--fabric", self.name).split()[-1].removeprefix("/dev/")]
        self.head = self.devices[0]

    def once(self) -> None:
        if self.name not in ("scsi_debug", "multipath"):
            run(*self.lab, "up", "--rtt", "0ms", "--fabric", self.name, "--size-mib", "64")

    def _multipath(self, disk: str) -> str:
        run("modprobe", "-a", "dm_multipath", "dm_round_robin")
        sectors = run("blockdev", "--getsz", f"/dev/{disk}")
        table = f"0 {sectors} multipath 0 0 1 1 round-robin 0 1 1 /dev/{disk} 1000"
        run("dmsetup", "create", "--noudevsync", "mp", "--table", table)
        head = run("dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", "mp")
        until(Path("/dev", head).is_block_device, head)
        return head

    def trouble(self, chance: random.Random) -> None:
        """Do one thing that a load has to live with."""
        disk = self.devices[-1]
        depth = Path(f"/sys/block/{disk}/device/queue_depth")
        what = chance.choice(("refuse", "depth", "reset", "nothing"))
        with suppress(OSError, subprocess.CalledProcessError):
            if what == "refuse" and self.name in ("scsi_debug", "multipath"):
                refuse(chance)
            elif what == "depth" and depth.exists():
                depth.write_text(str(chance.choice((1, 2, 8, 32, 64))))
            elif what == "reset" and self.name == "nvme-tcp":
                controller = next(Path("/sys/class/nvme").iterdir())
                (controller / "reset_controller").write_text("1")
            elif what == "reset" and self.name == "iscsi":
                run("sg_reset", "--device", f"/dev/{disk}")

    def remove(self) -> None:
        if self.name == "multipath":
            run("dmsetup", "remove", "--noudevsync", "mp")
        if self.name in ("scsi_debug", "multipath"):
            (SCSI_DEBUG / "opts").write_text("0")
            run("modprobe", "-r", "scsi_debug")
        else:
            run(*self.lab, "logout", "--fabric", self.name)


def load(stack: Stack, requests: int, chance: random.Random) -> None:
    """Load the head, with trouble, until all `requests` are done."""
    sizes, mean_bytes = chance.choice((("4k-4k", 4096), ("4k-64k", 34816), ("512-8k", 4352)))
    words = [
        "fio", "--name=load", f"--filename=/dev/{stack.head}", "--direct=1", "--ioengine=libaio", "--size=60m",
        f"--rw={chance.choice(('randread', 'randwrite', 'randrw', 'read', 'write'))}",
        f"--bsrange={sizes}", f"--iodepth={chance.choice((1, 4, 16, 48))}", f"--io_size={requests * mean_bytes}",
        f"--randseed={chance.randrange(1 << 30)}",
        "--output=/tmp/fio.log", "--eta=never",
    ]  # fmt: skip
    process = subprocess.Popen(words)
    while process.poll() is None:
        stack.trouble(chance)
        time.sleep(chance.random() * 0.05)
    if process.returncode:
        raise SystemExit(Path("/tmp/fio.log").read_text())


def one_round(stack: Stack, requests: int, chance: random.Random) -> tuple[int, list[str]]:
    """Return how many requests the model saw, and the differences."""
    for path in Path("/tmp").glob("*.blktrace.*"):
        path.unlink()
    words = [word for device in stack.devices for word in ("-d", f"/dev/{device}")]
    masks = [word for mask in ("issue", "complete", "requeue") for word in ("-a", mask)]
    traces = {device: Path(f"/tmp/{device}.blktrace.0") for device in stack.devices}
    tracer = subprocess.Popen(
        ["blktrace", *words, *masks, "-D", "/tmp", "-b", "4096", "-n", "32"], stdout=subprocess.PIPE, text=True
    )
    until(lambda: all(path.exists() for path in traces.values()), "blktrace")
    before = snapshot()
    load(stack, requests, chance)
    after = snapshot()
    tracer.send_signal(2)
    said = tracer.communicate()[0]
    if any(int(count) for count in re.findall(r"dropped (\d+)", said)):
        raise SystemExit(f"blktrace lost events: {said}")
    interval = diff(before, after)
    seen, found = 0, []
    for device, trace in traces.items():
        model = model_of(trace)
        seen += sum(books.completed for books in model.ops.values())
        found += [f"{device}: {line}" for line in differences(model, interval.device(device))]
    return seen, found


def main() -> None:
    stack, requests, chance = Stack(sys.argv[1]), int(sys.argv[2]), random.Random(sys.argv[3])
    run("insmod", "/fabtune/kmod/fabstat.ko")
    stack.once()
    seen, found, rounds = 0, [], 0
    while seen < requests:
        stack.make()
        more, wrong = one_round(stack, min(ROUND, requests - seen + 1000), chance)
        stack.remove()
        seen += more
        rounds += 1
        found += wrong
        print(f"{stack.name}: {seen} requests, {len(found)} differences", *wrong, sep="\n  ", flush=True)
    Path("/results/model.json").write_text(json.dumps({
        "stack": stack.name, "requests": seen, "differences": len(found), "rounds": rounds, "found": found[:100],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
