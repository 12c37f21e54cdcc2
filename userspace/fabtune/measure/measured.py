# SPDX-License-Identifier: GPL-2.0-or-later
"""The measured part of a step: when it began and ended, what completed in it, and how long each request took.

At the end of its run time fio waits for everything outstanding and stamps all of it with the time of the last one.
What came back then is no part of what is measured: neither of the rate, nor of the latencies, nor of the window.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from fabtune.errors import InputError
from fabtune.model.offered import tells_latency
from fabtune.model.runrecord import Readings, Sample, StepResult
from fabtune.model.units import counted
from fabtune.stat import DeviceInterval, Histogram, diff, parse

# Samples inside the part, and their share of it, without which a slope says less than fio's own total.
_LEAST_SAMPLES, _LEAST_SHARE = 4, 0.5
# What fio takes at most to write its figures and to end once its last request has come back.
_ENDING_S = 0.5
# Latencies so near one another are one: a bucket of fabstat.
ALIKE = 1 / 16
# Half of a bucket of fio, which has 64 an octave.
FIO_ROUNDED = 1 / 128
# Why nothing is known of an open loop's latency.
_NOT_REACHED = "the offered rate was not reached"
# Why nothing is known of the latency of a load on several disks at once.
_NO_READINGS = "the record does not have what fabstat counted of each disk"
# Of requests that last longer than this share of the part, only the quickest are sure to be seen to end.
_LONGEST_SHARE = 0.5


@attrs.frozen
class Span:
    """Two instants of the sampler's monotonic clock, in s."""

    begin_s: float
    end_s: float


@attrs.frozen
class Rate:
    """Bytes a second, and how far the true value may be off: two standard errors, or one queue of requests."""

    bytes_per_s: float
    error_bytes_per_s: float


@attrs.frozen
class Latencies:
    """How many requests took how long (ns -> requests); of `drained` of them it is only known that it was less.

    Each time may be off by the share `rounded` to either side: it is that of its bucket.  Requests still under way at
    the end of the `part_s` that was looked at are missing; it is infinite where all were waited for.  `unknown` says
    why nothing is known of requests that there were.
    """

    counts: Mapping[int, int]
    drained: int = 0
    rounded: float = FIO_ROUNDED
    part_s: float = math.inf
    unknown: str = ""

    @property
    def total(self) -> int:
        """All requests."""
        return sum(self.counts.values())

    def quantile_ns(self, share: float) -> int | None:
        """Return the latency that `share` of the requests did not exceed, None where `untold` says why not."""
        return None if self.untold(share) else self._at(self._rank(share))

    def untold(self, share: float) -> str:
        """Return why it is not known which latency `share` of the requests did not exceed; nothing where it is.

        The drained ones may lie anywhere below where they were counted: what is said must hold with all of them lowest.
        The longest of all that were seen is known whatever is missing: it is no percentile.
        """
        if self.unknown or not self.total:
            return self.unknown or "no time of a request is known"
        rank = self._rank(share)
        most, least = self._at(rank), self._at(max(1, rank - self.drained))
        if (1 - share) * self.total < self.drained or most - least > ALIKE * most:
            return f"when each of the last {counted(self.drained, 'request')} came back is not known"
        if share < 1 and not self.reaches(most):
            return (
                f"requests of {most / 1e9:.1f} s in a part of {self.part_s:g} s: longer ones did not end in it; "
                "measure longer"
            )
        # It would be the slowest one's time, whatever it is called.
        if share < 1 and rank == self.total:
            return f"{counted(self.total, 'request')} are too few for it; measure longer"
        return ""

    def reaches(self, ns: float) -> bool:
        """Tell whether requests of so many ns were surely seen to end as often as they came."""
        return ns * (1 - self.rounded) / 1e9 <= _LONGEST_SHARE * self.part_s

    def _rank(self, share: float) -> int:
        """Return which request, counted from the quickest, `share` of them end at."""
        return max(1, math.ceil(share * self.total))

    def _at(self, rank: int) -> int:
        """Return the latency of the request of `rank`, counted from the quickest."""
        for ns in sorted(self.counts):
            rank -= self.counts[ns]
            if rank <= 0:
                break
        return ns

    def __add__(self, other: "Latencies") -> "Latencies":
        counts = dict(self.counts)
        for ns, count in other.counts.items():
            counts[ns] = counts.get(ns, 0) + count
        return Latencies(
            counts, self.drained + other.drained, max(self.rounded, other.rounded), min(self.part_s, other.part_s),
            # Of the rest alone nothing is said: it is no fair sample.
            self.unknown or other.unknown,
        )  # fmt: skip


