# SPDX-License-Identifier: GPL-2.0-or-later
"""Values that the kernel or a driver rounds: what it made of our value before counts as that value."""

from collections.abc import Iterable
from dataclasses import replace

from fabtune.tune.journal import Transaction
from fabtune.tune.plan import CHANGE, SAME, Plan, Row


def mark_rounded(plan: Plan, known: Iterable[Transaction]) -> None:
    """Mark as right the rows of `plan` that hold what an earlier write of the wanted value resulted in.

    A taken back transaction tells it as well as one in force: it is what this device does.
    """
    made = {
        (step.value, step.wrote, step.holds)
        for transaction in known
        for step in transaction.steps
        if step.rounds and not step.disturbed and step.holds is not None
    }
    plan.rows = [_settled(row) if _place(row) in made else row for row in plan.rows]


def _place(row: Row) -> tuple[tuple[str, str, str, str], str | None, str | None] | None:
    if row.device is None or row.state != CHANGE or not row.tunable.rounds:
        return None
    return (row.tunable.backend, row.tunable.key, row.device.scope, row.device.identity), row.wanted, row.now


def _settled(row: Row) -> Row:
    note = f"{row.wanted} was written, and this is what the device makes of it"
    return replace(row, state=SAME, note=row.note or note)
