# SPDX-License-Identifier: GPL-2.0-or-later
"""Kept results against the definitions that asked for them and the profiles that they measured, as both are now."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from kept_file import Kept

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import load_catalog
from fabtune.experiment import definition
from fabtune.experiment.definition import Combination, Definition
from fabtune.experiment.tuners import TUNERS
from fabtune.installed import data_dir
from fabtune.model.factors import FACTORS
from fabtune.model.results import ExperimentIndex
from fabtune.model.units import counted

Point = Mapping[str, Any]


def said(kept: Mapping[str, Kept]) -> list[str]:
    """Return what kept results lack of their definitions, and of which definitions there are none."""
    found = [f"{name}: {why}" for name, mine in sorted(kept.items()) for why in definition_apart(name, mine)]
    if missing := [name for name in definition.names() if name not in kept]:
        found.append(f"no results are kept of {', '.join(missing)}")
    return found


def apart(name: str, mine: Kept) -> list[str]:
    """Return in sentences, for the page that shows them, how kept results are not those of today."""
    return [*definition_apart(name, mine), *profiles_apart(mine)]


def definition_apart(name: str, mine: Kept) -> list[str]:
    """Return how kept results differ from what their definition asks for; nothing where it has none."""
    wanted = _shipped(name)
    if wanted is None or not mine.asked:
        return points_apart(name, mine.points)
    asked = dict(mine.asked)
    clock = asked.pop("clock")
    changes = {} if clock == wanted.clock else {"clock": (clock, wanted.clock)}
    for cell in wanted.combinations():
        changes |= _changes(asked, cell)
    changed = (f"{key} was changed from {was} to {now}" for key, (was, now) in changes.items())
    return points_apart(name, mine.points) + [f"Since then {one} in the definition" for one in changed]


def asked_by(index: ExperimentIndex) -> dict[str, Any]:
    """Return what an experiment asked of every run alike, its clock among it."""
    settings = [run.settings for cell in index.combinations for run in cell.runs]
    alike = {key: value for key, value in settings[0].items() if all(one.get(key) == value for one in settings)}
    return {"clock": index.clock} | {key: value for key, value in alike.items() if key != "seed"}


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
    """Return the first setting that the definition has otherwise than a run."""
    changes = _changes(made, cell).items()
    return next((f"{name} was {was}, is {now} in the definition" for name, (was, now) in changes), "")


def _changes(made: Mapping[str, Any], cell: Combination) -> dict[str, tuple[Any, Any]]:
    """Return what was made with one setting and is asked for with another; a factor that is newer is none."""
    now: dict[str, Any] = attrs.asdict(cell.settings)
    return {key: (made[key], now[key]) for key in now if key != "seed" and key in made and made[key] != now[key]}


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


def profiles_now(points: Sequence[Point]) -> dict[str, str]:
    """Return the digests of the profiles that points are of, as they are now; none of what is no profile of fabtune."""
    paths = {name: data_dir("profiles") / f"{name}.toml" for name in _profiles_of(points)}
    return {name: profile_digest(path) for name, path in paths.items() if path.exists()}


def profiles_apart(mine: Kept) -> list[str]:
    """Return which profiles are others than those that were measured, or may be."""
    now, names = profiles_now(mine.points), _profiles_of(mine.points)
    changed = [name for name in names if name in mine.profiles and mine.profiles[name] != now.get(name)]
    unknown = [name for name in names if name not in mine.profiles]
    return [
        f"Profile{'' if len(some) == 1 else 's'} {' and '.join(f'`{one}`' for one in some)} {what} changed since"
        for some, what in ((changed, "has" if len(changed) == 1 else "have"), (unknown, "may have"))
        if some
    ]


def _profiles_of(points: Sequence[Point]) -> list[str]:
    # What measured the path itself says so in its name.
    told = (str(point["profile"]).removesuffix("-measured") for point in points if "profile" in point)
    return [name for name in dict.fromkeys(told) if name not in TUNERS]


def profile_digest(path: Path) -> str:
    """Return the digest of what a profile wants, with all that it includes; not of the words that say why."""
    profile = load_profile(str(path), load_catalog(data_dir("tunables")))
    wanted = {
        role: {name: [one.form, one.wanted, one.when, one.own_path] for name, one in entries.items()}
        for role, entries in profile.entries.items()
    }
    parameters = {name: one.default for name, one in profile.parameters.items()}
    return hashlib.sha256(json.dumps([wanted, parameters], sort_keys=True).encode()).hexdigest()[:16]
