# SPDX-License-Identifier: GPL-2.0-or-later
"""The rate that what is in force was planned for, where nobody tells lint one: a NIC's speed is only a line's limit."""

from collections.abc import Sequence
from dataclasses import dataclass

from fabtune.facts.collect import Facts
from fabtune.lint.rule import ToldPath
from fabtune.model.document import Json
from fabtune.model.one_path import alike
from fabtune.tune import path_choice


@dataclass(frozen=True)
class PlannedRate:
    """A rate, no faster than the fastest NIC, and what in force was planned for it."""

    bit_per_s: float
    of: str

    @property
    def in_words(self) -> str:
        """The sentence that says by what lint judges."""
        return (
            f"judged for {self.bit_per_s / 1e6:g} Mb/s, the rate that {self.of} was planned for; --rate tells another"
        )

    def as_json(self) -> dict[str, Json]:
        """Return it with stable keys."""
        return {"bit_per_s": self.bit_per_s, "of": self.of}


def planned_rate(facts: Facts, planned: Sequence[ToldPath], rtt_ms: float | None) -> PlannedRate | None:
    """Return the rate of the `planned` paths that every session here has, the highest; `rtt_ms` was told, None if not.

    None where there is no such path: of several paths each has a rate of its own, and rules judge by one.
    """
    seen_ms = [one.path_rtt_ms for one in facts.sockets]
    if any(one.is_rdma for one in facts.sessions) or not all(seen_ms):
        return None
    everyone_ms = [*seen_ms, *([] if rtt_ms is None else [rtt_ms])]
    found = [
        PlannedRate(one.rate_bit_per_s, one.told)
        for one in planned
        if one.rate_bit_per_s and not one.by_nic and everyone_ms and all(alike(one.rtt_ms, ms) for ms in everyone_ms)
    ]
    if not found:
        return None
    fastest = max(found, key=lambda one: one.bit_per_s)
    limit = path_choice.fastest_nic_bit_per_s(facts)
    return PlannedRate(min(fastest.bit_per_s, limit or fastest.bit_per_s), fastest.of)
