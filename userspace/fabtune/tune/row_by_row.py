# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes of a plan what can be written: a row that fails takes back what a rule binds to it, and nothing else.

That is for values which have stood together before and were lost: each is right without most of the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fabtune.errors import FabtuneError
from fabtune.facts.collect import Host
from fabtune.model.device import Device
from fabtune.tune.apply import Applying, Result, apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import Plan, Row, lies_on

# Tunable and device.
_Place = tuple[str, Device | None]


def apply_row_by_row(plan: Plan, host: Host, progress: Callable[[str], None]) -> Result:
    """Write `plan` as a transaction; what was not written stands among the refused.  The caller holds the lock.

    Raises FabtuneError as `apply` does where a signal came, or where a row could not be taken back or journalled.
    """
    return apply(plan, host, Leave(), progress, how=_RowByRow)


def _bound(rows: Sequence[Row], row: Row) -> list[Row]:
    """Return the other `rows` that a rule binds to `row`, however indirectly: one may break it without the other."""
    found = [row]
    for one in found:
        found += [other for other in rows if other not in found and (_rules(one, other) or _rules(other, one))]
    return found[1:]


def _rules(one: Row, other: Row) -> bool:
    """Tell whether one value may not be above the other."""
    if one.tunable.backend == other.tunable.backend == "mtu":
        return lies_on(one, other)
    return one.tunable.not_above == other.tunable.name and one.device == other.device


@dataclass
class _RowByRow(Applying):
    # The journal's steps of each row, and what is not to be written any more.
    _steps_of: dict[_Place, range] = field(default_factory=dict)
    _dropped: set[_Place] = field(default_factory=set)

    def _write(self, row: Row) -> None:
        if _place(row) in self._dropped:
            return
        steps, refused = len(self.transaction.steps), len(self.result.refused)
        try:
            super()._write(row)
        except FabtuneError as error:
            self.result.refused.append((row, str(error)))
        self._steps_of[_place(row)] = range(steps + 1, len(self.transaction.steps) + 1)
        if len(self.result.refused) > refused:
            self._take_back(row)

    def _take_back(self, refused: Row) -> None:
        """Take back what was written of a row that was `refused`, and of those that a rule binds to it."""
        others = _bound(self.plan.changes, refused)
        places = {_place(one) for one in (refused, *others)}
        numbers = {number for place in places for number in self._steps_of.get(place, ())}
        _, why = self.result.refused[-1]
        self._give_back(numbers, why)
        self._dropped |= places
        self.result.written = [row for row in self.result.written if _place(row) not in places]
        why = f"it goes with {refused.tunable.name}, which was refused"
        self.result.refused += [(row, why) for row in others]


def _place(row: Row) -> _Place:
    return row.tunable.name, row.device
