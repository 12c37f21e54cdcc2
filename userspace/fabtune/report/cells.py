# SPDX-License-Identifier: GPL-2.0-or-later
"""Run records sorted into cells: runs that differ in nothing but the draw."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from fabtune.measure import checks, measured, metrics
from fabtune.measure.measured import Latencies
from fabtune.model.runrecord import RunRecord, StepResult, Value

K = TypeVar("K")

# What may stand on an x axis beside the path's RTT, and what it is called there.
CLIENTS = ("processes", "threads", "streams")


@attrs.frozen
class Cell:
    """All runs of one step, direction and label; `parameters` has ``rtt_ms`` where the path is known.

    Steps of one `phase` differ in their parameters alone.
    """

    workload: str
    phase: str
    step: str
    op: str
    label: str
    parameters: dict[str, Value]
    runs: tuple[tuple[RunRecord, StepResult], ...]

    def values(self, key: str) -> list[float]:
        """Return one figure of every run that has it."""
        wanted = f"{self.op}_{key}" if key in ("mb_per_s", "iops", "p50_ms", "p90_ms", "p99_ms", "p999_ms") else key
        return [m.value for _, result in self.runs for m in metrics.of_step(result) if m.key == wanted]

    def median(self, key: str) -> float | None:
        """Return the median over the runs."""
        values = self.values(key)
        return statistics.median(values) if values else None

    @property
    def rtt_ms(self) -> float | None:
        """The path's round trip, None where it is not known."""
        return self.runs[0][0].path.rtt_ms

    @property
    def bound_mb_per_s(self) -> float | None:
        """What path, depth and bursts allow, None where the path is not known."""
        record, result = self.runs[0]
        limit = checks.bound(record, result, self.op)
        return limit / 1e6 if limit is not None else None

    def latencies(self) -> Latencies:
        """Return the latencies of all runs together."""
        return measured.together(measured.latencies(result, self.op) for _, result in self.runs)


def cells(records: Iterable[RunRecord]) -> list[Cell]:
    """Return the cells of all steps that measured something, in order of first appearance."""
    found: dict[tuple[str, str, str, str, str, tuple[tuple[str, Value], ...]], list[tuple[RunRecord, StepResult]]] = {}
    for record in records:
        for result in record.steps:
            if not result.fio or result.must_fail or result.skipped:
                continue
            parameters = dict(result.parameters)
            if record.path.rtt_ms is not None:
                parameters["rtt_ms"] = record.path.rtt_ms
            for op in result.fio.directions:
                step = (record.workload.name, result.phase or result.name, result.name)
                found.setdefault((*step, op, record.label, tuple(parameters.items())), []).append((record, result))
    return [
        Cell(workload, phase, step, op, label, dict(parameters), tuple(runs))
        for (workload, phase, step, op, label, parameters), runs in found.items()
    ]


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
