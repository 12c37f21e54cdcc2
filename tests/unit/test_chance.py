# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: how often a step without any effect is kept, by simulation, as Documentation/tuning.md says."""

import math
import random
from collections.abc import Callable, Sequence

import pytest

from fabtune.autotune import trend
from fabtune.autotune.goal import Aim, Figures, Goal
from fabtune.autotune.step import PROMISING
from fabtune.model.judgement import Verdict

BLOCKS, BETWEEN, TURNS = 7, 3, 1000
# The step is looked at for twice as long where its load may grow by itself, or what it gained may be chance.  Where it
# may still, it is tried once more for either reason, behind another look without it.
TRIALS = 3
ALL = TRIALS * (3 * BLOCKS + 2 * BETWEEN)
CHANCE, GROWTH = "chance", "growth"
Load = Callable[[random.Random], Sequence[float]]


def kept(rates: Sequence[float]) -> bool:
    """Tell whether a step in the middle of a load's rates would be kept, as a climb looks at them."""
    before, again, left = list(rates[:BLOCKS]), 0, {CHANCE, GROWTH}
    while True:
        begun = again + BLOCKS + BETWEEN
        verdict = judged(before, rates[begun:])
        if verdict not in left:
            return verdict is True
        left.discard(str(verdict))
        again = begun + 2 * BLOCKS + BETWEEN
        # What grew was another load before.
        before = (before if verdict == CHANCE else []) + list(rates[again : again + BLOCKS])


def judged(before: Sequence[float], later: Sequence[float]) -> bool | str:
    """Tell whether a trial stays, as TuningStep looks at it, or why it may be worth another one."""
    for blocks in (BLOCKS, 2 * BLOCKS):
        found = Aim(Goal.THROUGHPUT).outcome(Figures(tuple(before)), Figures(tuple(later[:blocks]))).throughput
        if found.verdict is Verdict.CANNOT_TELL and (found.ratio or 1.0) >= PROMISING:
            continue
        if found.verdict is not Verdict.BETTER or found.low is None:
            return False
        if not trend.explains(before, later[:blocks], found.low):
            return True
    return CHANCE if found.verdict is Verdict.CANNOT_TELL else GROWTH


def correlated(share: float, deviation: float = 0.15, gain: float = 1.0) -> Load:
    """A load whose neighbouring blocks are so correlated; from the step on it is so many times as fast."""

    def rates(chance: random.Random) -> list[float]:
        found, now = list[float](), chance.gauss(0, deviation)
        for turn in range(ALL):
            now = share * now + chance.gauss(0, deviation * math.sqrt(1 - share**2))
            found.append(1e7 * math.exp(now) * (gain if turn >= BLOCKS else 1.0))
        return found

    return rates


def growing(share_a_second: float, deviation: float = 0.02) -> Load:
    """A load that grows by itself, with blocks of 1.43 s that vary by so much."""

    def rates(chance: random.Random) -> list[float]:
        return [1e7 * math.exp(1.43 * share_a_second * turn + chance.gauss(0, deviation)) for turn in range(ALL)]

    return rates


@pytest.mark.parametrize(
    ("load", "least", "most"),
    [
        (correlated(0.0), 0.02, 0.07),
        (correlated(0.5), 0.12, 0.20),
        (correlated(0.7), 0.20, 0.28),
        (correlated(0.9), 0.26, 0.35),
        (growing(0.002), 0.55, 0.67),
        (growing(0.005), 0.62, 0.75),
        (growing(0.01), 0.27, 0.39),
        (growing(0.002, 0.15), 0.11, 0.19),
        (growing(0.005, 0.15), 0.39, 0.50),
        (growing(0.01, 0.15), 0.75, 0.87),
        (correlated(0.0, 0.03, 1.1), 0.99, 1.0),
    ],
    ids=[
        "steady",
        "0.5",
        "0.7",
        "0.9",
        "0.2 % a second",
        "0.5 % a second",
        "1 % a second",
        "uneven 0.2 %",
        "uneven 0.5 %",
        "uneven 1 %",
        "a gain of 10 %",
    ],
)
def test_how_often_a_step_stays(load: Load, least: float, most: float) -> None:
    chance = random.Random(1)
    share = sum(kept(load(chance)) for _ in range(TURNS)) / TURNS
    assert least <= share <= most, share
