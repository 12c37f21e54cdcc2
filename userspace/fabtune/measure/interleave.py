# SPDX-License-Identifier: GPL-2.0-or-later
"""The order of runs that compares two settings fairly: ABBA blocks, never both at once."""

import random
from collections.abc import Iterator

import attrs

PAIRS_PER_BLOCK = 2


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
