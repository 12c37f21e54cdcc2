# SPDX-License-Identifier: GPL-2.0-or-later
"""The order of runs that compares two settings fairly: ABBA blocks, never both at once."""

import random
from collections.abc import Callable, Iterator

import attrs

PAIRS_PER_BLOCK = 2


@attrs.frozen
class Turn:
    """One run of a session: which side, and the pair of neighbouring runs it belongs to."""

    side: str
    pair: int


def order(pairs: int, seed: int) -> Iterator[Turn]:
    """Yield the runs of `pairs` pairs: each block of two is ABBA or BAAB as `seed` decides.

    Drift that grows steadily through the session then favours neither side.
    """
    draw = random.Random(seed)
    for block in range(0, pairs, PAIRS_PER_BLOCK):
        for position, side in enumerate(draw.choice(("ABBA", "BAAB"))):
            pair = block + position // 2
            if pair < pairs:
                yield Turn(side, pair)


def session(pairs: int, seed: int, switch: Callable[[str], None], measure: Callable[[Turn], None]) -> None:
    """Switch to and measure each turn of `order`; neighbours of one side are switched to anew all the same.

    A run that follows one of its own kind without a switch would keep warm what the other lost.
    """
    for turn in order(pairs, seed):
        switch(turn.side)
        measure(turn)
