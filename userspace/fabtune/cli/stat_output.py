# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints what fabstat.ko has seen: one row a device, one screen a device, JSON."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fabtune.cli.percentiles import PERCENTS, in_ms, of_histogram, three_digits, times_json
from fabtune.cli.slow_output import recorded_json
from fabtune.cli.table import paragraph, print_json, room, table
from fabtune.cli.unseen_output import NOTHING_COUNTED, missing_tracepoints, print_forgotten, print_unseen, time_of_rates
from fabtune.cli.waiting_output import NOTHING_WAITS, in_s, print_waiting, waiting_json
from fabtune.stat import (
    CountedDevice,
    DeviceInterval,
    Interval,
    Percentile,
    SlowList,
    Snapshot,
    StuckList,
    StuckRequest,
    Waiting,
    endpoint,
    head_above,
    host_loads,
    kernel_names,
    nr_requests,
    with_paths,
)
from fabtune.stat.snapshot import OPS, TIMES, HardwareQueue

# Columns that the table of devices takes, target and portal apart; on a narrower terminal it is shaped differently.
_WIDE = 104
_ERROR_NOTE = "Times are in ms, at most 3.2 % off (0.03 us below 1 us): the middle of a histogram's bucket."


def chosen_devices(interval: Interval, disks: Sequence[str], *, everything: bool) -> list[DeviceInterval]:
    """Return the devices named by `disks`, or those with requests, or all.  Raises InputError."""
    if disks:
        return [one for disk in disks for one in _called(interval, disk)]
    return [one for one in interval.devices if everything or (one.device.state != "gone" and _busy(one))]


def _called(interval: Interval, name: str) -> list[DeviceInterval]:
    found, (block, disk) = with_paths(interval, name), kernel_names(interval, name)
    if block != disk:
        print(f"{block} is a partition: the figures are those of the whole disk {disk}", file=sys.stderr)
    return found


def _busy(one: DeviceInterval) -> bool:
    return bool(one.completed or one.device.in_flight or one.forgotten or any(one.events.values()))


def label(device: CountedDevice) -> str:
    """Return the disk with the target and portal behind it, as far as known."""
    path = _path(device)
    return f"{device.disk} ({path})" if path else device.disk


def _path(device: CountedDevice) -> str:
    end, head = endpoint(device), head_above(device)
    return " ".join(word for word in (end.target, end.portal, f"path of {head}" if head else "") if word)


def print_table(interval: Interval, devices: Sequence[DeviceInterval], latest: Snapshot) -> None:
    """Print one row for each device and kind of request."""
    print_unseen(interval, interval.devices, latest)
    if not devices:
        print("no requests counted" if latest.module["untracked"] != "0" else "no requests seen")
        return
    wide = room() >= _WIDE
    headers: tuple[str, ...] = ("device", "op", "IOPS", "MB/s", "p50", "p99", "p99.9", "errors")
    headers += ("queue full", "held", "depth", "limit", "target and portal") if wide else ("queue, target",)
    table(headers, [row for one in devices for row in _rows(one, wide)], wrapped=headers[-1])
    for load in host_loads(interval.devices):
        if load.full:
            paragraph(
                f"host{load.host}: on average {load.mean_depth:.1f} of its {load.can_queue} commands in flight: its "
                "LUNs wait for one another (iSCSI: cmds_max)"
            )
        elif load.can_queue is None and load.mean_depth:
            paragraph(
                f"how many host{load.host} takes is not known ({load.mean_depth:.1f} in flight on average): its "
                "hardware queues may share their commands, which debugfs does not tell here"
            )
    print_forgotten(devices)
    own = {one.device.disk: one.elapsed_ns for one in devices if one.completed}
    paragraph(f"{time_of_rates(interval.elapsed_ns, own)} {_ERROR_NOTE}")


def _rows(one: DeviceInterval, wide: bool) -> list[tuple[str, ...]]:
    seconds = one.elapsed_ns / 1e9
    busy = [name for name in OPS if name in one.ops and (one.ops[name].completed or one.ops[name].errors)]
    # Refusals and depth are the device's, not an op's: they stand in its first row, or below its last.
    depth, limit, path = _depth(one, 1), _limit(one.device), _path(one.device)
    whole: tuple[str, ...] = (str(one.queue_full), str(one.held), depth, limit, path)
    if not wide:
        queue = f"queue full {one.queue_full}, held {one.held}, depth {depth} of {limit}"
        whole = (f"{queue}; {path}" if path else queue,)
    rows: list[tuple[str, ...]] = []
    names = busy or ["-"]
    for name in names:
        op = one.ops.get(name)
        figures: tuple[str, ...] = ("-",) * 6
        if op and seconds:
            times = [of_histogram(op.histograms["device"], percent) for percent in (50, 99, 99.9)]
            figures = (
                f"{op.completed / seconds:.0f}", f"{op.bytes / seconds / 1e6:.1f}", *times, str(op.errors),
            )  # fmt: skip
        here = name == (names[0] if wide else names[-1])
        disk = "" if rows else one.device.disk
        rows.append((disk, name, *figures, *(whole if here else ("",) * len(whole))))
    return rows


