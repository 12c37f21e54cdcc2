# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading fabstat.ko: snapshots, differences, percentiles, stuck requests.

before = snapshot()
...
device = diff(before, snapshot()).device("sda")
device.percentile(99, "read").value_ms, device.queue_full
"""

from fabtune.stat.endpoint import Endpoint, endpoint
from fabtune.stat.histogram import Histogram, Percentile
from fabtune.stat.host import HostLoad, host_loads
from fabtune.stat.interval import DeviceInterval, Interval, diff, since_seen
from fabtune.stat.slowest import SlowList, SlowRequest, slowest
from fabtune.stat.snapshot import CountedDevice, Op, Snapshot, load, parse, snapshot
from fabtune.stat.stack import head_of
from fabtune.stat.stuck import StuckList, StuckRequest, stuck

__all__ = [
    "CountedDevice", "DeviceInterval", "Endpoint", "Histogram", "HostLoad", "Interval", "Op", "Percentile", "SlowList",
    "SlowRequest", "Snapshot", "StuckList", "StuckRequest", "diff", "endpoint", "head_of", "host_loads", "load",
    "parse", "since_seen", "slowest", "snapshot", "stuck",
]  # fmt: skip
