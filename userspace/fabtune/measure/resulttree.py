# SPDX-License-Identifier: GPL-2.0-or-later
"""Trees of results as files: indexes are read, and what stands in a tree is held against what it says of itself."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.errors import InputError
from fabtune.host import userfile
from fabtune.measure import keptrun, recordfile
from fabtune.measure.recordfile import seen_below
from fabtune.model.factors import FACTORS
from fabtune.model.origin import KeptRun, Origin, digest_of, mixed
from fabtune.model.results import EXPERIMENT, FORMAT, SUITE, ExperimentIndex, Point, RunEntry, SuiteIndex
from fabtune.model.runrecord import LAB_GUEST, RunRecord

INDEX = "index.json"
# A run's note and its points.
Kept = tuple[KeptRun, tuple[Point, ...]]
_MAX_BYTES = 64 << 20


@attrs.frozen
class Complaint:
    """What is wrong at `place`, a path within a tree; unless `usable`, nothing at it or below it is to be used."""

    place: str
    why: str
    usable: bool = False

    @property
    def said(self) -> str:
        """What a user is told of it."""
        return self.why if self.usable else f"not used: {self.why}"


def read_index(path: Path) -> ExperimentIndex | SuiteIndex:
    """Return the index in `path`.  Raises InputError when it is none, or of another version."""
    try:
        index = json.loads(userfile.read_bytes(path, _MAX_BYTES))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: damaged or cut short: not whole JSON") from None
    schema = index.get("schema") if isinstance(index, dict) else None
    if schema == SUITE:
        return FORMAT.read(SuiteIndex, index, str(path))
    if schema != EXPERIMENT:
        raise InputError(f"{path}: schema is {schema!r}, expected '{EXPERIMENT}' or '{SUITE}'")
    return FORMAT.read(ExperimentIndex, index, str(path))


def read_experiment(path: Path) -> ExperimentIndex:
    """Return the experiment's index in `path`.  Raises InputError when it is none, or of another version."""
    index = read_index(path)
    if not isinstance(index, ExperimentIndex):
        raise InputError(f"{path}: schema is '{index.schema}', expected '{EXPERIMENT}'")
    return index


def check(directory: Path) -> list[Complaint]:
    """Return all that is wrong with the runs and indexes of experiments at and below `directory`, in place order.

    Of records that are no experiment's it is said which are copies of others: a run is no more certain for lying there
    twice.
    """
    found: list[Complaint] = []
    sound: dict[Path, Kept] = {}
    old: dict[Path, int] = {}
    for run in sorted({path.parent for name in (keptrun.NOTE, keptrun.POINTS) for path in seen_below(directory, name)}):
        if not (run / keptrun.NOTE).exists():
            old[run.parent.parent] = old.get(run.parent.parent, 0) + 1
            continue
        try:
            sound[run] = keptrun.read(run)
        except InputError as error:
            found.append(Complaint(_relative(run, directory), str(error)))
    for top, count in old.items():
        why = f"{top}: {count} runs without {keptrun.NOTE}: nothing says which settings, image and code they came from"
        found.append(Complaint(_relative(top, directory), why, usable=True))
    for path in seen_below(directory, INDEX):
        found += _check_index(path, directory, sound)
    found += _copies(directory)
    tops: dict[Path, list[Origin]] = {}
    for run, (kept, _) in sound.items():
        tops.setdefault(run.parent.parent, []).append(kept.origin)
    for top, origins in tops.items():
        found += [Complaint(_relative(top, directory), f"{top}: {why}", usable=True) for why in mixed(origins)]
    return sorted(found, key=lambda one: one.place)


def origins_at(place: Path) -> dict[Path, Origin]:
    """Return what the runs came from that the records at and below `place` are of, by the run's directory.

    Of records that are no experiment's, and of notes that `check` complains about, it is not known.
    """
    records = seen_below(place, f"*{recordfile.SUFFIX}") if place.is_dir() else [place]
    # A fleet's run has a directory for each host.
    above = dict.fromkeys(up for path in records for up in (path.parent, path.parent.parent))
    found = {}
    for run in above:
        with contextlib.suppress(InputError):
            found[run] = keptrun.read_note(run).origin
    return found


