# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of `make bench-told`: paths, what is told of each wrongly, and whether the rules promise to notice it."""

import attrs
import kept_cells

from fabtune.model.one_path import alike

# What is wrong: its name, the round trip and the rate that are told instead; shares of the true ones, or values.
_LAN_RTT_MS = 0.2
RTT, RATE = "rtt", "rate"
_FACTORS = (0.1, 10, 0.5, 2, 0.2, 5)
# Those of NICs that have nothing to do with storage: a rack's, with the round trip in that rack.
_NICS_MBIT = {"another NIC's": 25_000.0, "another NIC's rate": 40_000.0}
OTHERS = ("another NIC's", "another NIC's rate", "another NIC's rtt")
# Paths whose virtual second is cheap.
_RATES_MBIT, _RTTS_MS = (100.0, 50.0, 75.0, 60.0, 90.0), (20.0, 100.0, 5.0, 150.0, 50.0)
_FIRST_SEED = 2001
# A rate that more than this passes of is not believed (why.summing_up); one less than this full while a queue stands
# may be wrong (why.limiters.line), and one above a NIC's by this is no rate of it (lint).
_TOO_MUCH, _OURS, _ABOVE_NIC = 1.02, 0.8, 1.01


@attrs.frozen
class Cell:
    """One path and direction, and what is told of it: to the profile, and with `to_tune` the rate to `tune` as well."""

    rtt_ms: float
    rate_mbit: float
    told_rtt_ms: float
    told_rate_mbit: float
    told: str
    op: str
    to_tune: bool
    seed: int

    @property
    def name(self) -> str:
        """A name for files."""
        return f"told-{self.seed - _FIRST_SEED:02}"

    def digest(self, code: str) -> str:
        """What makes its figures what they are, with the digest `code` of what measures."""
        return kept_cells.digest(self, code)

    @property
    def wrong_rtt(self) -> bool:
        """Whether the round trip that is told cannot be this path's: closer ones are told roughly."""
        return not alike(self.rtt_ms, self.told_rtt_ms)

    def rate_above(self, nic_mbit: float | None) -> bool:
        """Whether no NIC of storage's sends so fast, as far as their speed is known."""
        return nic_mbit is not None and self.told_rate_mbit > _ABOVE_NIC * nic_mbit

    @property
    def wrong_rate(self) -> bool:
        """Whether a load that fills the line shows that the rate is not the line's."""
        too_low = self.rate_mbit > _TOO_MUCH * self.told_rate_mbit
        return too_low or self.rate_mbit < _OURS * self.told_rate_mbit

    def for_lint(self, nic_mbit: float | None) -> set[str]:
        """What lint's rules name of what is told here: they see round trips and NICs, and move nothing themselves."""
        return {what for what, seen in ((RTT, self.wrong_rtt), (RATE, self.rate_above(nic_mbit))) if seen}

    @property
    def for_tune(self) -> set[str]:
        """What tune names of it: it sees round trips, and what passes."""
        return {what for what, seen in ((RTT, self.wrong_rtt), (RATE, self.wrong_rate)) if seen}


def cells() -> list[Cell]:
    """Return every cell; the first of them are of each kind, and both directions have the same kinds on other paths."""
    kinds = [(f"{what} x{factor:g}", what, factor) for factor in _FACTORS for what in (RATE, RTT)]
    kinds[4:4] = [(name, name, 0.0) for name in OTHERS]
    first = [_cell(number, *kind, second=False) for number, kind in enumerate(kinds)]
    return [*first, *(_cell(number, *kind, second=True) for number, kind in enumerate(kinds))]


def _cell(number: int, told: str, what: str, factor: float, *, second: bool) -> Cell:
    # The paths of the second half are others than those of the first.
    rtt_ms = _RTTS_MS[(number + 2 * second) % len(_RTTS_MS)]
    rate_mbit = _RATES_MBIT[(2 * number + second) % len(_RATES_MBIT)]
    rtt_told = _LAN_RTT_MS if what in (OTHERS[0], OTHERS[2]) else rtt_ms * factor if what == RTT else rtt_ms
    rate_told = _NICS_MBIT.get(what, rate_mbit * factor if what == RATE else rate_mbit)
    reads = (number % 2 == 0) != second
    seed = _FIRST_SEED + number + (second and len(_FACTORS) * 2 + len(OTHERS))
    return Cell(
        rtt_ms=rtt_ms, rate_mbit=rate_mbit, told_rtt_ms=round(rtt_told, 3), told_rate_mbit=round(rate_told, 3),
        told=told, op="read" if reads else "write", to_tune=second, seed=seed,
    )  # fmt: skip
