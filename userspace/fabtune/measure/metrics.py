# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures of a run record: each is computed from the raw data when asked for, never stored."""

from collections.abc import Iterable

import attrs

from fabtune.measure import measured
from fabtune.model.outputs import FioOutput
from fabtune.model.runrecord import Sample, StepResult

# Engines whose requests are whole files made, looked up or removed: nothing is moved, and fio calls all of it reading.
_FILE_ENGINES = ("filecreate", "filestat", "filedelete")
# The kernel counts CPU time in ticks: of fewer than ten nothing can be said.
_TICK_MS, _LEAST_MS = 10.0, 100.0
# What all disks of a load on several have moved by a sample, in bytes: fabstat's count.
MOVED_BYTES = "fabstat.bytes"
# Whom a lab guest's CPU works for, as far as it is told, and how much of its time must be told at least.
ENDS, _LEAST_TOLD = ("initiator", "target", "path"), 0.8
_KINDS = ("user", "nice", "sys", "idle", "wait.total", "irq.hard", "irq.soft", "steal")


@attrs.frozen
class Metric:
    """One figure of one step; `error` is how far off it may be.

    `better` is +1 when more is better, -1 when less is; `rounded` is the share of it that a bucket leaves open.
    """

    key: str
    title: str
    unit: str
    value: float
    better: int
    error: float | None = None
    rounded: float = 0.0


@attrs.frozen
class Untold:
    """A figure that one step would have and does not tell, and why."""

    key: str
    title: str
    unit: str
    better: int
    why: str
    rounded: float = 0.0


# What a step says of one of its figures.
Figure = Metric | Untold


def of_step(result: StepResult) -> list[Metric]:
    """Return the figures of one step; none for a step that was skipped or left nothing."""
    return [one for one in told_and_untold(result) if isinstance(one, Metric)]


def told_and_untold(result: StepResult) -> list[Figure]:
    """Return the figures of one step, and the latencies and CPU time that it does not tell."""
    if result.iperf3:
        received = result.iperf3.end.sum_received.bits_per_second
        return [Metric("tcp_mb_per_s", "raw TCP", "MB/s", received / 8e6, 1)]
    document = result.fio
    if not document or result.must_fail:
        return []
    if of_files(result):
        return _files(result, document)
    return [*(one for op in document.directions for one in _of_direction(result, op)), *_cpu(result)]


def ways_asked(result: StepResult) -> tuple[str, ...]:
    """Return the directions in which a step was to move data: both where nobody told it one."""
    op = str(result.parameters.get("op")).removeprefix("rand")
    return (op,) if op in ("read", "write") else ("read", "write")


def why_untold(result: StepResult) -> dict[str, str]:
    """Return why the step does not tell figures that it would have, by their keys."""
    return {one.key: one.why for one in told_and_untold(result) if isinstance(one, Untold)}


def of_files(result: StepResult) -> bool:
    """Return whether the step made, looked up or removed files instead of moving data."""
    return any(f"ioengine={engine}\n" in result.job for engine in _FILE_ENGINES)


def _files(result: StepResult, document: FioOutput) -> list[Figure]:
    seconds = measured.run_s(result)
    if not seconds:
        return []
    rate = Metric("files_per_s", "files", "1/s", document.requests("read") / seconds, 1)
    return [rate, *_percentiles(result, "read", "a file's")]


def _of_direction(result: StepResult, op: str) -> list[Figure]:
    rate = measured.throughput_of(result, op)
    if rate is None:
        return []
    requests = rate.bytes_per_s / measured.request_bytes(result, op)
    return [
        Metric(f"{op}_mb_per_s", f"{op} throughput", "MB/s", rate.bytes_per_s / 1e6, 1),
        Metric(f"{op}_iops", f"{op} requests", "1/s", requests, 1),
        *_percentiles(result, op, op),
    ]


def _percentiles(result: StepResult, op: str, called: str) -> Iterable[Figure]:
    latencies = measured.latencies(result, op)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
        key, title, value = f"{op}_{name}_ms", f"{called} latency {name}", latencies.quantile_ns(share)
        if value is not None:
            yield Metric(key, title, "ms", value / 1e6, -1, rounded=latencies.rounded)
        elif latencies.total or latencies.unknown:
            yield Untold(key, title, "ms", -1, latencies.untold(share))


