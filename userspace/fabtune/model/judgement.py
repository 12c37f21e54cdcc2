# SPDX-License-Identifier: GPL-2.0-or-later
"""The one judgement of B against A: ratio, interval, p and verdict, for every verb and experiment.

The unit is one whole run.  Ratios are shifts of logarithms, paired where the runs were interleaved or share a seed.
Where there are runs enough, a few that lose a third do not move the ratio: signed ranks judge pairs, trimmed means
what is not paired; else Student's t.  No test of unpaired runs takes both sides to vary alike: tuning changes that
first.  The verdict follows from the interval alone, and the interval is shown at the level that it is judged at.
A value of 0, of a run in which nothing moved, has no ratio: beside such ones order alone is judged, and no interval.
"""

import enum
import math
import statistics
from collections.abc import Sequence
from typing import Annotated

import attrs

from fabtune.model.order import Order, least_p, ranks, signs
from fabtune.model.statistics import Shift, holm, paired_t, signed_rank, trimmed_t, welch_t
from fabtune.model.typed import between
from fabtune.model.units import counted

ALPHA = 0.05
# A difference smaller than this is of no use to anybody.
PRACTICAL = 0.02
# A bias of the set-up limits every verdict, so it must be proven: a false alarm costs 1 % of the power, not 5 %.
ALPHA_BIAS = 0.01
LEAST = 3
# Why runs are left out.
CANNOT_BE_RIGHT = "since their own figures cannot be right"
NO_RATIO = "a value of 0 has no ratio"
_LARGEST = 700.0
_NOT_BESIDE_THE_OTHERS = (
    "alone it would count as a difference; beside the other figures judged with it, it is not certain enough"
)
# With fewer, what bears an outlier finds less than t does: by ranks six pairs must all agree, and one of twenty of them
# does not; of six runs trimmed means leave four.
LEAST_ROBUST = 8
# Whoever looks several times and may stop each time errs more often, so that each look judges at a lower level
# (Pocock): at this one, looks after these shares of the pairs err in less than 5 % of sessions, all together.
ALPHA_LOOK = 0.015
_LOOKS = (1 / 4, 3 / 8, 5 / 8, 1)
LEAST_LOOKED_AT = 24


