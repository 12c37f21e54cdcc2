# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints plans, results, drift and history: tables for people, JSON for programs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fabtune.catalog.tunable import EFFECTS
from fabtune.cli.table import number, paragraph, print_json, rate, table
from fabtune.host import targets
from fabtune.model.listing import first_of
from fabtune.model.units import counted
from fabtune.tune.missing import unseen
from fabtune.tune.plan import (
    CHANGE,
    KEPT,
    NO_DEVICE,
    NOT_LIMITED,
    NOT_NEEDED,
    REFUSED,
    SAME,
    UNREADABLE,
    UNSUPPORTED,
    Plan,
    Row,
)

# Only what a verb prints is imported by it.
if TYPE_CHECKING:
    from fabtune.tune.again import Restored
    from fabtune.tune.apply import Result
    from fabtune.tune.journal import Step, Transaction
    from fabtune.tune.memory import MemoryCost
    from fabtune.tune.pending import Pending
    from fabtune.tune.reconnect import Forecast, Reconnected
    from fabtune.tune.verify import Drift

# So many devices of one tunable are named.
_NAMED = 3
_STATE_WORDS = {
    SAME: "right already",
    KEPT: "better already",
    UNSUPPORTED: "not supported",
    UNREADABLE: "not readable",
    NOT_NEEDED: "not needed",
    NO_DEVICE: "no device yet",
    REFUSED: "left alone",
}


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the plan with stable keys."""
    return {
        "profile": plan.profile,
        "roles": list(plan.roles),
        "netns": plan.netns,
        "path": path_json(plan),
        "parameters": plan.parameters,
        "changes": len(plan.changes),
        "rows": [row.as_json() for row in plan.rows],
    }


def memory_json(cost: "MemoryCost") -> dict[str, float]:
    """Return the worst case of memory with stable keys."""
    return {
        "sessions": cost.sessions,
        "socket_bytes": cost.socket_bytes,
        "unsolicited_bytes": cost.unsolicited_bytes,
        "worst_bytes": cost.total_bytes,
        "host_bytes": cost.host_bytes,
        "fraction_of_host": round(cost.fraction_of_host, 6),
    }


def path_json(plan: Plan) -> dict[str, float] | None:
    """Return the path a plan was computed for."""
    if plan.path is None:
        return None
    return {
        "rtt_ms": round(plan.path.rtt_s * 1e3, 6),
        "rate_bit_per_s": plan.path.rate_bytes_per_s * 8,
        "bdp_bytes": plan.path.bdp_bytes,
        "mtu_bytes": plan.path.mtu,
    }


@dataclass(frozen=True)
class PlanTold:
    """What is said of a plan beside its rows: memory, portals elsewhere, and what --reconnect would do."""

    cost: "MemoryCost"
    elsewhere: Sequence[str]
    reconnect: "Forecast | None"


def show_plan(plan: Plan, told: PlanTold, as_json: bool, everything: bool) -> None:
    """Print a plan, and what is `told` of it; of what nobody needs the count alone, but with `everything`."""
    cost = told.cost
    rows = [row for row in plan.rows if everything or row.note != NOT_LIMITED]
    if as_json:
        more = {"elsewhere": list(told.elsewhere), "reconnect": told.reconnect.as_json() if told.reconnect else None}
        print_json(plan_json(replace(plan, rows=rows)) | {"memory": memory_json(cost)} | more)
        return
    from fabtune.tune import sizing

    path = "path not known"
    if plan.path:
        path = (
            f"round trip {plan.path.rtt_s * 1e3:g} ms, rate {rate(plan.path.rate_bytes_per_s * 8)}, "
            f"BDP {plan.path.bdp_bytes / 1e6:.2f} MB"
        )
    paragraph(f"profile {plan.profile} for {' and '.join(plan.roles)}: {path}")
    for sentence in told.elsewhere:
        paragraph(sentence)
    for sized in filter(None, (sizing.in_words(plan), sizing.division_in_words(plan))):
        paragraph(sized)
    show_rows([row for row in rows if everything or row.state in (CHANGE, NO_DEVICE, UNREADABLE, REFUSED)])
    counts = {words: sum(row.state == state for row in plan.rows) for state, words in _STATE_WORDS.items()}
    paragraph(
        ", ".join([f"{len(plan.changes)} to change", *(f"{count} {words}" for words, count in counts.items() if count)])
    )
    if told.reconnect:
        paragraph(reconnect_in_words(told.reconnect))
    paragraph(
        f"memory in the worst case: {cost.total_bytes / 2**20:.0f} MiB for "
        f"{counted(cost.sessions, 'session')}, {100 * cost.fraction_of_host:.1f} % of this host's"
    )


def reconnect_in_words(told: "Forecast") -> str:
    """Return what --reconnect would do here."""
    if told.why_not:
        return f"--reconnect is not possible here: {told.why_not}"
    return (
        f"--reconnect brings what waits for a new connection into force in place: {counted(told.sessions, 'session')}, "
        f"all that this host has, {'pause' if told.sessions > 1 else 'pauses'} for about {told.pause_s:.1f} s"
    )


def show_rows(rows: Sequence[Row]) -> None:
    """Print rows of a plan."""
    if rows:
        headers = ("tunable", "device", "now", "wanted", "why", "effect")
        table(headers, [_plan_row(row) for row in rows], wrapped="why", fold=("device", "effect"))


def _plan_row(row: Row) -> tuple[str, ...]:
    unit = row.tunable.unit
    felt = row.state in (CHANGE, NO_DEVICE)
    effect = f"{EFFECTS[row.tunable.effect]} ({row.touches})" if felt else _STATE_WORDS[row.state]
    why = f"{row.why} ({row.note})" if row.note else row.why
    # Who says nothing of a target may have one.
    kind = targets.of_scope(row.tunable.scope)
    seen = "seen" if unseen() or (kind and not kind.usual) else "yet"
    device = row.device.label if row.device else f"(no {row.tunable.scope.replace('-', ' ')} {seen})"
    return row.tunable.name, device, number(row.now, unit), number(row.wanted, unit), why, effect


def pending_json(pending: "Sequence[Pending]") -> list[dict[str, str]]:
    """Return what is still to do with stable keys."""
    return [
        {"action": one.action, "identity": one.identity, "label": one.label, "reason": one.reason} for one in pending
    ]


def show_pending(pending: "Sequence[Pending]", when: str = "still to do") -> None:
    """Print what is to be done, and `when`."""
    words = {"reconnect": "needs a re-login", "relogin": "needs a re-login",
             "target-relogin": "must log in again from its own host",
             "srp-relogin": "needs a re-login", "leave": "is not written yet",
             "path": "lacks its multipath device", "value": "is no longer as it was before the re-login",
             "login": "was logged out for a re-login and is not back",
             "saved": "is saved with values that were taken back",
             "initramfs": "may still hold what was taken back"}  # fmt: skip
    for one in pending:
        what = words.get(one.action, f"needs a {one.action}")
        if one.action == "reconnect" and not one.reason:
            what += ", or a new connection in place (--reconnect)"
        few = f" for {' and '.join(one.values)}" if one.action == "relogin" and 0 < len(one.values) < 4 else ""
        paragraph(f"{when}: {one.label} {what}{few}" + (f" ({one.reason})" if one.reason else ""))


def show_reconnected(found: "Sequence[Reconnected]") -> None:
    """Print which sessions have new connections."""
    for one in found:
        paragraph(f"connected anew in place: {one.label}, its requests waited at most {one.pause_s:.1f} s")


def _impossible(plan: Plan) -> list[Row]:
    return [row for row in plan.rows if row.state in (UNSUPPORTED, UNREADABLE)]


def _by_reason(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return (tunable and devices, reason), once for the devices of one tunable that share a reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        found.setdefault((row.tunable.name, row.note or _STATE_WORDS[row.state]), []).append(
            row.device.label if row.device else ""
        )
    return [(f"{name} of {some_of(labels)}", reason) for (name, reason), labels in found.items()]


def some_of(labels: Sequence[str]) -> str:
    """Return the labels of devices, of many the first ones and how many more there are."""
    return first_of(labels, _NAMED)


def show_result(plan: Plan, result: "Result", as_json: bool) -> None:
    """Print what apply did."""
    if as_json:
        print_json(
            {
                "transaction": result.transaction or None,
                "profile": plan.profile,
                "roles": list(plan.roles),
                "path": path_json(plan),
                "written": [row.as_json() for row in result.written],
                "refused": [row.as_json() | {"note": why} for row, why in result.refused],
                "remarks": [row.as_json() | {"note": why} for row, why in result.remarks],
                "unsupported": [row.as_json() for row in _impossible(plan)],
                "relogged": result.relogged,
                "reconnected": [one.as_json() for one in result.reconnected],
                "pending": pending_json(result.pending),
            }
        )
        return
    for row, why in result.refused:
        paragraph(f"not written: {row.tunable.name}: {why}")
    for row, why in result.remarks:
        paragraph(f"{row.tunable.name} of {row.device.label if row.device else ''} {why}")
    if spared := sum(row.note == NOT_LIMITED for row in plan.rows):
        paragraph(f"{counted(spared, 'value')} left alone: {NOT_LIMITED}")
    for what, reason in _by_reason(_impossible(plan)):
        paragraph(f"not possible here: {what}: {reason}")
    if result.written:
        print(f"{counted(len(result.written), 'value')} written as transaction {result.transaction}")
    else:
        print("nothing to change")
    show_reconnected(result.reconnected)
    for label in result.relogged:
        paragraph(f"logged in again: {label}")
    show_pending(result.pending)


def show_again(found: "Restored", as_json: bool) -> None:
    """Print what was written again, and what was not."""
    if as_json:
        rows = [row.as_json() for _, result in found.results for row in result.written]
        left = [one.as_json() for one in found.left_alone]
        print_json({"written": rows, "left_alone": left, "absent": found.absent})
        return
    for one in found.left_alone:
        found_text = f"found {one.found}, " if one.found else ""
        paragraph(f"left alone: {one.tunable} of {one.device}: {found_text}expected {one.expected}: {one.why}")
    written = sum(len(result.written) for _, result in found.results)
    told = f"{counted(written, 'value')} written again, {len(found.left_alone)} left alone"
    print(told + (f", {len(found.absent)} without their device yet" if found.absent else ""))


def show_drift(drifts: "Sequence[Drift]", as_json: bool) -> None:
    """Print what verify found."""
    drifted = [drift for drift in drifts if drift.drifted]
    due = sum(drift.due for drift in drifts)
    applies = [drift.found for drift in drifts if drift.due and drift.tunable == "apply"]
    unfinished, half_back = applies.count("interrupted"), applies.count("partly taken back")
    undecided = len(applies) - unfinished - half_back
    logins = due - len(applies)
    checked = len(drifts) - due
    if as_json:
        print_json(
            {
                "checked": checked,
                "drift": [drift.as_json() for drift in drifted],
                "remarks": [drift.as_json() for drift in drifts if drift.note and not drift.drifted],
            }
        )
        return
    if drifted:
        rows = [(d.tunable, d.device, d.expected, "-" if d.found is None else d.found, d.note) for d in drifted]
        table(("tunable", "device", "expected", "found", "note"), rows, wrapped="note", fold=("device",))
    for remark in drifts:
        if remark.note and not remark.drifted:
            paragraph(f"{remark.tunable} {remark.device} {remark.note}")
    print(
        f"{counted(checked, 'value')} checked, {len(drifted)} differ"
        + (f", {unfinished} interrupted" if unfinished else "")
        + (f", {half_back} partly taken back" if half_back else "")
        + (f", {undecided} not decided" if undecided else "")
        + (f", {logins} waiting for a new login" if logins else "")
    )


def show_confirmed(found: "Sequence[Transaction]", as_json: bool) -> None:
    """Print which transactions stay."""
    if as_json:
        print_json({"confirmed": [one.name for one in found]})
        return
    for one in found:
        print(f"{one.name} ({one.profile}) stays")


def show_history(transactions: "Sequence[Transaction]", as_json: bool) -> None:
    """Print the journal's transactions."""
    if as_json:
        print_json([_transaction_json(one) for one in transactions])
        return
    rows = [(one.name, one.profile, " ".join(one.header.roles), str(len(one.steps)), one.state) for one in transactions]
    if rows:
        table(("transaction", "profile", "roles", "values", "state"), rows)
    else:
        print("the journal is empty")