def together(parts: Iterable[Latencies]) -> Latencies:
    """Return the latencies of all `parts`."""
    return sum(parts, Latencies({}))


def span(result: StepResult) -> Span | None:
    """Return the part in which the load was surely under way with its ramp over; None where there is none."""
    samples, document = result.samples, result.document
    if len(samples) < 2 or not document.jobs:
        return None
    ramp_ended_s, begin_s = _ramp_ends(result)
    runtime_s = part_s(result)
    if math.isfinite(runtime_s):
        # Of a fio that began late, the part ends late: no earlier than its length, and fio's own ending, let it.
        end_s = max(ramp_ended_s, begin_s - _ENDING_S) + runtime_s
    else:
        # The last requests were sent no later than the longest of them took.
        longest_ns = max(way.lat_ns.max or 0 for job in document.jobs for way in (job.read, job.write))
        end_s = ramp_ended_s + document.run_s() - longest_ns / 1e9
    end_s = min(end_s, samples[-1]["time.monotonic"])
    return Span(begin_s, end_s) if end_s > begin_s else None


def part_s(result: StepResult) -> float:
    """Return after how many seconds of the measured part the load was to end, infinite where its data ends it."""
    runtime_s = _seconds(result.job, "runtime") if "time_based=1" in result.job else None
    return runtime_s or math.inf


def _ramp_ends(result: StepResult) -> tuple[float, float]:
    """Return between which instants of the sampler's clock the ramp of every job ended.

    fio from 3.36 on says when its jobs began, and begins anew after the ramp.  Others begin after the sampler and end
    before it.
    """
    samples, jobs = result.samples, result.document.jobs
    to_unix_s = samples[0]["time.unix"] - samples[0]["time.monotonic"]
    ramp_s = _seconds(result.job, "ramp_time") or 0.0
    latest_s = samples[-1]["time.monotonic"] - result.document.run_s()
    starts = [job.job_start / 1e3 - to_unix_s for job in jobs if job.job_start]
    if starts:
        return min(starts), min(latest_s, max(starts))
    begun_s = samples[0]["time.monotonic"]
    if result.begun_unix_s is not None:
        begun_s = min(begun_s, result.begun_unix_s - to_unix_s)
    return begun_s + ramp_s, latest_s


def window(result: StepResult) -> tuple[Sample, Sample] | None:
    """Return the first and last sample inside the measured part, or None with fewer than two there."""
    inside = _inside(result)
    return (inside[0], inside[-1]) if len(inside) > 1 else None


def _inside(result: StepResult) -> Sequence[Sample]:
    part = span(result)
    if part is None:
        return ()
    # The sampler's clock and fio's are read one after the other.
    return [one for one in result.samples if part.begin_s - 0.01 <= one["time.monotonic"] <= part.end_s + 0.01]


def _seconds(job: str, key: str) -> float | None:
    """Return a time of a job file in s, None where it is not set."""
    found = re.search(rf"^{key}=([\d.]+)(ms)?$", job, re.MULTILINE)
    return float(found[1]) / (1e3 if found[2] else 1) if found else None


def on_device(result: StepResult) -> bool:
    """Tell whether the disk's counters are of this load's own requests: on a device, past the cache, not checked."""
    files = re.findall(r"^filename=(.*)$", result.job, re.MULTILINE)
    there = bool(files) and all(one.startswith("/dev/") for one in files)
    return there and "direct=1" in result.job and "verify=" not in result.job


