# SPDX-License-Identifier: GPL-2.0-or-later
"""Which values on this host are fabtune's now: in force by the journal, and as it wrote them."""

from collections.abc import Iterator, Sequence

from fabtune.tune.locate import Locator, current
from fabtune.tune.ours import is_ours
from fabtune.tune.transaction import IN_FORCE, Step, Transaction


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
