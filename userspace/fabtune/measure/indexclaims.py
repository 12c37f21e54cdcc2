# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment's index says, held against itself and against what its runs came from.

The runs are the truth: an index is made of them, and of the definition that asked for them.
"""

import itertools
from collections import Counter
from collections.abc import Sequence

from fabtune.errors import InputError
from fabtune.model.factors import FACTORS
from fabtune.model.origin import Origin
from fabtune.model.results import CombinationEntry, ExperimentIndex, RunEntry
from fabtune.model.units import counted

INDEX = "index.json"


def of_itself(index: ExperimentIndex) -> list[str]:
    """Return what does not go together in an index: combinations and runs that are missing, or there twice."""
    found = []
    cells = Counter(_values(index, cell.factors) for cell in index.combinations)
    asked = set(itertools.product(*(values for _, values in sorted(index.factors.items()))))
    if missing := len(asked - cells.keys()):
        found.append(f"lists {len(asked) - missing} of the {len(asked)} combinations that its factors ask for")
    if other := len(cells.keys() - asked):
        found.append(f"lists {counted(other, 'combination')} that its factors do not ask for")
    if twice := [cell.name for cell in index.combinations if cells[_values(index, cell.factors)] > 1]:
        found.append(f"lists {twice[0]} {len(twice)} times")
    # Before there were seeds, as many as any combination has.
    seeds = index.seeds or max((run.number for cell in index.combinations for run in cell.runs), default=0)
    wanted = list(range(1, seeds + 1))
    wrong = [(cell.name, sorted(run.number for run in cell.runs)) for cell in index.combinations]
    wrong = [(name, numbers) for name, numbers in wrong if numbers != wanted]
    if wrong:
        more = f"; and {len(wrong) - 1} more are not whole" if len(wrong) > 1 else ""
        found.append(f"of {seeds} runs of {wrong[0][0]} it lists {', '.join(map(str, wrong[0][1])) or 'none'}{more}")
    # What a measured run was made with its own note says, too.
    entries = [(cell, run) for cell in index.combinations for run in cell.runs if run.status == "failed"]
    untold = (f"run {run.number} of {cell.name}" for cell, run in entries if not run.settings.get("profile"))
    return [*found, *(f"does not say with which profile {one} was to be made" for one in untold)]


def _values(index: ExperimentIndex, factors: dict[str, str]) -> tuple[str, ...]:
    """Return the values of a combination in the order of the factors' names; another factor makes it another."""
    others = tuple(f"{name}={text}" for name, text in sorted(factors.items()) if name not in index.factors)
    return (*(factors.get(name, "") for name in sorted(index.factors)), *others)


def of_runs(index: ExperimentIndex, made: Sequence[Origin]) -> list[str]:
    """Return what an index says of all its runs that one of them, `made` as it says, was not made with."""
    whys = (_otherwise(index.fixed, one) for one in made)
    return next(([why] for why in whys if why), [])


def of_run(index: ExperimentIndex, cell: CombinationEntry, entry: RunEntry, made: Origin) -> str:
    """Return what an index says of one run that is not so; nothing where it agrees with what the run came from."""
    if why := _otherwise(cell.factors, made):
        return why
    names = sorted(f"{name}={text}" for name, text in cell.factors.items()) or ["only"]
    if sorted(cell.name.split(",")) != names or entry.directory != f"{cell.name}/run-{entry.number}":
        return (
            f"{INDEX} calls it run {entry.number} of {cell.name}, in {entry.directory}; it is one of {','.join(names)}"
        )
    seed, factor = made.settings.get("seed"), FACTORS["seed"]
    text = cell.factors.get("seed") or index.fixed.get("seed") or factor.default
    first = factor.parse(text, f"{INDEX}: seed")
    if isinstance(seed, int) and isinstance(first, int) and seed != first + entry.number - 1:
        return f"{INDEX} calls it run {entry.number}, of seed {first + entry.number - 1}; it was made with seed {seed}"
    return ""


def _otherwise(texts: dict[str, str], made: Origin) -> str:
    """Return the first of factors, as an index has them, that is not what a run was made with; nothing without one."""
    for name, text in texts.items():
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
    return ""
