# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of an experiment that failed: who judges a setting must count them, though they left no record of their own.

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


@attrs.frozen
class _Failed:
    """A failed run: its entry in the index that stands in `top`, its directory, why it failed and how to repeat it.

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
    """Return, of each failed run at and below `directory`, such records as others with its settings have.

    These are without figures; each says why, and how to measure it again.  Of a run there is none where no other's
    record can be used.
    """
    known: dict[Path, RunRecord | None] = {}
    found = []
    for one in _failed(directory):
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


def _failed(directory: Path) -> Iterator[_Failed]:
    """Go through the failed runs at and below `directory`."""
    place = directory.resolve()
    for top, index, cell, entry, run in _entries(directory):
        # One that has been measured since the index was written is none.
        if entry.status != "failed" or (run / keptrun.NOTE).exists():
            continue
        out = directory / top.relative_to(place) if top.is_relative_to(place) else top
        command = [*shlex.split(index.commands[0] if index.commands else "fabtune run"), "--out", str(out), "--resume"]
        again = f"`{shlex.join(command)}` measures it again alone"
        others = (one for one in index.combinations if one is not cell and _point(one) == _point(cell))
        shown = directory / run.relative_to(place)
        yield _Failed((cell, *others), entry, top, shown, f"{entry.why or 'the run did not end well'}; {again}")


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


def _of_others(one: _Failed) -> dict[str, list[Path]]:
    """Return the records that runs leave which end well, by their name within the run.

    First come those of runs with the same settings, then of those with another profile.
    """
    found: dict[str, list[Path]] = {}
    for cell in one.cells:
        for entry in (entry for entry in cell.runs if entry.status == "measured"):
            for name in (name for name in entry.files if name.endswith(recordfile.SUFFIX)):
                if (path := one.top / entry.directory / name).is_file():
                    found.setdefault(name, []).append(path)
    return found


def _without_figures(like: RunRecord, one: _Failed, name: str) -> RunRecord:
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
