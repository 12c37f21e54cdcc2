# SPDX-License-Identifier: GPL-2.0-or-later
"""Which values on this host are fabtune's now: in force by the journal, and as it wrote them."""

from collections.abc import Iterator, Sequence

from fabtune.tune.locate import Locator, current
from fabtune.tune.revert import is_ours
from fabtune.tune.transaction import Step, Transaction

IN_FORCE = "in force"


def steps_in_force(known: Sequence[Transaction]) -> Iterator[tuple[Transaction, Step]]:
    """Yield each step of a transaction in force whose value is there to be held, oldest first."""
    for one in known:
        for step in one.open_steps if one.state == IN_FORCE else ():
            if not (step.disturbed or step.waiting or step.empty):
                yield one, step


def in_force(known: Sequence[Transaction]) -> dict[tuple[str, str, str, str], Step]:
    """Return the newest step of each value in force, by its key."""
    return {step.value: step for _, step in steps_in_force(known)}


def holds(step: Step, locate: Locator) -> bool:
    """Tell whether the value is there and as it was written.  Raises FabtuneError where that cannot be told."""
    device = locate.of(step)
    return device is not None and is_ours(step, current(step, device), in_doubt=False)


def planned_for(known: Sequence[Transaction]) -> list[Transaction]:
    """Return the newest apply in force of each profile, end and namespace that was planned for a path."""
    newest: dict[tuple[str, tuple[str, ...], str], Transaction] = {}
    for one in known:
        if one.state == IN_FORCE and one.header.rtt_ms is not None:
            newest[one.profile, one.header.roles, one.header.netns] = one
    return list(newest.values())
