#!/usr/bin/env drgn
# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints requests that block drivers have had for too long, oldest first, from a live kernel or a crash dump.

    drgn fabtune-stuck.drgn.py [SECONDS]                  # this kernel, as root
    drgn -c vmcore -s vmlinux fabtune-stuck.drgn.py 60    # a dump; needs the kernel's debugging symbols

It needs no fabstat.ko: every request under way is in the tags of its queue.  A queue that keeps no I/O statistics
(iostats 0) does not know since when; its requests are listed with age "?".  On a host that is up and has the module,
`fabtune stuck` knows more.
"""

import sys

from drgn.helpers.linux.block import disk_name, for_each_disk
from drgn.helpers.linux.cpumask import for_each_possible_cpu  # noqa: F401  (drgn's helpers load what they need)

OPS = {0: "read", 1: "write", 2: "flush", 3: "discard"}
IDLE = 0


def clock_ns(prog):
    """Return the kernel's monotonic clock: the timekeeper's last tick, at most some ms old."""
    keeper = prog["tk_core"].timekeeper
    base = keeper.tkr_mono
    return int(base.base) + (int(base.xtime_nsec) >> int(base.shift))


def requests(tags):
    """Yield each request of a set of tags that a driver has."""
    for number in range(int(tags.nr_tags)):
        request = tags.rqs[number]
        if request and int(request.state.value_() if hasattr(request.state, "value_") else request.state) != IDLE:
            yield request


def of_disk(disk):
    """Yield the requests of `disk` alone: a host's disks share their tags."""
    queue = disk.queue
    seen = set()
    for number in range(int(queue.nr_hw_queues)):
        context = queue.queue_hw_ctx[number] if hasattr(queue, "queue_hw_ctx") else None
        if context is None or not context.tags or context.tags.value_() in seen:
            continue
        seen.add(context.tags.value_())
        for request in requests(context.tags):
            if request.q == queue:
                yield request


def main(prog):
    """List them."""
    threshold_s = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    now_ns = clock_ns(prog)
    rows = []
    for disk in for_each_disk(prog):
        name = disk_name(disk).decode()
        for request in of_disk(disk):
            started_ns = int(request.start_time_ns)
            age_s = (now_ns - started_ns) / 1e9 if started_ns else None
            if age_s is None or age_s >= threshold_s:
                op = int(request.cmd_flags) & 0xFF
                rows.append((age_s, name, OPS.get(op, f"op {op}"), int(request.__getattr__("__sector")),
                             int(request.__getattr__("__data_len"))))  # fmt: skip
    rows.sort(key=lambda row: -(row[0] if row[0] is not None else float("inf")))
    for age_s, name, op, sector, length in rows:
        age = "?" if age_s is None else f"{age_s:.1f} s"
        print(f"{age:>10}  {name:8} {op:8} sector {sector}  {length} bytes")
    if not rows:
        print(f"no request is older than {threshold_s:g} s")


main(prog)  # noqa: F821  (drgn gives it)
