# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a run's points stands: none whose record breaks a law for which its own figures cannot be right."""

from collections.abc import Sequence
from pathlib import Path

import attrs

from fabtune.errors import InputError
from fabtune.experiment.settings import ways_of
from fabtune.measure import checks, recordfile
from fabtune.model.results import EVERY_HOST, LEFT_OUT, ExperimentIndex, Point, RunEntry


def sifted(directory: Path, points: Sequence[Point]) -> tuple[list[Point], list[Point], list[str]]:
    """Return those of a run's `points` that stand, those that are left out, and why, a sentence a record.

    A host that is left out takes the sum of all hosts with it.
    """
    void: set[tuple[str, str]] = set()
    said = []
    for path in recordfile.seen_below(directory, f"*{recordfile.SUFFIX}"):
        if why := _why(path):
            op = path.name.removesuffix(recordfile.SUFFIX)
            host = "" if path.parent == directory else path.parent.name
            void |= {(one, way) for one in ((host, EVERY_HOST) if host else ("",)) for way in ways_of(op)}
            said.append(f"{host}, {why}" if host else why)
    out = [point for point in points if (str(point.get("host") or ""), str(point.get("op"))) in void]
    return [point for point in points if point not in out], out, said


def marked(index: ExperimentIndex, out: Path) -> ExperimentIndex:
    """Return the index of the experiment in `out` with a mark at each point that is left out, and why at its run.

    The points stay on the pages, which have all that was measured.
    """

    def held_against_its_records(run: RunEntry) -> RunEntry:
        _, void, whys = sifted(out / run.directory, run.points)
        mark = {LEFT_OUT: "cannot be right"}
        points = tuple(point | mark if point in void else point for point in run.points)
        return attrs.evolve(run, points=points, why="; ".join(whys)) if void else run

    cells = (attrs.evolve(cell, runs=tuple(map(held_against_its_records, cell.runs))) for cell in index.combinations)
    return attrs.evolve(index, combinations=tuple(cells))


def _why(path: Path) -> str:
    try:
        return checks.void_because(recordfile.read(path))
    except InputError:
        # Whoever checks the tree says so.
        return ""
