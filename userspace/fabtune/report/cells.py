# SPDX-License-Identifier: GPL-2.0-or-later
"""Run records sorted into cells: runs that differ in nothing but the draw."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from fabtune.measure import checks, measured, metrics
from fabtune.measure.measured import Latencies
from fabtune.model.judgement import ALPHA
from fabtune.model.runrecord import RunRecord, StepResult, Value
from fabtune.model.statistics import groups_in, mean_interval
from fabtune.report.apart import point_of, telling_apart

K = TypeVar("K")

# What may stand on an x axis beside the path's RTT, and what it is called there.
CLIENTS = ("processes", "threads", "streams")

# What a run tells only where it is known well enough.
_NOT_ALWAYS_TOLD = (
    "p50_ms", "p90_ms", "p99_ms", "p999_ms",
    "cpu_s_per_gb", "user_s_per_gb", "sys_s_per_gb", "softirq_s_per_gb", "sys_percent_per_mb_per_s",
)  # fmt: skip

# With fewer an interval says nothing.
LEAST_RUNS = 3


@attrs.frozen
class Cell:
    """All runs of one step, direction and label; `parameters` has ``rtt_ms`` where the path is known.

    Steps of one `phase` differ in their parameters alone.  `unnamed` are those parameters that differ between steps of
    this one's name.
    """

    workload: str
    phase: str
    step: str
    op: str
    label: str
    parameters: dict[str, Value]
    runs: tuple[tuple[RunRecord, StepResult], ...]
    unnamed: frozenset[str] = frozenset()

    def values(self, key: str) -> list[float]:
        """Return one figure of every run that has it."""
        return [one.value for one in self._metrics(key)]

    def _metrics(self, key: str) -> list[metrics.Metric]:
        wanted = f"{self.op}_{key}" if key in ("mb_per_s", "iops", "p50_ms", "p90_ms", "p99_ms", "p999_ms") else key
        return [m for _, result in self.runs for m in metrics.of_step(result) if m.key == wanted]

    def median(self, key: str) -> float | None:
        """Return the median over the runs; None where some do not tell a latency or CPU time: seldom by chance."""
        values = self.values(key)
        return statistics.median(values) if values and self._tell(key, len(values)) else None

    def _tell(self, key: str, count: int) -> bool:
        return count == len(self.runs) or key not in _NOT_ALWAYS_TOLD

    @property
    def rtt_ms(self) -> float | None:
        """The path's round trip, None where it is not known."""
        return self.runs[0][0].path.rtt_ms

    @property
    def told_apart_by(self) -> dict[str, Value]:
        """What makes it a point of its own, beside its step's name and the round trip: settings of the lab, sizes."""
        known = {"rtt_ms", *self.runs[0][1].parameters} - self.unnamed
        return {name: value for name, value in self.parameters.items() if name not in known}

    @property
    def bound_mb_per_s(self) -> float | None:
        """What path, depth and bursts allow, None where the path is not known."""
        record, result = self.runs[0]
        return _mb_per_s(checks.bound(record, result, self.op))

    @property
    def bound_by_disk(self) -> bool:
        """Whether it is the target's disk that allows no more."""
        record, result = self.runs[0]
        unlimited = attrs.evolve(record, target=attrs.evolve(record.target, limit_bytes_per_s=None))
        without, bound = (checks.bound(one, result, self.op) for one in (unlimited, record))
        return without is not None and bound is not None and bound < without

    def bound_at(self, name: str, value: float) -> float | None:
        """Return the bound in MB/s with parameter `name` at `value` and all else as it was; None where unknown."""
        record, result = self.runs[0]
        if name == "rtt_ms":
            record = attrs.evolve(record, path=attrs.evolve(record.path, rtt_s=value / 1e3))
        elif name == "block_bytes":
            result = attrs.evolve(result, parameters=result.parameters | {name: round(value)})
        elif name in ("queue_depth", *CLIENTS):
            was = float(self.parameters[name])
            if not 0 < was < math.inf:
                return None
            result = attrs.evolve(result, depth=round(result.depth * value / was))
        return _mb_per_s(checks.bound(record, result, self.op))

    def spread(self, key: str) -> tuple[float, float] | None:
        """Return the 95 % interval of a figure, the ends of both groups where runs fall into two; None of few runs."""
        found = self._metrics(key)
        if len(found) < LEAST_RUNS or not self._tell(key, len(found)):
            return None
        values, rounded = [one.value for one in found], max(one.rounded for one in found)
        in_two = len(groups_in(values, rounded)) > 1
        low, high = (min(values), max(values)) if in_two else mean_interval(values, ALPHA, rounded)
        return None if low is None or high is None else (low, high)

    def latencies(self) -> Latencies:
        """Return the latencies of all runs together."""
        return measured.together(self.latencies_by_run())

    def latencies_by_run(self) -> list[Latencies]:
        """Return the latencies of each run."""
        return [measured.latencies(result, self.op) for _, result in self.runs]


def _mb_per_s(bytes_per_s: float | None) -> float | None:
    return None if bytes_per_s is None else bytes_per_s / 1e6


# Workload, phase, step, direction, label and parameters.
_Place = tuple[str, str, str, str, str, tuple[tuple[str, Value], ...]]


def cells(records: Iterable[RunRecord]) -> list[Cell]:
    """Return the cells of all steps that measured something, in order of first appearance."""
    runs: list[tuple[_Place, RunRecord, StepResult]] = []
    for record in records:
        for result in record.steps:
            if not result.fio or result.must_fail or result.skipped:
                continue
            parameters = dict(result.parameters)
            if record.path.rtt_ms is not None:
                parameters["rtt_ms"] = record.path.rtt_ms
            for op in result.fio.directions:
                step = (record.workload.name, result.phase or result.name, result.name)
                runs.append(((*step, op, record.label, tuple(parameters.items())), record, result))
    # Each label is a side of its own.
    apart = telling_apart((place[-2], place[:-2], record, result) for place, record, result in runs)
    found: dict[_Place, list[tuple[RunRecord, StepResult]]] = {}
    for place, record, result in runs:
        known, point = dict(place[-1]), point_of(record, result)
        more = tuple((name, point[name]) for name in apart if name in point and name not in known)
        mine = found.setdefault((*place[:-1], place[-1] + more), [])
        # One run is one draw, however many of its steps have one name: the last of them counts, as in a comparison.
        mine[-1:] = [*(one for one in mine[-1:] if one[0] is not record), (record, result)]
    values: dict[tuple[str, str, str], set[Value]] = {}
    for one in found:
        for name, value in one[-1]:
            values.setdefault((one[0], one[2], name), set()).add(value)
    several = {key for key, mine in values.items() if len(mine) > 1 and key[2] not in ("op", "rtt_ms")}
    return [
        Cell(
            workload, phase, step, op, label, dict(parameters), tuple(mine),
            frozenset(name for name, _ in parameters if (workload, step, name) in several),
        )
        for (workload, phase, step, op, label, parameters), mine in found.items()
    ]  # fmt: skip


def varying(group: Sequence[Cell]) -> list[str]:
    """Return the parameters that differ within a group of cells."""
    names = dict.fromkeys(name for cell in group for name in cell.parameters)
    return [name for name in names if name != "op" and len({cell.parameters.get(name) for cell in group}) > 1]


def by(group: Iterable[Cell], key: Callable[[Cell], K]) -> dict[K, list[Cell]]:
    """Return cells grouped by what `key` says of each."""
    found: dict[K, list[Cell]] = {}
    for cell in group:
        found.setdefault(key(cell), []).append(cell)
    return found
