# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment's figures must look like, as its definition states it, and whether they do.

An expectation is of one of two forms, each for every value of the factors that it does not name:

    of = {targets = 4}, to = {targets = 1}, at_least = 3.6     a ratio; without `to`, the figure itself
    along = "rtt", shape = "falls"                             a curve: rises, falls or level, within `tolerance`
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from fabtune.errors import InputError
from fabtune.model.untouched import refuse_default

# A run's factors as written, beside one of its points.
Row = Mapping[str, Any]


class Text(str):
    """A factor's value as a definition writes it: text, or a number as its digits."""


@attrs.frozen(kw_only=True)
class Expectation:
    """One statement about the points of an experiment: an ``[[expect]]`` table."""

    says: str
    figure: str = "mb_per_s"
    where: dict[str, Text] = attrs.field(factory=dict)
    of: dict[str, Text] = attrs.field(factory=dict)
    to: dict[str, Text] = attrs.field(factory=dict)
    at_least: float | None = None
    at_most: float | None = None
    along: str | None = None
    shape: Literal["rises", "falls", "level"] | None = None
    tolerance: float = 0.05

    def __attrs_post_init__(self) -> None:
        """Raise InputError for a statement of neither form."""
        if (self.along is None) != (self.shape is None):
            raise InputError("expected along = a factor together with shape = rises, falls or level")
        if self.along is None and self.at_least is None and self.at_most is None:
            raise InputError("expected at_least or at_most, or along and shape")
        for side in (self.where, self.of, self.to):
            for word in side.get("profile", Text()).split(","):
                refuse_default(word, f"profile = '{word}'")


@attrs.frozen
class JudgedExpectation:
    """Whether an expectation holds; None when points that it needs were not measured.  `found` says what was there."""

    says: str
    holds: bool | None
    found: str


def judge(expectation: Expectation, rows: Sequence[Row], factors: Mapping[str, Sequence[str]]) -> JudgedExpectation:
    """Return whether `rows` are as expected; `factors` gives the order of each factor's values."""
    named = {*expectation.of, *expectation.to, *([expectation.along] if expectation.along else [])}
    # Repetitions differ in their seed alone; their mean is what is judged.
    kept = [name for name in (*factors, "op") if name not in named and name != "seed"]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if _matches(row, expectation.where) and row.get(expectation.figure) is not None:
            groups.setdefault(tuple(str(row.get(name)) for name in kept), []).append(row)
    held: list[tuple[bool, str]] = []
    for group in groups.values():
        one = _curve(expectation, group, factors) if expectation.along else _bounds(expectation, group)
        if one is not None:
            held.append(one)
    if not held:
        return JudgedExpectation(expectation.says, None, "the points it needs were not measured")
    wrong = [found for holds, found in held if not holds]
    return JudgedExpectation(expectation.says, not wrong, "; ".join(wrong or [found for _, found in held][:3]))


def _bounds(expectation: Expectation, group: Sequence[Row]) -> tuple[bool, str] | None:
    value = _mean(expectation.figure, group, expectation.of)
    base = _mean(expectation.figure, group, expectation.to) if expectation.to else 1.0
    if value is None or base is None:
        return None
    ratio = value / base if base else float("inf")
    low, high = expectation.at_least, expectation.at_most
    return (low is None or ratio >= low) and (high is None or ratio <= high), f"{ratio:.3g}"


def _curve(
    expectation: Expectation, group: Sequence[Row], factors: Mapping[str, Sequence[str]]
) -> tuple[bool, str] | None:
    along = expectation.along or ""
    means = [_mean(expectation.figure, group, {**expectation.of, along: value}) for value in factors[along]]
    curve = [value for value in means if value is not None]
    if len(curve) < 2:
        return None
    slack = 1 + expectation.tolerance
    if expectation.shape == "level":
        holds = max(curve) <= min(curve) * slack
    else:
        rising = curve if expectation.shape == "rises" else curve[::-1]
        holds = rising[-1] > rising[0] * slack and all(b * slack >= a for a, b in zip(rising, rising[1:], strict=False))
    return holds, " ".join(f"{value:.3g}" for value in curve)


def _mean(figure: str, group: Sequence[Row], wanted: Mapping[str, str]) -> float | None:
    values = [float(row[figure]) for row in group if _matches(row, wanted)]
    return statistics.fmean(values) if values else None


def _matches(row: Row, wanted: Mapping[str, str]) -> bool:
    return all(str(row.get(name)) in value.split(",") for name, value in wanted.items())
