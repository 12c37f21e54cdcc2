# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment's directory held before: kept in it, out of sight, until the runs that replace it are measured."""

import shutil
from collections.abc import Iterable
from pathlib import Path

# Whoever looks for results passes over names that begin with a dot.
DIRECTORY = ".earlier"
# The last words of runs that failed and are measured again.
FAILURES = ".failed"


def put_aside(paths: Iterable[Path], out: Path) -> None:
    """Move those of `paths`, all below `out`, that are there to its DIRECTORY, over what that holds of them."""
    for path in paths:
        if path.exists():
            kept = out / DIRECTORY / path.relative_to(out)
            _remove(kept)
            kept.parent.mkdir(parents=True, exist_ok=True)
            path.rename(kept)


def drop(paths: Iterable[Path], out: Path) -> list[str]:
    """Remove what was put aside of `paths`, which were made anew; the views of all go with the last of the runs.

    Return the names of views that were not made anew: of the runs that are there now there is none.
    """
    for path in paths:
        _remove(out / DIRECTORY / path.relative_to(out))
    if any(out.glob(f"{DIRECTORY}/*/*")):
        return []
    views = sorted(path.name for path in out.glob(f"{DIRECTORY}/*") if path.is_file())
    _remove(out / DIRECTORY)
    return [name for name in views if not (out / name).exists()]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def note_failure(run: Path, out: Path, why: str) -> None:
    """Keep why what is in the directory `run` failed; the last time counts."""
    path = out / FAILURES / run.relative_to(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{why}\n")


def failure(run: Path, out: Path) -> str:
    """Return why a run of this directory failed earlier; nothing where none did."""
    path = out / FAILURES / run.relative_to(out)
    return path.read_text(errors="replace").strip() if path.is_file() else ""


def forget_failure(run: Path, out: Path) -> None:
    """Forget why a run of this directory failed: what is measured now has nothing to do with that."""
    (out / FAILURES / run.relative_to(out)).unlink(missing_ok=True)


def where_kept(out: Path) -> str:
    """Return where what was there before is; nothing where there is none."""
    kept = out / DIRECTORY
    return f"what was there before is kept in {kept} until the runs in its place are measured" if kept.exists() else ""
