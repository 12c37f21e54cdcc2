# SPDX-License-Identifier: GPL-2.0-or-later
"""Trees of results as files: indexes are read, and what stands in a tree is held against what it says of itself."""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

import attrs

from fabtune.errors import InputError
from fabtune.host import userfile
from fabtune.measure import indexclaims, keptrun, recordfile
from fabtune.measure.recordfile import seen_below
from fabtune.model.origin import KeptRun, Origin, mixed
from fabtune.model.results import (
    EXPERIMENT,
    FORMAT,
    SUITE,
    CombinationEntry,
    ExperimentIndex,
    Point,
    RunEntry,
    SuiteIndex,
)  # fmt: skip
from fabtune.model.runrecord import LAB_GUEST, Replicate, RunRecord

INDEX = indexclaims.INDEX
# A run's note and its points.
Kept = tuple[KeptRun, tuple[Point, ...]]
_MAX_BYTES = 64 << 20
# Above a directory of a fleet's host are its run, its combination and the experiment.
_MOST_ABOVE = 3


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

    Where `directory` is part of an experiment's tree, the index above it counts as well.  Of records that are no
    experiment's it is said which are copies of others: a run is no more certain for lying there twice.
    """
    found: list[Complaint] = []
    sound: dict[Path, Kept] = {}
    old: dict[Path, int] = {}
    seen = {path.parent for name in (keptrun.NOTE, keptrun.POINTS) for path in seen_below(directory, name)}
    for run in sorted(seen):
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
    runs = set(seen)
    indexes = [*seen_below(directory, INDEX), *_index_above(directory)]
    for path in indexes:
        complaints, listed = _check_index(path, directory, sound)
        found += complaints
        runs |= listed
    found += _without_index(sound, [path.parent for path in indexes], directory)
    found += _unsealed(runs, [path.parent for path in indexes], directory)
    found += _links(runs, directory)
    found += _copies(directory, found)
    tops: dict[Path, list[Origin]] = {}
    for run, (kept, _) in sound.items():
        tops.setdefault(run.parent.parent, []).append(kept.origin)
    for top, origins in tops.items():
        found += [Complaint(_relative(top, directory), f"{top}: {why}", usable=True) for why in mixed(origins)]
    return sorted(found, key=lambda one: one.place)


def check_record(path: Path) -> list[Complaint]:
    """Return what is wrong with the run that the record `path` is of; nothing for one that is no experiment's."""
    # A fleet's run has a directory for each host.
    noted = [up for up in (path.parent, path.parent.parent) if (up / keptrun.NOTE).exists()]
    around = noted[0] if noted else path.parent
    if not noted and not (around / INDEX).exists() and not _index_above(around):
        return []
    return [one for one in check(around) if path.is_relative_to(around / one.place)]


def _index_above(directory: Path) -> list[Path]:
    """Return the index of the experiment whose tree `directory` is part of; none where it has one of its own."""
    if (directory / INDEX).exists():
        return []
    whole = _whole(directory)
    # As it was named, as far as that goes: so are messages.
    named = [] if ".." in directory.parts else list(directory.parents)
    for level, up in enumerate(list(whole.parents)[:_MOST_ABOVE]):
        path = (named[level] if level < len(named) else up) / INDEX
        if path.is_file():
            with contextlib.suppress(InputError):
                return [path] if isinstance(read_index(path), ExperimentIndex) else []
            # Of a damaged one that is said, and nothing else is known of it.
            return [path]
    return []


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
    Of a fleet's run, whose hosts know nothing of it, the note also says which of the experiment's it is.
    """
    origins = origins_at(place)
    found = []
    for record in records:
        run = (top / record.file).parent
        run = run if run in origins else run.parent
        origin = origins.get(run)
        loose = record.clock or ("" if record.host.name == LAB_GUEST else "real")
        clock = origin.told("clock") if origin else loose
        found.append(attrs.evolve(record, clock=clock, replicate=_replicate(run, origin) if origin else None))
    return found


def _replicate(run: Path, origin: Origin) -> Replicate | None:
    """Return which of its experiment's runs the one in the directory `run` is, of a fleet; None elsewhere."""
    seed = origin.settings.get("seed")
    return Replicate(str(run.resolve().parent.parent), seed) if origin.hosts and isinstance(seed, int) else None


def _copies(directory: Path, complaints: Sequence[Complaint]) -> list[Complaint]:
    """Return the records that say what another says, of those that `complaints` leave."""
    first: dict[str, Path] = {}
    found = []
    for path in seen_below(directory, f"*{recordfile.SUFFIX}"):
        if refused(_relative(path, directory), complaints):
            continue
        # Of what is no record, whoever reads it says so.
        with contextlib.suppress(InputError):
            if (same := first.setdefault(recordfile.content_digest(path), path)) != path:
                why = f"{path}: a copy of {same}, which counts once"
                found.append(Complaint(_relative(path, directory), why))
    return found


def _without_index(sound: Iterable[Path], tops: Sequence[Path], directory: Path) -> list[Complaint]:
    """Say of which runs no index tells what they are part of."""
    bare = dict.fromkeys(run.parent.parent for run in sound if not any(_is_below(run, top) for top in tops))
    why = f"no {INDEX}: nothing says which runs there should be, and whether one is missing"
    return [Complaint(_relative(top, directory), f"{top}: {why}", usable=True) for top in bare]


