# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment's figures must look like, as its definition states it, and whether they do.

An expectation is of one of two forms, each for every value of the factors that it does not name:

    of = {targets = 4}, to = {targets = 1}, at_least = 3.6     a ratio; without `to`, the figure itself
    along = "rtt", shape = "falls"                             a curve: rises, falls or level, within `tolerance`
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

from fabtune.errors import InputError
from fabtune.experiment.summary import off_of
from fabtune.model.judgement import ALPHA
from fabtune.model.results import EVERY_HOST, THROUGHPUT, PointRow, decides
from fabtune.model.statistics import mean_interval
from fabtune.model.untouched import refuse_default


class Text(str):
    """A factor's value as a definition writes it: text, or a number as its digits."""


@attrs.frozen(kw_only=True)
class Expectation:
    """One statement about the points of an experiment: an ``[[expect]]`` table."""

    says: str
    # '' for the one that decides, which depends on the workload.
    figure: str = ""
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
    """Whether an expectation holds; None when that cannot be told.  `found` says what was there.

    Without `measured`, that is because points that it needs are not there.
    """

    says: str
    holds: bool | None
    found: str
    measured: bool = True


@attrs.frozen
class _Judged:
    """One figure or ratio against its limits, and how it reads."""

    holds: bool | None
    found: str


def judge(
    expectation: Expectation, rows: Sequence[PointRow], factors: Mapping[str, Sequence[str]]
) -> JudgedExpectation:
    """Return whether `rows`, a point of a run each, are as expected; `factors` gives the order of each one's values.

    A statement holds, or does not, where the whole interval over the seeds says so; all intervals of one statement
    together are wrong in at most 5 % of all cases.  One seed has no interval: it is taken at its word.  Of a fleet the
    statement is about all hosts together, unless it names the `host`.
    """
    if not expectation.figure:
        expectation = attrs.evolve(expectation, figure=decides(rows[0]) if rows else THROUGHPUT)
    if not any("host" in side for side in _sides(expectation)):
        rows = [row for row in rows if row.get("host", EVERY_HOST) == EVERY_HOST]
    named = {*expectation.of, *expectation.to, *([expectation.along] if expectation.along else [])}
    kept = [name for name in (*factors, "op") if name not in named and name != "seed"]
    cells: dict[tuple[str, ...], list[PointRow]] = {}
    for row in rows:
        if _matches(row, expectation.where) and row.get(expectation.figure) is not None:
            cells.setdefault(tuple(str(row.get(name)) for name in kept), []).append(row)
    ratios = [ratio for cell in cells.values() for ratio in _ratios(expectation, cell, factors)]
    if not ratios:
        return JudgedExpectation(expectation.says, None, "the points it needs were not measured", measured=False)
    if untold := _untold(expectation, rows, factors):
        return JudgedExpectation(expectation.says, None, untold)
    # Of a ratio both sides are rounded.
    sides = 2 if expectation.to or expectation.along else 1
    off = off_of(expectation.figure, [row for cell in cells.values() for row in cell])
    rounded = (1 + off) ** sides - 1
    judged = [_judged(values, low, high, ALPHA / len(ratios), rounded) for values, low, high in ratios]
    part = _part(expectation, rows, factors)
    for holds in (False, None):
        if wrong := [one.found for one in judged if one.holds is holds]:
            return JudgedExpectation(expectation.says, holds, part + "; ".join(wrong))
    return JudgedExpectation(expectation.says, True, part + "; ".join(one.found for one in judged[:3]))


def _sides(expectation: Expectation) -> list[dict[str, Text]]:
    """Return what the points have to match that a statement is about: those of a ratio on either side."""
    return [expectation.where | side for side in (expectation.of, expectation.to) if side] or [expectation.where]


def _untold(expectation: Expectation, rows: Sequence[PointRow], factors: Mapping[str, Sequence[str]]) -> str:
    """Return of how many runs of a point the figure is not known where others of it tell it; '' where there is none."""
    points: dict[tuple[str, ...], list[bool]] = {}
    for row in rows:
        if any(_matches(row, side) for side in _sides(expectation)):
            place = tuple(str(row.get(name)) for name in (*factors, "op", "host") if name != "seed")
            points.setdefault(place, []).append(row.get(expectation.figure) is not None)
    for told in points.values():
        if 0 < sum(told) < len(told):
            runs = f"{len(told) - sum(told)} of {len(told)} runs of a point"
            return f"{runs} do not tell {expectation.figure}; the others are no fair sample"
    return ""