def _cpu(result: StepResult) -> list[Figure]:
    """Return CPU time per GB of the disk's own traffic, or of all disks', in the measured part.

    What the host does anyway is left out.  Nothing where none was moved, or nobody looked.
    """
    edges = measured.window(result)
    if edges is None or not edges[1].keys() & {"disk.dev.read_bytes", MOVED_BYTES}:
        return []
    first, last = edges
    kib = _grown(edges, "disk.dev.read_bytes") + _grown(edges, "disk.dev.write_bytes")
    gigabytes = (kib * 1024 + _grown(edges, MOVED_BYTES)) / 1e9
    seconds = last["time.monotonic"] - first["time.monotonic"]
    busy_ms, error_ms = _busy_ms(edges)
    before = (result.idle[0], result.idle[1]) if len(result.idle) == 2 else (first, first)
    # How much longer the load was watched than the idle host.
    scale = seconds / _grown(before, "time.monotonic") if result.idle else 0.0
    idle_ms, idle_error_ms = _busy_ms(before)
    busy_ms, error_ms = busy_ms - scale * idle_ms, error_ms + scale * idle_error_ms
    if gigabytes <= 0:
        return []
    called = "cpu_s_per_gb", "CPU", "s/GB"
    if why := _cpu_untold(busy_ms, error_ms, scale * idle_ms, exact="exact.cpu.idle" in last):
        return [Untold(*called, -1, why)]
    found: list[Figure] = [Metric(*called, busy_ms / 1e3 / gigabytes, -1, error_ms / 1e3 / gigabytes)]
    ticks = {kind: _ticks_ms(edges, kind) - scale * _ticks_ms(before, kind) for kind in _KINDS}
    for name, kind in (("user", "user"), ("sys", "sys"), ("softirq", "irq.soft")):
        if ticks[kind] >= _LEAST_MS:
            found.append(Metric(f"{name}_s_per_gb", name, "s/GB", ticks[kind] / 1e3 / gigabytes, -1))
    kernel_ms = ticks["sys"] + ticks["irq.hard"] + ticks["irq.soft"]
    if kernel_ms >= _LEAST_MS:
        # The studies' own figure: per cent of the host's CPU in the kernel for each MB/s.
        share = 100 * kernel_ms / sum(_ticks_ms(edges, kind) for kind in _KINDS)
        value = share / (gigabytes * 1e3 / seconds)
        found.append(Metric("sys_percent_per_mb_per_s", "%sys/(MB/s)", "%", value, -1))
    return found


def _cpu_untold(busy_ms: float, error_ms: float, idle_ms: float, *, exact: bool) -> str:
    """Return why nothing can be said of the CPU time that a load added; nothing where it can.

    Where the host did more anyway, other work may have made way for the load, as other hosts' traffic does on a line
    that both fill, and a program that polls does on the only CPU.
    """
    if busy_ms < _LEAST_MS and not exact:
        return "it is less than ten of the kernel's ticks; measure longer"
    if busy_ms <= 0 or busy_ms < idle_ms:
        return "the host did more before the load than the load added"
    return "it is less than twice what it may be off by; measure longer" if busy_ms < 2 * error_ms else ""


def cpu_by_end(result: StepResult) -> dict[str, float]:
    """Return the shares of the step's CPU time by whom it served, of a guest whose meter told them apart.

    Nothing where less than ten ticks were used, or a fifth of it was for nobody in particular: it cannot be told.
    """
    edges = measured.window(result)
    if edges is None or not result.idle:
        return {}
    before = (result.idle[0], result.idle[1])
    scale = _grown(edges, "time.monotonic") / _grown(before, "time.monotonic")
    busy_ms = _busy_ms(edges)[0] - scale * _busy_ms(before)[0]
    told_ms = {
        name: (_grown(edges, f"exact.cpu.{name}") - scale * _grown(before, f"exact.cpu.{name}")) / 1e6 for name in ENDS
    }
    if busy_ms < _LEAST_MS or sum(told_ms.values()) < _LEAST_TOLD * busy_ms:
        return {}
    return {name: ms / busy_ms for name, ms in told_ms.items()}


def _ticks_ms(edges: tuple[Sample, Sample], kind: str) -> float:
    return _grown(edges, f"kernel.all.cpu.{kind}")


def _grown(edges: tuple[Sample, Sample], key: str) -> float:
    return edges[1][key] - edges[0][key] if key in edges[0] and key in edges[1] else 0.0


def _busy_ms(edges: tuple[Sample, Sample]) -> tuple[float, float]:
    """Return how long the host's CPUs were busy, and how far that may be off; what a hypervisor stole is not busy.

    The kernel measures idle time and rounds it to ticks; busy time it samples, one tick at a time.
    """
    elapsed_ms, stolen_ms = _grown(edges, "time.monotonic") * 1e3, _ticks_ms(edges, "steal")
    if "exact.cpu.idle" in edges[0] and "exact.cpu.idle" in edges[1]:
        return elapsed_ms - _grown(edges, "exact.cpu.idle") / 1e6 - stolen_ms, _TICK_MS if stolen_ms else 0.0
    every_ms = sum(_ticks_ms(edges, kind) for kind in _KINDS)
    idle_ms = _ticks_ms(edges, "idle") + _ticks_ms(edges, "wait.total")
    cpus = max(1, round(every_ms / elapsed_ms)) if elapsed_ms else 1
    return cpus * elapsed_ms - idle_ms - stolen_ms, 2 * _TICK_MS