def throughput_of(result: StepResult, op: str) -> Rate | None:
    """Return the throughput of direction `op` in the measured part, None where nothing ever moved.

    What came back later alone stood still in it: that is a rate as well, and none that chance leaves out.
    It comes from the disk's completed bytes over the samples where these are the load's own.  Requests come back in
    bursts, and whether one burst more falls inside must not matter: a slope through all samples sees to that.  Where
    it is further from what was moved in that time than one queue of requests explains, the load did not go evenly:
    it stood still, or slowed down.  A slope is then no throughput, and what was moved counts.
    """
    document = result.before_drain or result.document
    seconds, moved = document.run_s(), document.moved_bytes(op)
    if not seconds or not result.document.moved_bytes(op):
        return None
    queue_bytes = result.depth * request_bytes(result, op)
    found = _sampled(result, f"disk.dev.{op}_bytes", queue_bytes) if on_device(result) else None
    return found or Rate(moved / seconds, queue_bytes / seconds)


def _sampled(result: StepResult, key: str, queue_bytes: float) -> Rate | None:
    """Return the rate of a counter of KiB over the samples, None where too few of them cover the measured part."""
    part, samples = span(result), [one for one in _inside(result) if key in one]
    if part is None or len(samples) < _LEAST_SAMPLES:
        return None
    times = [one["time.monotonic"] for one in samples]
    if times[-1] - times[0] < _LEAST_SHARE * (part.end_s - part.begin_s):
        return None
    return rate_of(times, [one[key] * 1024 for one in samples], queue_bytes)


def rate_of(times: Sequence[float], moved: Sequence[float], queue_bytes: float) -> Rate:
    """Return the least-squares slope of `moved` bytes over `times` in s, with twice its standard error.

    Where that is not what was moved, within `queue_bytes`, or fewer than three were read, return what was moved.
    """
    seconds = times[-1] - times[0]
    plain = Rate((moved[-1] - moved[0]) / seconds, queue_bytes / seconds)
    if len(times) < 3:
        return plain
    mean_s, mean_bytes = sum(times) / len(times), sum(moved) / len(moved)
    spread = sum((t - mean_s) ** 2 for t in times)
    slope = sum((t - mean_s) * (v - mean_bytes) for t, v in zip(times, moved, strict=True)) / spread
    if abs(slope - plain.bytes_per_s) * seconds > queue_bytes:
        return plain
    left = sum((v - mean_bytes - slope * (t - mean_s)) ** 2 for t, v in zip(times, moved, strict=True))
    return Rate(slope, 2 * math.sqrt(left / (len(times) - 2) / spread))


def disk_bytes(result: StepResult) -> tuple[float, float] | None:
    """Return the least and the most that the disk moved both ways from the end of the ramp to the load's end.

    They differ where it is not known when the ramp ended.  None without samples of it.
    """
    samples = [one for one in result.samples if "disk.dev.read_bytes" in one]
    if len(samples) < 2:
        return None
    points = [(one["time.monotonic"], one["disk.dev.read_bytes"] + one["disk.dev.write_bytes"]) for one in samples]
    if not _seconds(result.job, "ramp_time"):
        # All of it is the load's; up to its first request nothing grew, let alone evenly.
        moved = 1024 * (points[-1][1] - points[0][1])
        return moved, moved
    earliest, latest = _ramp_ends(result)
    if latest < earliest:
        return None
    low, high = (points[-1][1] - _at(points, when) for when in (latest, earliest))
    return low * 1024, high * 1024


def _at(points: Sequence[tuple[float, float]], when: float) -> float:
    """Return a counter between two samples as if it grew evenly."""
    if when <= points[0][0]:
        return points[0][1]
    for (t0, v0), (t1, v1) in zip(points, points[1:], strict=False):
        if when <= t1:
            return v0 + (v1 - v0) * (when - t0) / (t1 - t0)
    return points[-1][1]


def requests(result: StepResult, op: str) -> int:
    """Return how many requests of direction `op` completed in the measured part.

    They follow from the bytes: fio's total has those begun in it, and its histograms run on while it notes its figures.
    """
    size = request_bytes(result, op)
    document = result.before_drain or result.document
    return round(document.moved_bytes(op) / size) if size else document.completed(op)


def request_bytes(result: StepResult, op: str) -> float:
    """Return the mean size of the requests of direction `op`, 0 where nothing moved."""
    moved = result.document.moved_bytes(op)
    return moved / max(1, result.document.completed(op))


