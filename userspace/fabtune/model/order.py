# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of two sides is greater where some values are 0, so that there is no ratio: exact tests of order alone.

What differs by less than a `margin`, a factor, counts for both sides: that makes p larger, never smaller.  A side
that stood still more often than the other is never the greater one, whatever its other runs are like.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Sequence

import attrs

# Above so many values the normal distribution is nearer than any figure printed.
_EXACT = 60


@attrs.frozen
class Order:
    """Which side is greater: `sense` is +1 where the second is, -1 where the first is; `p` is two-sided."""

    method: str
    sense: int
    p: float


def least_p(a: int, b: int, *, paired: bool) -> float:
    """Return the p of the most extreme outcome of so many values a side."""
    return 2 / (1 << a if paired else math.comb(a + b, a))


def signs(a: Sequence[float], b: Sequence[float], margin: float) -> Order:
    """Return which side is greater in more pairs than chance explains, by the sign test."""
    pairs = list(zip(a, b, strict=True))
    rises, falls = _apart(pairs, margin)
    others = len(pairs) - max(rises, falls)
    tail = sum(math.comb(len(pairs), k) for k in range(others + 1)) / (1 << len(pairs))
    sense = 1 if rises > falls else -1
    stood_more = sense * (list(b).count(0) - list(a).count(0)) > 0
    return Order("the signs of the pairs", sense, 1.0 if stood_more else min(1.0, 2 * tail))


def ranks(a: Sequence[float], b: Sequence[float], margin: float) -> Order:
    """Return which side is greater by ranks (Mann, Whitney), where its zeros say the same (Fisher).

    Ranks alone would take a wider spread of one side for a shift.
    """
    pairs = list(itertools.product(a, b))
    above, below = _apart(pairs, margin)
    by_ranks = min(1.0, 2 * _rank_tail(len(a), len(b), len(pairs) - max(above, below)))
    sense = 1 if above > below else -1
    lesser, greater = (a, b) if sense > 0 else (b, a)
    by_zeros = _p_of_zeros(lesser.count(0), len(lesser), greater.count(0), len(greater))
    return Order("ranks of both sides (Mann, Whitney) and their zeros (Fisher)", sense, max(by_ranks, by_zeros))


def _apart(pairs: Sequence[tuple[float, float]], margin: float) -> tuple[int, int]:
    return sum(y > x * margin for x, y in pairs), sum(x > y * margin for x, y in pairs)


def _p_of_zeros(zeros: int, runs: int, other_zeros: int, others: int) -> float:
    """Return p of one side's having so many more zeros than the other, for both sides."""
    every, both = runs + others, zeros + other_zeros
    ways = (math.comb(runs, k) * math.comb(others, both - k) for k in range(zeros, min(runs, both) + 1))
    return min(1.0, 2 * sum(ways) / math.comb(every, both))


def _rank_tail(a: int, b: int, u: int) -> float:
    """Return P(U <= u) of two sides of so many values each, if they are alike."""
    if a + b > _EXACT:
        return statistics.NormalDist(a * b / 2, math.sqrt(a * b * (a + b + 1) / 12)).cdf(u + 0.5)
    return _rank_sums(a, b)[u]


@functools.cache
def _rank_sums(a: int, b: int) -> list[float]:
    """Return P(U <= u) for each u, each order of the values of both sides as likely."""
    # The coefficients of Gauss's binomial: factors (1 - q^(b+i)) / (1 - q^i), multiplied out one after another.
    counts = [1] + [0] * (a * b)
    for i in range(1, a + 1):
        for k in range(a * b, b + i - 1, -1):
            counts[k] -= counts[k - b - i]
        for k in range(i, a * b + 1):
            counts[k] += counts[k - i]
    return [count / math.comb(a + b, a) for count in itertools.accumulate(counts)]
