# SPDX-License-Identifier: GPL-2.0-or-later
"""Kept results against the definitions that asked for them: which combinations and seeds are not in them."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from fabtune.experiment import definition
from fabtune.experiment.definition import Combination, Definition
from fabtune.model.factors import FACTORS
from fabtune.model.results import ExperimentIndex
from fabtune.model.units import counted

Point = Mapping[str, Any]


def said(kept: Mapping[str, Sequence[Point]]) -> list[str]:
    """Return what kept results lack of their definitions, and of which definitions there are none."""
    found = [f"{name}: {why}" for name, points in sorted(kept.items()) for why in points_apart(name, points)]
    if missing := [name for name in definition.names() if name not in kept]:
        found.append(f"no results are kept of {', '.join(missing)}")
    return found


def points_apart(name: str, points: Sequence[Point]) -> list[str]:
    """Return in sentences how kept points differ from what their definition asks for; nothing where it has none."""
    wanted = _shipped(name)
    if wanted is None:
        return []
    cells = wanted.combinations()
    missing = sum(not any(_is_of(point, cell) for point in points) for cell in cells)
    other = sum(not any(_is_of(point, cell) for cell in cells) for point in points)
    seeds = min((int(point["seeds"]) for point in points), default=0)
    found = []
    if missing:
        are = "is" if missing == 1 else "are"
        found.append(f"{missing} of {counted(len(cells), 'combination')} of the definition {are} not in it")
    if other:
        found.append(f"{other} of its {counted(len(points), 'point')} are of no combination of the definition")
    if seeds < wanted.seeds:
        found.append(f"The definition asks for {wanted.seeds} seeds")
    return found


def tree_apart(index: ExperimentIndex) -> list[str]:
    """Return how a tree of results differs from the definition of its name; nothing where that is not a shipped one."""
    wanted = _shipped(index.name)
    if wanted is None:
        return []
    made = {tuple(sorted(cell.factors.items())): cell for cell in index.combinations}
    found = []
    for cell in wanted.combinations():
        there = made.get(tuple(sorted(cell.factors.items())))
        if there is None:
            found.append(f"{cell.name} of the definition of {index.name} is not in it")
        elif len(there.runs) < wanted.seeds:
            found.append(f"{cell.name}: {len(there.runs)} of {wanted.seeds} seeds of the definition of {index.name}")
        else:
            found += [f"{run.directory}: {why}" for run in there.runs if (why := _set_otherwise(run.settings, cell))]
    return found


def _shipped(name: str) -> Definition | None:
    return definition.load(name) if name in definition.names() else None


def _set_otherwise(made: Mapping[str, Any], cell: Combination) -> str:
    """Return the first setting that the definition has otherwise than a run; a factor that is newer is none."""
    now: dict[str, Any] = attrs.asdict(cell.settings)
    apart = (name for name in now if name != "seed" and name in made and made[name] != now[name])
    return next((f"{name} was {made[name]}, is {now[name]} in the definition" for name in apart), "")


def _is_of(point: Point, cell: Combination) -> bool:
    """Tell whether a kept point is of a combination, as far as its values say; those that do not vary as well."""
    fixed: dict[str, Any] = attrs.asdict(cell.settings)
    varied = {FACTORS[name].key for name in cell.factors}
    # Of an experiment in both directions each point is of one, and its seeds have a row together.
    varied |= {"op", "seed", "profile", "known"}
    alike = all(point[key] == value for key, value in fixed.items() if key in point and key not in varied)
    return alike and all(_says(point, name, text, cell) for name, text in cell.factors.items() if name != "op")


def _says(point: Point, name: str, text: str, cell: Combination) -> bool:
    factor = FACTORS[name]
    value = factor.parse(text, name)
    if name in ("profile", "known"):
        # Whether the path was measured is part of the profile's name.
        settings = cell.settings
        return bool(point["profile"] == settings.profile + ("-measured" if settings.known == "measured" else ""))
    if name in point:
        return point[name] in (text, value)
    if factor.key in point:
        return bool(point[factor.key] == value)
    mbit = point.get(f"{name}_mbit")
    return mbit is None or (isinstance(value, int | float) and bool(mbit == value / 1e6))
