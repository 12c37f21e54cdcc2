# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiment definitions: TOML files with factors, fixed settings, seeds and what to expect."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import attrs

from fabtune.errors import InputError
from fabtune.experiment.expect import Expectation, Text
from fabtune.experiment.settings import check_settings, figure_of, parse_settings
from fabtune.host import userfile
from fabtune.installed import data_dir
from fabtune.model import typed
from fabtune.model.factors import FACTORS, Settings

# More than a machine can run in its lifetime; a typo in a list reaches it easily.
MAX_COMBINATIONS = 10_000
SEEDS, SEEDS_OF_CHANCE = 3, 5
# What of a path, other than by default, leaves it to chance when a packet arrives, and whether it does.
_OF_CHANCE = ("loss", "jitter", "reorder", "duplicate", "cross", "buffer")
_MAX_BYTES = 128 << 10


class Values(tuple[str, ...]):
    """The values of a factor as written; one may stand without brackets."""


@attrs.frozen
class Combination:
    """One cell of the matrix: the factors' texts as written, and all settings parsed."""

    factors: dict[str, str]
    settings: Settings

    @property
    def name(self) -> str:
        """A file name that says what varies: ``profile=wan,rtt=50ms``."""
        return ",".join(f"{name}={text}" for name, text in self.factors.items()) or "only"


@attrs.frozen(kw_only=True)
class Axes:
    """The axes of the chart."""

    x: str
    # '' for the figure that decides, which depends on the workload.
    y: str = ""
    series: str | None = None


@attrs.frozen(kw_only=True)
class _File:
    """What a definition's file states."""

    summary: str = ""
    source: str = ""
    clock: Literal["virtual", "real"] = "virtual"
    # 0 for as many as the settings ask for.
    seeds: Annotated[int, typed.between(1, 1000)] = 0
    factors: dict[str, Values] = attrs.field(factory=dict)
    fixed: dict[str, Text] = attrs.field(factory=dict)
    expect: tuple[Expectation, ...] = ()
    # None for throughput over round-trip time by profile.
    plot: Axes | None = None


@attrs.frozen(kw_only=True)
class Definition(_File):
    """One experiment as its file states it."""

    name: str
    path: Path

    def __attrs_post_init__(self) -> None:
        """Raise InputError naming file and key for what does not go together."""
        for name in (*self.factors, *self.fixed):
            if name not in FACTORS:
                raise InputError(f"{self.path}: unknown factor '{name}'; known are {', '.join(FACTORS)}")
        if both := sorted(set(self.factors) & set(self.fixed)):
            raise InputError(f"{self.path}: '{both[0]}' stands in both factors and fixed; leave it in one")
        named = {f"expect[{index}].along": one.along for index, one in enumerate(self.expect)}
        if self.plot:
            named |= {"plot.x": self.plot.x, "plot.series": self.plot.series}
        for key, factor in named.items():
            if factor is not None and factor not in self.factors:
                allowed = f"one of the factors {', '.join(self.factors)}"
                raise InputError(f"{self.path}: key '{key}': found {typed.describe(factor)}, allowed: {allowed}")
        self._check_each_once()
        self._check_one_decides()
        if "seed" in self.factors and self.seeds > 1:
            # Each value and those that follow it would be measured: most of them several times, and counted so.
            raise InputError(
                f"{self.path}: key 'seeds': found {typed.describe(self.seeds)}, allowed: 1 beside the factor 'seed', "
                "which lists the seeds itself; leave one of the two out"
            )
        if self.size * self.seeds > MAX_COMBINATIONS:
            raise InputError(
                f"{self.path}: {self.size} combinations x {self.seeds} seeds; at most {MAX_COMBINATIONS} "
                "runs are allowed; shorten the lists of factors"
            )

    def _check_each_once(self) -> None:
        """Raise InputError for two values of a factor that say the same: their points would be one, with more runs."""
        for name, texts in self.factors.items():
            said: dict[object, str] = {}
            for text in texts:
                first = said.setdefault(FACTORS[name].parse(text, f"{self.path}: {name}"), text)
                if first is not text:
                    raise InputError(
                        f"{self.path}: factors.{name}: '{text}' is the value of '{first}' once more, allowed: each once"
                    )

    def _check_one_decides(self) -> None:
        """Raise InputError for workloads that are not decided by one figure: no table, drawing or statement has two."""
        # Of files made and removed there are no points at all: that is said of each combination.
        figures = {name: figure_of(name) for name in self.factors.get("workload", ())}
        if len({*figures.values()} - {"files_per_s"}) > 1:
            found = ", ".join(f"{name} ({figure})" for name, figure in figures.items())
            raise InputError(
                f"{self.path}: factors.workload: found {found}, allowed: workloads that one figure decides; give each "
                "figure an experiment of its own"
            )

    @property
    def size(self) -> int:
        """Number of combinations, each of them once."""
        return math.prod(len(values) for values in self.factors.values())

    def numbers(self, factor: str) -> dict[str, float]:
        """Return the number that each value of `factor` stands for, its place in the list where it is a word."""
        found = {}
        for place, text in enumerate(self.factors[factor], 1):
            value = FACTORS[factor].parse(text, f"{self.path}: {factor}")
            found[text] = float(value) if isinstance(value, int | float) else float(place)
        return found

    def is_of_words(self, factor: str) -> bool:
        """Tell whether the values of `factor` are words, so that numbers() are only their places."""
        return any(not isinstance(FACTORS[factor].parse(text, factor), int | float) for text in self.factors[factor])

    def combinations(self, only: Sequence[str] = ()) -> list[Combination]:
        """Return the combinations, the last factor varying first; `only` keeps those with ``NAME=VALUE``.

        Raises InputError for a bad `only` or a combination that cannot be measured.
        """
        kept: dict[str, tuple[str, ...]] = dict(self.factors)
        for word in only:
            name, equals, wanted = word.partition("=")
            if not equals or name not in kept:
                raise InputError(
                    f"--only {word}: expected FACTOR=VALUE with a factor of {self.name}: {', '.join(kept)}"
                )
            if unknown := [value for value in wanted.split(",") if value not in self.factors[name]]:
                has = f"{self.name} has {name} = {', '.join(self.factors[name])}"
                raise InputError(f"--only {word}: not '{unknown[0]}': {has}")
            kept[name] = tuple(value for value in kept[name] if value in wanted.split(","))
            if not kept[name]:
                raise InputError(f"--only {word}: nothing is left of {name} beside the other --only {name}")
        cells = []
        for values in itertools.product(*kept.values()):
            factors = dict(zip(kept, values, strict=True))
            settings = parse_settings({**self.fixed, **factors}, str(self.path))
            check_settings(settings, str(self.path))
            cells.append(Combination(factors, settings))
        return cells