def with_clocks(records: Sequence[RunRecord], place: Path, top: Path = Path()) -> list[RunRecord]:
    """Return `records`, read at or below `place`, each with its clock; their files are named from `top` on.

    Of a lab's guest its run's note says it, and of a loose record nothing; a host has no clock but the real one.
    """
    origins = origins_at(place)
    found = []
    for record in records:
        run = (top / record.file).parent
        origin = origins.get(run) or origins.get(run.parent)
        loose = record.clock or ("" if record.host.name == LAB_GUEST else "real")
        found.append(attrs.evolve(record, clock=origin.told("clock") if origin else loose))
    return found


def _copies(directory: Path) -> list[Complaint]:
    first: dict[str, Path] = {}
    found = []
    for path in seen_below(directory, f"*{recordfile.SUFFIX}"):
        if path.is_file() and (same := first.setdefault(digest_of(path.read_bytes()), path)) != path:
            why = f"{path}: a copy of {same}, which counts once"
            found.append(Complaint(_relative(path, directory), why))
    return found


def _check_index(path: Path, directory: Path, sound: Mapping[Path, Kept]) -> list[Complaint]:
    try:
        index = read_index(path)
    except InputError as error:
        return [Complaint(_relative(path, directory), str(error), usable=True)]
    if not isinstance(index, ExperimentIndex):
        return []
    listed = {path.parent / run.directory: (run, cell.factors) for cell in index.combinations for run in cell.runs}
    found = [
        Complaint(_relative(run, directory), f"{run}: not of this experiment: its {INDEX} does not list it")
        for run in sound
        if run.is_relative_to(path.parent) and run not in listed
    ]
    for run, (entry, factors) in listed.items():
        if why := _against(entry, run, sound.get(run)) or _called_otherwise(index, entry, factors, sound.get(run)):
            found.append(Complaint(_relative(run, directory), f"{run}: {why}"))
    return found


def _against(entry: RunEntry, run: Path, there: Kept | None) -> str:
    """Return what the files in `run` say against an index's `entry`; nothing where they agree, or were refused."""
    if entry.status != "measured":
        return entry.why if there and entry.status == "refused" else ""
    if there is None:
        return "" if any((run / name).exists() for name in (keptrun.NOTE, keptrun.POINTS)) else "missing"
    kept, points = there
    if entry.points != points:
        return f"the figures in {INDEX} are not those that the run left"
    return "; ".join(kept.origin.differences(attrs.evolve(kept.origin, settings=entry.settings)))


def _called_otherwise(index: ExperimentIndex, entry: RunEntry, factors: Mapping[str, str], there: Kept | None) -> str:
    """Return what else an index says of a measured run that is not what the run came from; nothing where it agrees."""
    if there is None or entry.status != "measured":
        return ""
    made = there[0].origin
    for name, text in factors.items():
        if name not in FACTORS:
            return f"{INDEX} has a factor '{name}', which there is not"
        # A run's seed follows from its number.
        key = FACTORS[name].key
        if name == "seed" or key not in made.settings:
            continue
        try:
            same = FACTORS[name].parse(text, f"{INDEX}: {name}") == made.settings[key]
        except InputError as error:
            return str(error)
        if not same:
            return f"{INDEX} calls the {name} '{text}', the run was made with {made.settings[key]}"
    told = attrs.evolve(entry.origin or made, settings=made.settings)
    return "; ".join([*made.differences(told), *made.differences(attrs.evolve(made, clock=index.clock))])


def without_refused(index: ExperimentIndex, complaints: Sequence[Complaint], place: Path) -> ExperimentIndex:
    """Return `index`, which stands at `place` of the tree, with what `complaints` speak against as refused runs."""

    def settled(run: RunEntry) -> RunEntry:
        why = refused(str(place / run.directory), complaints)
        return attrs.evolve(run, status="refused", why=why, points=()) if why else run

    cells = (attrs.evolve(cell, runs=tuple(map(settled, cell.runs))) for cell in index.combinations)
    return attrs.evolve(index, combinations=tuple(cells))


def refused(place: str, complaints: Sequence[Complaint]) -> str:
    """Return why what stands at `place` must not be used; nothing where nothing speaks against it."""
    return next((one.why for one in complaints if not one.usable and Path(place).is_relative_to(one.place)), "")


def _relative(path: Path, directory: Path) -> str:
    return str(path.relative_to(directory))
