# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiment definitions: TOML files with factors, fixed settings, repetitions and what to expect."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from fabtune.errors import InputError
from fabtune.experiment import expect
from fabtune.experiment.settings import check_settings, parse_settings
from fabtune.host import userfile
from fabtune.model.factors import FACTORS, Settings
from fabtune.paths import data_dir

# More than a machine can run in its lifetime; a typo in a list reaches it easily.
MAX_COMBINATIONS = 10_000
_MAX_BYTES = 128 << 10
_KEYS = {"summary", "source", "factors", "fixed", "repetitions", "hosts", "clock", "expect", "plot"}


@attrs.frozen
class Combination:
    """One cell of the matrix: the factors' texts as written, and all settings parsed."""

    factors: dict[str, str]
    settings: Settings

    @property
    def name(self) -> str:
        """A file name that says what varies: ``profile=wan,rtt=50ms``."""
        return ",".join(f"{name}={text}" for name, text in self.factors.items()) or "only"


@attrs.frozen
class Definition:
    """One experiment as its file states it."""

    name: str
    path: Path
    summary: str
    source: str
    clock: str
    repetitions: int
    factors: dict[str, tuple[str, ...]]
    fixed: dict[str, str]
    expectations: tuple[expect.Expectation, ...] = ()
    # x, y and series of the chart; empty for throughput over round-trip time by profile.
    plot: dict[str, str] = attrs.field(factory=dict)

    @property
    def size(self) -> int:
        """Number of combinations, repetitions not counted."""
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
        kept = {name: values for name, values in self.factors.items()}
        for word in only:
            name, equals, wanted = word.partition("=")
            if not equals or name not in kept:
                raise InputError(
                    f"--only {word}: expected FACTOR=VALUE with a factor of {self.name}: {', '.join(kept)}"
                )
            kept[name] = tuple(value for value in kept[name] if value in wanted.split(","))
            if not kept[name]:
                raise InputError(f"--only {word}: {self.name} has {name} = {', '.join(self.factors[name])}")
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
    return _definition(path, userfile.read_toml(path, _MAX_BYTES))


def _definition(path: Path, table: dict[str, Any]) -> Definition:
    for key in table:
        if key not in _KEYS:
            raise InputError(f"{path}: unknown key '{key}'; known are {', '.join(sorted(_KEYS))}")
    factors = {
        name: tuple(_texts(path, f"factors.{name}", value)) for name, value in _table(path, table, "factors").items()
    }
    fixed = {name: _texts(path, f"fixed.{name}", value)[0] for name, value in _table(path, table, "fixed").items()}
    for name in (*factors, *fixed):
        if name not in FACTORS:
            raise InputError(f"{path}: unknown factor '{name}'; known are {', '.join(FACTORS)}")
    if both := sorted(set(factors) & set(fixed)):
        raise InputError(f"{path}: '{both[0]}' stands in both factors and fixed; leave it in one")
    repetitions = table.get("repetitions", 1)
    if not isinstance(repetitions, int) or isinstance(repetitions, bool) or not 1 <= repetitions <= 1000:
        raise InputError(f"{path}: repetitions = {repetitions!r}: expected a whole number from 1 to 1000")
    clock = table.get("clock", "virtual")
    if clock not in ("virtual", "real"):
        raise InputError(f"{path}: clock = {clock!r}: expected virtual or real")
    for key in ("summary", "source"):
        if not isinstance(table.get(key, ""), str):
            raise InputError(f"{path}: {key} = {table[key]!r}: expected text")
    expected = table.get("expect", [])
    if not isinstance(expected, list):
        raise InputError(f"{path}: expect: expected tables [[expect]]")
    expectations = tuple(expect.parse(path, number, one, tuple(factors)) for number, one in enumerate(expected, 1))
    definition = Definition(
        path.stem, path, table.get("summary", ""), table.get("source", ""), clock, repetitions, factors, fixed,
        expectations, _plot(path, table, factors),
    )  # fmt: skip
    if definition.size * repetitions > MAX_COMBINATIONS:
        raise InputError(
            f"{path}: {definition.size} combinations x {repetitions} repetitions; at most {MAX_COMBINATIONS} runs are "
            "allowed; shorten the lists of factors"
        )
    return definition


def _plot(path: Path, table: dict[str, Any], factors: dict[str, tuple[str, ...]]) -> dict[str, str]:
    plot = _table(path, table, "plot")
    for key, value in plot.items():
        if key not in ("x", "y", "series"):
            raise InputError(f"{path}: plot: unknown key '{key}'; known are x, y, series")
        if key != "y" and value not in factors:
            raise InputError(f"{path}: plot.{key} = '{value}': expected one of the factors {', '.join(factors)}")
    if plot and "x" not in plot:
        raise InputError(f"{path}: plot: no x; expected one of the factors {', '.join(factors)}")
    return plot


def _table(path: Path, table: dict[str, Any], key: str) -> dict[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise InputError(f"{path}: {key}: expected a table [{key}]")
    return found


def _texts(path: Path, key: str, value: Any) -> list[str]:
    """Return `value`, one text or number or a list of them, as texts."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InputError(f"{path}: {key} is empty; expected at least one value")
    for one in values:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise InputError(f"{path}: {key} = {one!r}: expected text or a number")
    if len(set(map(str, values))) != len(values):
        raise InputError(f"{path}: {key} lists a value twice")
    return [str(one) for one in values]