def _unsealed(runs: Set[Path], tops: Sequence[Path], directory: Path) -> list[Complaint]:
    """Return the records in experiments' trees that are in none of their `runs`: nobody knows whose they are."""
    found = []
    for path in seen_below(directory, f"*{recordfile.SUFFIX}"):
        around = {path.parent, path.parent.parent}
        if not around & runs and any(_is_below(path, top) for top in tops):
            why = f"{path}: of no run of this experiment: no {keptrun.NOTE} names it"
            found.append(Complaint(_relative(path, directory), why))
    return found


def _links(runs: Set[Path], directory: Path) -> list[Complaint]:
    """Return the links to directories elsewhere, which nobody follows, but for those that runs are refused for."""
    top, found = directory.resolve(), []
    for path in seen_below(directory, "*"):
        if path.is_symlink() and path.is_dir() and not any(run.is_relative_to(path) for run in runs):
            there = path.resolve()
            if not there.is_relative_to(top) and not top.is_relative_to(there):
                why = f"{path}: a link to a directory, which is not looked into: name {there} itself"
                found.append(Complaint(_relative(path, directory), why, usable=True))
    return found


def _check_index(path: Path, directory: Path, sound: Mapping[Path, Kept]) -> tuple[list[Complaint], set[Path]]:
    """Return what is wrong with an index and with the runs of `directory` that it lists, and where these are."""
    try:
        index = read_index(path)
    except InputError as error:
        return [Complaint(_relative(path, directory), str(error), usable=True)], set()
    if not isinstance(index, ExperimentIndex):
        return [], set()
    top = path.parent
    places = [(_as_seen(top / run.directory, directory), run, cell) for cell in index.combinations for run in cell.runs]
    listed = {run: (entry, cell) for run, entry, cell in places if run.is_relative_to(directory)}
    found = [
        Complaint(_relative(run, directory), f"{run}: not of this experiment: its {INDEX} does not list it")
        for run in sound
        if _is_below(run, top) and run not in listed
    ]
    for run, (entry, cell) in listed.items():
        there = sound.get(run)
        if (
            why := _through_link(run, top)
            or _against(entry, run, there)
            or _called_otherwise(index, entry, cell, there)
        ):
            found.append(Complaint(_relative(run, directory), f"{run}: {why}"))
        elif there and entry.status in ("failed", "not run"):
            why = f"{run}: {INDEX} says '{entry.status}', but it has been measured"
            found.append(Complaint(_relative(run, directory), why, usable=True))
    made = [sound[run][0].origin for run, (entry, _) in listed.items() if run in sound and entry.status == "measured"]
    claims = [*indexclaims.of_itself(index), *indexclaims.of_runs(index, made)]
    found += [Complaint(_relative(path, directory), f"{path}: {why}", usable=True) for why in claims]
    return found, set(listed)


def _through_link(run: Path, top: Path) -> str:
    """Return that the way from an experiment's directory to a run leads elsewhere; nothing where it does not."""
    whole, above = _whole(run), _whole(top)
    for up in (whole, *whole.parents):
        if up == above:
            return ""
        if up.is_symlink():
            return f"{up.name} is a link to {up.resolve()}: a run is used where it was measured, put it there"
    return ""


def _against(entry: RunEntry, run: Path, there: Kept | None) -> str:
    """Return what the files in `run` say against an index's `entry`; nothing where they agree, or were refused."""
    if entry.status != "measured":
        return entry.why if there and entry.status == "refused" else ""
    if there is None:
        if any((run / name).exists() for name in (keptrun.NOTE, keptrun.POINTS)):
            return ""
        return f"missing: {INDEX} calls it measured, and there is no {keptrun.NOTE}"
    kept, points = there
    if entry.points != points:
        return f"the figures in {INDEX} are not those that the run left"
    return "; ".join(kept.origin.differences(attrs.evolve(kept.origin, settings=entry.settings)))


def _called_otherwise(index: ExperimentIndex, entry: RunEntry, cell: CombinationEntry, there: Kept | None) -> str:
    """Return what else an index says of a measured run that is not what the run came from; nothing where it agrees."""
    if there is None or entry.status != "measured":
        return ""
    made = there[0].origin
    if why := indexclaims.of_run(index, cell, entry, made):
        return why
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
    """Return where `path` is in `directory`, which as a whole is what stands above it."""
    return str(path.relative_to(directory)) if path.is_relative_to(directory) else "."


def _is_below(path: Path, top: Path) -> bool:
    return _whole(path).is_relative_to(_whole(top))


def _as_seen(path: Path, directory: Path) -> Path:
    """Return `path` as it is reached from `directory`, where that is above it."""
    whole, top = _whole(path), _whole(directory)
    return directory / whole.relative_to(top) if whole.is_relative_to(top) else path


def _whole(path: Path) -> Path:
    """Return `path` from the root on, through the links that it names."""
    return Path(os.path.normpath(path.absolute()))
