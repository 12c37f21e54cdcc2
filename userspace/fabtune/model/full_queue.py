# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a full queue takes to leave: what time limits must outlast, for profiles that set them and for lint."""

import math

# What profiles are sized for where nobody says otherwise (`io_size`).
IO_BYTES = 256 << 10
# A request on its way may be as many of those: the block layer joins what lies side by side, and so large are bursts.
JOINED = 4


def leaves_s(requests: float, io_bytes: float, bytes_per_s: float) -> float:
    """Return how long `requests` take at a rate, each joined of those of `io_bytes`."""
    return requests * JOINED * io_bytes / bytes_per_s


def most_requests(limit_s: float, waits_s: float, io_bytes: float, bytes_per_s: float) -> int:
    """Return how many requests leave within `limit_s`, of which `waits_s` are the path's round trips."""
    found = max(0, math.floor((limit_s - waits_s) * bytes_per_s / (JOINED * io_bytes)))
    # What was divided may come out a bit above what it was.
    return found - (found > 0 and waits_s + leaves_s(found, io_bytes, bytes_per_s) > limit_s)
