# SPDX-License-Identifier: GPL-2.0-or-later
"""How busy what carries a direction's data is, at either end."""

from fabtune.model.observation import TARGET, EndSeen
from fabtune.why.one_way import OneWay


def busiest(one_way: OneWay, end: EndSeen | None) -> float:
    """Return how busy the busiest of what carries data at `end` is: a thread, or a CPU's soft interrupts."""
    if end is None:
        return 0.0
    names: tuple[str, ...] = ("iscsi_ttx", "iscsi_trx")
    if end.end != TARGET:
        names = () if one_way.spins else ("iscsi_q_",)
    threads = [one.cpu_share for one in end.threads if any(name in one.name for name in names)]
    return max([*threads, *end.softirq], default=0.0)
