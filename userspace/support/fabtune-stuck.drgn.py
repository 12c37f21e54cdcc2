#!/usr/bin/env drgn
# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints requests that block drivers have had for too long, oldest first, from a live kernel or a crash dump.

    drgn fabtune-stuck.drgn.py [SECONDS]                  # this kernel, as root
    drgn -c vmcore -s vmlinux fabtune-stuck.drgn.py 60    # a dump; both need the kernel's debugging symbols

It needs no fabstat.ko: what is under way stands in the tags of its queue, what waits to be issued again in its list.
It does not look at what waits in hardware queues' dispatch lists and in I/O schedulers, as that of a session that is
down does.
Ages are in whole seconds, "?" where the queue keeps no I/O statistics (iostats 0).  On a host that is up and has the
module, `fabtune stuck` knows more.
"""

import sys

from drgn.helpers.linux.block import disk_name, for_each_disk
from drgn.helpers.linux.list import list_for_each_entry

OPS = {0: "read", 1: "write", 2: "flush", 3: "discard"}
IN_FLIGHT = 1


def under_way(queue):
    """Yield each request of `queue` that its driver has; several queues may share tags."""
    tag_set = queue.tag_set
    if not tag_set:
        return
    seen = set()
    for number in range(int(tag_set.nr_hw_queues)):
        tags = tag_set.tags[number]
        if not tags or tags.value_() in seen:
            continue
        seen.add(tags.value_())
        for tag in range(int(tags.nr_tags)):
            request = tags.rqs[tag]
            # A tag keeps the pointer to its last request.
            if request and request.q == queue and int(request.tag) == tag and int(request.state) == IN_FLIGHT:
                yield request


def sent_back(queue):
    """Yield each request of `queue` that waits to be issued again; of a queue that is not blk-mq the list is zeros."""
    if queue.tag_set:
        yield from list_for_each_entry("struct request", queue.requeue_list.address_of_(), "queuelist")


def main(prog):
    """List them."""
    threshold_s = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    now_s = int(prog["tk_core"].timekeeper.ktime_sec)
    rows = []
    for disk in for_each_disk(prog):
        queue = disk.queue
        for state, found in (("in flight", under_way(queue)), ("sent back", sent_back(queue))):
            for request in found:
                made_s = int(request.start_time_ns) // 10**9
                age_s = now_s - made_s if made_s else None
                if age_s is None or age_s >= threshold_s:
                    op = int(request.cmd_flags) & 0xFF
                    place = int(request.member_("__sector")), int(request.member_("__data_len"))
                    rows.append((age_s, disk_name(disk).decode(), OPS.get(op, f"op {op}"), *place, state))
    for age_s, name, op, sector, length, state in sorted(rows, key=lambda row: -(row[0] or 0)):
        age = "?" if age_s is None else f"{age_s} s"
        print(f"{age:>8}  {name:8} {op:8} sector {sector}  {length} bytes  {state}")
    if not rows:
        print(
            f"no driver has a request older than {threshold_s:g} s; "
            "dispatch lists and I/O schedulers were not looked at"
        )


main(prog)  # noqa: F821  (drgn gives it)
