# SPDX-License-Identifier: GPL-2.0-or-later
"""Shifts between two sets of numbers: estimate, exact or Student's interval, and the p of the same test.

Each class is one test and its inversion: `interval(alpha)` holds the shifts that the test does not reject at
`alpha`, so an interval excludes 0 exactly where `p` <= `alpha`.
"""

import functools
import itertools
import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

import attrs

# Above so many values the normal distribution is nearer than any figure printed.
_EXACT = 50
# What differs in a later digit differs by rounding.
_DIGITS = 12
# The share of signed ranks that are told apart.
_RANKED_APART = 0.75
# The share of a side's values that does not count at either end: more would cost normal values power, less would
# leave one outlier of ten in the mean.
_TRIMMED = 0.15
# Two groups: so far apart as a ratio, and so many times as far as the wider of them is wide; one value alone, which
# might be any outlier, has to be further off.  Normal noise shows such groups in at most 2 % of five values.
_GROUPS_APART = 1.05
_CLEAR, _CLEAR_ALONE = 4, 30
# Values of one bucket look alike; what a bucket hides of their spread, as a share of its width.
_HIDDEN = 0.25


@attrs.frozen
class Ranked:
    """A shift by ranks (Hodges, Lehmann): the median of `candidates`, the shifts at which the test's statistic steps.

    `tail` is the distribution of the statistic, P(W <= k), if there is no shift.  Ties count for both sides,
    which makes p larger and the interval wider, never the other way.
    """

    method: str
    candidates: Sequence[float]
    tail: Callable[[int], float]

    @property
    def estimate(self) -> float:
        """The median of the candidates."""
        return statistics.median(self.candidates)

    @property
    def p(self) -> float:
        """The two-sided p of no shift."""
        below, above = bisect_right(self.candidates, 0.0), len(self.candidates) - bisect_left(self.candidates, 0.0)
        return min(1.0, 2 * self.tail(min(below, above)))

    def reaches(self, alpha: float) -> bool:
        """Return whether the most extreme outcome is significant at `alpha`."""
        return 2 * self.tail(0) <= alpha

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the shifts that are not rejected at `alpha`, which the test must reach."""
        cut = bisect_right(range(len(self.candidates)), alpha / 2, key=self.tail)
        return self.candidates[cut - 1], self.candidates[-cut]


@attrs.frozen
class Student:
    """A shift of means, trimmed or not, whose `estimate` has the standard `error`, with `df` degrees of freedom."""

    method: str
    estimate: float
    error: float
    df: int

    @property
    def p(self) -> float:
        """The two-sided p of no shift; values without any spread leave no doubt."""
        if self.error == 0:
            return 0.0 if self.estimate else 1.0
        return max(0.0, 2 * t_cdf(-abs(self.estimate) / self.error, self.df))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the shifts that are not rejected at `alpha`."""
        half = t_quantile(1 - alpha / 2, self.df) * self.error
        return self.estimate - half, self.estimate + half


Shift = Ranked | Student


def signed_rank(differences: Sequence[float]) -> Ranked:
    """Return the shift of paired `differences` by signed ranks; they must be symmetrical, nothing more.

    Wilcoxon's, but the largest quarter of the ranks counts alike: one run that lost a third does not cost the verdict
    on ten, and among normal values nothing is lost.  Two values then count together only as near neighbours: with
    all but the largest ranks equal to their place, crossing the middle of the i-th and j-th value moves the sum by
    one where j - i + 1 is no such rank.
    """
    rising, n = sorted(differences), len(differences)
    highest = max(1, math.floor(n * _RANKED_APART))
    walsh = [(x + y) / 2 for i, x in enumerate(rising) for y in rising[i : i + highest]]
    scores = [min(rank, highest) for rank in range(1, n + 1)]
    tail = _exact(_signed_ranks(n, highest)) if n <= _EXACT else _normal(len(walsh), sum(x * x for x in scores) / 4)
    return Ranked("signed ranks", _sorted(walsh), tail)


def paired_t(differences: Sequence[float]) -> Student:
    """Return the mean of two or more normal `differences`."""
    error = _without_rounding(statistics.stdev(differences)) / math.sqrt(len(differences))
    return Student("Student's t", _without_rounding(statistics.fmean(differences)), error, len(differences) - 1)


def welch_t(a: Sequence[float], b: Sequence[float]) -> Student:
    """Return the shift between the means of two or more normal values a side, whose spreads may differ."""
    return _apart("Welch's t", _mean(a, 0), _mean(b, 0))


def trimmed_t(a: Sequence[float], b: Sequence[float]) -> Student:
    """Return the shift between the trimmed means of seven or more values a side, whose spreads may differ.

    Yuen's test: a few values far off move it little, and unlike ranks of both sides it does not take the wider spread
    of one side for a shift.
    """
    ours, theirs = (_mean(side, math.floor(len(side) * _TRIMMED)) for side in (a, b))
    return _apart("Welch's t on trimmed means (Yuen)", ours, theirs)


@attrs.frozen
class _Mean:
    """A mean with the square of its standard error, which is known by `df` degrees of freedom."""

    value: float
    squared_error: float
    df: int


def _mean(values: Sequence[float], cut: int) -> _Mean:
    """Return the mean of `values` but for the `cut` least and greatest; these count for the spread as the next ones."""
    rising, n = sorted(values), len(values)
    kept = rising[cut : n - cut]
    spread = _without_rounding(statistics.stdev([kept[0]] * cut + kept + [kept[-1]] * cut))
    # Where values are cut, h - 1 degrees of freedom would err too often, most of all at the low levels of a family.
    df = len(kept) - (2 if cut else 1)
    return _Mean(statistics.fmean(kept), spread**2 * (n - 1) / (len(kept) * (len(kept) - 1)), df)


