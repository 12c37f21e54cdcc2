# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares what the module counted of a device with the model, with what was done to it, and with what others counted.

The trace hangs on the tracepoints of the module itself; what was injected, fio and the disk's own statistics do not.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

sys.path.insert(0, "/fabtune/userspace")

from model_books import Books, Model  # noqa: E402

from fabtune.stat import DeviceInterval, Histogram, Op  # noqa: E402

# The two take their time a moment apart, in the order in which they were attached; and as long as it takes to end
# another request, where each is issued just when the timer of another one runs out.  That goes on for whole rounds.
APART_NS = 6000
# Of a single request: memory may be taken for it, and an interrupt may come between the two, which ends other requests.
_INTERRUPT_NS = 30_000
# So many of few requests may have met one, and such a part of many.
_INTERRUPTED, _INTERRUPTED_PART = 3, 50
# An interrupt between the two ends a request before the one has seen the next, and after the other has.
_APART_DEPTH = 1
_SECTOR = 512

NOT_KNOWN = {
    "all but sums and fio's bytes of a removed disk": "its trace and its statistics go with it",
    "disk, hctl, driver, parent": "no event of blktrace names them; tests/vm/fabstat*.bats compare them with sysfs",
    "eh_wakeups": "the error handler is of the host, and no event of a disk tells of it",
    "held_*": "the trace tells that a request was held back, not why; their sum is compared",
    "requeued_by_driver and _by_target of dm and NVMe": "nothing but the request's state tells them apart",
    "timeout, timed_out on iSCSI": "the transport forgives as many as it likes; none is injected there",
    "task_set_full and busy, each, on iSCSI": "the target gives what it likes; they are bounded by what it sent back",
    "nvme_*": "the controller's status is not in the trace; they are bounded by what it sent back",
    "error_io, error_aborted, error_path": "one error number on NVMe; their sum is compared",
    "at_limit_ns while the limit moves": "no event tells when; bounded by the lowest and the highest",
    "refused, refused_ns beside other retries": "the trace does not tell a refusal from another retry; bounded",
    "times and refusals of passthrough, exactly": "which of several was sent back is not in the trace; bounded",
    "total_ns, refused, refused_ns of a path": "what dm throws away begins anew, unseen by the path's trace; bounded",
}
_BY_DRIVER = ("host_busy", "device_busy", "target_busy", "eh_retry", "driver_other")
_INJECTABLE = ("host_busy", "device_busy", "target_busy", "task_set_full", "busy")
_NEVER = ("unmatched", "untracked", "no_histogram", "no_retry", "failed_over")
_UNTOLD = ("error_io", "error_aborted", "error_path")


@dataclass(frozen=True)
class DiskStat:
    """What the block layer counted: requests and bytes by op."""

    requests: Mapping[str, int]
    bytes: Mapping[str, int]  # noqa: A003


def disk_stat(text: str) -> DiskStat:
    """Return what a disk's file ``stat`` says."""
    words = [int(word) for word in text.split()]
    at = {"read": 0, "write": 4, "discard": 11}
    requests = {op: words[place] for op, place in at.items()} | {"flush": words[15]}
    return DiskStat(requests, {op: words[place + 2] * _SECTOR for op, place in at.items()})


def since(before: DiskStat, after: DiskStat) -> DiskStat:
    """Return the increase."""
    return DiskStat(
        {op: count - before.requests[op] for op, count in after.requests.items()},
        {op: count - before.bytes[op] for op, count in after.bytes.items()},
    )


@dataclass(frozen=True)
class Known:
    """What is known of a device besides the trace.

    `kind` is scsi, dm or nvme.  `refused_above` is how often dm, of a path below it, got one back.  `injected` has
    how often each event was made to happen, None where that is not known; `loses` is whether commands were lost
    besides, so that their time ran out.  `limits` are the lowest and highest limit of its depth.  `fio` has the bytes
    that were moved, by op; `flushes` how often fio asked for one.
    """

    kind: str = "scsi"
    path: bool = False
    refused_above: int = 0
    highest_before: int = 0
    injected: Mapping[str, int] | None = None
    loses: bool = False
    limits: tuple[int, int] | None = None
    stat: DiskStat | None = None
    fio: Mapping[str, int] | None = None
    flushes: int | None = None


# What is compared, what the module says, and the least and the most that it may say.
_Row = tuple[str, float, float, float]


def differences(model: Model, one: DeviceInterval, known: Known) -> list[str]:
    """Return what the module counted otherwise than the model and those who know more."""
    rows = [row for rows in (_ops, _times, _depths, _events, _others) for row in rows(model, one, known)]
    return _said(rows)


def _said(rows: Iterable[_Row]) -> list[str]:
    return [
        f"{name}: {ours:.0f}, expected {low:.0f}" + (f" to {high:.0f}" if high != low else "")
        for name, ours, low, high in rows
        if not low <= ours <= high
    ]