class Verdict(enum.Enum):
    """What a comparison allows to say about B against A."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no practical difference"
    CANNOT_TELL = "cannot tell"


_DIFFERENT = (Verdict.BETTER, Verdict.WORSE)


@attrs.frozen(kw_only=True)
class Rules:
    """What was settled before the first run: the difference that matters, and the level that is judged at.

    A session that may stop early looks at its figures after each number of pairs in `looks`; the level is so much
    lower that all looks together err with probability `ALPHA`.  `seed` is that of the order of the runs.
    """

    practical: Annotated[float, between(0, 100)] = PRACTICAL
    level: Annotated[float, between(0.001, ALPHA)] = ALPHA
    looks: tuple[int, ...] = ()
    seed: int | None = None


def rules_with_looks(most_pairs: int) -> Rules:
    """Return the rules of a session of at most so many pairs that ends when every primary figure is decided."""
    return Rules(level=ALPHA_LOOK, looks=tuple(2 * round(most_pairs * share / 2) for share in _LOOKS))


@attrs.frozen(kw_only=True)
class Sides:
    """One figure of both sides: values of whole runs, `paired` in order or not; `better` is +1 if larger is better.

    `bias` is the interval of the ratio that A against A gave where it proved the set-up to favour a side.  `rounded`
    is how far the ratio may be off as `rounded_by` says, as a share: no number of runs helps.
    `unfair` says why the values are no fair sample, where runs without one did not lack it by chance.
    """

    a: tuple[float, ...]
    b: tuple[float, ...]
    better: int
    paired: bool
    bias: tuple[float, float] | None = None
    rounded: float = 0.0
    rounded_by: str = "both sides are known to a bucket only"
    unfair: str = ""

    @property
    def n(self) -> int:
        """The pairs, or the runs of the side that has fewer."""
        return min(len(self.a), len(self.b))

    @property
    def stood_still(self) -> bool:
        """Whether nothing moved in some runs."""
        return min(*self.a, *self.b) <= 0


@attrs.frozen(kw_only=True)
class Judgement:
    """B against A: the ratio B/A with its interval, which covers with probability 1 - `level`.

    `p` is adjusted for all figures judged together: it is at most their common alpha where the interval excludes 1.
    `geometric_mean` stands beside the ratio to be compared with it.  All are None below three runs a side; beside a
    value of 0 there is no ratio and no interval, whatever the verdict.
    """

    verdict: Verdict
    why: str
    n: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    geometric_mean: float | None = None
    p: float | None = None
    level: float | None = None
    method: str = ""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the ratio."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def failed_of(failed: int, runs: int, name: str) -> str:
    """Return why the runs of `name` are no fair sample of which some, or all, failed."""
    said = f"{failed} of {counted(runs, 'run')} of {name} failed"
    return said if failed == runs else f"{said}; the others are no fair sample"


def left_out_of(out: int, runs: int, name: str) -> str:
    """Return why the runs of `name` are no fair sample of which some, or all, are left out: by what they said."""
    said = f"{out} of {counted(runs, 'run')} of {name} {'is' if out == 1 else 'are'} left out, {CANNOT_BE_RIGHT}"
    return said if out == runs else f"{said}; the others are no fair sample"


def lacking_of(lacking: int, runs: int, name: str) -> str:
    """Return why the runs of `name` are no fair sample of which some, or all, tell nothing where others do."""
    said = f"{lacking} of {counted(runs, 'run')} of {name} {'tells' if lacking == 1 else 'tell'} nothing of it"
    return said if lacking == runs else f"{said}; the others are no fair sample"


def judge_together(figures: Sequence[Sides], *, alpha: float = ALPHA, practical: float = PRACTICAL) -> list[Judgement]:
    """Return the judgement of each figure of one family: all of them err with probability `alpha` at most (Holm)."""
    told = [sides for sides in figures if not _untold(sides, alpha)]
    # Which test judges must not depend on what it finds: the strictest level of the family decides.
    tests = [_order(one, practical) if one.stood_still else _shift(one, alpha / len(told)) for one in told]
    alone = [
        test.p if isinstance(test, Order) else _p(sides, test, alpha / len(told))
        for sides, test in zip(told, tests, strict=True)
    ]
    adjusted = iter(zip(tests, alone, holm(alone, alpha), strict=True))
    found = []
    for sides in figures:
        if why := _untold(sides, alpha):
            found.append(Judgement(verdict=Verdict.CANNOT_TELL, why=why, n=sides.n))
            continue
        test, p_alone, (p, level) = next(adjusted)
        if isinstance(test, Order):
            judged = _ordered(sides, test, p, level, certain=p <= alpha)
        else:
            judged = _judged(sides, test, p, level, practical)
        if judged.verdict is Verdict.CANNOT_TELL and p_alone <= alpha < p:
            judged = attrs.evolve(judged, why=_NOT_BESIDE_THE_OTHERS)
        found.append(judged)
    return found


def proven_bias(same: Judgement) -> tuple[float, float] | None:
    """Return the interval of A against A, judged at `ALPHA_BIAS`, where it proves that the set-up favours a side.

    One that stands still on one side alone makes any difference.
    """
    return same.interval or (_ratio(-_LARGEST), _ratio(_LARGEST)) if same.verdict in _DIFFERENT else None


def _untold(sides: Sides, alpha: float) -> str:
    """Return why nothing can be said of a figure, or nothing.

    What cannot be certain at `alpha` whatever it shows is none of a family, and makes the others no less certain.
    """
    if sides.unfair:
        return sides.unfair
    if sides.n < LEAST:
        runs = ("pair" if sides.n == 1 else "pairs") if sides.paired else "runs of a side"
        return f"{sides.n} {runs}; at least {LEAST} are needed"
    if sides.stood_still and least_p(len(sides.a), len(sides.b), paired=sides.paired) > alpha:
        return NO_RATIO
    return ""


def _order(sides: Sides, practical: float) -> Order:
    bias = max(sides.bias[1], 1 / sides.bias[0]) if sides.bias else 1.0
    margin = max(1 + practical, bias) * (1 + sides.rounded)
    return (signs if sides.paired else ranks)(sides.a, sides.b, margin)


def _ordered(sides: Sides, order: Order, p: float, level: float, *, certain: bool) -> Judgement:
    verdict, why = Verdict.CANNOT_TELL, NO_RATIO
    if certain:
        beyond = _ratio(order.sense * _LARGEST)
        verdict, why = _verdict(sides, beyond, beyond, 0.0)
    return Judgement(verdict=verdict, why=why, n=sides.n, p=p, level=level, method=order.method)


def _shift(sides: Sides, level: float) -> Shift:
    a, b = ([math.log(value) for value in side] for side in (sides.a, sides.b))
    robust = sides.n >= LEAST_ROBUST
    if not sides.paired:
        return trimmed_t(a, b) if robust else welch_t(a, b)
    differences = [y - x for x, y in zip(a, b, strict=True)]
    if robust and (ranks := signed_rank(differences)).reaches(level):
        return ranks
    return paired_t(differences)


def _p(sides: Sides, shift: Shift, level: float) -> float:
    """Return p of a difference beyond what the rounding of the values explains."""
    slack = math.log1p(sides.rounded)
    if not slack:
        return shift.p
    if abs(shift.estimate) <= slack:
        return 1.0
    beyond = math.exp(-math.copysign(slack, shift.estimate))
    return _shift(attrs.evolve(sides, b=tuple(value * beyond for value in sides.b)), level).p


def _judged(sides: Sides, shift: Shift, p: float, level: float, practical: float) -> Judgement:
    measured = _ratio(shift.interval(level)[0]), _ratio(shift.interval(level)[1])
    low, high = measured[0] / (1 + sides.rounded), measured[1] * (1 + sides.rounded)
    verdict, why = _verdict(sides, low, high, practical)
    if verdict is Verdict.CANNOT_TELL and _verdict(sides, *measured, practical)[0] is not Verdict.CANNOT_TELL:
        why = f"{sides.rounded_by}: their ratio may be {sides.rounded * 100:.1f} % off"
    means = [statistics.geometric_mean(side) for side in (sides.a, sides.b)]
    return Judgement(
        verdict=verdict, why=why, n=sides.n, ratio=math.exp(shift.estimate), low=low, high=high,
        geometric_mean=means[1] / means[0], p=p, level=level, method=shift.method,
    )  # fmt: skip


def _ratio(shift: float) -> float:
    # Three values that have nothing in common have an interval beyond all numbers.
    return math.exp(min(max(shift, -_LARGEST), _LARGEST))


def _verdict(sides: Sides, low: float, high: float, practical: float) -> tuple[Verdict, str]:
    """Return the verdict on an interval, and why when it cannot tell."""
    if 1 / (1 + practical) <= low and high <= 1 + practical:
        verdict, why = Verdict.SAME, ""
    elif low <= 1 <= high:
        above, below = ("gain", "loss") if sides.better > 0 else ("loss", "gain")
        beyond = [above] * (high > 1 + practical) + [below] * (low < 1 / (1 + practical))
        why = (
            f"the interval holds no difference as well as a {' or a '.join(beyond)} of more than {practical * 100:g} %"
        )
        return Verdict.CANNOT_TELL, why
    else:
        verdict, why = Verdict.BETTER if (low > 1) == (sides.better > 0) else Verdict.WORSE, ""
    if sides.bias and _within_bias(low, high, sides.bias, verdict):
        most = max(sides.bias[1], 1 / sides.bias[0]) - 1
        said = f"differed by up to {most * 100:.1f} %" if most < _ratio(_LARGEST) - 1 else "stood still on one side"
        return Verdict.CANNOT_TELL, f"A against A {said}: the set-up itself favours one side"
    return verdict, why


def _within_bias(low: float, high: float, bias: tuple[float, float], verdict: Verdict) -> bool:
    """Return whether a difference from `low` to `high` may be the bias alone, or hide behind it."""
    if verdict is Verdict.SAME or bias[0] < 1 < bias[1]:
        return True
    return low <= bias[1] if low > 1 < bias[0] else high >= bias[0] if high < 1 > bias[1] else False
