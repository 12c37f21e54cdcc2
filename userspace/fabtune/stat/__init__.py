# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading fabstat.ko: snapshots, differences, percentiles, stuck requests.

before = snapshot()
...
device = diff(before, snapshot()).device("sda")
device.percentile(99, "read").value_ms, device.queue_full
"""

from fabtune.stat.binary import parse_typed
from fabtune.stat.endpoint import Endpoint, endpoint
from fabtune.stat.histogram import Histogram, Percentile
from fabtune.stat.host import HostLoad, host_loads
from fabtune.stat.interval import DeviceInterval, Interval, diff, since_seen
from fabtune.stat.named import kernel_names, with_paths
from fabtune.stat.reading import snapshot
from fabtune.stat.served import (
    LunInterval,
    ServedLun,
    ServedOp,
    TargetInterval,
    TargetSnapshot,
    load_target,
    parse_target,
    served_since_seen,
    target_diff,
    target_snapshot,
)
from fabtune.stat.slowest import SlowList, SlowRequest, slowest
from fabtune.stat.snapshot import NOT_COUNTING, CountedDevice, Op, Snapshot, load, parse, text_snapshot
from fabtune.stat.stack import head_above, head_of
from fabtune.stat.stuck import StuckList, StuckRequest, stuck
from fabtune.stat.surroundings import nr_requests, with_around
from fabtune.stat.unsent import Waiting, WaitingRequest, unsent

__all__ = [
    "NOT_COUNTING", "CountedDevice", "DeviceInterval", "Endpoint", "Histogram", "HostLoad", "Interval", "LunInterval",
    "Op", "Percentile", "ServedLun", "ServedOp", "SlowList", "SlowRequest", "Snapshot", "StuckList", "StuckRequest",
    "TargetInterval", "TargetSnapshot", "Waiting", "WaitingRequest", "diff", "endpoint", "head_above", "head_of",
    "host_loads", "kernel_names", "load", "load_target", "nr_requests", "parse", "parse_target", "parse_typed",
    "served_since_seen", "since_seen", "slowest", "snapshot", "stuck", "target_diff", "target_snapshot",
    "text_snapshot", "unsent", "with_around", "with_paths",
]  # fmt: skip
