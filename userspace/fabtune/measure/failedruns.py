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


def find(directory: Path) -> list[tuple[Path, str]]:
    """Return the runs at and below `directory` that failed, each with why and how to measure it again."""
    return [(run, f"{why}; {again}") for _, _, run, why, again in _failed(directory)]


def stand_ins(directory: Path) -> list[RunRecord]:
    """Return, of each failed run at and below `directory`, what it lacks of the records of others with its settings.

    These are without figures; each says why, and how to measure it again.
    """
    found = []
    for cell, entry, run, why, again in _failed(directory):
        top = run.parent.parent
        for name, like in _of_others(cell, top).items():
            if not (run / name).exists():
                found.append(_without_figures(recordfile.read(like), entry, run / name, f"{why}; {again}"))
    return found


def _failed(directory: Path) -> Iterator[tuple[CombinationEntry, RunEntry, Path, str, str]]:
    """Go through the failed runs at and below `directory`, with why, and how to measure them again."""
    # Of one combination or run, the experiment's index stands above.
    above = [path for up in (directory.parent, directory.parent.parent) if (path := up / resulttree.INDEX).is_file()]
    for path in [*recordfile.seen_below(directory, resulttree.INDEX), *above]:
        try:
            index = resulttree.read_index(path)
        except InputError:
            # Whoever checks the tree says so.
            continue
        if not isinstance(index, ExperimentIndex):
            continue
        command = [*shlex.split(index.commands[0] if index.commands else ""), "--out", str(path.parent), "--resume"]
        again = f"`{shlex.join(command)}` measures it again alone"
        for cell in index.combinations:
            for entry in cell.runs:
                run = path.parent / entry.directory
                # One that has been measured since the index was written is none.
                if entry.status == "failed" and run.is_relative_to(directory) and not (run / keptrun.NOTE).exists():
                    yield cell, entry, run, entry.why or "the run failed", again


def _of_others(cell: CombinationEntry, top: Path) -> dict[str, Path]:
    """Return the records that runs of a combination leave which end well, by their name within the run."""
    measured = (entry for entry in cell.runs if entry.status == "measured")
    return {
        name: path
        for entry in measured
        for name in entry.files
        if name.endswith(recordfile.SUFFIX) and (path := top / entry.directory / name).is_file()
    }


def _without_figures(like: RunRecord, entry: RunEntry, path: Path, problem: str) -> RunRecord:
    steps = (
        StepResult(one.name, one.parameters, phase=one.phase, depth=one.depth, closed_loop=one.closed_loop, job=one.job)
        for one in like.steps
    )
    around = {"settings": dict(entry.settings)} if "settings" in like.environment else {}
    return attrs.evolve(
        like, file=str(path), steps=tuple(steps), complete=False, problem=problem, environment=around, proof=(),
        events=(), round_trips_ms=(), path_mtu_bytes=None, path_mtu_verdict="",
    )  # fmt: skip
