#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's part of module.py: the same reads with each tracer attached, on null_blk, scsi_debug and LIO's loop.

A read of the last is a disk's and, with target=Y, a target's as well: both ends are in one kernel.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULE = Path("/fabtune/kmod/fabstat.ko")
ENABLED = Path("/sys/module/fabstat/parameters/enabled")
CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
LIMIT = Path("/sys/module/fabstat/parameters/memory_limit_mib")
STATS = Path("/sys/kernel/debug/fabstat/stats")
# fio counts its time in ms: so many reads make that less than 3 (null_blk) and 7 (scsi_debug) instructions a read.
READS = {"nullb0": 400_000, "sda": 150_000, "sdb": 100_000}
NAMES = {"nullb0": "null_blk", "sda": "scsi_debug", "sdb": "lio_loop"}
# LIO passes commands on in work items. At depth 16 each takes along as many as happen to be there: 19,660 to 26,640
# instructions a read were measured without any tracer, 1.1 to 2.9 context switches. So does blk-mq for a SCSI disk,
# which has an I/O scheduler: what the same probes added at depth 16 differed by up to 60 instructions between guests.
DEPTHS = {"nullb0": (16,), "sda": (1, 16), "sdb": (1,)}
# Who is measured at a second depth.
AT_DEPTHS = ("none", "fabstat")
# Who measures on LIO's loop: the others know nothing of targets.
OF_TARGETS = ("none", "fabstat", "target", "target-parts", "off")
CONFIG = Path("/sys/kernel/config/target")
# The kernel's own work in the background only ever adds: where tens of instructions count, the least of so many runs.
REPEATS = dict.fromkeys(("none", "fabstat", "target", "off", "detail", "ceiling", "detail-ceiling", "no-books"), 2)
# LIO's work items add more at times: a target's figure of 290 was 200 in the next guest.
REPEATS_OF_LOOP = 3


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def instructions_per_read(disk: str, depth: int, reads: int) -> float:
    """Return the guest time of one read, in ns of the virtual clock: its instructions."""
    done = json.loads(run(
        "fio", "--name=bench", f"--filename=/dev/{disk}", "--rw=randread", "--bs=4k", f"--iodepth={depth}",
        "--size=64m", "--ioengine=io_uring", "--direct=1", "--norandommap", "--randseed=1", f"--io_size={reads * 4096}",
        "--output-format=json",
    ))["jobs"][0]["read"]  # fmt: skip
    if done["total_ios"] != reads:
        raise SystemExit(f"{disk}: {done['total_ios']} reads, expected {reads}")
    return float(done["runtime"]) * 1e6 / reads


@contextmanager
def timekeeper() -> Iterator[None]:
    """Let the kernel keep the time by another clock than the CPU's counter."""
    before = CLOCKSOURCE.read_text()
    others = CLOCKSOURCE.with_name("available_clocksource").read_text().split()
    CLOCKSOURCE.write_text(next(name for name in others if name != before.strip()))
    yield
    CLOCKSOURCE.write_text(before)


@contextmanager
def fabstat(
    enabled: bool = True, *, target: bool = False, parts: bool = False, detail: bool = False, ceiling: bool = False,
    books: bool = True,
) -> Iterator[None]:  # fmt: skip
    wanted = {"detail": detail, "target": target, "target_parts": parts}
    words = [f"{name}={'Y' if on else 'N'}" for name, on in wanted.items()]
    run("insmod", str(MODULE), *words, *[] if books else ["memory_limit_mib=0"])
    if not enabled:
        ENABLED.write_text("N")
    if ceiling:
        # The books have memory, the histograms of reads have none.
        for disk in READS:
            run("dd", "if=/dev/zero", f"of=/dev/{disk}", "bs=4k", "count=64", "oflag=direct", "status=none")
        LIMIT.write_text("0")
    yield
    # A tracer that was not attached would cost nothing: the proof that it was, or was not.
    counted = "op=read issued=" in STATS.read_text()
    told = STATS.with_name("target").read_text()
    served = "op=read started=" in told
    if (" parts=1 " in told) != parts:
        raise SystemExit(f"fabstat saw the parts of the target's time: {not parts}")
    if served != (target and enabled):
        raise SystemExit(f"fabstat counted what the target served: {served}")
    run("rmmod", "fabstat")
    if counted != (enabled and books):
        raise SystemExit(f"fabstat counted: {counted}, expected: {enabled and books}")


