# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures the rate of a session's path with a few reads, where the NIC's speed says nothing about the links behind it.

A read of B bytes takes one round trip and B / rate, so two sizes give the rate of the slowest link without
filling the path: packet-train dispersion (Dovrolis, Ramanathan, Moore 2001); the target's Data-In PDUs are the train.
The time that both hosts' CPUs need for the train is in it, so the answer errs on the low side.
"""

import mmap
import os
import time
from pathlib import Path

from fabtune.errors import explained

# Together within the window that iscsid locks by default; far enough apart for a 10 Gb/s path to show.
_SHORT_BYTES, _LONG_BYTES = 32768, 196608
# Slow start doubles its window each round trip: from 14 KB to the long train in four, and some to spare.
_WARM_UPS = 8
_REPETITIONS = 6


def rate_bytes_per_s(disk: Path) -> float:
    """Return the payload rate of the path to `disk` in bytes/s; takes about 20 round trips and reads 3 MB.

    Raises FabtuneError when the disk cannot be read.
    """
    with explained(f"reading {disk}"):
        descriptor = os.open(disk, os.O_RDONLY | os.O_DIRECT)
        try:
            # Direct reads want memory aligned to pages.
            with mmap.mmap(-1, _SHORT_BYTES) as short, mmap.mmap(-1, _LONG_BYTES) as long:
                for _ in range(_WARM_UPS):
                    _read_s(descriptor, long)
                pairs = [(_read_s(descriptor, short), _read_s(descriptor, long)) for _ in range(_REPETITIONS)]
        finally:
            os.close(descriptor)
    # The fastest of each size met the least other traffic.
    short_s: float = min(first for first, _ in pairs)
    long_s: float = min(second for _, second in pairs)
    return (_LONG_BYTES - _SHORT_BYTES) / max(long_s - short_s, 1e-9)


def _read_s(descriptor: int, memory: mmap.mmap) -> float:
    begin = time.perf_counter()
    os.preadv(descriptor, [memory], 0)
    return time.perf_counter() - begin
