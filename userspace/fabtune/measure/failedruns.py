# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of an experiment that failed, or lack a record: who judges a setting must count them.

What fails is seldom a run like the others: by those that are left alone, a setting would be none the worse for it.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import attrs

from fabtune.errors import InputError
from fabtune.measure import keptrun, recordfile, resulttree
from fabtune.model.results import CombinationEntry, ExperimentIndex, RunEntry
from fabtune.model.runrecord import RunRecord, StepResult
from fabtune.model.units import counted

# A run's workload and what it moves; the direction and the host that a point is of.
_Load = tuple[object, object]
_Place = tuple[object, object]
_LEFT_NONE = "the run left none, though others of its load did"


@attrs.frozen
class _Missed:
    """A run without records that others left: its entry in the index that stands in `top`, its directory, and why.

    `cells` are its combination, and those that differ from it in their profile alone.
    """

    cells: tuple[CombinationEntry, ...]
    entry: RunEntry
    top: Path
    directory: Path
    problem: str


def find(directory: Path) -> list[tuple[Path, str]]:
    """Return the runs at and below `directory` that failed, each with why and how to measure it again."""
    return [(one.directory, one.problem) for one in _failed(directory)]


def stand_ins(directory: Path) -> list[RunRecord]:
    """Return, of each run at and below `directory` that failed or lacks some, such records as others like it have.

    These are without figures; each says why, and how to measure what failed again.  Of a run there is none where no
    other's record can be used.
    """
    known: dict[Path, RunRecord | None] = {}
    found = []
    for one in (*_failed(directory), *_lacking(directory)):
        for name, paths in _of_others(one).items():
            for path in paths:
                if path not in known:
                    known[path] = _usable(path)
            if like := next((record for path in paths if (record := known[path])), None):
                found.append(_without_figures(like, one, name))
    return found


def _usable(path: Path) -> RunRecord | None:
    """Return the record at `path`, None for one that is refused: whoever checks the tree says so."""
    try:
        if not all(complaint.usable for complaint in resulttree.check_record(path)):
            return None
        return resulttree.with_clocks([recordfile.read(path)], path)[0]
    except InputError:
        return None


def records_below(directory: Path) -> list[Path]:
    """Return the run records below `directory`, without those that runs wrote before they failed."""
    failed = [run for run, _ in find(directory)]
    found = recordfile.seen_below(directory, f"*{recordfile.SUFFIX}")
    return [path for path in found if not any(path.is_relative_to(run) for run in failed)]


def records_at(directory: Path) -> list[Path]:
    """Return what `records_below` does.  Raises InputError where there is none, and why where all runs failed."""
    if found := records_below(directory):
        return found
    if failed := find(directory):
        run, why = failed[0]
        runs = f"{counted(len(failed), 'run')}, all of which failed"
        raise InputError(f"{directory}: {runs}: {run.relative_to(directory)}: {why}")
    return recordfile.find(directory)


def measured_again(directory: Path) -> list[tuple[Path, str]]:
    """Return the runs at and below `directory` that failed before they were measured, each with why."""
    return [
        (directory / run.relative_to(directory.resolve()), entry.failed_before)
        for _, _, _, entry, run in _entries(directory)
        if entry.failed_before
    ]


def _failed(directory: Path) -> Iterator[_Missed]:
    """Go through the failed runs at and below `directory`; of each it is said how to measure it again."""
    place = directory.resolve()
    for top, index, cell, entry, run in _entries(directory):
        # One that has been measured since the index was written is none.
        if entry.status != "failed" or (run / keptrun.NOTE).exists():
            continue
        out = directory / top.relative_to(place) if top.is_relative_to(place) else top
        command = [*shlex.split(index.commands[0] if index.commands else "fabtune run"), "--out", str(out), "--resume"]
        again = f"`{shlex.join(command)}` measures it again alone"
        shown = directory / run.relative_to(place)
        why = f"{entry.why or 'the run did not end well'}; {again}"
        yield _Missed(_with_other_profiles(index, cell), entry, top, shown, why)


