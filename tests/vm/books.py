#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints the devices whose books do not balance, in a guest with the module loaded; exits 1 if there are any.

Usage: books.py [DISK...] (default: all).  To be asked at a quiet moment: of a device under load that is read while a
request comes or goes nothing is known.
"""

import sys

sys.path.insert(0, "/fabtune/userspace")

from fabtune.stat import CountedDevice, Snapshot, snapshot  # noqa: E402


def unbalanced(reading: Snapshot, *disks: str, quiet: bool = True) -> list[str]:
    """Return a line for each device whose books do not balance, or that is busy where all are to be `quiet`."""
    found = []
    for device in reading.devices:
        counted = _sums(device)
        issued = counted.pop("issued")
        if disks and device.disk not in disks:
            continue
        if issued != sum(counted.values()) or (quiet and device.in_flight):
            parts = " + ".join(f"{count} {name}" for name, count in counted.items())
            found.append(f"{device.disk} ({device.state}, id {device.id}): {issued} issued, {parts}")
    return found


def _sums(device: CountedDevice) -> dict[str, int]:
    """Return what was issued, and what the module says became of it."""
    ops = device.ops.values()
    return {
        "issued": sum(op.issued for op in ops), "completed": sum(op.completed for op in ops),
        "sent back": sum(op.sent_back for op in ops), "forgotten": device.forgotten, "in flight": device.in_flight,
    }  # fmt: skip


if __name__ == "__main__":
    wrong = unbalanced(snapshot(), *sys.argv[1:])
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)