def differences_of_removed(one: DeviceInterval, fio: Mapping[str, int], most_bytes: int) -> list[str]:
    """Return what does not add up of a device that was removed under a load: its trace goes with it, fio's bytes stay.

    Each error may have cost `most_bytes` that fio does not count.
    """
    return _said(_removed(one, fio, most_bytes))


def _removed(one: DeviceInterval, fio: Mapping[str, int], most_bytes: int) -> Iterator[_Row]:
    ended = sum(op.completed + op.sent_back for op in one.ops.values()) + one.device.forgotten
    yield _exact("issued", sum(op.issued for op in one.ops.values()), ended)
    yield _exact("in flight", one.device.in_flight, 0)
    for name in _NEVER:
        yield _exact(name, one.events[name], 0)
    for name, op in one.ops.items():
        yield from _adds_up(name, op)
        if name in fio:
            yield f"{name} bytes beside fio's", op.bytes, fio[name], fio[name] + op.errors * most_bytes


def _exact(name: str, ours: float, theirs: float) -> _Row:
    return name, ours, theirs, theirs


def _about(name: str, ours: float, theirs: float, error: float) -> _Row:
    return name, ours, theirs - error, theirs + error


def _pairs(model: Model, one: DeviceInterval) -> Iterator[tuple[str, Op, Books]]:
    for name in sorted({*model.ops, *one.ops}):
        yield name, one.ops.get(name, Op()), model.ops[name]


def _ops(model: Model, one: DeviceInterval, known: Known) -> Iterator[_Row]:
    for name, ours, theirs in _pairs(model, one):
        for key in ("issued", "completed", "sent_back", "bytes"):
            yield _exact(f"{name} {key}", getattr(ours, key), getattr(theirs, key))
        errors = {key: count for key, count in ours.errors_by_class.items() if count}
        yield _exact(f"{name} errors", ours.errors, sum(theirs.errors.values()))
        refined = _UNTOLD if known.kind == "nvme" else ()
        for key in sorted({*errors, *theirs.errors} - {*refined}):
            yield _exact(f"{name} {key}", errors.get(key, 0), theirs.errors[key])
        yield _exact(
            f"{name} errors of I/O", *(sum(of.get(key, 0) for key in refined) for of in (errors, theirs.errors))
        )
        yield from _adds_up(name, ours)


def _adds_up(name: str, op: Op) -> Iterator[_Row]:
    yield _exact(f"{name} errors by class", sum(op.errors_by_class.values()), op.errors)
    for key, count in (("device", op.completed), ("total", op.completed), ("refused", op.refused)):
        yield _exact(f"{name} in the histogram {key}", _count(op, key), count)
    yield _exact(f"{name} details, which are off", len(op.details), 0)


def _count(op: Op, time: str) -> int:
    return op.histograms[time].count if time in op.histograms else 0


def _times(model: Model, one: DeviceInterval, known: Known) -> Iterator[_Row]:
    # What the target sent back without a refusal.
    sent_again = max(0, one.events["requeued_by_target"] - one.events["task_set_full"] - one.events["busy"])
    for name, ours, theirs in _pairs(model, one):
        allowed = APART_NS * theirs.completed + _INTERRUPTED * _INTERRUPT_NS + theirs.unclear_ns
        device, total = sum(theirs.times_ns), sum(theirs.total_times_ns)
        yield _about(f"{name} device_ns", ours.device_ns, device, allowed)
        yield f"{name} total_ns", ours.total_ns, (device if known.path else total) - allowed, total + allowed
        least = 0 if known.path else max(0, theirs.retried - sent_again - theirs.unclear)
        yield f"{name} refused", ours.refused, least, theirs.retried + theirs.unclear
        exact = not known.path and not sent_again
        slack = _INTERRUPT_NS * theirs.retried + theirs.unclear_ns
        yield f"{name} refused_ns", ours.refused_ns, theirs.waited_ns - slack if exact else 0, theirs.waited_ns + slack
        if not theirs.unclear:
            yield from _percentiles(f"{name} device", ours.histograms.get("device"), theirs.times_ns)
        if not (known.path or theirs.unclear):
            yield from _percentiles(f"{name} total", ours.histograms.get("total"), theirs.total_times_ns)


