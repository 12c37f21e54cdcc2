# SPDX-License-Identifier: GPL-2.0-or-later
"""The index of a tree of results: suite / experiment / combination / run, made, read, and written as JSON and XML."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import attrs

from fabtune.errors import InputError, printable
from fabtune.experiment import derived, earlier
from fabtune.experiment.batch import Run, runs_of
from fabtune.experiment.definition import Definition
from fabtune.experiment.inventory import Inventory
from fabtune.host import files
from fabtune.measure import keptrun, resulttree
from fabtune.measure.resulttree import INDEX, Complaint
from fabtune.model.results import (
    FORMAT,
    CombinationEntry,
    ExperimentEntry,
    ExperimentIndex,
    Point,
    RunEntry,
    Status,
    SuiteIndex,
)  # fmt: skip

# Pages of all runs together.
VIEWS = ("figures.html", "report.html")


def of_experiment(definition: Definition, runs: Sequence[Run], out: Path, commands: Sequence[str]) -> ExperimentIndex:
    """Return the index of the experiment in `out`: every run of `runs`, whatever became of it.

    A run that left files but did not end has failed; its files say why.
    """
    cells: dict[str, list[Run]] = {}
    for run in runs:
        cells.setdefault(run.combination.name, []).append(run)
    return ExperimentIndex(
        name=definition.name,
        summary=definition.summary,
        source=definition.source,
        clock=next((run.clock for run in runs), definition.clock),
        seeds=definition.seeds,
        factors={name: tuple(values) for name, values in definition.factors.items()},
        fixed=dict(definition.fixed),
        # A directory's name need be no UTF-8, and what is none is in no index that can be read.
        commands=tuple(map(printable, commands)),
        combinations=tuple(
            CombinationEntry(
                name=name,
                directory=str(mine[0].directory.parent.relative_to(out)),
                factors=dict(mine[0].combination.factors),
                runs=tuple(_entry(run, out) for run in mine),
            )
            for name, mine in cells.items()
        ),
    )


def keep_points(points: Sequence[Point], out: Path) -> Path:
    """Write every point of an experiment to its directory and return the file."""
    path = out / derived.SUMMARY
    path.write_text(keptrun.as_text(points))
    return path


def withdraw(runs: Sequence[Run], out: Path, *, resume: bool) -> None:
    """Put aside what shows the runs of an experiment that is about to be measured: they will not be those any more.

    Where it is to `resume` and all of `runs` are there already, they will.
    """
    if resume and all(run.state().status == "measured" for run in runs):
        return
    earlier.put_aside([out / name for name in (derived.SUMMARY, *VIEWS)], out)


def keep_index(definition: Definition, out: Path, command: str, fleet: Inventory | None = None) -> ExperimentIndex:
    """Write the index of all combinations to the experiment's directory `out` and return it."""
    index = of_experiment(definition, runs_of(definition, definition.combinations(), out, fleet), out, [command])
    write(index, out)
    return index


def keep_suite(directory: Path) -> tuple[SuiteIndex, list[Complaint]]:
    """Write the index of the experiments below `directory` there; return it, and which could not be read.

    Raises InputError when there is none that can.
    """
    suite, wrong = of_suite(directory)
    write(suite, directory)
    return suite, wrong


def _entry(run: Run, out: Path) -> RunEntry:
    state = run.state()
    return RunEntry(
        number=run.number,
        directory=str(run.directory.relative_to(out)),
        status=state.status,
        settings=attrs.asdict(run.settings),
        files=tuple(keptrun.names_of(run.directory)),
        points=state.points,
        why=state.why,
        failed_before=run.failed_before if state.status == "measured" else "",
        origin=state.origin,
    )


def of_suite(directory: Path) -> tuple[SuiteIndex, list[Complaint]]:
    """Return the index of the experiments right below `directory` that can be read, in name order, and which cannot.

    Raises InputError when there is none.
    """
    found, wrong = _read_all(directory)
    if not found:
        told = f"{directory}: no directory below it holds an experiment's {INDEX}; make one with `fabtune run`"
        raise InputError(wrong[0].why if wrong else told)
    experiments = []
    for path, index in found:
        statuses = [run.status for cell in index.combinations for run in cell.runs]
        experiments.append(
            ExperimentEntry(
                name=index.name,
                directory=path.parent.name,
                summary=index.summary,
                combinations=len(index.combinations),
                runs={status: statuses.count(status) for status in get_args(Status)},
            )
        )
    return SuiteIndex(name=printable(directory.resolve().name), experiments=tuple(experiments)), wrong


def _read_all(directory: Path) -> tuple[list[tuple[Path, ExperimentIndex]], list[Complaint]]:
    """Return the indexes of the experiments right below `directory`, and what is wrong with the others."""
    found, wrong = [], []
    for path in sorted(directory.glob(f"*/{INDEX}")):
        try:
            index = resulttree.read_index(path)
        except InputError as error:
            wrong.append(Complaint(str(path.relative_to(directory)), str(error)))
            continue
        if isinstance(index, ExperimentIndex):
            found.append((path, index))
    return found, wrong


def write(index: ExperimentIndex | SuiteIndex, directory: Path) -> None:
    """Write `index` to `directory` as JSON, an experiment's as XML too; each whole or not at all."""
    files.replace(directory / INDEX, json.dumps(FORMAT.write(index), indent=1, sort_keys=True) + "\n")
    if isinstance(index, ExperimentIndex):
        files.replace(directory / derived.XML, derived.to_xml(index))