def names() -> list[str]:
    """Return the names of the shipped experiments."""
    return sorted(path.stem for path in data_dir("experiments").glob("*.toml"))


def load(name_or_file: str) -> Definition:
    """Return a shipped experiment by name, or one from a file.

    Raises InputError with file, key, what was found and what is allowed.
    """
    path = Path(name_or_file)
    if path.suffix != ".toml":
        path = data_dir("experiments") / f"{name_or_file}.toml"
        if not path.exists():
            raise InputError(
                f"unknown experiment '{name_or_file}'; shipped are {', '.join(names())}; or name a .toml file"
            )
    stated = _FORMAT.read(_File, userfile.read_toml(path, _MAX_BYTES), str(path))
    stated = attrs.evolve(stated, seeds=stated.seeds or _seeds_for(stated, path))
    return Definition(name=path.stem, path=path, **{one.name: getattr(stated, one.name) for one in attrs.fields(_File)})


def _seeds_for(stated: _File, path: Path) -> int:
    """Return how many runs of a combination tell: more where chance decides what becomes of packets."""
    if "seed" in stated.factors:
        return 1
    for name in _OF_CHANCE:
        factor, fixed = FACTORS[name], stated.fixed.get(name)
        texts = (*stated.factors.get(name, ()), *(() if fixed is None else (fixed,)))
        usual = factor.parse(factor.default, name)
        if any(factor.parse(text, f"{path}: {name}") != usual for text in texts):
            return SEEDS_OF_CHANCE
    return SEEDS


def _values(raw: Any) -> Values:
    """Return one text or number, or a list of them, as texts."""
    values = Values(map(str, raw if isinstance(raw, list) else [raw]))
    if not values:
        raise typed.WrongError(raw, "at least one value")
    if len(set(values)) != len(values):
        raise typed.WrongError(raw, "an array that lists no value twice")
    return values


_FORMAT = typed.Format()
_FORMAT.convert(Text, cast(Any, str | int | float), Text, str)
_FORMAT.convert(Values, cast(Any, str | int | float | list[str | int | float]), _values, list)
