# SPDX-License-Identifier: GPL-2.0-or-later
"""How much is worked on at once where nobody says otherwise: as much as there is memory for."""

import os
import re
from pathlib import Path

from fabtune.lab.vm import Machine

_MEMINFO = Path("/proc/meminfo")


def memory_allows(most: int, bytes_each: int) -> int:
    """Return how many of `most` pieces of work there is memory for now, each of which takes so much; at least one."""
    found = re.search(r"^MemAvailable: *([0-9]+) kB", _MEMINFO.read_text(), re.MULTILINE)
    memory = int(found[1]) << 10 if found else 0
    return max(1, min(most, memory // bytes_each))


def guests_at_once() -> int:
    """Return how many guests run at once: one for each CPU that this process may use, if their memory is there."""
    return memory_allows(len(os.sched_getaffinity(0)), Machine.memory_mib << 20)