def _apart(method: str, a: _Mean, b: _Mean) -> Student:
    spread, df = a.squared_error + b.squared_error, a.df + b.df
    if spread > 0:
        # Welch-Satterthwaite, rounded down: a little wider than exact.
        df = max(1, math.floor(spread**2 / (a.squared_error**2 / a.df + b.squared_error**2 / b.df)))
    return Student(method, _without_rounding(b.value - a.value), math.sqrt(spread), df)


def _without_rounding(value: float) -> float:
    return round(value, _DIGITS)


def _sorted(values: Sequence[float]) -> list[float]:
    return sorted(map(_without_rounding, values))


def _exact(sums: list[float]) -> Callable[[int], float]:
    return sums.__getitem__


def _normal(most: int, variance: float) -> Callable[[int], float]:
    known = statistics.NormalDist(most / 2, math.sqrt(variance))
    return lambda k: known.cdf(k + 0.5)


@functools.cache
def _signed_ranks(n: int, highest: int) -> list[float]:
    """Return P(W <= k) of the sum of the positive ones among the ranks 1..n, at most `highest`, each sign as likely."""
    counts = [1]
    for rank in range(1, n + 1):
        none = [0] * min(rank, highest)
        counts = [x + y for x, y in zip([*counts, *none], [*none, *counts], strict=True)]
    return [count / 2**n for count in itertools.accumulate(counts)]


def t_cdf(t: float, df: int) -> float:
    """Return P(T <= t) for Student's t with a whole number of degrees of freedom.

    The finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    theta = math.atan2(abs(t), math.sqrt(df))
    cosine, sine = math.cos(theta), math.sin(theta)
    term = cosine if df % 2 else 1.0
    total = term if df > 1 else 0.0
    for k in range(3 if df % 2 else 2, df - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = 2 / math.pi * (theta + sine * total) if df % 2 else sine * total
    return 0.5 + math.copysign(inside / 2, t)


@functools.cache
def t_quantile(probability: float, df: int) -> float:
    """Return the t below which `probability` of Student's t lies; 0.5 < probability < 1."""
    low, high = 0.0, 2.0
    while t_cdf(high, df) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2


def holm(p_values: Sequence[float], alpha: float) -> list[tuple[float, float]]:
    """Return for each of several p values the adjusted one, and the level that the p itself is held against (Holm).

    The adjusted one is at most `alpha` exactly where the p itself is at most its level.
    """
    found = [(1.0, alpha)] * len(p_values)
    highest, rejected = 0.0, 0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        found[index] = highest, alpha / (len(p_values) - rejected)
        rejected += highest <= alpha
    return found


def groups_in(values: Sequence[float], rounded: float = 0.0) -> tuple[tuple[float, ...], ...]:
    """Return positive `values` in rising order: two groups of at least two where they clearly fall so, else one.

    Each may be off by the share `rounded` to either side: on two sides of a bucket's border is not apart.
    """
    parts = _parted(values, rounded)
    return parts if min(map(len, parts)) > 1 else (tuple(sorted(values)),)


def one_apart(values: Sequence[float], rounded: float = 0.0) -> float | None:
    """Return the one of positive `values` that lies clearly apart from all others; None where there is no such one.

    It may be an outlier as well as the first seen of a second group.  `rounded` is that of `groups_in`.
    """
    parts = _parted(values, rounded)
    return next((part[0] for part in parts if len(part) == 1), None) if len(parts) > 1 else None


def _parted(values: Sequence[float], rounded: float) -> tuple[tuple[float, ...], ...]:
    """Return positive `values` in rising order, in two where there is a wide gap, else whole."""
    rising = tuple(sorted(values))
    if len(rising) < 3 or rising[0] <= 0:
        return (rising,)
    logs = [math.log(value) for value in rising]
    cut = max(range(1, len(logs)), key=lambda at: logs[at] - logs[at - 1])
    bucket = 2 * math.log1p(rounded)
    gap, wider = logs[cut] - logs[cut - 1] - bucket, max(logs[cut - 1] - logs[0], logs[-1] - logs[cut])
    wider += _HIDDEN * bucket
    clear = _CLEAR_ALONE if cut in (1, len(logs) - 1) else _CLEAR
    if gap >= math.log(_GROUPS_APART) and gap >= clear * wider:
        return rising[:cut], rising[cut:]
    return (rising,)


def mean_interval(values: Sequence[float], alpha: float, rounded: float = 0.0) -> tuple[float | None, float | None]:
    """Return the interval that holds the mean of all such values with 1 - `alpha`, by Student's t on logarithms.

    Of one value nothing is known.  Each may be off by the share `rounded` to either side, all of them the same way:
    no number of values helps against that.
    """
    if len(values) < 2:
        return None, None
    low, high = _mean_interval(values, alpha)
    # What has no end is not off by a share of it.
    return (
        low - abs(low) * rounded / (1 + rounded) if math.isfinite(low) else low,
        high + abs(high) * rounded if math.isfinite(high) else high,
    )


def _mean_interval(values: Sequence[float], alpha: float) -> tuple[float, float]:
    if min(values) == max(values):
        # Without what a logarithm and back leave of rounding: 100 of 100 is not "between 99.999... and 100.000...".
        return values[0], values[0]
    if not all(map(math.isfinite, values)):
        return min(values), max(values)
    if min(values) <= 0:
        low, high = paired_t(values).interval(alpha)
        # The mean of what is never below zero is not either; a value of zero has no logarithm that would tell.
        return low if min(values) < 0 else max(low, 0.0), high
    low, high = paired_t([math.log(value) for value in values]).interval(alpha)
    return math.exp(min(low, 700.0)), math.exp(min(high, 700.0))
