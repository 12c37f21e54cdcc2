# SPDX-License-Identifier: GPL-2.0-or-later
"""A file of kept results: the points of an experiment with what they came from, and a digest that tells edits."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Point = dict[str, Any]
SCHEMA = "fabtune-kept-results/1"


@dataclass(frozen=True)
class Kept:
    """The results of one experiment: its rows as summary.json has them, and what they came from, in words.

    `asked` is what the definition asked of every run, `profiles` the digests of those that were measured; what is not
    known is not there.
    """

    points: list[Point]
    origin: str
    asked: dict[str, Any] = field(default_factory=dict)
    profiles: dict[str, str] = field(default_factory=dict)

    @property
    def seeds(self) -> str:
        """What is said of the number of draws behind each figure."""
        counts = sorted({int(point["seeds"]) for point in self.points})
        if counts == [1]:
            return "One seed: a single draw, without intervals"
        return f"Medians of {' or '.join(map(str, counts))} seeds, with 95 % intervals"


def document_of(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`.  Raises ValueError, which names the file, where there is none."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: found a {type(found).__name__}, allowed: an object")
    return found


def digest_of(document: dict[str, Any]) -> str:
    """Return the digest of kept results, that key itself left out."""
    rest = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read(path: Path) -> Kept:
    """Return kept results.  Raises ValueError when they are not what was kept."""
    document = document_of(path)
    if document.get("schema") != SCHEMA or digest_of(document) != document.get("digest"):
        raise ValueError(f"{path}: edited by hand: its digest does not fit; measure, then keep it with --keep")
    return Kept(document["points"], document["origin"], document.get("asked", {}), document.get("profiles", {}))


def read_measured(path: Path) -> Kept:
    """Return an experiment's kept results.  Raises ValueError as well where their origin tells of no runs."""
    found = read(path)
    for part in ("image", "code"):
        # A digest over figures says that nobody changed them since, not that anything was measured.
        if not re.search(rf"\b{part} \w", found.origin):
            raise ValueError(f"{path}: its origin names no {part}, so no runs are known; measure, then --keep them")
    return found


def write(
    path: Path,
    points: Sequence[Point],
    origin: str,
    asked: Mapping[str, Any] | None = None,
    profiles: Mapping[str, str] | None = None,
) -> None:
    """Keep results with their digest."""
    known = [{key: value for key, value in point.items() if value is not None} for point in points]
    document: dict[str, Any] = {"schema": SCHEMA, "origin": origin, "points": known}
    document |= {key: dict(told) for key, told in (("asked", asked), ("profiles", profiles)) if told}
    # A line a key, and a line a point: small, and a change is to be seen.
    shown = {key: json.dumps(told, sort_keys=True) for key, told in {**document, "digest": digest_of(document)}.items()}
    lines = ",\n".join("  " + json.dumps(point, sort_keys=True) for point in known)
    shown["points"] = f"[\n{lines}\n ]"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{\n" + ",\n".join(f' "{key}": {shown[key]}' for key in sorted(shown)) + "\n}\n")