def _percentiles(name: str, histogram: Histogram | None, times_ns: list[int]) -> Iterator[_Row]:
    times = sorted(times_ns)
    # An interrupt between the two moves a few times far.
    moved = _INTERRUPTED + len(times) // _INTERRUPTED_PART
    for percent in (10, 25, 50, 75, 90) if times and histogram else ():
        assert histogram is not None
        bucket, rank = histogram.percentile(percent), max(0, -(-len(times) * percent // 100) - 1)
        least = times[rank - moved] - APART_NS if rank >= moved else 0
        most = times[rank + moved] + APART_NS if rank + moved < len(times) else math.inf
        if bucket:
            yield f"{name} p{percent} ns", min(max(bucket.low_ns, least), bucket.high_ns), least, most


def _depths(model: Model, one: DeviceInterval, known: Known) -> Iterator[_Row]:
    device = one.device
    issued = sum(books.issued for books in model.ops.values())
    highest = max(known.highest_before, model.highest)
    yield _exact("in flight", device.in_flight, model.depth)
    yield _exact("forgotten", device.forgotten, 0)
    yield "highest", device.highest, max(known.highest_before, highest - _APART_DEPTH), highest + _APART_DEPTH
    yield _about("depth_ns", one.depth_ns, model.depth_ns, APART_NS * issued + (one.depth_error_ns or 0))
    lowest, most = known.limits or (1, 1 << 30)
    yield "limit", device.limit, lowest, most
    # Of the ends of what is under way at once, those at the limit are seen a moment apart.
    slack = APART_NS * sum(count for depth, count in model.arrivals.items() if depth >= lowest - _APART_DEPTH)
    at_least, at_most = (
        sum(ns for depth, ns in model.at_depth_ns.items() if depth >= limit) for limit in (most, lowest)
    )
    yield "at_limit_ns", one.at_limit_ns, at_least - slack, at_most + slack
    apart = device.limit_of == "queue"
    yield _exact("queues that are told apart", bool(device.queues), apart)
    # With one queue there is nothing to tell apart.
    yield "limit_of queue", apart, 0, known.kind == "nvme"
    if device.queues:
        yield _exact("in flight in all queues", sum(queue.in_flight for queue in device.queues), device.in_flight)
        for key in ("highest", "at_limit_ns"):
            yield _exact(
                f"{key} of all queues", max(getattr(queue, key) for queue in device.queues), getattr(device, key)
            )


def _events(model: Model, one: DeviceInterval, known: Known) -> Iterator[_Row]:
    events, scsi = one.events, known.kind == "scsi"
    for name in _NEVER:
        yield _exact(name, events[name], 0)
    by_driver, by_target = events["requeued_by_driver"], events["requeued_by_target"]
    yield _exact("never_issued", events["never_issued"], model.never_issued)
    yield _exact("partial", events["partial"], model.partial)
    yield _exact("requeued after their issue", by_driver + by_target, model.requeued)
    yield _exact("requeued_unstarted", events["requeued_unstarted"], model.held)
    yield _exact("held", one.held, model.held)
    if not scsi or known.injected is None:
        yield (
            "task_set_full and busy",
            events["task_set_full"] + events["busy"],
            0,
            by_target + model.errors if scsi else 0,
        )
    yield _exact("refusals by the driver", sum(events[name] for name in _BY_DRIVER), by_driver if scsi else 0)
    answers = sum(events.get(name, 0) for name in ("nvme_aborted", "nvme_path", "nvme_not_ready"))
    yield "answers of NVMe", answers, 0, by_target if known.kind == "nvme" else 0
    for name in sorted(name for name in events if name.startswith("error_")):
        yield _exact(f"{name} of all", events[name], sum(op.errors_by_class.get(name, 0) for op in one.ops.values()))
    if not scsi:
        yield _exact("timeouts", events["timeout"], 0)
    elif known.injected is not None:
        yield from _injected(model, one, known.injected, known.loses)
    if known.injected is None or not scsi:
        yield "timed_out", events["timed_out"], 0, min(events["timeout"], model.requeued + model.errors) if scsi else 0


def _injected(model: Model, one: DeviceInterval, injected: Mapping[str, int], loses: bool) -> Iterator[_Row]:
    events = one.events
    for name in _INJECTABLE:
        yield _exact(f"{name} as injected", events[name], injected.get(name, 0))
    for name in ("error_medium", "error_transport"):
        yield _exact(f"{name} as injected", events[name], injected.get(name, 0))
    least = injected.get("timeout", 0)
    # A command that a reset loses comes to the end of its time, each time that it is sent again.
    yield "timeout as injected", events["timeout"], least, model.requeued + model.errors if loses else least
    yield _exact("timed_out", events["timed_out"], events["timeout"])


def _others(model: Model, one: DeviceInterval, known: Known) -> Iterator[_Row]:
    """What fio and the disk's own statistics say."""
    if known.stat:
        for name, ours, theirs in _pairs(model, one):
            asked = known.flushes or 0 if name == "write" else 0
            ended = ours.completed + theirs.never_issued
            if known.path and name == "read":
                # A flush that dm sends to a path is no write and no discard, which is a read there.
                ended += one.ops.get("flush", Op()).completed
            # What dm throws away ends there, a clone that got no place in the path's queue, too, which no event of the
            # path tells of; and its flushes do not.
            more = theirs.sent_back + model.held + known.refused_above if known.path else 0
            if name in known.stat.requests and not (known.path and name == "flush"):
                # A flush of nothing counts there as a write, too.
                least = known.stat.requests[name] - asked
                yield f"{name} beside the disk's statistics", ended, least - more, least
            if name in known.stat.bytes:
                yield _exact(f"{name} bytes beside the disk's statistics", ours.bytes, known.stat.bytes[name])
    for name, count in (known.fio or {}).items():
        op, books = one.ops.get(name, Op()), model.ops[name]
        yield _exact(f"{name} bytes beside fio's", op.bytes - books.failed_bytes, count)
