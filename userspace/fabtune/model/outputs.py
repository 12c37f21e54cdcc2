# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents of fio, iperf3 and tc in a run record: what fabtune reads has its type, the rest is kept as it is.

One of another shape is refused when it is read.
"""

import re
from collections.abc import Iterator
from typing import Annotated

import attrs

from fabtune.model.document import Rest
from fabtune.model.typed import Check, between, omitted

_MOST = 2**64 - 1
# A loaded machine lets a job wait so long before it looks at the clock.
_LATE_S = 1.0
_Count = Annotated[int, between(0, _MOST)]
_Amount = Annotated[float, between(0, _MOST)]


def _is_histogram(bins: dict[str, int]) -> bool:
    # int() also takes signs, blanks and the digits of other scripts.
    names = all(re.fullmatch("[0-9]{1,20}", ns) for ns in bins)
    return names and all(0 <= count <= _MOST for count in bins.values())


_Histogram = Annotated[dict[str, int], Check(_is_histogram, "a table of nanoseconds and how many requests took them")]


@attrs.frozen
class _Completion:
    bins: _Histogram | None = omitted()
    rest: Rest = Rest()


@attrs.frozen
class _Latency:
    N: _Count
    mean: _Amount
    max: _Amount | None = omitted()
    rest: Rest = Rest()


@attrs.frozen
class _Direction:
    total_ios: _Count
    io_bytes: _Count
    runtime: _Count
    clat_ns: _Completion
    lat_ns: _Latency
    rest: Rest = Rest()


def _essence(way: _Direction) -> _Direction:
    return _Direction(
        way.total_ios, way.io_bytes, way.runtime, _Completion(way.clat_ns.bins),
        _Latency(way.lat_ns.N, way.lat_ns.mean, way.lat_ns.max),
    )  # fmt: skip


@attrs.frozen
class _Job:
    read: _Direction
    write: _Direction
    job_start: _Amount | None = omitted()
    job_runtime: _Amount | None = omitted()
    rest: Rest = Rest()


@attrs.frozen
class FioOutput:
    """fio's JSON, as far as figures come from it; `op` is ``read`` or ``write``."""

    jobs: tuple[_Job, ...]
    timestamp_ms: _Amount | None = omitted()
    rest: Rest = Rest()

    def _ways(self, op: str = "") -> Iterator[_Direction]:
        """Yield what every job did in direction `op`, else in both."""
        for job in self.jobs:
            yield from [job.read] * (op != "write") + [job.write] * (op != "read")

    @property
    def essence(self) -> "FioOutput":
        """What figures come from, and nothing else."""
        return FioOutput(tuple(_Job(_essence(job.read), _essence(job.write)) for job in self.jobs))

    @property
    def directions(self) -> list[str]:
        """Which of ``read`` and ``write`` moved data."""
        return [op for op in ("read", "write") if self.requests(op)]

    @property
    def starts_unix_s(self) -> list[float]:
        """Since when each job has been counting, its ramp left out; before 3.36 fio says only for how long."""
        lengths_ms = (job.job_runtime or 0 for job in self.jobs)
        counted_ms = ((self.timestamp_ms or 0) - length_ms for length_ms in lengths_ms)
        return [(job.job_start or ms) / 1e3 for job, ms in zip(self.jobs, counted_ms, strict=True)]

    def is_past_ramp(self, ramp_s: float) -> bool:
        """Tell whether every job's ramp of `ramp_s` is over: until then it counts requests, not how long they take.

        A job that times no request, or saw none end, is past it once it counts for longer than that, and than it may
        take to look at the clock: it ends its ramp when it does.
        """
        longest_ms = (ramp_s + _LATE_S) * 1e3
        return all(job.read.lat_ns.N or job.write.lat_ns.N or (job.job_runtime or 0) > longest_ms for job in self.jobs)

    @property
    def errors(self) -> list[str]:
        """The error numbers with which jobs ended, each once; what is whole has none."""
        return list(dict.fromkeys(str(error) for job in self.jobs if (error := job.rest.keys.get("error"))))

    @property
    def busy_jobs(self) -> int:
        """How many jobs moved data."""
        return sum(bool(job.read.total_ios or job.write.total_ios) for job in self.jobs)

    def requests(self, op: str = "") -> int:
        """Return the requests of all jobs, in both directions without `op`."""
        return sum(way.total_ios for way in self._ways(op))

    def completed(self, op: str = "") -> int:
        """Return how many requests fio saw to their end, the ramp's last ones left out."""
        return sum(way.lat_ns.N or way.total_ios for way in self._ways(op))

    def moved_bytes(self, op: str = "") -> int:
        """Return the bytes that all jobs moved in the measured part."""
        return sum(way.io_bytes for way in self._ways(op))

    def run_s(self, op: str = "") -> float:
        """Return the seconds that the measured part took, the ramp left out."""
        return max((way.runtime for way in self._ways(op)), default=0) / 1e3

    def bins(self, op: str) -> dict[int, int]:
        """Return the completion-latency histogram of all jobs: nanoseconds -> requests."""
        merged: dict[int, int] = {}
        for way in self._ways(op):
            for ns, count in (way.clat_ns.bins or {}).items():
                merged[int(ns)] = merged.get(int(ns), 0) + count
        return merged

    def longest_ns(self, op: str) -> int:
        """Return the longest time from submission to completion over all jobs."""
        return max(int(way.lat_ns.mean if way.lat_ns.max is None else way.lat_ns.max) for way in self._ways(op))

    def mean_latency_ns(self, op: str) -> float | None:
        """Return the mean time from submission to completion over all jobs, None where nothing moved."""
        totals = [way.lat_ns for way in self._ways(op)]
        count = sum(one.N for one in totals)
        return sum(one.mean * one.N for one in totals) / count if count else None


@attrs.frozen
class _Received:
    bits_per_second: _Amount
    rest: Rest = Rest()


@attrs.frozen
class _End:
    sum_received: _Received
    rest: Rest = Rest()


@attrs.frozen
class Iperf3Output:
    """iperf3's JSON, as far as figures come from it."""

    end: _End
    rest: Rest = Rest()


@attrs.frozen
class Qdisc:
    """What tc says of one queueing discipline, as far as figures come from it."""

    dev: str
    handle: str | None = omitted()
    parent: str | None = omitted()
    drops: int | None = omitted()
    rest: Rest = Rest()
