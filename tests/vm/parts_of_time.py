#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Holds the target's half against the initiator's, request by request: both ends are in this guest.

Usage: parts_of_time.py DISK RTT_MS FROM_MIB.  Reads and writes 4 KiB at random places of DISK from FROM_MIB on, 2 MiB
far, one at a time, so that both ends' sums grow by one request's time.  The parts are the target's time and the path's
round trip; the bar is how far their sum is from the disk's time.  Prints both percentiles, and exits 1 where one is
missed, or where both would hold as well with none of the target's time, or twice of it: half of the region is to be
slower there.
"""

import mmap
import os
import random
import sys

from fabtune.stat import diff, snapshot, target_diff, target_snapshot

REQUESTS = 200
SIZE_BYTES, REGION_BYTES = 4096, 2 << 20
MEDIAN_BAR, P99_BAR = 0.02, 0.05
# Times of a target that is told wrongly.
_WRONG = (0, 2)


def one_request(file: int, block: mmap.mmap, op: str, place: int) -> None:
    """Read or write one block.  Raises OSError."""
    moved = os.preadv(file, [block], place) if op == "read" else os.pwritev(file, [block], place)
    if moved != SIZE_BYTES:
        raise SystemExit(f"{op} at {place}: {moved} bytes")


def times_ns(disk: str, op: str, start: int, chance: random.Random) -> list[tuple[float, float]]:
    """Return the target's time and the disk's of each request."""
    found: list[tuple[float, float]] = []
    block = mmap.mmap(-1, SIZE_BYTES)
    file = os.open(f"/dev/{disk}", os.O_RDWR | os.O_DIRECT)
    for _ in range(REQUESTS):
        disk_before, target_before = snapshot(), target_snapshot()
        one_request(file, block, op, start + chance.randrange(REGION_BYTES // SIZE_BYTES) * SIZE_BYTES)
        ours = diff(disk_before, snapshot()).device(disk).ops[op]
        served = [lun.ops[op] for lun in target_diff(target_before, target_snapshot()).luns if op in lun.ops]
        if ours.completed != 1 or sum(one.completed for one in served) != 1:
            raise SystemExit(f"one {op}: the disk counted {ours.completed}, the target {served}")
        found.append((sum(one.target_ns for one in served), ours.device_ns))
    os.close(file)
    return found


def errors(times: list[tuple[float, float]], rtt_ns: float, factor: float = 1) -> tuple[float, float]:
    """Return by which part of the disk's time the sum of the parts is off, at the median and the 99th percentile.

    `factor` is by which the target's time is multiplied.
    """
    found = sorted(abs(factor * target_ns + rtt_ns - disk_ns) / disk_ns for target_ns, disk_ns in times)
    return found[len(found) // 2], found[-(-len(found) * 99 // 100) - 1]


def main() -> int:
    """Ask for both directions; return 1 where the parts are too far from the whole, or nothing could be."""
    disk, rtt_ms, from_mib = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(1)
    missed = False
    for op in ("read", "write"):
        times = times_ns(disk, op, from_mib << 20, chance)
        median, p99 = errors(times, rtt_ms * 1e6)
        print(f"{op}: {len(times)} requests, the parts are off by {median:.2%} (median), {p99:.2%} (p99)", flush=True)
        missed |= median > MEDIAN_BAR or p99 > P99_BAR
        for factor in _WRONG:
            median, p99 = errors(times, rtt_ms * 1e6, factor)
            if median <= MEDIAN_BAR and p99 <= P99_BAR:
                print(f"{op}: {factor} times of the target's time would hold both bars as well: they tell nothing")
                missed = True
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
