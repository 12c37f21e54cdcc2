# SPDX-License-Identifier: GPL-2.0-or-later
"""Holds the host against the journal: which value is no longer what apply wrote."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from fabtune.errors import FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host import tree
from fabtune.host.owners import Owner, owners
from fabtune.host.sessions import live_sessions
from fabtune.model.device import Device
from fabtune.model.document import Json
from fabtune.tune import journal, map_paths, owed, pending, persist, trial
from fabtune.tune.journal import Step, Transaction
from fabtune.tune.locate import HAVE_INSTANCES, Locator, current, instance, rebooted, reborn, why_unseen
from fabtune.tune.ours import is_ours
from fabtune.tune.plan import Plan
from fabtune.tune.transaction import IN_FORCE, INTERRUPTED, PARTLY_BACK
from fabtune.tune.unconfirmed import on_trial, overdue


@dataclass(frozen=True)
class Drift:
    """One value under watch: what it should be, what it is, and who may have changed it."""

    tunable: str
    device: str
    expected: str
    found: str | None
    drifted: bool
    note: str = ""
    # As it should be, but something must still happen before it is felt.
    due: bool = False
    # What tells the device from another one that is called the same.
    identity: str = ""

    def as_json(self) -> dict[str, Json]:
        """Return the finding with stable keys."""
        return {
            "tunable": self.tunable,
            "device": self.device,
            "expected": self.expected,
            "found": self.found,
            "drifted": self.drifted,
            "note": self.note,
            "due": self.due,
            "identity": self.identity or self.device,
        }


# What is known to write a tunable behind the administrator's back, by backend or tunable.
_WRITERS = {
    "record": "a discovery (iscsiadm -m discovery) rewrites records from iscsid.conf",
    "iscsi.recovery_timeout": "multipathd sets it from fast_io_fail_tmo when it reloads",
    "lio.cmdsn_depth": "restoring the target makes it default_cmdsn_depth",
}
_PROGRAMS = {
    "sysctl": ("tuned", "bpftune"),
    "ethtool": ("tuned", "NetworkManager", "systemd-networkd"),
    "irq": ("irqbalance", "tuned"),
    "iscsi.recovery_timeout": ("multipathd",),
}


def suspect(step: Step, present: list[Owner]) -> str:
    """Return who may have changed a value: files that set it and running programs that are known to."""
    found = [f"{one.where} sets {one.value}" for one in present if one.key and one.key == step.key.partition("[")[0]]
    programs = (*_PROGRAMS.get(step.backend, ()), *_PROGRAMS.get(step.tunable, ()))
    found += [f"{one.who} is active" for one in present if not one.key and one.who in programs]
    known = [text for name, text in _WRITERS.items() if name in (step.backend, step.tunable)]
    return "; ".join([*found, *known]) or "nobody known to tune this host"


def verify(plan: Plan | None, roles: tuple[str, ...], netns: str) -> list[Drift]:
    """Return each value that apply wrote and still owns, what is owed or not felt yet, and what `plan` would change."""
    present, boot_id = owners(), this_host().boot_id
    owed.settle(boot_id)
    everything = journal.transactions()
    latest: dict[tuple[str, ...], Drift] = {}
    wrote: dict[tuple[str, ...], str] = {}
    for transaction in everything:
        if transaction.closed or not _asked(transaction, roles, netns):
            continue
        if transaction.damage:
            latest[transaction.name,] = Drift("journal", transaction.name, "readable", None, True, transaction.damage)
        locate = Locator(transaction.header.netns, transaction.steps)
        for step in [step for step in transaction.open_steps if not step.disturbed]:
            found = _waits(step, locate) if step.waiting else _held(step, locate, present, boot_id)
            if transaction.reverting and (found.found or "").split() == step.old.split():
                found = replace(found, note="was given back, by a revert that could not journal it or by hand")
            place = _place(step.value, _device(step, locate))
            latest[place], wrote[place] = found, step.wrote
    for row in plan.changes if plan else []:
        assert row.device is not None and row.wanted is not None
        place = _place((row.tunable.backend, row.tunable.key, *row.device.key), row.device)
        if place in latest and (latest[place].drifted or wrote[place].split() == row.wanted.split()):
            continue
        note = f"not applied: fabtune's own value is {wrote[place]}" if place in latest else "not applied"
        latest[place] = Drift(
            row.tunable.name, row.device.label, row.wanted, row.now, True, note, identity=row.device.identity
        )
    asked = [one for one in everything if _asked(one, roles, netns)]
    unfelt = _unfelt(asked, boot_id) if "initiator" in roles else []
    busy = journal.at_work()
    return [
        *_away(everything, boot_id, busy),
        *_not_given_back(everything, boot_id, busy),
        *_lacking(everything, boot_id),
        *_unfinished(asked, busy),
        *_overdue(asked, busy),
        *_on_trial(asked),
        *unfelt,
        *latest.values(),
    ]


def no_longer_held(names: Collection[str]) -> list[Drift]:
    """Return each value of the transactions `names` that is not what they wrote, or cannot be read."""
    present, boot_id = owners(), this_host().boot_id
    steps = [
        (step, Locator(one.header.netns))
        for one in journal.transactions()
        for step in one.open_steps
        if one.name in names and not (step.disturbed or step.waiting)
    ]
    found = (_held(step, locate, present, boot_id) for step, locate in steps)
    return [one for one in found if one.drifted]


def _asked(transaction: Transaction, roles: tuple[str, ...], netns: str) -> bool:
    """Tell whether `transaction` is of one of `roles`, and of the network namespace `netns` where one is given."""
    header = transaction.header
    return bool(set(roles) & set(header.roles)) and (not netns or header.netns == netns)


def _place(value: tuple[str, str, str, str], device: Device | None) -> tuple[str, ...]:
    """Return the key of a `value` of the `device` that has it now: an identity may have become another one's."""
    number = instance(device) if device is not None and device.scope in HAVE_INSTANCES else ""
    return (*value[:3], number) if number else value