def _part(expectation: Expectation, rows: Sequence[PointRow], factors: Mapping[str, Sequence[str]]) -> str:
    """Return of how many combinations a statement was judged where the figure of some is not there; '' where of all."""
    names = [name for name in factors if name != "seed"]
    sides = [{name: text for name, text in side.items() if name in names} for side in _sides(expectation)]
    whole = {
        values
        for values in itertools.product(*(factors[name] for name in names))
        if any(_matches(dict(zip(names, values, strict=True)), side) for side in sides)
    }
    told = [row for row in rows if row.get(expectation.figure) is not None]
    missing = whole - {tuple(str(row.get(name)) for name in names) for row in told}
    return f"at {len(whole) - len(missing)} of {len(whole)} combinations: " if missing else ""


# A figure or ratio by seed, and the limits within which it must be.
_Limited = tuple[list[float], float | None, float | None]


def _ratios(expectation: Expectation, cell: Sequence[PointRow], factors: Mapping[str, Sequence[str]]) -> list[_Limited]:
    if not expectation.along:
        values = _by_seed(expectation.figure, cell, expectation.of)
        if expectation.to:
            values = _divided(values, _by_seed(expectation.figure, cell, expectation.to))
        return [(list(values.values()), expectation.at_least, expectation.at_most)] if values else []
    along, slack = expectation.along, 1 + expectation.tolerance
    curve = [
        _by_seed(expectation.figure, cell, {**expectation.of, along: value})
        for value in (factors[along] if expectation.shape != "falls" else factors[along][::-1])
    ]
    curve = [values for values in curve if values]
    if len(curve) < 2:
        return []
    ratios: list[tuple[dict[str, float], float, float | None]]
    if expectation.shape == "level":
        ratios = [(_divided(b, a), 1 / slack, slack) for a, b in itertools.combinations(curve, 2)]
    else:
        # No step may fall by more than the tolerance, and the last must be above the first by more than that.
        steps = [_divided(b, a, nothing=1.0) for a, b in itertools.pairwise(curve)]
        ratios = [(step, 1 / slack, None) for step in steps]
        ratios.append((_divided(curve[-1], curve[0]), math.nextafter(slack, math.inf), None))
    return [(list(values.values()), low, high) for values, low, high in ratios if values]


def _judged(
    values: Sequence[float], at_least: float | None, at_most: float | None, alpha: float, rounded: float
) -> _Judged:
    if any(map(math.isnan, values)):
        return _Judged(None, "0 of 0 is no ratio")
    middle = statistics.median(values)
    low, high = mean_interval(values, alpha, rounded)
    text = _in_words(middle, low, high)
    low, high = middle if low is None else low, middle if high is None else high
    if (at_least is not None and high < at_least) or (at_most is not None and low > at_most):
        return _Judged(False, text)
    inside = (at_least is None or low >= at_least) and (at_most is None or high <= at_most)
    return _Judged(True if inside else None, text)


def _in_words(middle: float, low: float | None, high: float | None) -> str:
    """Return a figure or ratio with its interval."""
    text = f"{middle:.3g}" if math.isfinite(middle) else "beyond any ratio, to 0"
    if low is None or high is None or low == high:
        return text
    return f"{text} ({low:.3g} to {high:.3g})" if math.isfinite(high) else f"{text} (from {low:.3g}, no upper end)"


def _divided(above: Mapping[str, float], below: Mapping[str, float], nothing: float = math.nan) -> dict[str, float]:
    """Return the ratio with each seed that both were measured with; of nothing to nothing it is `nothing`: no number.

    Of a step along a curve it is 1.
    """
    return {seed: _ratio(value, below[seed], nothing) for seed, value in above.items() if seed in below}


def _ratio(above: float, below: float, nothing: float) -> float:
    return above / below if below else math.inf if above else nothing


def _by_seed(figure: str, cell: Sequence[PointRow], wanted: Mapping[str, str]) -> dict[str, float]:
    """Return the figure of the rows that match by their seed; several of one seed by their mean."""
    found: dict[str, list[float]] = {}
    for row in cell:
        if _matches(row, wanted):
            found.setdefault(str(row.get("seed")), []).append(float(row[figure]))
    return {seed: statistics.fmean(values) for seed, values in found.items()}


def _matches(row: PointRow, wanted: Mapping[str, str]) -> bool:
    return all(str(row.get(name)) in value.split(",") for name, value in wanted.items())
