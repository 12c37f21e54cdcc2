# SPDX-License-Identifier: GPL-2.0-or-later
"""What each workload really does: sizes, offsets, depth and mix, from the kernel's tracepoints.

The expectations are written out here from the descriptions; the job files are not looked at.
Usage: workload_shapes.py WORKLOAD TARGET [NAME=VALUE ...]
"""

import collections
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

TRACING = Path("/sys/kernel/tracing")
KIB = 1024


@attrs.frozen
class Event:
    """One tracepoint: `pid` is the thread's; block events have `device`, `op`, `sector` and `bytes`."""

    pid: int
    time_s: float
    name: str
    text: str
    device: str = ""
    op: str = ""
    sector: int = 0
    bytes: int = 0  # noqa: A003


_LINE = re.compile(r"^\s*fio-(\d+)\s+\[\d+\]\s+\S+\s+([\d.]+): (\w+)[:(] ?(.*)$")
_ANY = re.compile(r"^\s*.+-(\d+)\s+\[\d+\]\s+\S+\s+([\d.]+): (\w+)[:(] ?(.*)$")
_BLOCK = re.compile(r"(\d+,\d+) (\w+) .*?(\d+) \+ (\d+) ")


def traced(tracepoints: list[str], command: list[str]) -> list[Event]:
    """Run `command` with `tracepoints` on and return what they saw, in order; nothing may be lost."""
    (TRACING / "trace").write_text("")
    (TRACING / "buffer_size_kb").write_text("300000")
    for name in tracepoints:
        (TRACING / "events" / name / "enable").write_text("1")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for name in tracepoints:
        (TRACING / "events" / name / "enable").write_text("0")
    if done.returncode:
        sys.exit(f"{command}: exit {done.returncode}: {done.stderr}")
    events = []
    with (TRACING / "trace").open() as lines:
        for line in lines:
            if "LOST" in line:
                sys.exit("the trace lost events")
            # Completions come from whatever context the interrupt met; everything else from fio's threads.
            found = (_ANY if "block_rq_complete" in line else _LINE).match(line)
            if found:
                pid, when, name, text = int(found[1]), float(found[2]), found[3], found[4]
                block = _BLOCK.match(text) if name.startswith("block_") else None
                detail = (block[1], block[2], int(block[3]), int(block[4]) * 512) if block else ("", "", 0, 0)
                events.append(Event(pid, when, name, text, *detail))
    return events


def requests(events: list[Event], op: str) -> list[Event]:
    """Return the data requests of one direction as they were issued."""
    return [e for e in events if e.name in ("block_rq_issue", "block_bio_queue") and e.op[:1] == op and e.bytes]


def check(holds: bool, what: str) -> None:
    """End with what was found when it is not what the description says."""
    print(("ok: " if holds else "WRONG: ") + what)
    if not holds:
        sys.exit(1)


def depths(events: list[Event]) -> list[int]:
    """Return the number of fio's requests in flight after each issue; others' complete on other disks meanwhile."""
    inflight: collections.Counter[tuple[str, int]] = collections.Counter()
    found = []
    for event in events:
        where = event.device, event.sector
        if event.name == "block_rq_issue" and event.bytes:
            inflight[where] += 1
            found.append(inflight.total())
        elif event.name == "block_rq_complete" and inflight[where]:
            inflight[where] -= 1
    return found


def check_depth(events: list[Event], expected: int) -> None:
    """Check that the depth is reached, mostly held (one CPU also has to refill it) and never exceeded."""
    seen = depths(events)
    middle = statistics.median(seen)
    check(max(seen) == expected and middle >= 0.8 * expected, f"depth {max(seen)}, median {middle:g}")


