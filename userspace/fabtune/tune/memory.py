# SPDX-License-Identifier: GPL-2.0-or-later
"""What a plan may cost in memory at worst: every buffer full on every session at once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from fabtune.errors import InputError
from fabtune.facts.collect import Facts
from fabtune.host import targets, tree
from fabtune.tune.plan import CHANGE, Plan, Row
from fabtune.tune.saved_plan import SavedPlan

# Share of the host's memory, in percent, that the worst case may take, and the parameter that says otherwise.
LIMIT = "memory_percent"
_DEFAULT_PERCENT = 50.0
_SOCKETS = ("tcp.rmem_max", "tcp.wmem_max")
# What a connection is given in their place; the kernel doubles it.
_GIVEN = ("connection.receive_buffer", "connection.send_buffer")
_UNSOLICITED = ("FirstBurstLength", "cmdsn_depth")


@dataclass(frozen=True)
class MemoryCost:
    """Bytes that sockets and unsolicited data of `sessions` may take at worst, and the host's memory."""

    sessions: int
    socket_bytes: int
    unsolicited_bytes: int
    host_bytes: int

    @property
    def total_bytes(self) -> int:
        """Sockets and unsolicited data together."""
        return self.socket_bytes + self.unsolicited_bytes

    @property
    def fraction_of_host(self) -> float:
        """Share of the host's memory, 0 where that is not known."""
        return self.total_bytes / self.host_bytes if self.host_bytes else 0.0


def worst_case(plan: Plan, facts: Facts) -> MemoryCost:
    """Return what `plan` may cost at worst with the sessions of now, at least one."""
    return _cost(plan.rows, plan.roles, partial(_now, facts), facts.session_count, facts.host.memory_bytes)


def _cost(
    rows: Iterable[Row], roles: Iterable[str], now: Callable[[str], int], sessions: int, host_bytes: int
) -> MemoryCost:
    """Return what `rows` may cost at worst, where `now` tells what a tunable holds that they do not set."""
    wanted = {row.tunable.name: number for row in rows if (number := tree.whole(row.wanted)) is not None}
    buffers = sum(
        max(wanted.get(name) or now(name), 2 * (wanted.get(given) or now(given)))
        for name, given in zip(_SOCKETS, _GIVEN, strict=True)
    )
    worst = 0
    for kind in targets.serving() if "target" in roles else ():
        depth, burst = (wanted.get(kind.offer(key), 0) for key in _UNSOLICITED)
        worst = max(worst, depth * burst)
    return MemoryCost(sessions, sessions * buffers, sessions * worst, host_bytes)


def _takes_memory(tunable: str) -> bool:
    return tunable in (*_SOCKETS, *_GIVEN) or targets.offers().get(tunable) in _UNSOLICITED


def excess(plan: Plan, cost: MemoryCost) -> str:
    """Return why `plan` may take too much memory, '' where it does not or raises nothing that takes any."""
    told = _too_much(plan.rows, plan.parameters, cost)
    advice = []
    # A rate that was told is the path's own as far as anybody knows.
    if plan.path is None or plan.path.by_nic or plan.path.estimated:
        advice.append("give the path's own rate with --rate")
    if LIMIT in plan.parameters:
        percent = 100 * cost.fraction_of_host
        advice.append(f"--set {LIMIT}={percent + 1:.0f} {'to take' if advice else 'takes'} it all the same")
    return f"{told}{'; ' if advice else ''}{', or '.join(advice)}" if told else ""


def excess_of(saved: SavedPlan) -> str:
    """Return why whoever applies `saved` refuses it, in the same way, with no advice."""

    def now(tunable: str) -> int:
        return max((tree.whole(row.now) or 0 for row in saved.rows if row.tunable.name == tunable), default=0)

    cost = _cost(saved.rows, saved.roles, now, saved.session_count, saved.memory_bytes)
    return _too_much(saved.rows, saved.parameters, cost)


def _too_much(rows: Iterable[Row], parameters: Mapping[str, float], cost: MemoryCost) -> str:
    allowed, found = parameters.get(LIMIT, _DEFAULT_PERCENT), 100 * cost.fraction_of_host
    if found <= allowed or not any(row.state == CHANGE and _takes_memory(row.tunable.name) for row in rows):
        return ""
    return (
        f"too much memory at worst: buffers of {cost.sessions} sessions may take {cost.total_bytes / 2**20:.0f} MiB, "
        f"{found:.0f} % of this host's {cost.host_bytes / 2**20:.0f} MiB, allowed: {allowed:.0f} %"
    )


def check_memory(plan: Plan, facts: Facts) -> None:
    """Raise InputError where `plan` may take too much memory."""
    reason = excess(plan, worst_case(plan, facts))
    if reason:
        raise InputError(reason)


def _now(facts: Facts, tunable: str) -> int:
    return max((tree.whole(one.value) or 0 for one in facts.of(tunable)), default=0)
