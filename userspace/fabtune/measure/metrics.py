# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures of a run record: each is computed from the raw data when asked for, never stored."""

from collections.abc import Mapping
from typing import Any

import attrs

from fabtune.measure import fio
from fabtune.model.runrecord import Sample, StepResult

# Engines whose requests are whole files made, looked up or removed: nothing is moved, and fio calls all of it reading.
_FILE_ENGINES = ("filecreate", "filestat", "filedelete")
# The kernel counts CPU time in ticks of 10 ms: of fewer than five nothing can be said.
_LEAST_BUSY_MS = 50


@attrs.frozen
class Metric:
    """One figure of one step.  `better` is +1 when more is better, -1 when less is."""

    key: str
    title: str
    unit: str
    value: float
    better: int


def of_step(result: StepResult) -> list[Metric]:
    """Return the figures of one step; none for a step that was skipped or left nothing."""
    if result.iperf3:
        received = result.iperf3["end"]["sum_received"]["bits_per_second"]
        return [Metric("tcp_mb_per_s", "raw TCP", "MB/s", float(received) / 8e6, 1)]
    document = result.fio
    if not document or result.must_fail:
        return []
    if of_files(result):
        return _files(document)
    found = []
    for op in fio.directions(document):
        found += _of_direction(document, op)
    found += _cpu(result, document)
    return found


def of_files(result: StepResult) -> bool:
    """Return whether the step made, looked up or removed files instead of moving data."""
    return any(f"ioengine={engine}\n" in result.job for engine in _FILE_ENGINES)


def _files(document: Mapping[str, Any]) -> list[Metric]:
    seconds = run_s(document)
    if not seconds:
        return []
    rate = Metric("files_per_s", "files", "1/s", fio.total(document, "read", "total_ios") / seconds, 1)
    return [rate, *_percentiles(document, "read", "a file's")]


def run_s(document: Mapping[str, Any]) -> float:
    """Return the seconds that the measured part took, the ramp left out."""
    return max((float(job[op]["runtime"]) for job in document["jobs"] for op in ("read", "write")), default=0.0) / 1e3


def moved_bytes(document: Mapping[str, Any]) -> float:
    """Return the bytes that fio read and wrote in the measured part."""
    return sum(fio.total(document, op, "io_bytes") for op in ("read", "write"))


def _of_direction(document: Mapping[str, Any], op: str) -> list[Metric]:
    seconds = max(float(job[op]["runtime"]) for job in document["jobs"]) / 1e3
    if not seconds:
        return []
    found = [
        Metric(f"{op}_mb_per_s", f"{op} throughput", "MB/s", fio.total(document, op, "io_bytes") / seconds / 1e6, 1),
        Metric(f"{op}_iops", f"{op} requests", "1/s", fio.total(document, op, "total_ios") / seconds, 1),
    ]
    return found + _percentiles(document, op, op)


def _percentiles(document: Mapping[str, Any], op: str, called: str) -> list[Metric]:
    histogram = fio.bins(document, op)
    found = []
    for name, fraction in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        value = fio.percentile_ns(histogram, fraction)
        if value is not None:
            found.append(Metric(f"{op}_{name}_ms", f"{called} latency {name}", "ms", value / 1e6, -1))
    return found


def window(result: StepResult) -> tuple[Sample, Sample] | None:
    """Return the first and last sample inside the measured part, or None with fewer than two there.

    The measured part ends when the load does; its length is fio's own.
    """
    samples, document = result.samples, result.fio
    if not document or len(samples) < 3:
        return None
    end = samples[-1]["time.monotonic"]
    inside = [one for one in samples[:-1] if one["time.monotonic"] >= end - run_s(document) - 0.2]
    if len(inside) < 2:
        return None
    return inside[0], inside[-1]


def _cpu(result: StepResult, document: Mapping[str, Any]) -> list[Metric]:
    """Return CPU time per GB of the disk's own traffic, over the same seconds."""
    edges = window(result)
    if edges is None or "disk.dev.read_bytes" not in edges[1]:
        return []
    first, last = edges
    # A second in which nothing completed has no percentiles.
    change = {key: last[key] - first[key] for key in last if key in first}
    gigabytes = (change["disk.dev.read_bytes"] + change["disk.dev.write_bytes"]) * 1024 / 1e9
    all_ms = sum(value for key, value in change.items() if key.startswith("kernel.all.cpu."))
    busy_ms = all_ms - change["kernel.all.cpu.idle"] - change["kernel.all.cpu.wait.total"]
    if gigabytes <= 0 or busy_ms < _LEAST_BUSY_MS:
        return []
    kernel_ms = sum(change[f"kernel.all.cpu.{name}"] for name in ("sys", "irq.hard", "irq.soft"))
    mb_per_s = gigabytes * 1e3 / change["time.monotonic"]
    parts = (("user", "user"), ("sys", "sys"), ("softirq", "irq.soft"))
    return [
        Metric("cpu_s_per_gb", "CPU", "s/GB", busy_ms / 1e3 / gigabytes, -1),
        *(
            Metric(f"{name}_s_per_gb", name, "s/GB", change[f"kernel.all.cpu.{key}"] / 1e3 / gigabytes, -1)
            for name, key in parts
        ),
        # The studies' own figure: per cent of the host's CPU in the kernel for each MB/s.
        Metric("sys_percent_per_mb_per_s", "%sys/(MB/s)", "%", 100 * kernel_ms / all_ms / mb_per_s, -1),
    ]
