# SPDX-License-Identifier: GPL-2.0-or-later
"""Plans for a path that has moved: of what a profile computes anew, the rows that count at once and hold our values.

Three plans in one: what the profile wants for the old path shows which values came from it alone (not from --set, nor
from another profile), the journal which of them are ours, and the plan for the new path what they become.  What the old
path did not need and the new one does is written where it is nobody's: the kernel's own default, and the profile was
applied whole.  What the old path's plan refuses, as what another path's sessions would be held to, is no such thing.
What a step of a `fabtune tune` wrote since came from that step's path, and may be needed for it: it is raised alone.
So is what a step wrote that is followed itself, where there are others for sessions of other paths.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fabtune.errors import FabtuneError
from fabtune.facts.collect import Facts
from fabtune.tune import confirm, journal, memory, persist
from fabtune.tune.apply import Result, apply
from fabtune.tune.held import holds, in_force, steps_in_force
from fabtune.tune.journal import Step, Transaction
from fabtune.tune.locate import Locator
from fabtune.tune.pending import Leave
from fabtune.tune.plan import REFUSED, PathUnknownError, Plan, Row, has_default
from fabtune.tune.planned_paths import is_step, left_out, planned_for
from fabtune.tune.request import plan_for, request
from fabtune.tune.transaction import IN_FORCE

LIVE = "live"

# Backend, key, and the device's scope and identity.
Place = tuple[str, str, str, str]


def plan_for_moved(applied: Transaction, rtt_ms: float) -> tuple[Plan, Facts]:
    """Return what is to be written of the profile of `applied` for a path of `rtt_ms`.  Raises FabtuneError."""
    header = applied.header
    assert header.rtt_ms is not None
    then, _ = _planned(applied, header.rtt_ms)
    wanted_then = _wanted(then)
    plan, facts = _planned(applied, rtt_ms)
    locate = Locator(header.netns)
    known = journal.transactions()
    ours, of_steps = in_force(known), _OfSteps(applied, known)
    needed_then = {(row.tunable.name, row.role) for row in then.changes}
    refused_then = {place_of(row) for row in then.rows if row.state == REFUSED}
    # What nobody watches may need as much as there is.
    unwatched = left_out(applied, known)

    def follows(row: Row) -> bool:
        step = ours.get(place_of(row))
        if step is not None:
            if unwatched and _is_less(row, step):
                return False
            then_wanted = wanted_then.get(place_of(row))
            came_from_path = _is_same(step.wrote, then_wanted) or (
                not _is_same(row.wanted, then_wanted) and of_steps.raises(row, step)
            )
            return came_from_path and holds(step, locate)
        # What was needed and is not ours was left out on purpose, or taken back.
        if not header.whole or (row.tunable.name, row.role) in needed_then or place_of(row) in refused_then:
            return False
        if not has_default(row, facts):
            return False
        # Whoever sets the kernel's own default in a file of his own means it.
        return row.device is None or not persist.what_sets(row.tunable.name, row.device, other_than=row.wanted)

    plan.rows = [row for row in plan.changes if row.tunable.effect == LIVE and follows(row)]
    plan.whole, plan.written_for, plan.ends = header.whole, applied.root, header.ends
    # Who planned it first had the rate from a NIC: it is told to nobody for being handed on.
    plan.path = plan.path and replace(plan.path, by_nic=header.rate_by_nic)
    return plan, facts


class _OfSteps:
    """What steps of a tune in force wanted for their own paths, but for what belongs to `applied` itself."""

    def __init__(self, applied: Transaction, known: Sequence[Transaction]) -> None:
        roots = {one.root: one for one in known if one.state == IN_FORCE and is_step(one) and one.header.rtt_ms}
        newest = {step.value: one.root for one, step in steps_in_force(known)}
        self._owners = {value: roots[root] for value, root in newest.items() if root in roots and root != applied.root}
        self._wanted = dict[str, Mapping[Place, str]]()

    def raises(self, row: Row, step: Step) -> bool:
        """Tell whether `step` wrote what its own path alone asks for, and `row` more of that."""
        owner, tunable = self._owners.get(step.value), row.tunable
        if owner is None or row.wanted is None or not _is_same(step.wrote, self._of(owner).get(step.value)):
            return False
        have, wanted = (tunable.parse(text) for text in (step.wrote, row.wanted))
        amount = tunable.amount(wanted)
        return amount is not None and not tunable.is_off(wanted) and amount > (tunable.amount(have) or math.inf)

    def _of(self, owner: Transaction) -> Mapping[Place, str]:
        if owner.name not in self._wanted:
            # Where it cannot be planned anew nothing is known of where its values came from.
            self._wanted[owner.name] = {}
            with contextlib.suppress(FabtuneError):
                self._wanted[owner.name] = _wanted(_planned(owner, owner.header.rtt_ms or 0.0)[0])
        return self._wanted[owner.name]


def follow(applied: Transaction, rtt_ms: float, progress: Callable[[str], None]) -> Result | None:
    """Write what `plan_for_moved` says, as a transaction; None where that is nothing.

    Raises FabtuneError, also where `applied` is by now not the newest in force of its profile, ends and namespace.
    """
    with journal.locked():
        # Whoever held the lock until now may have been a revert.
        if applied.name not in [one.name for one in planned_for(journal.transactions())]:
            raise FabtuneError("it was taken back or applied anew meanwhile")
        confirm.require_nobody_waits()
        plan, facts = plan_for_moved(applied, rtt_ms)
        memory.check_memory(plan, facts)
        return apply(plan, facts.host, Leave(), progress) if plan.rows else None


def _planned(applied: Transaction, rtt_ms: float) -> tuple[Plan, Facts]:
    header = applied.header
    role = header.roles[0] if len(header.roles) == 1 else "both"
    known = header.rate_bit_per_s or header.estimated_bit_per_s
    rate = None if known is None else f"{known:.0f}bit"
    estimated = header.estimated_bit_per_s is not None
    asked = request(header.profile, role, header.netns, f"{rtt_ms:.3f}ms", rate, [], estimated=estimated)
    try:
        return plan_for(asked)
    except PathUnknownError as error:
        # The round trip is known: an older fabtune kept no estimate of the rate.
        raise FabtuneError(
            "the rate that it was planned for was an estimate, which its journal does not have, and no NIC tells its "
            "speed; apply it anew with --rate"
        ) from error


def _wanted(plan: Plan) -> dict[Place, str]:
    return {place_of(row): row.wanted for row in plan.rows if row.wanted is not None}


def _is_less(row: Row, step: Step) -> bool:
    """Tell whether `row` wants less than `step` wrote; what is no amount is not less."""
    amount, had = (row.tunable.amount(row.tunable.parse(text)) for text in (row.wanted or "", step.wrote))
    return amount is not None and had is not None and amount < had


def _is_same(wrote: str | None, wanted: str | None) -> bool:
    """Tell whether two native texts are the same words; no text is none."""
    return (wrote or "").split() == (wanted or "").split()


def place_of(row: Row) -> Place:
    """Return the key by which the journal knows what `row` writes."""
    device = row.device
    return row.tunable.backend, row.tunable.key, device.scope if device else "", device.identity if device else ""