def check_sequential(part: list[Event], what: str) -> None:
    """Check that each request starts where the one before ended, but for wraps."""
    breaks = sum(b.sector != a.sector + a.bytes // 512 for a, b in zip(part, part[1:], strict=False))
    wraps = sum(b.sector < a.sector for a, b in zip(part, part[1:], strict=False))
    check(breaks == wraps and wraps <= 1 + len(part) // 8, f"{what}: {breaks} breaks, {wraps} of them wraps")


def check_random(part: list[Event], size_bytes: int, what: str) -> None:
    """Check that offsets spread evenly over the area: each quarter has a quarter of them."""
    low = min(event.sector for event in part)
    quarter = collections.Counter((event.sector - low) * 512 * 4 // size_bytes for event in part)
    even = all(abs(quarter[n] / len(part) - 0.25) < 0.05 for n in range(4))
    check(even and len({e.sector for e in part}) > len(part) / 4, f"{what}: quarters {dict(sorted(quarter.items()))}")


def sizes(part: list[Event]) -> dict[int, int]:
    """Return how many requests there are of each size."""
    return dict(collections.Counter(event.bytes for event in part))


def xdd(events: list[Event]) -> None:
    reads, writes = requests(events, "R"), requests(events, "W")
    check(sizes(reads) == {256 * KIB: 256} == sizes(writes), f"64 MiB each way in requests of 256 KiB: {sizes(reads)}")
    check(reads[-1].time_s < writes[0].time_s, "reads first, then writes")
    check_sequential(reads, "reads")
    check_sequential(writes, "writes")
    check_depth(events, 32)


def pioraw(events: list[Event]) -> None:
    groups: dict[tuple[str, int], dict[int, list[Event]]] = {}
    for op in "RW":
        for event in requests(events, op):
            groups.setdefault((op, event.bytes), {}).setdefault(event.pid, []).append(event)
    want = {(op, size) for op in "RW" for size in (KIB, 64 * KIB, 256 * KIB)}
    counts = {key: sum(map(len, threads.values())) for key, threads in groups.items()}
    check(set(groups) == want, f"requests of each direction and size: {counts}")
    for (op, size), threads in groups.items():
        # One step with one process and one with four: five threads, in slices of their own.
        starts = sorted(min(event.sector for event in part) * 512 for part in threads.values())
        check(starts == [0, 0, 16 << 20, 32 << 20, 48 << 20], f"{op} {size}: slices start at {starts}")
        for part in threads.values():
            check_sequential(part, f"{op} {size}")
            ends = (max(event.sector for event in part) - min(event.sector for event in part)) * 512 + size
            check(ends <= 64 << 20, f"a slice ends after {ends} bytes")


def oltp(events: list[Event]) -> None:
    reads, writes = requests(events, "R"), requests(events, "W")
    check(set(sizes(reads)) | set(sizes(writes)) == {4 * KIB}, "all requests are 4 KiB")
    share = len(reads) / (len(reads) + len(writes))
    check(abs(share - 0.70) < 0.02, f"{share:.1%} reads")
    check_random(reads, 64 << 20, "reads")
    check_random(writes, 64 << 20, "writes")
    check_depth(events, 16)


def latency(events: list[Event]) -> None:
    reads = requests(events, "R")
    check(sizes(reads).keys() == {4 * KIB} and not requests(events, "W"), f"4 KiB reads alone: {sizes(reads)}")
    check_random(reads, 64 << 20, "reads")
    check(set(depths(events)) == {1}, "one at a time")


def stress128(events: list[Event]) -> None:
    reads, writes = requests(events, "R"), requests(events, "W")
    check(set(sizes(reads)) | set(sizes(writes)) == {256 * KIB}, "all requests have the size asked for")
    check(reads[0].time_s > writes[-1].time_s, "writes first, then reads")
    for part in (writes, reads):
        streams = collections.Counter(event.pid for event in part)
        areas = {event.pid: event.sector for event in part}
        check(len(streams) == 128 == len(set(areas.values())), "128 threads, each in a part of its own")
    check_depth(events, 128)


def ioverify(events: list[Event]) -> None:
    reads, writes = requests(events, "R"), requests(events, "W")
    whole = [event for event in writes if event.bytes == 64 * KIB]
    check(len({event.sector for event in whole}) == len(whole) == 64, "4 MiB written once, in 64 KiB")
    check(any(b.sector < a.sector for a, b in zip(whole, whole[1:], strict=False)), "in random order")
    read_back = {event.sector for event in reads if event.bytes == 64 * KIB}
    check(read_back >= {event.sector for event in whole}, "all of it read back")


def calls(events: list[Event], name: str) -> list[tuple[int, int, int, int]]:
    """Return (pid, descriptor, count, offset) of each call of pread64 or pwrite64, but for the program loader's."""
    found = []
    for event in events:
        if event.name == f"sys_{name}":
            words = {key: int(value, 16) for key, value in re.findall(r"(\w+): (?:0x)?([0-9a-f]+)", event.text)}
            if words["count"] >= 4 * KIB:
                found.append((event.pid, words["fd"], words["count"], words["pos"]))
    return found


def pileup(events: list[Event]) -> None:
    reads = calls(events, "pread64")
    counts = collections.Counter(count for _, _, count, _ in reads)
    check(sorted(counts) == list(range(50250, 60000, 500)), f"sizes {sorted(counts)}")
    expected = len(reads) / 20
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    # 43.8 is the 0.1 % point of chi-square with 19 degrees of freedom.
    check(chi_square < 43.8 and len(reads) > 2000, f"{len(reads)} reads, chi-square of even sizes {chi_square:.1f}")
    odd = sum(offset % 512 != 0 for *_, offset in reads) / len(reads)
    check(odd > 0.9, f"{odd:.0%} of the offsets are within a sector")
    advice = {event.text.rpartition("advice: ")[2][:1] for event in events if event.name == "sys_fadvise64"}
    check("1" not in advice, f"nothing is said to be random: {advice}")
    spread = collections.Counter(offset * 4 // (8 << 20) for *_, offset in reads)
    check(all(abs(spread[n] / len(reads) - 0.25) < 0.04 for n in range(4)), f"offsets by quarter {dict(spread)}")
    # A step with one thread and one with eight; every thread keeps all files open and picks evenly.
    threads = collections.Counter(pid for pid, *_ in reads)
    check(len(threads) == 9, f"{len(threads)} threads")
    files = collections.Counter((pid, fd) for pid, fd, *_ in reads)
    used = {pid: [count for (owner, _), count in files.items() if owner == pid] for pid in threads}
    check(all(len(mine) == 4 for mine in used.values()), "every thread reads from every file")
    check(all(max(mine) < 1.5 * min(mine) for mine in used.values() if sum(mine) > 400), "and evenly")


def lmdd(events: list[Event]) -> None:
    for name in ("pwrite64", "pread64"):
        by_job: dict[int, list[tuple[int, int]]] = {}
        for pid, _, count, offset in calls(events, name):
            by_job.setdefault(pid, []).append((count, offset))
        # A step with one job and one with two; of a file to be read the layout is none of a job's.
        check(len(by_job) == 3, f"{name}: {len(by_job)} jobs")
        whole = [(1_024_000, 1_024_000 * n) for n in range(20)]
        check(all(done == whole for done in by_job.values()), f"{name}: 20 requests of 1000 KiB, one after another")
    check(sum(event.name == "sys_fsync" for event in events) >= 3, "flushed")


def areas_of(part: list[Event]) -> list[tuple[int, ...]]:
    """Return the sectors that each thread touched, in the order of the threads."""
    areas: dict[int, set[int]] = {}
    for event in part:
        areas.setdefault(event.pid, set()).add(event.sector)
    return [tuple(sorted(areas[pid])) for pid in sorted(areas)]


def mptio(events: list[Event]) -> None:
    reads, writes = requests(events, "R"), requests(events, "W")
    check(set(sizes(reads)) | set(sizes(writes)) == {256 * KIB}, "all requests have the size asked for")
    # 3 processes, each with 512 KiB in the cache phases and 1 MiB in the disk phases, on the device itself.
    small, large = (
        [tuple(size * region + 512 * n for n in range(size // 512)) for region in range(3)] for size in (1024, 2048)
    )
    check(areas_of(writes) == small + large, f"writes at {areas_of(writes)}")
    rotated = [areas[1:] + areas[:1] for areas in (small, large)]
    check(areas_of(reads) == small + rotated[0] + large + rotated[1], f"reads at {areas_of(reads)}")
    check(set(depths(events)) <= {1, 2, 3}, "one at a time for each process")


def mptio_files(events: list[Event]) -> None:
    writes, reads = (calls(events, name) for name in ("pwrite64", "pread64"))
    check({count for _, _, count, _ in writes + reads} == {1 << 20}, "all requests are 1 MiB")
    # 3 processes: 2 MiB files in the cache phases, 4 MiB in the disk phases.
    check((len(writes), len(reads)) == (3 * (2 + 4), 3 * 2 * (2 + 4)), f"{len(writes)} writes, {len(reads)} reads")
    # Around the page cache every read reaches the disk: three processes of the disk read, three of the rotate read.
    areas = areas_of([event for event in requests(events, "R") if "RA" not in event.op])
    check(len(areas) == 6, f"{len(areas)} processes read from the disk")
    check(areas[3:] == [areas[1], areas[2], areas[0]], "each rotate read is of the neighbour's file")


def mptio_shared(events: list[Event]) -> None:
    for name in ("pwrite64", "pread64"):
        starts: dict[int, list[int]] = {}
        for pid, _, _, offset in calls(events, name):
            starts.setdefault(pid, []).append(offset)
        check(
            sorted(min(part) for part in starts.values()) == [n << 22 for n in range(8)], f"{name}: 8 parts of one file"
        )
        check(all(part == sorted(part) and len(part) == 4 for part in starts.values()), f"{name}: each part in order")


def daq(events: list[Event]) -> None:
    for name, what in (("pwrite64", "writers"), ("pread64", "readers")):
        mine = calls(events, name)
        by_thread = collections.Counter(pid for pid, *_ in mine)
        streams = {pid: n for pid, n in by_thread.items() if n > 1}
        check(len(streams) == 8, f"8 {what}")
        times = [e.time_s for e in events if e.name == f"sys_{name}" and e.pid in streams]
        rate = sum(count for pid, _, count, _ in mine if pid in streams) / (max(times) - min(times))
        as_asked = abs(rate / (8 * 2_000_000) - 1) < 0.1
        # The readers are free, and nothing else holds them here.
        check(as_asked if what == "writers" else rate > 1.2 * 8 * 2_000_000, f"{what}: {rate / 1e6:.2f} MB/s")
        per_thread = [(pid, offset) for pid, _, _, offset in mine if pid in streams]
        check(all(offset % (1 << 20) == 0 for _, offset in per_thread), f"{what}: requests of 1 MiB in order")


def metabench(events: list[Event]) -> None:
    made = [event for event in events if event.name == "ext4_allocate_inode" and "mode 0100" in event.text]
    parents = collections.Counter(re.search(r"dir (\d+)", event.text)[1] for event in made)  # type: ignore[index]
    check(sorted(parents.values()) == [50] * 4 + [200], f"4 processes of 50 files: directories {dict(parents)}")
    gone = [event for event in events if event.name == "ext4_unlink_enter"]
    check(len(gone) == 400, f"{len(gone)} files deleted")
    looked = [event for event in events if event.name in ("sys_newstat", "sys_newlstat", "sys_newfstatat", "sys_statx")]
    by_thread = collections.Counter(event.pid for event in looked)
    check(sum(n >= 50 for n in by_thread.values()) >= 8, "8 processes looked up 50 files each")


BLOCK = ["block/block_rq_issue", "block/block_rq_complete"]
CALLS = ["syscalls/sys_enter_pread64", "syscalls/sys_enter_pwrite64", "syscalls/sys_enter_fsync"]
STATS = [f"syscalls/sys_enter_{name}" for name in ("newstat", "newlstat", "newfstatat", "statx")]
SHAPES: dict[str, tuple[Callable[[list[Event]], None], list[str]]] = {
    "xdd": (xdd, BLOCK), "pioraw": (pioraw, BLOCK), "oltp": (oltp, BLOCK), "latency": (latency, BLOCK),
    "stress128": (stress128, BLOCK), "ioverify": (ioverify, BLOCK), "lmdd": (lmdd, CALLS), "mptio": (mptio, BLOCK),
    "pileup": (pileup, [*CALLS, "syscalls/sys_enter_fadvise64"]), "mptio-files": (mptio_files, [*CALLS, *BLOCK]),
    "mptio-shared": (mptio_shared, CALLS), "daq": (daq, CALLS),
    "metabench": (metabench, ["ext4/ext4_allocate_inode", "ext4/ext4_unlink_enter", *STATS]),
}  # fmt: skip


def main() -> None:
    """Run one workload under trace and hold it against its description."""
    name, target, *settings = sys.argv[1:]
    judge, tracepoints = SHAPES[name]
    command = ["fabtune", "measure", name, "--on", target, "--out", "/tmp/shapes"]
    # A directory has nothing to confirm.
    command += [] if Path(target).is_dir() else ["--confirm", Path(target).name]
    for word in settings:
        command += word.split(":", 1) if word.startswith("--") else ["--set", word]
    judge(traced(tracepoints, command))


if __name__ == "__main__":
    main()
