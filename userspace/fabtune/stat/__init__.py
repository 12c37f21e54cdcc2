# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading fabstat.ko: snapshots, differences, percentiles.

    before = snapshot()
    ...
    device = diff(before, snapshot()).device("sda")
    device.percentile(99, "read").value_ms, device.queue_full
"""

from fabtune.stat.histogram import Histogram, Percentile
from fabtune.stat.interval import DeviceInterval, Interval, diff, since_seen
from fabtune.stat.snapshot import Device, Op, Snapshot, load, parse, snapshot

__all__ = [
    "Device", "DeviceInterval", "Histogram", "Interval", "Op", "Percentile", "Snapshot",
    "diff", "load", "parse", "since_seen", "snapshot",
]  # fmt: skip
