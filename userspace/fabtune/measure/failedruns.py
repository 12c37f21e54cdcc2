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


@attrs.frozen
class _Failed:
    """A failed run: its entry in the index that stands in `top`, its directory, why it failed and how to repeat it."""

    cell: CombinationEntry
    entry: RunEntry
    top: Path
    directory: Path
    problem: str


def find(directory: Path) -> list[tuple[Path, str]]:
    """Return the runs at and below `directory` that failed, each with why and how to measure it again."""
    return [(one.directory, one.problem) for one in _failed(directory)]


def stand_ins(directory: Path) -> list[RunRecord]:
    """Return, of each failed run at and below `directory`, what it lacks of the records of others with its settings.

    These are without figures; each says why, and how to measure it again.
    """
    return [
        _without_figures(like, one, name)
        for one in _failed(directory)
        for name, path in _of_others(one).items()
        for like in resulttree.with_clocks([recordfile.read(path)], path)
        if not (one.directory / name).exists()
    ]


def _failed(directory: Path) -> Iterator[_Failed]:
    """Go through the failed runs at and below `directory`."""
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
        top = path.parent
        out = directory / top.relative_to(place) if top.is_relative_to(place) else top
        command = [*shlex.split(index.commands[0] if index.commands else "fabtune run"), "--out", str(out), "--resume"]
        again = f"`{shlex.join(command)}` measures it again alone"
        for cell in index.combinations:
            for entry in cell.runs:
                run = top / entry.directory
                # One that has been measured since the index was written is none.
                if entry.status == "failed" and run.is_relative_to(place) and not (run / keptrun.NOTE).exists():
                    shown = directory / run.relative_to(place)
                    yield _Failed(cell, entry, top, shown, f"{entry.why or 'the run did not end well'}; {again}")


def _of_others(one: _Failed) -> dict[str, Path]:
    """Return the records that runs with the same settings leave which end well, by their name within the run."""
    return {
        name: path
        for entry in one.cell.runs
        if entry.status == "measured"
        for name in entry.files
        if name.endswith(recordfile.SUFFIX) and (path := one.top / entry.directory / name).is_file()
    }


def _without_figures(like: RunRecord, one: _Failed, name: str) -> RunRecord:
    steps = (
        StepResult(s.name, s.parameters, phase=s.phase, depth=s.depth, closed_loop=s.closed_loop, job=s.job)
        for s in like.steps
    )
    around = {"settings": dict(one.entry.settings)} if "settings" in like.environment else {}
    return attrs.evolve(
        like, file=str(one.directory / name), steps=tuple(steps), complete=False, problem=one.problem,
        environment=around, proof=(), events=(), round_trips_ms=(), path_mtu_bytes=None, path_mtu_verdict="",
    )  # fmt: skip
