# SPDX-License-Identifier: GPL-2.0-or-later
"""What one run of an experiment left, as files: its points, its records, and the note that says what it came from.

The note, ``run.json``, is written last: a run is there whole or not at all, and what was changed since is known.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from fabtune.errors import InputError
from fabtune.host import files, userfile
from fabtune.measure import recordfile
from fabtune.model import origin, results
from fabtune.model.origin import KEPT_RUN, KeptRun, Origin
from fabtune.model.results import Point

NOTE, POINTS = "run.json", "points.json"
# What is written into the tree later: pages that show it.
_PAGES = ("index.html", "report.html")
_MAX_BYTES = 64 << 20


def as_text(points: Sequence[Point]) -> str:
    """Return `points` as JSON whose bytes depend on nothing else."""
    return json.dumps([dict(one) for one in points], indent=1, sort_keys=True) + "\n"


def seal(directory: Path, made_from: Origin) -> None:
    """Write the note of a run whose other files are there."""
    kept = KeptRun(origin=made_from, files={name: _digest(directory / name) for name in names_of(directory)}).sealed()
    text = json.dumps(origin.FORMAT.write(kept), indent=1, sort_keys=True) + "\n"
    files.keep(directory / NOTE, text.encode(), over=True)


def names_of(directory: Path) -> list[str]:
    """Return the names of the run's own files, without the note, in name order; none where there is no directory."""
    found = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.name not in _PAGES and str(path) != NOTE)


def read(directory: Path) -> tuple[KeptRun, tuple[Point, ...]]:
    """Return the note and the points of a run.

    Raises InputError, saying what, where a file is missing, cut short, or not what it was when the run ended.
    """
    kept = read_note(directory)
    for name, digest in kept.files.items():
        path = directory / name
        if not path.is_file():
            raise InputError(f"{path}: missing; the run left it")
        if _digest(path) != digest:
            raise InputError(f"{path}: not what the run left: cut short, changed, or another run's")
    for name in names_of(directory):
        if name.endswith(recordfile.SUFFIX) and name not in kept.files:
            raise InputError(f"{directory / name}: not of this run: its {NOTE} does not name it")
    if POINTS not in kept.files:
        raise InputError(f"{directory / NOTE}: names no {POINTS}, so it is not that of a whole run")
    return kept, read_points(directory)


def read_note(directory: Path) -> KeptRun:
    """Return the note in `directory`.  Raises InputError when there is none, or it is none of ours any more."""
    path = directory / NOTE
    if not path.exists() and (directory / POINTS).exists():
        raise InputError(f"{path}: missing: nothing says which settings, image and code the run came from")
    raw = _json(path)
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != KEPT_RUN:
        raise InputError(f"{path}: schema is {schema!r}, expected '{KEPT_RUN}'; it was written by another version")
    kept = origin.FORMAT.read(KeptRun, raw, str(path))
    if kept.sealed().digest != kept.digest:
        raise InputError(f"{path}: changed since the run ended: its digest does not fit")
    return kept


def read_points(directory: Path) -> tuple[Point, ...]:
    """Return what a run measured.  Raises InputError."""
    path = directory / POINTS
    return results.FORMAT.read(tuple[Point, ...], _json(path), str(path))


def _json(path: Path) -> object:
    try:
        return json.loads(userfile.read_bytes(path, _MAX_BYTES))
    except (ValueError, RecursionError):
        raise InputError(f"{path}: damaged or cut short: not whole JSON") from None


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, however large it is."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
