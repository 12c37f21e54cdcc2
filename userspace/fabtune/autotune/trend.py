# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a load that grows by itself explains why it is faster after a step than before."""

import math
import statistics
from collections.abc import Sequence

from fabtune.model.statistics import t_quantile

# A trend is one if chance shows so steep a one, up or down, this rarely.
_LEVEL = 0.05
# Blocks that a step takes at least between the two looks: a new connection is given two seconds.
_BETWEEN = 2
_LEAST = 3
# Looks at one load that grows evenly grow alike: neither by less than this part of what both do together.
_ALIKE = 1 / 3


def explains(before: Sequence[float], after: Sequence[float], least_ratio: float) -> bool:
    """Tell whether rates that grow within each of two looks, carried on, are what lies between them.

    `least_ratio` is the low end of the interval of how much faster the second one was.  What grows within one look
    alone is no such load: a new connection finds its window.
    """
    if min(len(before), len(after)) < _LEAST:
        return False
    fits = [_fitted([math.log(rate) for rate in rates]) for rates in (before, after)]
    weight = sum(spread for _, spread, _ in fits)
    slope = sum(one * spread for one, spread, _ in fits) / weight
    if slope <= 0 or min(one for one, _, _ in fits) < _ALIKE * slope:
        return False
    degrees = len(before) + len(after) - 4
    error = math.sqrt(sum(rest for _, _, rest in fits) / degrees / weight)
    grown = slope * ((len(before) + len(after)) / 2 + _BETWEEN)
    return slope > t_quantile(1 - _LEVEL / 2, degrees) * error and math.log(least_ratio) <= grown


def _fitted(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the slope of a line through `values`, one a step, the square spread of the steps, and what it leaves."""
    steps, mean = [turn - (len(values) - 1) / 2 for turn in range(len(values))], statistics.mean(values)
    spread = sum(step**2 for step in steps)
    slope = sum(step * value for step, value in zip(steps, values, strict=True)) / spread
    return slope, spread, sum((value - mean - slope * step) ** 2 for step, value in zip(steps, values, strict=True))