def show_steps(one: "Transaction") -> None:
    """Print who asked for a transaction, for which path, and each value that it wrote or claims."""
    for told in (one.header.note, one.damage):
        if told:
            paragraph(told)
    told_path = [f"round trip {one.header.rtt_ms:g} ms"] if one.header.rtt_ms else []
    told_path += [f"rate {rate(one.header.rate_bit_per_s)}"] if one.header.rate_bit_per_s else []
    if told_path:
        print(f"told or measured: {', '.join(told_path)}")
    rows = [(s.tunable, s.device.label, s.old, s.wrote, _became_of(one, s)) for s in one.steps]
    if rows:
        table(("tunable", "device", "before", "written", "now"), rows, fold=("device",))


def _became_of(one: "Transaction", step: "Step") -> str:
    if step.restored or one.closed:
        return "taken back"
    if step.waiting:
        return "waits for its device"
    return "as it was" if step.old.split() == step.wrote.split() else "stays"


def _transaction_json(one: "Transaction") -> dict[str, object]:
    return {
        "transaction": one.header.transaction,
        "time": one.header.time,
        "boot_id": one.header.boot_id,
        "kernel": one.header.kernel,
        "fabtune": one.header.fabtune,
        "profile": one.header.profile,
        "roles": one.header.roles,
        "netns": one.header.netns,
        "rtt_ms": one.header.rtt_ms,
        "rate_bit_per_s": one.header.rate_bit_per_s,
        "note": one.header.note,
        "written_for": one.header.written_for,
        "state": one.state,
        "steps": [
            {"tunable": s.tunable, "device": s.device.label, "old": s.old, "wrote": s.wrote, "restored": s.restored}
            for s in one.steps
        ],
    }
