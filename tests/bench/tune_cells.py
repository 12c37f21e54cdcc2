# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of `make bench-tune`: paths that fill the space of round trip, loss, queue, rate and jitter evenly.

A Sobol sequence without scrambling: the same points everywhere, and its first n fill the space as evenly as n can.
"""

import math
from collections.abc import Sequence

import attrs
import kept_cells

# A balanced part of the sequence: behind its first points, of which several lie in the space's corners.
CELLS, _FIRST = 64, 64
_MOST_RTT_MS, _MOST_JITTER_MS = 150.0, 5.0
_LOSSES, _BUFFERS_BDP = (1e-5, 1e-3), (0.125, 4.0)
# Of ten cells so many are slow: there a virtual second is cheap.
_SLOW, _SLOW_MBIT, _FAST_MBIT = 0.8, (50.0, 200.0), (200.0, 1000.0)
_JUMBO_FROM_MBIT = 300.0
# What is demanded: of the bound without loss and with it, of the best other way, and of tune's time.
CLEAN, LOSSY, PEER, MOST_S, MOST_STEPS = 0.97, 0.9, 0.98, 90.0, 8
_FIRST_SEED = 1001


@attrs.frozen
class Cell:
    """One path and direction; `loss` is a share of one each way, `jitter_ms` how far a round trip varies."""

    rtt_ms: float
    loss: float
    buffer_bdp: float
    rate_mbit: float
    jitter_ms: float
    op: str
    seed: int

    @property
    def name(self) -> str:
        """A name for files."""
        return f"cell-{self.seed - _FIRST_SEED:02}"

    @property
    def mtu(self) -> int:
        """The MTU with which the guest's CPU keeps up with the line, packets being handled one by one."""
        return 1500 if self.rate_mbit < _JUMBO_FROM_MBIT else 9000

    def digest(self, code: str) -> str:
        """What makes its figures what they are, with the digest `code` of what measures."""
        return kept_cells.digest(self, code)


def cells() -> list[Cell]:
    """Return every cell, in the order in which they fill the space."""
    from scipy.stats import qmc

    points = qmc.Sobol(d=6, scramble=False).fast_forward(_FIRST).random(CELLS)
    return [_cell(number, [float(one) for one in point]) for number, point in enumerate(points)]


def _cell(number: int, point: Sequence[float]) -> Cell:
    rtt, loss, buffer, rate, jitter, op = point
    # Paths are spread over orders of magnitude; the root would be even over the area, this leans to the short ones.
    rtt_ms = round(_MOST_RTT_MS * rtt**1.5, 1)
    slow = rate < _SLOW
    mbit = _between(_SLOW_MBIT, rate / _SLOW) if slow else _between(_FAST_MBIT, (rate - _SLOW) / (1 - _SLOW))
    return Cell(
        rtt_ms=rtt_ms,
        # Half of the paths lose nothing of their own.
        loss=0.0 if loss < 0.5 else float(f"{_between(_LOSSES, 2 * loss - 1):.2g}"),
        buffer_bdp=round(_between(_BUFFERS_BDP, buffer), 3),
        rate_mbit=round(mbit),
        # A round trip cannot vary by more than itself.
        jitter_ms=round(jitter * min(_MOST_JITTER_MS, rtt_ms), 2),
        op="read" if op < 0.5 else "write",
        seed=_FIRST_SEED + number,
    )


def _between(ends: tuple[float, float], share: float) -> float:
    """Return the value at `share` of the way between two, by ratio."""
    least, most = ends
    return math.exp(math.log(least) + share * math.log(most / least))