def _device(step: Step, locate: Locator) -> Device | None:
    try:
        return locate.of(step)
    except FabtuneError:
        return None


def _held(step: Step, locate: Locator, present: list[Owner], boot_id: str) -> Drift:
    """Return whether the value is still what apply wrote."""
    expected = step.holds or step.wrote
    found, note = None, ""
    try:
        device = locate.of(step)
        if device is None:
            note = why_unseen(step) or "the device is gone"
        else:
            found = current(step, device)
    except FabtuneError as error:
        device, note = None, str(error)
    drifted = found is None or not is_ours(step, found, in_doubt=False)
    if drifted and found is not None and device is not None:
        if rebooted(step, boot_id):
            note = f"lost at a reboot; {persist.what_keeps(step.tunable, device)}"
        elif reborn(step, device, boot_id):
            note = "the device was created again since (a re-login, a reload), with its own value; apply again"
        else:
            note = suspect(step, present)
    return Drift(step.tunable, step.device.label, expected, found, drifted, note, identity=step.device.identity)


def _waits(step: Step, locate: Locator) -> Drift:
    """Return what has become of a value that revert could not give back because its device was absent."""
    found, note = None, "its device was away when it was to go back; `fabtune revert` once it is there again"
    try:
        device = locate.of(step)
        if device is not None:
            found = current(step, device)
            note = "its device is there again; `fabtune revert` gives the old value back"
    except FabtuneError as error:
        note = f"waits to go back: {error}"
    back = found is not None and found.split() == step.old.split()
    note = "" if back else note
    return Drift(step.tunable, step.device.label, step.old, found, not back, note, identity=step.device.identity)


def _unfinished(asked: list[Transaction], busy: str) -> list[Drift]:
    """Return each apply or revert that ended half way, an apply unless one of the same profile has completed it since.

    Steps on trial are named as such.
    """
    found, tried = [], on_trial(asked)
    for one in asked:
        if one.state not in (INTERRUPTED, PARTLY_BACK) or not one.open_steps or one in tried:
            continue
        if one.state == INTERRUPTED and any(_completes(later, one) for later in asked):
            continue
        end, command = "done", f"`fabtune revert --transaction {one.name}`"
        note = "was stopped before it was done and may have written only some of its values; "
        note += f"{command} takes them back, or apply it again"
        if one.state == PARTLY_BACK:
            end, note = "taken back", f"a revert has left some of its values; {command} goes on, and says which and why"
        label = f"{one.profile} ({one.name})"
        note = f"is not {end}: {busy}" if busy else note
        found.append(Drift("apply", label, end, one.state, drifted=False, note=note, due=True))
    return found


def _overdue(asked: list[Transaction], busy: str) -> list[Drift]:
    """Return each apply whose time to be confirmed is up and which nobody has taken back."""
    note = busy or "what was to take it back is gone; `fabtune revert` does"
    return [
        Drift("apply", f"{one.profile} ({one.name})", "confirmed in time", "unconfirmed", False, note, due=True)
        for one in overdue(asked)
    ]


