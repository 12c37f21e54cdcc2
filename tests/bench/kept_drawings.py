# SPDX-License-Identifier: GPL-2.0-or-later
"""Drawings of Documentation whose data are not kept: a digest of each tells whether it is as it was drawn."""

import hashlib
from pathlib import Path

import kept_file

TOP = Path(__file__).resolve().parents[2]
DIRECTORY = TOP / "Documentation/results/drawings"


def keep(drawing: Path, origin: str) -> None:
    """Keep the digest of a drawing below Documentation, and what it came from."""
    kept_file.write(DIRECTORY / f"{drawing.stem}.json", [{"sha256": _digest(drawing)}], origin)


def edited(top: Path) -> list[str]:
    """Return, for the tree `top`, which drawings are not as they were drawn.  Raises ValueError for edited digests."""
    found = []
    for path in sorted((top / DIRECTORY.relative_to(TOP)).glob("*.json")):
        drawing, kept = top / f"Documentation/{path.stem}.svg", kept_file.read(path)
        if not drawing.exists() or [one["sha256"] for one in kept.points] != [_digest(drawing)]:
            found.append(f"{drawing.relative_to(top)}: not as it was drawn ({kept.origin}), and nothing draws it anew")
    return found


def _digest(drawing: Path) -> str:
    return hashlib.sha256(drawing.read_bytes()).hexdigest()
