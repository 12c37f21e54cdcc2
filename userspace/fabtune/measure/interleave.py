# SPDX-License-Identifier: GPL-2.0-or-later
"""The order of runs that compares settings fairly: ABBA blocks of two, random blocks of more, never two at once."""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import attrs

PAIRS_PER_BLOCK = 2
_Run = TypeVar("_Run")


@attrs.frozen
class Turn:
    """One run of a session: which side, and the pair of neighbouring runs it belongs to."""

    side: str
    pair: int


def order(pairs: int, seed: int) -> Iterator[Turn]:
    """Yield the runs of `pairs` pairs: each block of two is ABBA or BAAB as `seed` decides.

    Drift that grows steadily through the session then favours neither side.  Neighbours of one side
    have to be switched to anew all the same: a run that follows one of its own kind without a switch
    would keep warm what the others lost.
    """
    draw = random.Random(seed)
    for block in range(0, pairs, PAIRS_PER_BLOCK):
        for position, side in enumerate(draw.choice(("ABBA", "BAAB"))):
            pair = block + position // 2
            if pair < pairs:
                yield Turn(side, pair)


def in_random_blocks(runs: Iterable[_Run], block: Callable[[_Run], int]) -> list[_Run]:
    """Return `runs` with those of the lowest `block` first, in an order drawn anew each time within each block.

    In a fixed order whatever drifts through a block would favour the same settings in all of them.
    """
    draw = random.SystemRandom()
    return sorted(runs, key=lambda run: (block(run), draw.random()))
