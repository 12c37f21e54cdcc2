# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares what the module counted of a device with the model, with what was done to it, and with what others counted.

The trace hangs on the tracepoints of the module itself; what was injected, fio and the disk's own statistics do not.
"""

from collections.abc import Iterator, Mapping

from model_books import Books, Model
from model_known import Known
from model_rows import (
    ANSWERS,
    APART_NS,
    BY_DRIVER,
    INTERRUPT_NS,
    INTERRUPTED,
    NEVER,
    SINGLE_NS,
    Row,
    about,
    adds_up,
    exact,
    said,
)
from model_times import refusals, times

from fabtune.stat import DeviceInterval, Op

# An interrupt between the two ends a request before the one has seen the next, and after the other has.
_APART_DEPTH = 1

NOT_KNOWN = {
    "all but sums, bounds and what the kernel counted of a removed disk": "its trace and its statistics go with it",
    "disk, hctl, driver, parent": "no event of blktrace names them; tests/vm/fabstat*.bats compare them with sysfs",
    "held_*": "the trace tells that a request was held back, not why; their sum is compared",
    "requeued_by_driver and _by_target of dm and NVMe": "nothing but the request's state tells them apart",
    "timed_out on iSCSI": "the transport forgives as many as it likes; bounded by what came back",
    "nvme_*": "the controller's status is not in the trace; they are bounded by what it sent back",
    "error_io, error_aborted, error_path": "one error number on NVMe; their sum is compared",
    "at_limit_ns while the limit moves": "no event tells when; bounded by lowest and highest; in other rounds it stays",
    "refused, refused_ns beside other retries": "the trace does not tell a refusal from another retry; bounded",
    "times and refusals of passthrough, exactly": "which of several was sent back is not in the trace; bounded",
    "total_ns, refused, refused_ns of a path": "what dm throws away begins anew, unseen by the path's trace; bounded",
    "what several CPUs do at once": "the virtual clock has one; no counter crosses CPUs (tests/vm/fabstat_scale.bats)",
    "other kernels than the guest's": "one kernel is measured; tests/vm/fabstat*.bats run on each that is supported",
    "details: waits, times by size, the slowest": "detail is off in the guest; tests/vm/fabstat_detail.bats is of them",
    "limits that are told apart by queue": "NVMe/TCP has one queue with one CPU; tests/vm/fabstat.bats has several",
}
_UNTOLD = ("error_io", "error_aborted", "error_path")


def differences(model: Model, one: DeviceInterval, known: Known) -> list[str]:
    """Return what the module counted otherwise than the model and those who know more."""
    compared = (_ops, _times, _depths, _limits, _events, _others)
    return said(row for rows in compared for row in rows(model, one, known))


def _pairs(model: Model, one: DeviceInterval) -> Iterator[tuple[str, Op, Books]]:
    for name in sorted({*model.ops, *one.ops}):
        yield name, one.ops.get(name, Op()), model.ops[name]


def _ops(model: Model, one: DeviceInterval, known: Known) -> Iterator[Row]:
    for name, ours, theirs in _pairs(model, one):
        for key in ("issued", "completed", "sent_back", "bytes"):
            yield exact(f"{name} {key}", getattr(ours, key), getattr(theirs, key))
        errors = {key: count for key, count in ours.errors_by_class.items() if count}
        yield exact(f"{name} errors", ours.errors, sum(theirs.errors.values()))
        refined = _UNTOLD if known.kind == "nvme" else ()
        for key in sorted({*errors, *theirs.errors} - {*refined}):
            yield exact(f"{name} {key}", errors.get(key, 0), theirs.errors[key])
        yield exact(
            f"{name} errors of I/O", *(sum(of.get(key, 0) for key in refined) for of in (errors, theirs.errors))
        )
        yield from adds_up(name, ours)


def _times(model: Model, one: DeviceInterval, known: Known) -> Iterator[Row]:
    for name, ours, theirs in _pairs(model, one):
        yield from times(name, ours, theirs, known.path)
    yield from refusals(model, one, known.path)


def _depths(model: Model, one: DeviceInterval, known: Known) -> Iterator[Row]:
    device = one.device
    issued = sum(books.issued for books in model.ops.values())
    yield exact("in flight", device.in_flight, model.depth)
    yield exact("forgotten", device.forgotten, 0)
    # Who sees each issue later than the other sees it, or each end, may see one fewer, or one more.
    least = max(model.highest_apart(SINGLE_NS, 0), model.highest - _APART_DEPTH)
    most = min(model.highest_apart(0, SINGLE_NS), model.highest + _APART_DEPTH)
    yield "highest", device.highest, max(known.highest_before, least), max(known.highest_before, most)
    yield about("depth_ns", one.depth_ns, model.depth_ns, APART_NS * issued)
    # The same two looks at each request make its time and its part of the depth: only what was sent back is apart.
    sent_back_ns = model.depth_ns - sum(sum(books.times_ns) for books in model.ops.values())
    unclear_ns = sum(books.unclear_ns for books in model.ops.values())
    slack = APART_NS * model.requeued + INTERRUPT_NS * min(INTERRUPTED, model.requeued) + unclear_ns + issued
    device_ns = sum(op.device_ns for op in one.ops.values())
    yield about("depth_ns less device_ns", one.depth_ns - device_ns, sent_back_ns, slack)
    # Both readings are of moments at which nothing happens.
    yield exact("depth_error_ns", -1 if one.depth_error_ns is None else one.depth_error_ns, 0)
    yield exact("torn", device.torn, 0)


def _limits(model: Model, one: DeviceInterval, known: Known) -> Iterator[Row]:
    device, (lowest, most) = one.device, known.limits
    yield "limit", device.limit, *known.last_limit
    # Of the ends of what is under way at once, those at the limit are seen a moment apart.
    slack = APART_NS * sum(count for depth, count in model.arrivals.items() if depth >= lowest - _APART_DEPTH)
    at_least, at_most = (
        sum(ns for depth, ns in model.at_depth_ns.items() if depth >= limit) for limit in (most, lowest)
    )
    yield "at_limit_ns", one.at_limit_ns, at_least - slack, at_most + slack
    apart = device.limit_of == "queue"
    yield exact("queues that are told apart", bool(device.queues), apart)
    # With one queue there is nothing to tell apart.
    yield "limit_of queue", apart, 0, known.kind == "nvme"
    if device.queues:
        yield exact("in flight in all queues", sum(queue.in_flight for queue in device.queues), device.in_flight)
        for key in ("highest", "at_limit_ns"):
            yield exact(
                f"{key} of all queues", max(getattr(queue, key) for queue in device.queues), getattr(device, key)
            )


def _events(model: Model, one: DeviceInterval, known: Known) -> Iterator[Row]:
    events, scsi = one.events, known.kind == "scsi"
    for name in NEVER:
        yield exact(name, events[name], 0)
    by_driver, by_target = events["requeued_by_driver"], events["requeued_by_target"]
    yield exact("never_issued", events["never_issued"], model.never_issued)
    yield exact("partial", events["partial"], model.partial)
    yield exact("requeued after their issue", by_driver + by_target, model.requeued)
    yield exact("requeued_unstarted", events["requeued_unstarted"], model.held)
    yield exact("held", one.held, model.held)
    for name in ANSWERS:
        yield exact(f"{name} as the kernel counts it", events[name], known.answers[name] if known.answers else 0)
    wakeups = known.answers["eh_wakeups"] if known.answers else 0
    yield exact("eh_wakeups", one.device.eh_wakeups - known.eh_wakeups_before, wakeups)
    yield exact("refusals by the driver", sum(events[name] for name in BY_DRIVER), by_driver if scsi else 0)
    answers = sum(events.get(name, 0) for name in ("nvme_aborted", "nvme_path", "nvme_not_ready"))
    yield "answers of NVMe", answers, 0, by_target if known.kind == "nvme" else 0
    for name in sorted(name for name in events if name.startswith("error_")):
        yield exact(f"{name} of all", events[name], sum(op.errors_by_class.get(name, 0) for op in one.ops.values()))
    if known.injected is None:
        yield "timed_out", events["timed_out"], 0, min(events["timeout"], model.requeued + model.errors)
    else:
        yield from _injected(model, one, known.injected, known.loses)


def _injected(model: Model, one: DeviceInterval, injected: Mapping[str, int], loses: bool) -> Iterator[Row]:
    events = one.events
    for name in ("host_busy", "device_busy", "target_busy", "task_set_full", "busy", "error_medium", "error_transport"):
        yield exact(f"{name} as injected", events[name], injected.get(name, 0))
    least = injected.get("timeout", 0)
    # A command that a reset loses comes to the end of its time, each time that it is sent again.
    yield "timeout as injected", events["timeout"], least, model.requeued + model.errors if loses else least
    yield exact("timed_out", events["timed_out"], events["timeout"])


def _others(model: Model, one: DeviceInterval, known: Known) -> Iterator[Row]:
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
                yield exact(f"{name} bytes beside the disk's statistics", ours.bytes, known.stat.bytes[name])
    for name, count in (known.fio or {}).items():
        op, books = one.ops.get(name, Op()), model.ops[name]
        yield exact(f"{name} bytes beside fio's", op.bytes - books.failed_bytes, count)
