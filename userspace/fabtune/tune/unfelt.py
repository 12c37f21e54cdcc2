# SPDX-License-Identifier: GPL-2.0-or-later
"""What waits for a new connection in place, by transaction: another one's would bring it as well."""

import contextlib
from collections.abc import Collection, Iterable, Sequence

from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.tune import journal, pending
from fabtune.tune.pending import RECONNECT, Pending
from fabtune.tune.transaction import Transaction

Unfelt = list[tuple[Transaction, list[Pending]]]


def unfelt(known: Iterable[Transaction]) -> Unfelt:
    """Return those of `known` whose values, or the old ones since they went back, wait for that, each with what waits.

    Raises FabtuneError.
    """
    boot_id = this_host().boot_id
    waits = ((one, pending.still_pending([one], boot_id)) for one in known)
    due = [(one, [task for task in tasks if task.action == RECONNECT]) for one, tasks in waits]
    return [(one, tasks) for one, tasks in due if tasks]


def any_waits() -> bool:
    """Tell whether anything waits for a new connection by now, as far as this user may read the journal."""
    with contextlib.suppress(FabtuneError):
        return bool(unfelt(journal.transactions()))
    return False


def who_waits(tasks: Sequence[Pending]) -> str:
    """Return what people call those who wait."""
    names = list(dict.fromkeys(one.label for one in tasks))
    return f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}"


def ways_on(one: Transaction) -> str:
    """Return which commands end the waiting for what `one`, which is in force, wrote."""
    return (
        f"`fabtune revert --transaction {one.name} --reconnect` takes it back, `fabtune apply {one.profile} "
        "--reconnect` with the options that it had keeps it"
    )


def require_none_meanwhile(beside: Collection[str]) -> None:
    """Raise FabtuneError where a step would bring what others than `beside` wrote, or took back, since nothing waited.

    The caller holds the lock.
    """
    for one, tasks in unfelt(one for one in journal.transactions() if one.name not in beside):
        what = f"{one.name} ({one.profile}) was {'taken back' if one.closed else 'written'} meanwhile"
        on = "a tune makes the new connections first" if one.closed else ways_on(one)
        raise FabtuneError(
            f"transaction {what}, by another hand, and a step's new connections would bring that to {who_waits(tasks)} "
            f"and count its gain as the step's, so nothing was written by this step at this end: {on}; then tune again"
        )
