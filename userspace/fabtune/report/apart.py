# SPDX-License-Identifier: GPL-2.0-or-later
"""What tells points of a step apart, and sides: runs of different loss, or of different disks, are not of one point."""

from collections.abc import Hashable, Iterable, Mapping, Sequence

import attrs

from fabtune.measure.workload import said_value
from fabtune.model.factors import shown_profile
from fabtune.model.runrecord import RunRecord, StepResult, TargetUsed, Value
from fabtune.report.sample import listed

# The draw; and what the label says.
_NO_POINT = ("seed", "profile")
# What a side's name says.
_IN_THE_NAME = ("label", "known")
# Another file of the same name is another load.
_TRACE = "SHA-256"


def under_shown_label(record: RunRecord) -> RunRecord:
    """Return the record with the label under which its experiment shows it: the file has the profile's name alone."""
    settings = record.environment.get("settings")
    if not isinstance(settings, Mapping) or settings.get("profile") != record.label:
        return record
    return attrs.evolve(record, label=shown_profile(record.label, str(settings.get("known"))))


def point_of(record: RunRecord, result: StepResult) -> dict[str, Value]:
    """Return all that may make a run of a step one of another point, in the order in which its name tells it.

    What the load was given, the path, the label, host, an experiment's settings, the disk, and the clock.
    """
    path = {"rtt_ms": record.path.rtt_ms, "rate_bytes_per_s": record.path.rate_bytes_per_s}
    found = {name: value for name, value in result.parameters.items() if name != "op"}
    found |= {name: value for name, value in path.items() if value is not None}
    if result.replayed:
        found[_TRACE] = result.replayed.sha256[:12]
    settings = _settings(record)
    return found | {name: value for name, value in settings.items() if name not in found}


def _settings(record: RunRecord) -> dict[str, Value]:
    settings = record.environment.get("settings")
    found: dict[str, Value] = {"label": record.label or "no label", "host": record.host.name}
    if isinstance(settings, Mapping):
        told = {name: value for name, value in settings.items() if isinstance(value, str | int | float)}
        found |= {name: value for name, value in told.items() if name not in _NO_POINT}
    found["on"] = _on(record.target)
    return found | ({"clock": record.clock} if record.clock else {})


def _on(target: TargetUsed) -> str:
    """Return what a run was measured on, by the name that it keeps: a disk's WWID, where there is one."""
    if target.kind == "directory":
        return f"{target.path} ({target.wwid})" if target.wwid else target.path
    return target.wwid or target.disk or target.path


def telling_apart(runs: Iterable[tuple[Hashable, Hashable, RunRecord, StepResult]]) -> list[str]:
    """Return the names of what tells points of one step apart; each run has its side, its step, record and result.

    That is what differs within a side.  What differs between the sides alone is what is compared; but two traces are
    two loads, on whatever side.
    """
    placed = [(side, step, point_of(record, result)) for side, step, record, result in runs]
    traces = _chosen([(step, {name: value for name, value in point.items() if name == _TRACE})
                      for _, step, point in placed])  # fmt: skip
    return list(dict.fromkeys([*traces, *_chosen([((side, step), point) for side, step, point in placed])]))


def telling_points_apart(*sides: Sequence[RunRecord]) -> list[str]:
    """Return what tells apart the points of runs that are held against one another, side by side."""
    return telling_apart(
        (at, result.name, record, result) for at, side in enumerate(sides) for record in side for result in record.steps
    )


def step_name(record: RunRecord, result: StepResult, told_apart_by: Sequence[str]) -> str:
    """Return the name of a step with what tells its points apart."""
    point = point_of(record, result)
    return ", ".join([result.name, *(_said(name, point[name]) for name in told_apart_by if name in point)])


def between_sides(
    a: Sequence[RunRecord], b: Sequence[RunRecord], names: tuple[str, str], told_apart_by: Sequence[str]
) -> list[str]:
    """Return a sentence of what all runs of one side have, and all of the other have otherwise; none without such."""
    sides = [_values_by_step(side, told_apart_by) for side in (a, b)]
    said = []
    for step in (step for step in sides[0] if step in sides[1]):
        ours, theirs = (side[step] for side in sides)
        for name in (name for name in ours if name in theirs and name not in _IN_THE_NAME):
            if len(ours[name]) == len(theirs[name]) == 1 and ours[name] != theirs[name]:
                said.append(" and ".join(_said(name, one) for one in (*ours[name], *theirs[name])))
    more = listed(list(dict.fromkeys(said)))
    return [f"{' and '.join(names)} differ in more than their names: {more}."] if said else []


def _values_by_step(records: Sequence[RunRecord], told_apart_by: Sequence[str]) -> dict[str, dict[str, set[Value]]]:
    found: dict[str, dict[str, set[Value]]] = {}
    for record in records:
        for result in record.steps:
            mine = found.setdefault(step_name(record, result, told_apart_by), {})
            for name, value in (point_of(record, result) | {"Linux": record.host.kernel}).items():
                mine.setdefault(name, set()).add(value)
    return found


def _said(name: str, value: Value) -> str:
    if name == "label":
        return str(value)
    return f"RTT {value:g} ms" if name == "rtt_ms" else said_setting(name, value)


def said_setting(name: str, value: Value) -> str:
    """Return how a setting, or a parameter, that tells points apart reads."""
    said = f"{name} {said_value(name, value)}"
    return said if isinstance(value, str) else said.removesuffix(".0")


def _chosen(runs: Sequence[tuple[Hashable, Mapping[str, Value]]]) -> list[str]:
    """Return the names without which runs of different values would count as one point's.

    Each run is what is known of its point already, and what may tell it apart.
    """
    chosen: list[str] = []
    for name in dict.fromkeys(name for _, point in runs for name in point):
        values: dict[Hashable, set[Value]] = {}
        for known, point in runs:
            if name in point:
                place = (known, *(point.get(one) for one in chosen))
                values.setdefault(place, set()).add(point[name])
        if any(len(found) > 1 for found in values.values()):
            chosen.append(name)
    return chosen
