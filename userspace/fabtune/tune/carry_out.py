# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes what was asked for, under the lock: what an earlier run owes first, then the plan for the host as it is."""

from collections.abc import Callable, Collection

from fabtune.facts.collect import this_host
from fabtune.tune import armed, confirm, journal, memory, owed, planned_paths, signals, unfelt
from fabtune.tune.apply import Result, apply
from fabtune.tune.lines import EndsField
from fabtune.tune.pending import Leave
from fabtune.tune.plan import Plan, narrowed
from fabtune.tune.request import Request, keep_at_boot, plan_as_of_now, portals_elsewhere
from fabtune.tune.saved_plan import SavedPlan


def carry_out(
    wanted: Request | SavedPlan,
    *,
    persist: bool,
    leave: Leave,
    confirm_within_s: float | None = None,
    beside: Collection[str] = (),
    note: str = "",
    on_trial: bool = False,
    progress: Callable[[str], None],
) -> tuple[Plan, Result]:
    """Write the plan that `wanted` makes of this host; return it and what came of it.

    With `persist` what sets the values at boot is written too; `beside` are transactions that may wait to be confirmed
    at the same time, `note` is kept with the transaction; `on_trial` it stays only if it is confirmed.  Raises
    FabtuneError, with nothing changed or all taken back.
    """
    progress = signals.unfailing(progress)
    with journal.locked():
        for label in owed.bring_all_back(this_host().boot_id, progress)[0]:
            progress(f"logged in again: {label}")
        # What a power cut left of an apply that came to nothing.
        armed.disarm(progress)
        plan, facts = plan_as_of_now(wanted)
        plan.note = note
        # Who made the plan elsewhere looks whether it helps only where it goes back unless he says so.
        plan.on_trial = on_trial or (plan.on_trial and confirm_within_s is not None)
        if plan.on_trial and plan.path:
            ends = sorted(planned_paths.at_distance(facts.sockets, plan.path.rtt_s * 1e3))
            plan.ends = tuple(EndsField(*one) for one in ends)
        memory.check_memory(plan, facts)
        for remark in portals_elsewhere(plan, facts):
            progress(remark)
        for remark in keep_at_boot(plan) if persist else ():
            progress(f"not kept after a reboot: {remark}")
        if persist and isinstance(wanted, Request) and wanted.narrow:
            narrowed(plan)
        confirm.require_nobody_waits(beside, "tune" if on_trial else "apply")
        if on_trial and leave.reconnect:
            unfelt.require_none_meanwhile(beside)
        if confirm_within_s is not None:
            confirm.require_way_back(plan, leave)
        return plan, apply(plan, facts.host, leave, progress, confirm_within_s)
