# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares what the module counted of a disk removed under load: its trace goes with it, fio's figures stay."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from model_books import Model
from model_known import DiskStat
from model_rows import ANSWERS, APART_NS, BY_DRIVER, INTERRUPT_NS, NEVER, Row, adds_up, end_ns, exact, said

from fabtune.stat import DeviceInterval, Histogram, Op

# Of a request: what a merged one may have.
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Gone:
    """What is known of a removed disk.

    `moved` is what fio says of it, by op; None of a path: what that had to move another one may have, and `head` is
    the model of the device above.  `last` is what the disk itself had counted just before it went.  A request took at
    least `least_ns`.  `answers` is what the kernel counted of driver and target, None where it is no SCSI disk.
    """

    moved: Mapping[str, Any] | None = None
    head: Model | None = None
    last: DiskStat | None = None
    least_ns: int = 0
    answers: Mapping[str, int] | None = None


def differences_of_removed(one: DeviceInterval, gone: Gone) -> list[str]:
    """Return what does not add up of a device that was removed under a load."""
    return said(row for rows in (_sums, _events, _by_op, _beside_disk) for row in rows(one, gone))


def _sums(one: DeviceInterval, _: Gone) -> Iterator[Row]:
    ended = sum(op.completed + op.sent_back for op in one.ops.values()) + one.device.forgotten
    issued = sum(op.issued for op in one.ops.values())
    yield exact("issued", issued, ended)
    yield exact("in flight", one.device.in_flight, 0)
    yield exact("forgotten", one.device.forgotten, 0)
    yield exact("torn", one.device.torn, 0)
    for name, op in one.ops.items():
        yield from adds_up(name, op)
    device_ns = sum(op.device_ns for op in one.ops.values())
    # What was sent back was in flight, too.
    sent_back = sum(op.sent_back for op in one.ops.values())
    longest_ns = one.elapsed_ns * sent_back
    yield "depth_ns beside device_ns", one.depth_ns, device_ns - issued, device_ns + issued + longest_ns
    yield "at_limit_ns", one.at_limit_ns, 0, min(one.elapsed_ns, one.depth_ns)


def _events(one: DeviceInterval, gone: Gone) -> Iterator[Row]:
    events, sent_back = one.events, sum(op.sent_back for op in one.ops.values())
    for name in NEVER:
        yield exact(name, events[name], 0)
    yield exact("sent back", events["requeued_by_driver"] + events["requeued_by_target"], sent_back)
    yield exact("held", one.held, events["requeued_unstarted"])
    for name in ANSWERS:
        yield exact(f"{name} as the kernel counts it", events[name], gone.answers[name] if gone.answers else 0)
    if gone.answers:
        yield exact("refusals by the driver", sum(events[name] for name in BY_DRIVER), events["requeued_by_driver"])
    yield "timed_out", events["timed_out"], 0, events["timeout"]
    for name in sorted(name for name in events if name.startswith("error_")):
        classes = sum(op.errors_by_class.get(name, 0) for op in one.ops.values())
        # Those that were never issued have no op.
        yield f"{name} of all", events[name], classes, classes + events["never_issued"]


def _by_op(one: DeviceInterval, gone: Gone) -> Iterator[Row]:
    for name in ("read", "write"):
        op = one.ops.get(name, Op())
        went_well = op.completed - op.errors
        # From what an error ends no data came.
        yield f"{name} device_ns beside the least", op.device_ns, went_well * (gone.least_ns - APART_NS), math.inf
        short = _below(op.histograms.get("device", Histogram((0,))), gone.least_ns - INTERRUPT_NS)
        yield f"{name} for less than the least", short, 0, op.errors
        if gone.moved is None:
            continue
        fio = gone.moved[name]
        yield f"{name} bytes beside fio's", op.bytes, fio["bytes"], fio["bytes"] + op.errors * MOST_BYTES
        yield f"{name} beside fio's", went_well, 0, fio["ios"]
        # An I/O takes longer than its request, and of what failed fio does not say how long it took.
        most_ns = fio["latency_ns"] + op.errors * one.elapsed_ns
        for key in ("device_ns", "total_ns"):
            yield f"{name} {key} beside fio's", getattr(op, key), 0, most_ns


def _below(histogram: Histogram, ns: int) -> int:
    return sum(count for index, count in histogram.counts.items() if end_ns(histogram, index) <= ns)


def _beside_disk(one: DeviceInterval, gone: Gone) -> Iterator[Row]:
    if gone.last:
        flushes = one.ops.get("flush", Op()).completed
        for name in ("read", "write"):
            op, last = one.ops.get(name, Op()), gone.last
            yield f"{name} bytes beside the disk's statistics", op.bytes, last.bytes[name], math.inf
            # A flush counts there as a write, or as a path's read; and what dm threw away was no request of the path.
            ended = op.completed + flushes + one.events["never_issued"]
            more = one.held + sum(other.sent_back for other in one.ops.values()) if gone.head else 0
            more += gone.head.requeued + gone.head.held if gone.head else 0
            yield f"{name} beside the disk's statistics", ended, last.requests[name] - more, math.inf
    for name in ("read", "write") if gone.head else ():
        assert gone.head
        op = one.ops.get(name, Op())
        yield f"{name} beside the head's", op.issued - op.sent_back, 0, gone.head.ops[name].issued
        most_bytes = gone.head.ops[name].issued * MOST_BYTES
        yield f"{name} bytes beside the head's", op.bytes, 0, most_bytes