@contextmanager
def tracer(*command: str) -> Iterator[None]:
    """Run a tracing tool that prints a histogram when it is interrupted."""
    with Path("/tmp/tracer.log").open("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"})
        wait(lambda: attached(process), f"{command[0]} to attach")
        yield
        process.send_signal(signal.SIGINT)
        process.wait()
        log.seek(0)
        text = log.read()
    if "|" not in text:
        raise SystemExit(f"{command[0]} saw nothing:\n{text}")


def attached(process: "subprocess.Popen[bytes]") -> bool:
    """Whether BPF programs of `process` hang on tracepoints by now."""
    if process.poll() is not None:
        raise SystemExit(Path("/tmp/tracer.log").read_text())
    descriptors = Path(f"/proc/{process.pid}/fd")
    links = [str(link.readlink()) for link in descriptors.iterdir()]
    # All of them: the number no longer grows.
    time.sleep(1)
    return sum("bpf" in link for link in links) >= 3 and len(list(descriptors.iterdir())) == len(links)


def wait(condition, what: str) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.1)


@contextmanager
def nothing() -> Iterator[None]:
    yield


def measure(name: str) -> list[dict[str, object]]:
    """Return a row for each device, with the tracer `name` attached."""
    rows: list[dict[str, object]] = []
    for disk, reads in READS.items():
        if name not in OF_TARGETS if NAMES[disk] == "lio_loop" else name.startswith("target"):
            continue
        clock = CLOCKSOURCE.read_text().strip()
        for depth in DEPTHS[disk] if name in AT_DEPTHS else DEPTHS[disk][:1]:
            repeats = REPEATS_OF_LOOP if NAMES[disk] == "lio_loop" else REPEATS.get(name, 1)
            figure = min(instructions_per_read(disk, depth, reads) for _ in range(repeats))
            print(f"{NAMES[disk]} at depth {depth} with {name}, clock {clock}: {figure:.0f}", flush=True)
            rows.append({
                "device": NAMES[disk], "depth": depth, "tracer": name, "instructions_per_request": round(figure, 1),
                "kernel": os.uname().release, "clocksource": clock,
            })  # fmt: skip
    return rows


def export_loop() -> None:
    """Have LIO export a disk without a medium to this very host: sdb."""
    run("modprobe", "tcm_loop")
    store = CONFIG / "core/rd_mcp_0/disk"
    tpg = CONFIG / "loopback/naa.6001405000000001/tpgt_1"
    (tpg / "lun/lun_0").mkdir(parents=True)
    (tpg / "nexus").write_text("naa.6001405000000002")
    store.mkdir(parents=True)
    (store / "control").write_text("rd_pages=16384,rd_nullio=1")
    (store / "enable").write_text("1")
    (tpg / "lun/lun_0/disk").symlink_to(store)
    wait(Path("/dev/sdb").is_block_device, "LIO's disk")


def main() -> None:
    run("modprobe", "null_blk", "queue_mode=2", "irqmode=0", "submit_queues=1", "hw_queue_depth=64", "nr_devices=1")
    run("modprobe", "sd_mod")
    run("modprobe", "scsi_debug", "delay=0", "dev_size_mb=64")
    wait(Path("/dev/sda").is_block_device, "the SCSI disk")
    export_loop()
    tracers = {
        "none": nothing(), "fabstat": fabstat(), "target": fabstat(target=True),
        "target-parts": fabstat(target=True, parts=True), "off": fabstat(enabled=False, target=True),
        "detail": fabstat(detail=True), "ceiling": fabstat(ceiling=True),
        "detail-ceiling": fabstat(detail=True, ceiling=True), "no-books": fabstat(books=False),
    }  # fmt: skip
    for tool, options in (("biolatency-libbpf", ((), ("-D", "-F"))), ("biolatency.bt", ((),))):
        path = shutil.which(tool)
        for words in options if path else ():
            tracers[" ".join((tool, *words))] = tracer(str(path), *words)
    rows = []
    for disk in READS:
        # What is paid once, such as io_uring's first allocations, is paid here.
        instructions_per_read(disk, DEPTHS[disk][0], 10_000)
    for name, attachment in tracers.items():
        with attachment:
            rows += measure(name)
    with timekeeper():
        rows += measure("none")
        with fabstat():
            rows += measure("fabstat")
    rows.sort(key=lambda row: (str(row["device"]), row["depth"]))
    Path("/results/rows.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
