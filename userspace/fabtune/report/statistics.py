# SPDX-License-Identifier: GPL-2.0-or-later
"""Statistics for comparing two settings on a noisy machine.

The unit is one whole run.  Ratios are analysed as differences of logarithms, paired where the
runs were interleaved, so that slow drift cancels.  The interval is Student's t: with the six to
twenty pairs of a real session a percentile bootstrap covers far less than it promises.
"""

import enum
import functools
import math
import random
import statistics
from collections.abc import Sequence

import attrs

CONFIDENCE = 0.95
# Below six pairs even the most extreme outcome of an exact sign-flip test has p > 0.05: 2 / 2**5.
MIN_PAIRS = 6
# A difference smaller than this is of no use to anybody.
PRACTICAL = 0.02
_EXACT_PAIRS = 16
_DRAWS = 1 << 16


class Verdict(enum.Enum):
    """What a comparison allows to say about B against A."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no practical difference"
    CANNOT_TELL = "cannot tell"


@attrs.frozen
class Comparison:
    """B against A: `ratio` is B/A (geometric mean) with its 95 % interval `low`..`high`.

    `p` is that of the t test; `p_signs` the exact sign-flip test's, None for unpaired runs.
    `wins` is the share of pairs in which B was larger; the spreads are half the 95 % interval of
    each side's own mean, as a fraction of it.
    """

    a_median: float
    b_median: float
    a_spread: float
    b_spread: float
    ratio: float
    low: float
    high: float
    p: float
    p_signs: float | None
    wins: float | None
    n: int
    paired: bool


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


def compare_pairs(pairs: Sequence[tuple[float, float]]) -> Comparison:
    """Return B against A from (a, b) values of interleaved runs, two or more pairs, all above zero."""
    differences = [math.log(b / a) for a, b in pairs]
    n = len(differences)
    error = statistics.stdev(differences) / math.sqrt(n)
    return _comparison(
        [a for a, _ in pairs],
        [b for _, b in pairs],
        statistics.fmean(differences),
        error,
        n - 1,
        p_signs=sign_flip_p(differences),
        wins=sum((b > a) + (b == a) / 2 for a, b in pairs) / n,
    )


def compare_groups(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """Return B against A from runs that were not interleaved (Welch); two or more values each."""
    log_a, log_b = [math.log(value) for value in a], [math.log(value) for value in b]
    part_a, part_b = statistics.variance(log_a) / len(a), statistics.variance(log_b) / len(b)
    spread = part_a + part_b
    df = 1
    if spread > 0:
        # Welch-Satterthwaite, rounded down: a little wider than exact.
        df = max(1, math.floor(spread**2 / (part_a**2 / (len(a) - 1) + part_b**2 / (len(b) - 1))))
    difference = statistics.fmean(log_b) - statistics.fmean(log_a)
    return _comparison(a, b, difference, math.sqrt(spread), df, p_signs=None, wins=None)


def _comparison(
    a: Sequence[float],
    b: Sequence[float],
    difference: float,
    error: float,
    df: int,
    *,
    p_signs: float | None,
    wins: float | None,
) -> Comparison:
    half = t_quantile(0.5 + CONFIDENCE / 2, df) * error
    # Runs without any spread leave no doubt.
    t = difference / error if error > 0 else math.copysign(math.inf, difference) if difference else 0.0
    return Comparison(
        a_median=statistics.median(a),
        b_median=statistics.median(b),
        a_spread=_spread(a),
        b_spread=_spread(b),
        ratio=math.exp(difference),
        low=math.exp(difference - half),
        high=math.exp(difference + half),
        p=2 * (1 - t_cdf(abs(t), df)),
        p_signs=p_signs,
        wins=wins,
        n=min(len(a), len(b)),
        paired=wins is not None,
    )


def _spread(values: Sequence[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.expm1(t_quantile(0.5 + CONFIDENCE / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the two-sided p of a sign-flip test on the sum: exact up to 16 pairs, else 65,536 fixed draws."""
    # A sum that differs by rounding alone is as extreme.
    observed = abs(math.fsum(differences)) - 1e-12 * math.fsum(map(abs, differences))
    if len(differences) <= _EXACT_PAIRS:
        # By symmetry the first sign may stay as it is; each further difference doubles the sums there can be.
        sums = list(differences[:1])
        for difference in differences[1:]:
            sums = [flipped for one in sums for flipped in (one + difference, one - difference)]
        return sum(abs(one) >= observed for one in sums) / len(sums)
    # Eight signs at a time, each byte of a draw looked up as the sum that it stands for.
    parts = [differences[first : first + 8] for first in range(0, len(differences), 8)]
    tables = [[sum(d if bits >> i & 1 else -d for i, d in enumerate(part)) for bits in range(256)] for part in parts]
    draw = random.Random(1)
    extreme = 0
    for _ in range(_DRAWS):
        drawn = draw.randbytes(len(tables))
        extreme += abs(sum(table[byte] for table, byte in zip(tables, drawn, strict=True))) >= observed
    return (extreme + 1) / (_DRAWS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for being several, in the same order (Holm)."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def verdict(
    comparison: Comparison,
    *,
    better: int,
    adjusted_p: float | None = None,
    practical: float = PRACTICAL,
    noise: float = 0.0,
) -> tuple[Verdict, str]:
    """Return the verdict on B, and why when it cannot tell.

    `better` is +1 when a larger value is better, -1 when a smaller one is.  `practical` is the
    smallest ratio that matters, less one; `noise` the half width, as a ratio less one, of the
    interval that A against A gave: what the set-up cannot see.
    """
    if comparison.n < MIN_PAIRS:
        return Verdict.CANNOT_TELL, f"{comparison.n} runs a side; at least {MIN_PAIRS} are needed"
    inside = -math.log1p(practical) <= math.log(comparison.low) and math.log(comparison.high) <= math.log1p(practical)
    if inside:
        return Verdict.SAME, ""
    # Both tests must agree: either alone calls A against A different in a full 5 % of sessions.
    p = max(comparison.p if adjusted_p is None else adjusted_p, comparison.p_signs or 0.0)
    size = math.exp(abs(math.log(comparison.ratio))) - 1
    if p > 1 - CONFIDENCE:
        return Verdict.CANNOT_TELL, "the interval holds both a difference and none"
    if size <= practical:
        return Verdict.CANNOT_TELL, f"the interval reaches beyond {practical:.0%}, the estimate does not"
    if size <= noise:
        return Verdict.CANNOT_TELL, f"A against A alone gave up to {noise:.1%}"
    return (Verdict.BETTER if (comparison.ratio > 1) == (better > 0) else Verdict.WORSE), ""