def _lacking(directory: Path) -> Iterator[_Missed]:
    """Go through the runs at and below `directory` that lack a point which others of the same load have.

    Where a request of the reads hangs, writes are not measured; that is no less of a loss than a run that failed.
    """
    place = directory.resolve()
    told: dict[Path, dict[_Load, set[_Place]]] = {}
    for top, index, cell, entry, run in _entries(directory):
        if top not in told:
            told[top] = _told(index)
        if entry.status != "measured" or any("missing" in point for point in entry.points):
            continue
        if told[top][_load(entry)] - _places(entry):
            shown = directory / run.relative_to(place)
            yield _Missed(_with_other_profiles(index, cell), entry, top, shown, _LEFT_NONE)


def _told(index: ExperimentIndex) -> dict[_Load, set[_Place]]:
    """Return which points runs of each load left."""
    found: dict[_Load, set[_Place]] = {}
    for entry in (entry for cell in index.combinations for entry in cell.runs):
        found.setdefault(_load(entry), set()).update(_places(entry))
    return found


def _load(entry: RunEntry) -> _Load:
    return entry.settings.get("workload"), entry.settings.get("op")


def _places(entry: RunEntry) -> set[_Place]:
    return {(point.get("op"), point.get("host")) for point in entry.points}


def _with_other_profiles(index: ExperimentIndex, cell: CombinationEntry) -> tuple[CombinationEntry, ...]:
    """Return a combination, and those that differ from it in their profile alone."""
    return (cell, *(one for one in index.combinations if one is not cell and _point(one) == _point(cell)))


def _point(cell: CombinationEntry) -> dict[str, str]:
    """Return what tells a combination apart from those that were tuned otherwise."""
    return {name: text for name, text in cell.factors.items() if name not in ("profile", "known")}


def _entries(directory: Path) -> Iterator[tuple[Path, ExperimentIndex, CombinationEntry, RunEntry, Path]]:
    """Go through what indexes say of runs at and below `directory`: with the index and its place, and the run's own."""
    place = directory.resolve()
    # Of one combination or run, the experiment's index stands above.
    above = [path for up in (place.parent, place.parent.parent) if (path := up / resulttree.INDEX).is_file()]
    for path in [*recordfile.seen_below(place, resulttree.INDEX), *above]:
        try:
            index = resulttree.read_index(path)
        except InputError:
            # Whoever checks the tree says so.
            continue
        if not isinstance(index, ExperimentIndex):
            continue
        for cell in index.combinations:
            for entry in cell.runs:
                run = path.parent / entry.directory
                if run.is_relative_to(place):
                    yield path.parent, index, cell, entry, run


def _of_others(one: _Missed) -> dict[str, list[Path]]:
    """Return the records that `one` lacks and runs leave which end well, by their name within the run.

    First come those of runs with the same settings, then of those with another profile.
    """
    found: dict[str, list[Path]] = {}
    # What a run wrote before it failed does not count.
    own = one.entry.files if one.entry.status == "measured" else ()
    for cell in one.cells:
        for entry in (entry for entry in cell.runs if entry.status == "measured"):
            for name in (name for name in entry.files if name.endswith(recordfile.SUFFIX) and name not in own):
                if (path := one.top / entry.directory / name).is_file():
                    found.setdefault(name, []).append(path)
    return found


def _without_figures(like: RunRecord, one: _Missed, name: str) -> RunRecord:
    steps = (
        StepResult(s.name, s.parameters, phase=s.phase, depth=s.depth, closed_loop=s.closed_loop, job=s.job)
        for s in like.steps
    )
    # An index that does not say it is named elsewhere: then it is what its combination says, or all have in common.
    label = str(one.entry.settings.get("profile") or one.cells[0].factors.get("profile") or like.label)
    around = {"settings": one.entry.settings | {"profile": label}} if "settings" in like.environment else {}
    return attrs.evolve(
        like, file=str(one.directory / name), steps=tuple(steps), complete=False, problem=one.problem,
        label=label, environment=around, proof=(), events=(), round_trips_ms=(),
        path_mtu_bytes=None, path_mtu_verdict="",
    )  # fmt: skip
