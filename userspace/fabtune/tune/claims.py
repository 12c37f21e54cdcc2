# SPDX-License-Identifier: GPL-2.0-or-later
"""What a profile finds as it wants it: what another transaction wrote stays as long as one of the two wants it."""

from collections.abc import Sequence

from fabtune.tune.plan import KEPT, SAME, Plan, Row
from fabtune.tune.transaction import Transaction


def rows_to_claim(plan: Plan, known: Sequence[Transaction]) -> list[Row]:
    """Return the rows that hold what is wanted because another transaction wrote it; its revert must spare them.

    Where nothing else is to do, a profile's own earlier transaction is claim enough.
    """
    standing: dict[tuple[str, str, str, str], set[str]] = {}
    for transaction in known:
        for step in transaction.open_steps:
            # One that was interrupted, or partly taken back, is completed by the next apply, which answers for all.
            whole = transaction.applied and not transaction.reverting
            standing.setdefault(step.value, set()).update([transaction.profile] if whole else [])
    found = []
    for row in plan.rows:
        if row.state in (SAME, KEPT) and row.device is not None and row.now is not None:
            value = row.tunable.backend, row.tunable.key, row.device.scope, row.device.identity
            if value in standing and (plan.changes or plan.profile not in standing[value]):
                found.append(row)
    return found
