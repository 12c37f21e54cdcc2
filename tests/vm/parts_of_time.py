#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Holds the target's half against the initiator's, request by request: both ends are in this guest.

Usage: parts_of_time.py DISK RTT_MS FROM_MIB.  Reads and writes 4 KiB at random places of DISK from FROM_MIB on, 2 MiB
far, one at a time, so that both ends' sums grow by one request's time.  The parts are the target's time and the path's
round trip; the bar is how far their sum is from the disk's time.  Prints both percentiles, and exits 1 where one is
missed.
"""

import mmap
import os
import random
import sys

from fabtune.stat import diff, snapshot, target_diff, target_snapshot

REQUESTS = 200
SIZE_BYTES, REGION_BYTES = 4096, 2 << 20
MEDIAN_BAR, P99_BAR = 0.02, 0.05


def one_request(file: int, block: mmap.mmap, op: str, place: int) -> None:
    """Read or write one block.  Raises OSError."""
    moved = os.preadv(file, [block], place) if op == "read" else os.pwritev(file, [block], place)
    if moved != SIZE_BYTES:
        raise SystemExit(f"{op} at {place}: {moved} bytes")


def errors(disk: str, op: str, rtt_ns: float, start: int, chance: random.Random) -> list[float]:
    """Return by which part of the disk's time the sum of the parts is off, of each request, the least first."""
    found = []
    block = mmap.mmap(-1, SIZE_BYTES)
    file = os.open(f"/dev/{disk}", os.O_RDWR | os.O_DIRECT)
    for _ in range(REQUESTS):
        disk_before, target_before = snapshot(), target_snapshot()
        one_request(file, block, op, start + chance.randrange(REGION_BYTES // SIZE_BYTES) * SIZE_BYTES)
        ours = diff(disk_before, snapshot()).device(disk).ops[op]
        served = [lun.ops[op] for lun in target_diff(target_before, target_snapshot()).luns if op in lun.ops]
        if ours.completed != 1 or sum(one.completed for one in served) != 1:
            raise SystemExit(f"one {op}: the disk counted {ours.completed}, the target {served}")
        found.append(abs(sum(one.target_ns for one in served) + rtt_ns - ours.device_ns) / ours.device_ns)
    os.close(file)
    return sorted(found)


def main() -> int:
    """Ask for both directions; return 1 where the parts are too far from the whole."""
    disk, rtt_ms, from_mib = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(1)
    missed = False
    for op in ("read", "write"):
        found = errors(disk, op, rtt_ms * 1e6, from_mib << 20, chance)
        median, p99 = found[len(found) // 2], found[-(-len(found) * 99 // 100) - 1]
        print(f"{op}: {len(found)} requests, the parts are off by {median:.2%} (median), {p99:.2%} (p99)", flush=True)
        missed |= median > MEDIAN_BAR or p99 > P99_BAR
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