def run_s(result: StepResult) -> float:
    """Return the seconds of the measured part by fio's own clock; at its end, its wait for what was left is in it."""
    return (result.before_drain or result.document).run_s()


def seen(result: StepResult) -> DeviceInterval | None:
    """Return what fabstat counted of the step's disk in the measured part; None of several, or unseen."""
    found = [] if result.fabstat is None else _intervals(result.fabstat)
    return found[0] if len(found) == 1 else None


@functools.lru_cache(maxsize=512)
def _intervals(readings: Readings) -> list[DeviceInterval]:
    """Return what each of the step's own disks did: a record has readings of no other."""
    try:
        found = diff(parse(readings.before), parse(readings.after)).devices
    except InputError:
        return []
    live = sorted((one for one in found if one.device.state != "gone"), key=lambda one: one.device.id)
    # One that is being removed may have left its name to another.
    return list({one.device.disk: one for one in live}.values())


def latencies(result: StepResult, op: str) -> Latencies:
    """Return how long the requests of direction `op` took that completed in the measured part.

    By fabstat where it sees the load's own requests and none waits before the driver; else by what fio had counted
    when the part ended; else by fio's end, where a full queue may bear the time of its last request.  Of an open loop
    these are the requests that were to leave in the part, however long they took.  Of several disks fabstat alone
    tells: fio, with a job for each, had counted the quickest requests when it last answered.
    """
    if result.offered:
        # From the instant at which each was to leave.
        told = tells_latency(result.offered, result.replayed)
        return Latencies(result.document.bins(op)) if told else Latencies({}, unknown=_NOT_REACHED)
    if len(set(re.findall(r"^filename=/dev/(.*)$", result.job, re.MULTILINE))) > 1:
        if result.fabstat is None:
            return Latencies({}, unknown=_NO_READINGS)
        return of_disks(_intervals(result.fabstat), op, part_s(result))
    interval = seen(result) if on_device(result) else None
    if interval is not None and result.depth <= interval.device.limit:
        histogram = interval.histogram("total", op)
        if histogram is not None and histogram.count and not histogram.lacking and _same_size(result, interval, op):
            return by_fabstat(histogram, part_s(result))
    return by_fio(result, op)


def by_fio(result: StepResult, op: str) -> Latencies:
    """Return the latencies that fio tells: as it had counted when the part ended, where it said so."""
    if result.before_drain is not None:
        return Latencies(result.before_drain.bins(op), part_s=part_s(result))
    queued = result.depth > len(result.document.jobs)
    return Latencies(result.document.bins(op), result.depth if queued else 0, part_s=part_s(result))


def of_disks(each: Iterable[DeviceInterval], op: str, part_s: float) -> Latencies:
    """Return how long the requests of all disks took, from the first issue on, retries included, as of one alone."""
    times = [histogram for one in each if (histogram := one.histogram("total", op))]
    # Of a part of the requests alone nothing is told.
    whole = [] if any(one.lacking for one in times) else times
    return together(by_fabstat(one, part_s) for one in whole)


def by_fabstat(histogram: Histogram, part_s: float) -> Latencies:
    """Return the latencies of a histogram of fabstat, of the requests that ended within a part of so many seconds."""
    return Latencies(_middles(histogram), rounded=ALIKE / 2, part_s=part_s)


def _same_size(result: StepResult, interval: DeviceInterval, op: str) -> bool:
    """Tell whether the device's requests are as large as the load's, neither split nor merged."""
    counted, size = interval.ops[op], request_bytes(result, op)
    return abs(counted.bytes - size * counted.completed) <= 0.01 * size * counted.completed


def _middles(histogram: Histogram) -> dict[int, int]:
    """Return a histogram of fabstat by the middle of each bucket; the open one has only its beginning."""
    ends = (*histogram.from_ns[1:], histogram.from_ns[-1])
    return {(histogram.from_ns[i] + ends[i]) // 2: count for i, count in histogram.counts.items()}


def oldest_s(result: StepResult, op: str) -> float | None:
    """Return the longest time that a request took which completed in the measured part, None where not known."""
    longest = latencies(result, op).quantile_ns(1)
    return None if longest is None else longest / 1e9
