# SPDX-License-Identifier: GPL-2.0-or-later
"""What happened on each device between two readings, or since it was first seen."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from fabtune.errors import InputError
from fabtune.stat.coverage import coverage, coverage_since_load
from fabtune.stat.histogram import Histogram, Percentile
from fabtune.stat.snapshot import (
    HELD_EVENTS,
    OPS,
    QUEUE_FULL_EVENTS,
    TIMES,
    CountedDevice,
    HardwareQueue,
    Op,
    Snapshot,
    Taken,
)

_COUNTERS = tuple(field.name for field in fields(Op) if field.name not in ("errors_by_class", "histograms", "details"))
# What a device counts besides its events: requests that it lost sight of, and times that SCSI's error handler woke.
_BESIDES = ("forgotten", "eh_wakeups")
# Figured out at each reading: once there is memory again, samples that were missing are not.
_MAY_SHRINK = "no_histogram"


@dataclass(frozen=True, slots=True)
class DeviceInterval:
    """One device over `elapsed_ns`: the counters' increase.  `device` is its latest reading.

    `queues` are its hardware queues, with their time at the limit in the interval.  `depth_ns` may be off by
    `depth_error_ns`; None where one of the readings was torn.  `depth_wrapped` where it may have gone on at nothing.
    """

    device: CountedDevice
    elapsed_ns: int
    ops: Mapping[str, Op]
    events: Mapping[str, int]
    depth_ns: int
    at_limit_ns: int
    depth_error_ns: int | None = 0
    queues: tuple[HardwareQueue, ...] = ()
    depth_wrapped: bool = False
    forgotten: int = 0
    eh_wakeups: int = 0

    @property
    def completed(self) -> int:
        return sum(op.completed for op in self.ops.values())

    @property
    def bytes_per_s(self) -> float:
        return sum(op.bytes for op in self.ops.values()) / self.elapsed_ns * 1e9 if self.elapsed_ns else 0.0

    @property
    def mean_depth(self) -> float | None:
        """Mean number of requests in flight: the integral of the depth over the time.

        None where that may be off by more than a tenth of itself, and by more than a tenth of a request.
        """
        if not self.elapsed_ns:
            return 0.0
        if self.depth_wrapped:
            return None
        if self.depth_error_ns is None or self.depth_error_ns > max(self.depth_ns, self.elapsed_ns) / 10:
            return None
        return self.depth_ns / self.elapsed_ns

    @property
    def at_limit(self) -> float:
        """Fraction of the time that the device spent at its queue depth limit."""
        return self.part(self.at_limit_ns)

    def part(self, time_ns: int) -> float:
        """Return which fraction of the interval `time_ns` is."""
        return time_ns / self.elapsed_ns if self.elapsed_ns else 0.0

    @property
    def queue_full(self) -> int:
        """TASK SET FULL, BUSY, and commands the driver refused (closed window, no credits)."""
        return sum(self.events.get(name, 0) for name in QUEUE_FULL_EVENTS)

    @property
    def held(self) -> int:
        """Requests that the midlayer held back before the driver was asked."""
        return sum(self.events.get(name, 0) for name in HELD_EVENTS)

    def histogram(self, time: str = "device", op: str | None = None) -> Histogram | None:
        """Return the histogram of `time` (one of TIMES) of `op`, or of all ops; None without requests."""
        chosen = [self.ops[name] for name in OPS if name in self.ops and op in (None, name)]
        found = [counters.histograms[time] for counters in chosen]
        return sum(found[1:], found[0]) if found else None

    def percentile(self, percent: float, op: str | None = None, time: str = "device") -> Percentile | None:
        """Return a percentile of `time` of `op`, or of all ops; None when nothing completed."""
        histogram = self.histogram(time, op)
        return histogram.percentile(percent) if histogram else None


@dataclass(frozen=True, slots=True)
class Interval:
    """All devices between two readings; `counting` tells whether requests were being counted all the time.

    `counted_ns` is for how long, at its end, they were without a break; None where an older module does not tell.
    `vanished` went meanwhile and are not in the second reading any more: of those that are gone the module keeps 16.
    """

    elapsed_ns: int
    devices: tuple[DeviceInterval, ...]
    counting: bool
    counted_ns: int | None
    vanished: int = 0

    def device(self, disk: str) -> DeviceInterval:
        """Return the live device called `disk` (``sda`` or ``/dev/sda``).  Raises InputError."""
        name = disk.removeprefix("/dev/")
        found = [one for one in self.devices if one.device.disk == name and one.device.state != "gone"]
        if found:
            # A disk that is being removed may have left its name to another, which was seen later.
            return max(found, key=lambda one: one.device.id)
        if any(one.device.disk == name for one in self.devices):
            raise InputError(
                f"device '{disk}' is gone: it was removed; 'fabtune stat --all' has what was counted of it"
            )
        raise InputError(f"device '{disk}': fabstat has seen no request on it")


def diff(before: Snapshot, after: Snapshot) -> Interval:
    """Return what was counted between two readings of one loaded module.  Raises InputError."""
    check_order(before, after)
    earlier = {device.id: device for device in before.devices}
    modulus_ns = after.depth_modulus_ns
    devices = tuple(_subtract(device, earlier.get(device.id), modulus_ns) for device in after.devices)
    kept = {device.id for device in after.devices}
    vanished = sum(one.state != "gone" and one.id not in kept for one in before.devices)
    counted = coverage(before, after)
    return Interval(after.time_ns - before.time_ns, devices, counted.whole, counted.last_ns, vanished)


def check_order(before: Taken, after: Taken) -> None:
    """Raise InputError where nothing was counted from `before` to `after`: other loads, or the other way round."""
    if before.loaded_ns != after.loaded_ns:
        raise InputError("the readings are of different loads of fabstat: it was reloaded, or the host rebooted")
    if before.time_ns > after.time_ns:
        raise InputError("the second reading is older than the first; give the earlier one first")


def since_seen(snapshot: Snapshot) -> Interval:
    """Return everything counted since the module was loaded, of each device since its first request.

    Raises InputError.
    """
    devices = tuple(_subtract(device, None, snapshot.depth_modulus_ns) for device in snapshot.devices)
    counted = coverage_since_load(snapshot)
    return Interval(snapshot.time_ns - snapshot.loaded_ns, devices, counted.whole, counted.last_ns)


def increases(before: Mapping[str, int], after: Mapping[str, int], who: str, *, torn: bool = False) -> dict[str, int]:
    """Return by how much the counters of `who` grew.  Raises InputError where one is smaller than it was.

    A `torn` reading may lack one event of each CPU: what looks smaller in it did not grow.
    """
    grown = {name: _grown(before.get(name, 0), after.get(name, 0)) for name in {**after, **before}}
    shrunk = [name for name, count in grown.items() if count < 0]
    if shrunk and not torn:
        raise InputError(
            f"{who}: {', '.join(shrunk)} smaller in the second reading than in the first: one of the two is damaged "
            "or cut short; take it again"
        )
    return {name: max(0, count) for name, count in grown.items()}


def _grown(then: int, now: int) -> int:
    """Return by how much a counter of 64 bits grew; sums of times go on at nothing some day."""
    return now - then if now - then > -(2**63) else now - then + 2**64


def _subtract(after: CountedDevice, before: CountedDevice | None, modulus_ns: int) -> DeviceInterval:
    if before is None:
        return DeviceInterval(
            device=after, elapsed_ns=after.time_ns - after.seen_ns, ops=_told(after), events=after.events,
            depth_ns=_increase(0, after.depth_ns, modulus_ns), at_limit_ns=after.at_limit_ns,
            depth_error_ns=_depth_error_ns(after, None), queues=after.queues,
            depth_wrapped=_may_wrap(after, after.time_ns - after.seen_ns, modulus_ns), **_besides(after),
        )  # fmt: skip
    torn = bool(before.torn or after.torn)
    queues = _queues(after, before)
    at_limit_ns = max(0, after.at_limit_ns - before.at_limit_ns)
    return DeviceInterval(
        device=after,
        elapsed_ns=after.time_ns - before.time_ns,
        ops=_ops(after, before),
        events=_events(after, before),
        depth_ns=_increase(before.depth_ns, after.depth_ns, modulus_ns),
        # The queue that was fullest before need not be the one that was fullest meanwhile.
        at_limit_ns=max((queue.at_limit_ns for queue in queues), default=at_limit_ns),
        depth_error_ns=_depth_error_ns(after, before),
        queues=queues,
        depth_wrapped=_may_wrap(after, after.time_ns - before.time_ns, modulus_ns),
        **increases(_besides(before), _besides(after), after.disk, torn=torn),
    )


def _besides(one: CountedDevice) -> dict[str, int]:
    return {name: getattr(one, name) for name in _BESIDES}


def _ops(after: CountedDevice, before: CountedDevice) -> dict[str, Op]:
    if lost := [name for name in before.ops if name not in after.ops]:
        raise InputError(
            f"{after.disk}: no {', '.join(lost)} requests in the second reading, but in the first: the second one is "
            "damaged or cut short; take it again"
        )
    torn, earlier = bool(before.torn or after.torn), _told(before)
    return {
        name: _subtract_op(op, earlier[name], f"{after.disk}, {name}", torn=torn) if name in earlier else op
        for name, op in _told(after).items()
    }


def _told(one: CountedDevice) -> dict[str, Op]:
    """Return what was counted of a device, with how many times each histogram lacks.

    The module's own no_histogram counts all kinds of times together, and an earlier one device times alone.
    """
    told = {name: _with_lacking(op, one.torn) for name, op in one.ops.items()}
    if not one.events.get(_MAY_SHRINK):
        return told
    return {name: replace(op, details=_details_with_lacking(op, one.torn)) for name, op in told.items()}


def _details_with_lacking(op: Op, torn: int) -> dict[str, Histogram]:
    """Return the details of an op with how many each may lack at most.

    The module counts in no other place how many it was to record; what ended before it was asked to is in none either.
    """
    sized = sum(recorded.count for name, recorded in op.details.items() if name != "wait")
    found = {}
    for name, recorded in op.details.items():
        short = op.completed - (recorded.count if name == "wait" else sized)
        found[name] = replace(recorded, lacking=short) if short > torn else recorded
    return found


def _with_lacking(op: Op, torn: int) -> Op:
    if not op.histograms:
        # Read without them.
        return op
    times = dict(op.histograms)
    if times["total"] is times["device"] and op.total_ns > op.device_ns:
        # The module leaves out what equals the device times, and what there is nothing of.
        times["total"] = Histogram(times["device"].from_ns)
    for time in TIMES:
        # A torn reading is off by an event a CPU.
        if (lacking := op.counted(time) - times[time].count) > torn:
            times[time] = replace(times[time], lacking=lacking)
    return replace(op, histograms=times) if times != op.histograms else op


def _events(after: CountedDevice, before: CountedDevice) -> dict[str, int]:
    then, now = ({**one.events, _MAY_SHRINK: 0} for one in (before, after))
    grown = increases(then, now, after.disk, torn=bool(before.torn or after.torn))
    if _MAY_SHRINK in after.events:
        grown[_MAY_SHRINK] = max(0, after.events[_MAY_SHRINK] - before.events[_MAY_SHRINK])
    return {name: grown[name] for name in after.events}


def _queues(after: CountedDevice, before: CountedDevice) -> tuple[HardwareQueue, ...]:
    # Until a device has several, what is counted of it is its first one's.
    issued = sum(op.issued for op in before.ops.values())
    only = {0: (before.at_limit_ns, issued)} if before.limit_of == "device" else {}
    earlier = only | {queue.queue: (queue.at_limit_ns, queue.issued or 0) for queue in before.queues}
    return tuple(_queue(queue, *earlier.get(queue.queue, (0, 0))) for queue in after.queues)


def _queue(after: HardwareQueue, at_limit_ns: int, issued: int) -> HardwareQueue:
    more = None if after.issued is None else max(0, after.issued - issued)
    return replace(after, at_limit_ns=max(0, after.at_limit_ns - at_limit_ns), issued=more)


def _depth_error_ns(after: CountedDevice, before: CountedDevice | None) -> int | None:
    readings = [after] + ([before] if before else [])
    return None if any(one.torn for one in readings) else sum(one.depth_error_ns for one in readings)


def _may_wrap(device: CountedDevice, elapsed_ns: int, modulus_ns: int) -> bool:
    """Tell whether the integral of the depth may have grown by more than can be told from its being read too long."""
    highest = sum(queue.highest for queue in device.queues) or device.highest
    return elapsed_ns * highest >= modulus_ns // 2


def _increase(before_ns: int, after_ns: int, modulus_ns: int) -> int:
    """Return by how much an integral grew that wraps at `modulus_ns`.

    Requests that pass while their CPUs are being summed leave it short or long, by no more than the reading says; of
    an idle interval behind such a reading the difference is negative, and stands for none.
    """
    increase = (after_ns - before_ns) % modulus_ns
    return increase if increase < modulus_ns // 2 else 0


def _subtract_op(after: Op, before: Op, who: str, *, torn: bool) -> Op:
    then, now = ({name: getattr(op, name) for name in _COUNTERS} for op in (before, after))
    return Op(
        **increases(then, now, who, torn=torn),
        errors_by_class=increases(before.errors_by_class, after.errors_by_class, who, torn=torn),
        histograms={time: after.histograms[time] - before.histograms[time] for time in TIMES},
        details={
            name: recorded - before.details[name] if name in before.details else recorded
            for name, recorded in after.details.items()
        },
    )