def _depth(one: DeviceInterval, digits: int) -> str:
    return "?" if one.mean_depth is None else f"{one.mean_depth:.{digits}f}"


def _binding(device: CountedDevice) -> int | None:
    """Return nr_requests where it lets fewer requests be in flight than the module says.

    A module that follows the limit has it in there; of several hardware queues each has as many.
    """
    tags = None if device.follows_limit else nr_requests(device)
    return tags if tags is not None and tags < device.limit else None


def _limit(device: CountedDevice) -> str:
    """Return how many requests may be in flight, and by what where that is not the driver's limit."""
    tags = _binding(device)
    of = "/queue" if device.limit_of == "queue" else ""
    return f"{device.limit}{of}" if tags is None else f"{tags}{of} (nr_requests)"


def _limit_told(device: CountedDevice) -> str:
    limit = _limit(device)
    if _binding(device) is not None:
        limit = limit.replace(")", f"; fabstat's is {device.limit}, and time at the limit is of that)")
    return f"{limit} (changed since)" if device.highest > device.limit else limit


def print_details(one: DeviceInterval) -> None:
    """Print everything about one device."""
    device = one.device
    paragraph(f"{label(device)}  [{device.dev}]  hctl {device.hctl}, driver {device.driver}, parent {device.parent}")
    paragraph(
        f"in flight {device.in_flight}, highest {device.highest}, limit {_limit_told(device)}, mean {_depth(one, 2)}, "
        f"at the limit {one.at_limit:.1%} of {one.elapsed_ns / 1e9:.3g} s"
    )
    rows = []
    wide = room() >= _WIDE
    show = _with_error if wide else in_ms
    for name in (name for name in OPS if name in one.ops):
        op = one.ops[name]
        for time in TIMES:
            histogram = op.histograms[time]
            if not histogram.count and not histogram.lacking:
                continue
            found = [of_histogram(histogram, percent, show) for percent in PERCENTS.values()]
            rows.append((name, time, str(histogram.count), *found))
    if rows:
        table(("op", "time", "count", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"), rows)
        if not wide:
            paragraph(_ERROR_NOTE)
    if one.queues:
        table(("hardware queue", "issued", "in flight", "highest", "limit", "at the limit"), _queue_rows(one))
    counters = [
        (name, *(str(getattr(op, key)) for key in ("issued", "completed", "sent_back", "errors", "bytes")))
        for name, op in one.ops.items()
    ]
    if counters:
        table(("op", "issued", "completed", "sent back", "errors", "bytes"), counters)
    for name, op in one.ops.items():
        classes = [f"{kind.removeprefix('error_')} {count}" for kind, count in op.errors_by_class.items() if count]
        if classes:
            paragraph(f"errors of {name}: {', '.join(classes)}")
    events = [f"{name} {count}" for name, count in one.events.items() if count]
    events += [f"forgotten {one.forgotten}"] if one.forgotten else []
    events += [f"eh_wakeups {one.eh_wakeups}"] if one.eh_wakeups else []
    paragraph("events: " + (", ".join(events) or "none"))


def _queue_rows(one: DeviceInterval) -> list[tuple[str, ...]]:
    return [
        (
            *map(str, (queue.queue, "-" if queue.issued is None else queue.issued, queue.in_flight, queue.highest)),
            str(queue.limit),
            f"{one.part(queue.at_limit_ns):.1%}",
        )
        for queue in one.queues
    ]


def _with_error(percentile: Percentile | None) -> str:
    if percentile is None or math.isinf(percentile.high_ns):
        return in_ms(percentile)
    return f"{three_digits(percentile.value_ms)} ±{percentile.error_ns / percentile.value_ns:.1%}"


def print_interval_json(
    interval: Interval, devices: Sequence[DeviceInterval], latest: Snapshot, slow: SlowList | None,
    *, one_line: bool,
) -> None:  # fmt: skip
    """Print the interval with stable keys, times in ms; on one line for a stream of them.

    `slow` has the slowest requests, None where they were not asked for.
    """
    module = latest.module
    data = {
        "interval_s": interval.elapsed_ns / 1e9,
        "counted": interval.counting,
        "counted_s": None if interval.counted_ns is None else interval.counted_ns / 1e9,
        "vanished": interval.vanished,
        "module": {
            "version": module["version"],
            "enabled": latest.counting,
            "scsi": module["scsi"] == "1",
            "missing": missing_tracepoints(module),
            "clock": module["clock"],
            "memory_bytes": int(module["memory_bytes"]),
            "memory_limit_bytes": int(module["memory_limit_bytes"]),
            "memory_refused": int(module["memory_refused"]),
            "untracked": int(module["untracked"]),
        },
        "devices": [_device_json(one) | recorded_json(one, slow) for one in devices],
        "hosts": [
            {"host": load.host, "mean_depth": load.mean_depth, "can_queue": load.can_queue}
            for load in host_loads(interval.devices)
        ],
    }
    print_json(data, one_line=one_line)


def _device_json(one: DeviceInterval) -> dict[str, Any]:
    device, end = one.device, endpoint(one.device)
    return {
        "id": device.id,
        "disk": device.disk,
        "state": device.state,
        "dev": device.dev,
        "diskseq": device.diskseq,
        "hctl": device.hctl,
        "driver": device.driver,
        "parent": device.parent,
        "transport": end.transport,
        "target": end.target,
        "portal": end.portal,
        "path_of": head_above(device) or None,
        "interval_s": one.elapsed_ns / 1e9,
        "in_flight": device.in_flight,
        "highest_depth": device.highest,
        "depth_limit": device.limit,
        "depth_limit_of": device.limit_of,
        "nr_requests": nr_requests(device),
        "mean_depth": one.mean_depth,
        "depth_error_ns": one.depth_error_ns,
        "torn": one.depth_error_ns is None,
        "at_limit_fraction": one.at_limit,
        "queues": [_queue_json(one, queue) for queue in one.queues],
        "queue_full": one.queue_full,
        "held": one.held,
        "forgotten": one.forgotten,
        "eh_wakeups": one.eh_wakeups,
        "events": dict(one.events),
        "ops": {name: _op_json(one, name) for name in OPS if name in one.ops},
    }


def _queue_json(one: DeviceInterval, queue: HardwareQueue) -> dict[str, Any]:
    return {
        "queue": queue.queue, "issued": queue.issued, "in_flight": queue.in_flight, "highest_depth": queue.highest,
        "depth_limit": queue.limit, "at_limit_fraction": one.part(queue.at_limit_ns),
    }  # fmt: skip


def _op_json(one: DeviceInterval, name: str) -> dict[str, Any]:
    op = one.ops[name]
    seconds = one.elapsed_ns / 1e9
    data: dict[str, Any] = {
        key: getattr(op, key) for key in ("issued", "completed", "sent_back", "errors", "bytes", "refused")
    }
    data["errors_by_class"] = dict(op.errors_by_class)
    data["iops"] = op.completed / seconds if seconds else 0.0
    data["bytes_per_s"] = op.bytes / seconds if seconds else 0.0
    sums = {
        "device": (op.device_ns, op.completed),
        "total": (op.total_ns, op.completed),
        "refused": (op.refused_ns, op.refused),
    }
    for time in TIMES:
        data[f"{time}_ms"] = times_json(*sums[time], op.histograms[time])
    return data


def _name(one: StuckRequest, devices: Mapping[int, CountedDevice]) -> str:
    return label(devices[one.id]) if one.id in devices else one.disk


def print_stuck(
    found: StuckList, latest: Snapshot, waits: Waiting = NOTHING_WAITS, *, as_json: bool
) -> None:  # fmt: skip
    """Print the requests that have been under way for too long, oldest first, and those that wait to be sent."""
    devices = {device.id: device for device in latest.devices}
    if as_json:
        print_json({
            "enabled": latest.counting,
            "threshold_ms": found.threshold_ns / 1e6,
            "requests": [
                {
                    "disk": one.disk, "dev": one.dev, "device": _name(one, devices),
                    "op": one.op, "sector": one.sector, "bytes": one.bytes,
                    "age_ms": None if one.age_ns is None else one.age_ns / 1e6,
                    "state": one.state,
                    "issue_age_ms": None if one.issue_age_ns is None else one.issue_age_ns / 1e6,
                    "sent_back": one.sent_back,
                }
                for one in found.requests
            ],
            **waiting_json(waits),
        })  # fmt: skip
        return
    if not latest.counting:
        paragraph(f"{NOTHING_COUNTED} What is under way is not known.")
    elif found.requests:
        _print_requests(found, devices)
    elif not waits.requests:
        print(f"no request is older than {found.threshold_ns / 1e9:g} s")
    print_waiting(waits)


def _print_requests(found: StuckList, devices: Mapping[int, CountedDevice]) -> None:
    rows = [
        (
            in_s(one.age_ns), one.disk, one.op, str(one.sector),
            str(one.bytes), one.state.replace("_", " "),
            "-" if one.issue_age_ns is None else in_s(one.issue_age_ns),
            "-" if one.sent_back is None else str(one.sent_back),
            _path(devices[one.id]) if one.id in devices else "",
        )
        for one in found.requests
    ]  # fmt: skip
    headers = ("age s", "device", "op", "sector", "bytes", "state", "issued s", "sent back", "target and portal")
    table(headers, rows, wrapped=headers[-1])