def _on_trial(asked: list[Transaction]) -> list[Drift]:
    """Return each step of a `fabtune tune` that nobody has judged: one that was killed leaves it so for good."""
    busy = trial.other_tune()
    return [
        Drift(
            "apply", f"{one.profile} ({one.name})", "judged", one.state, drifted=False,
            note=f"is not judged yet: {busy}" if busy else trial.undecided_step(one), due=True,
        )
        for one in on_trial(asked)
    ]  # fmt: skip


def _completes(later: Transaction, one: Transaction) -> bool:
    """Tell whether `later` is a whole apply, still in force, of all that `one` was to write."""
    written = {step.value for step in one.open_steps if not (step.disturbed or step.empty)}
    # What a killed apply was still to write is not known: who wants less, or is no apply by its kind, completes none.
    whole = not (later.header.written_for or later.header.on_trial) and (later.header.whole or bool(written))
    # What a killed boot or guard was still to write again stands in the apply that it is of, and is looked at there.
    again = bool(one.header.written_for) and later.root == one.root
    return (
        later.name > one.name
        and later.state == IN_FORCE
        and (whole or again)
        and {step.value for step in later.open_steps} >= written
        and (later.profile, later.header.netns) == (one.profile, one.header.netns)
        and set(later.header.roles) >= set(one.header.roles)
    )


def _away(everything: list[Transaction], boot_id: str, busy: str) -> list[Drift]:
    """Return the sessions that were logged out for their re-login and have not come back."""
    refused = {key: why for one in everything for key, why in one.refused.items()}
    found = []
    for one, why in owed.away(everything, boot_id):
        failed = refused.get((one.sid, one.identity, one.boot_id))
        what = f"and its login failed ({failed})" if failed else "and was stopped before it was back"
        what = "and has not logged it in yet" if busy else what
        remedy = busy or "`fabtune revert` or the next apply logs it in"
        note = f"fabtune logged it out {what}; {remedy}{why and f'; {why}'}"
        state = None if why else "logged out"
        itself = f"{one.identity} {one.sid}"
        found.append(Drift("session", owed.label(one), "logged in", state, True, note, identity=itself))
    return found


def _not_given_back(everything: list[Transaction], boot_id: str, busy: str) -> list[Drift]:
    """Return what was set by hand of a session or its disks and went with a re-login or reconnect stopped half way."""
    remedy = busy or "`fabtune revert` or the next apply gives it back"
    return [
        Drift(
            value.what,
            f"{value.device}, {owed.label(one)}",
            value.was,
            value.now,
            True,
            f"was so before a {one.act}, which fabtune did not finish; {remedy}",
            identity=f"{value.device} {one.identity} {one.sid}",
        )
        for one, value in owed.values(everything, boot_id)
    ]


def _lacking(everything: list[Transaction], boot_id: str) -> list[Drift]:
    """Return the sessions that a multipath device did not take back after their re-login, and lacks still."""
    late = [(sid, identity) for one in everything for sid, identity, boot in one.paths if boot == boot_id]
    found = []
    for session in live_sessions() if late else []:
        if any(identity == session.identity and session.sid > (tree.whole(sid) or 0) for sid, identity in late):
            for device in map_paths.lacking(session):
                note = f"{device} lacks its path through it since it logged in again; "
                note += "see `multipath -ll` and multipathd's log"
                itself = f"{device} {session.own_identity}"
                path = f"a path of {device}"
                found.append(Drift("session", session.label, path, None, drifted=True, note=note, identity=itself))
    return found


def _unfelt(everything: list[Transaction], boot_id: str) -> list[Drift]:
    """Return the sessions that may still run with the values from before an apply, or before a revert."""
    dues = [pending.Pending.of(line) for one in everything for line in one.due]
    owing = {(one.identity, one.sid) for one in dues if not one.reconnected}
    found = []
    for one in pending.still_pending(everything, boot_id):
        back = (one.identity, one.sid) in owing
        what = "may run with values that were taken back" if back else "does not run with all that was written"
        until = "it logs in again"
        if one.action == pending.RECONNECT:
            until = f"`fabtune {'revert' if back else 'apply PROFILE'} --reconnect` makes its connection anew"
        elif one.action == pending.RELOGIN:
            until = f"`fabtune {'revert' if back else 'apply PROFILE'} --allow-relogin` logs it in again"
        values = ("old values", "values taken back") if back else ("new values", "old values")
        found.append(Drift("session", one.label, *values, drifted=False, note=f"{what}, until {until}", due=True))
    return found
