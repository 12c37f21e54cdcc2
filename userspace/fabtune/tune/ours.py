# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a value that a revert finds is what fabtune made of it, by its own write or beside another one."""

from collections.abc import Iterable, Iterator

from fabtune.host import targets
from fabtune.model.device import Device
from fabtune.tune.locate import Locator, current
from fabtune.tune.transaction import Step, Transaction

# These change one value by several writes, and a crash between them leaves a mixture of ours; so do keys with a star.
_SEVERAL_WRITES = ("qdisc", "irq", "connection")
# Nobody else writes what these keep: a mixture in it is ours at any time.
_OURS_ALONE = ("connection",)


def is_ours(step: Step, found: str, in_doubt: bool) -> bool:
    """Tell whether `found` is what we wrote.

    A driver may round what it is given.  Where the process died before it could journal the rounded value
    (`in_doubt`), any value of such a tunable but the old one is taken for ours.
    """
    if found.split() in [text.split() for text in (step.wrote, step.holds or step.wrote, *step.ours)]:
        return True
    return in_doubt and (step.rounds or step.backend in _SEVERAL_WRITES or "*" in step.key)


def in_doubt(transaction: Transaction, step: Step) -> bool:
    """Tell whether the process may have died between this step's write and its `holds` line."""
    last = max((one.number for one in transaction.steps if not one.claim), default=0)
    died = step.number == last and not transaction.applied and step.holds is None
    # One that moves beside another is not written before that one has its line.
    return (died and not step.disturbed) or step.backend in _OURS_ALONE


def cause_of(transaction: Transaction, step: Step) -> Step | None:
    """Return the step whose write moved the disturbed `step`: the next one that was really written."""
    return next((one for one in transaction.steps[step.number :] if not one.disturbed), None)


def beside(transaction: Transaction, cause: Step) -> list[Step]:
    """Return the open steps whose values the write of `cause` may move."""
    return [one for one in transaction.open_steps if one.disturbed and _is_cause(transaction, cause, one)]


def _is_cause(transaction: Transaction, cause: Step, step: Step) -> bool:
    found = cause_of(transaction, step)
    return found is not None and found.number == cause.number


def moved_by_us(transaction: Transaction, step: Step, locate: Locator, resumed: bool) -> bool:
    """Tell, before anything goes back, whether a disturbed value is what our write beside it made of it.

    `resumed`: an earlier revert was begun, and may have died behind its write of the old value beside it.
    """
    cause = cause_of(transaction, step)
    if cause is None:
        # Nothing was written.
        return False
    made = {(step.holds or "").strip(), step.old.strip()}
    made |= {
        (one.holds or one.wrote).strip()
        for one in transaction.steps[step.number :]
        if (one.tunable, one.device) == (step.tunable, step.device)
    }
    # What is given back last, and what apply gave back to somebody.
    earlier = transaction.steps[: step.number - 1]
    made |= {one.old.strip() for one in earlier if one.value == step.value and not one.restored}
    try:
        device, cause_device = locate.of(step), locate.of(cause)
        if device is None:
            return False
        if current(step, device).strip() in made:
            return True
        if cause.restored or cause_device is None:
            # What the write back made of it would stand in the journal.
            return False
        beside_it = current(cause, cause_device)
    except Exception:
        return False
    if beside_it.split() == cause.old.split():
        return resumed
    died = step.holds is None and not transaction.applied
    return died and is_ours(cause, beside_it, in_doubt(transaction, cause))


def layers_below(
    transaction: Transaction, step: Step, device: Device, locate: Locator
) -> Iterator[tuple[Step, Device]]:
    """Yield the NICs that the NIC `device` of `step` lies on and that still have that same value of ours.

    Raises FabtuneError where that cannot be told.
    """
    below = device.where.get("below", "").split()
    for one in transaction.open_steps if below else ():
        if one.number == step.number or (one.backend, one.key) != (step.backend, step.key):
            continue
        there = locate.of(one)
        if there is None or there.where.get("name") not in below:
            continue
        found = current(one, there)
        if is_ours(one, found, in_doubt=False) and is_ours(step, found, in_doubt=False):
            yield one, there


def back_before(step: Step, found: str, transaction: Transaction, everything: Iterable[Transaction]) -> bool:
    """Tell whether `found` is from before an earlier transaction, given back by a revert not journalled."""
    return any(
        one.value == step.value and one.old.split() == found.split()
        for other in everything
        if other.name < transaction.name
        for one in other.open_steps
    )


def our_default(step: Step, found: str, everything: Iterable[Transaction]) -> bool:
    """Tell whether `found` is a default that we gave the TPG: an ACL created again at a boot starts with it."""
    return any(
        one.tunable == targets.default_of(step.tunable)
        and step.device.identity.startswith(f"{one.device.identity},")
        and found.split() == (one.holds or one.wrote).split()
        for other in everything
        for one in other.steps
    )
