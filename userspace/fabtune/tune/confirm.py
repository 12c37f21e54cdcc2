# SPDX-License-Identifier: GPL-2.0-or-later
"""The dead-man's switch: what is applied with a time limit goes back unless it is confirmed, whoever dies meanwhile.

Here stands what may be applied so, and what may be confirmed; who takes it back stands in `armed` and `watcher`.
"""

from collections.abc import Callable, Collection, Sequence

from fabtune.errors import FabtuneError, InputError
from fabtune.facts.collect import this_host
from fabtune.host import mounts, systemd, tree
from fabtune.host.sessions import live_sessions
from fabtune.host.users import Users
from fabtune.tune import armed, journal, pending
from fabtune.tune.journal import Transaction, Writer
from fabtune.tune.lines import ConfirmedLine, UnconfirmedLine
from fabtune.tune.locate import OUTLIVE_A_BOOT
from fabtune.tune.pending import Leave
from fabtune.tune.plan import Plan
from fabtune.tune.unconfirmed import awaited, now_s, on_trial, overdue

_GONE_AT_BOOT = ("tmpfs", "ramfs", "rootfs")
# What asks for a way back: an option, or `fabtune tune`, which nobody told to.
_OPTION, _STEP = "--confirm-within", "a step could not go back by itself"


def line(within_s: float, leave: Leave) -> UnconfirmedLine:
    """Return the line that sets the limit to `within_s` from now."""
    return UnconfirmedLine(now_s() + within_s, within_s, this_host().boot_id, leave.reconnect, leave.relogin)


def require_nobody_waits(beside: Collection[str] = (), then: str = "apply") -> None:
    """Raise InputError where other transactions than those `beside` wait to be confirmed; `then` is what may go on.

    What is written over theirs would stay when their time is up, or keep theirs in force.
    """
    # One without a step was cut short before its first write, and its watcher with it.
    others = [one for one in awaited(journal.transactions()) if one.name not in beside]
    waiting = [one for one in others if one.open_steps or armed.is_watched()]
    if waiting:
        raise InputError(
            f"transaction {_told(waiting[0])} waits to be confirmed: `fabtune confirm` keeps it, `fabtune revert` "
            f"takes it back; then {then} again"
        )


def _told(one: Transaction) -> str:
    return f"{one.name} ({one.header.note})" if one.header.note else one.name


def require_way_back(plan: Plan, leave: Leave) -> None:
    """Raise FabtuneError where what `plan` and `leave` do could not be taken back by itself on this host."""
    if leave.end_sessions:
        raise InputError(
            "--confirm-within: what ends sessions of this target goes back only by `fabtune revert --end-sessions`; "
            "give one of both"
        )
    # What a step must not bring is refused with or without a limit (tune.unfelt).
    if not plan.on_trial and (leave.reconnect or leave.relogin):
        _require_nothing_carried(leave)
    asked = _STEP if plan.on_trial else _OPTION
    users = Users()
    for session in live_sessions():
        for disk in session.luns:
            system = users.system_on(disk, *armed.places())
            if system:
                raise FabtuneError(
                    f"{asked}: {disk} of {session.target} carries {system}, and could be gone when the values "
                    "must go back; keep the journal (FABTUNE_STATE_DIR), fabtune and its Python on a local disk"
                )
    lasting = [row.tunable.name for row in plan.changes if row.tunable.backend in OUTLIVE_A_BOOT]
    if lasting and not systemd.manages_host():
        raise FabtuneError(
            f"--confirm-within: no systemd runs here that would take {lasting[0]} back after a power cut; "
            "apply without it, or only what a boot undoes"
        )
    _require_all_stays(lasting, asked)


def _require_all_stays(lasting: Sequence[str], asked: str = _OPTION) -> None:
    """Raise FabtuneError where the journal or fabtune may be away when `lasting` values, or any, must go back."""
    seen = mounts.seen_by(tree.PROC / "self")
    for one in armed.places():
        place = str(one.resolve())
        mount = mounts.at(place, seen)
        if mount and not mount.answers:
            raise FabtuneError(
                f"{asked}: {place} lies on {mount.kind} ({mount.source}), which may be away when the values "
                "must go back; keep the journal (FABTUNE_STATE_DIR), fabtune and its Python on a local disk"
            )
        if lasting and mount and mount.kind in _GONE_AT_BOOT and one == journal.state_dir():
            raise FabtuneError(
                f"{asked}: {place} lies in memory ({mount.kind}), and after a power cut nothing would take "
                f"{lasting[0]} back; keep the journal on a local disk (FABTUNE_STATE_DIR)"
            )
        if systemd.manages_host():
            _require_mounted_at_boot(mounts.below(place, seen), bool(lasting) and one == journal.state_dir(), asked)


def _require_mounted_at_boot(places: Sequence[str], before_anything: bool, asked: str = _OPTION) -> None:
    """Raise FabtuneError where one of `places` is mounted when sessions may log in; or by no unit, if needed before."""
    for place in places:
        file, after = systemd.mount_unit(place)
        late = systemd.late(after)
        if late or (before_anything and not file):
            how = f"mounted after {late}" if late else "mounted by hand or by another program than systemd"
            raise FabtuneError(
                f"{asked}: {place} is {how}, so that at a boot nothing there is at hand before sessions log "
                "in; keep the journal (FABTUNE_STATE_DIR), fabtune and its Python elsewhere"
            )


def _require_nothing_carried(leave: Leave) -> None:
    """Raise InputError where values that were written before, without a limit, would come into force as well.

    A new connection under its session brings nothing of what a re-login does; that brings everything.
    """
    felt = (pending.RECONNECT, pending.RELOGIN) if leave.relogin else (pending.RECONNECT,)
    found = pending.still_pending(journal.transactions(), this_host().boot_id)
    for one in found:
        if one.action in felt:
            raise InputError(
                f"--confirm-within: {one.label} would also take values of an earlier apply, which stay; take them "
                "back by `fabtune revert`, then apply all of it again"
            )


def accept(progress: Callable[[str], None], only: Collection[str] = ()) -> list[Transaction]:
    """Confirm what waits for it, or `only` these transactions, steps on trial among them; return that.

    Raises FabtuneError where nothing waits, or one of those that are asked for no longer does: then none is confirmed.
    """
    with journal.locked():
        known = journal.transactions()
        waiting = awaited(known)
        found = _named(known, [*waiting, *on_trial(known)], only) if only else waiting
        for one in overdue(found):
            goes = "it goes back, or has as far as it could" if armed.is_watched() else "nobody takes it back any more"
            raise FabtuneError(
                f"the time to confirm {one.name} is up: {goes}; `fabtune revert` takes back what is left of it, with "
                "--force what somebody else has set, and says what that is; then apply again"
            )
        for one in found:
            if one.damage:
                raise FabtuneError(f"{one.damage}; it is not confirmed, and goes back as far as it can be read")
            if one.reverting:
                raise FabtuneError(
                    f"{one.name} is partly taken back: `fabtune revert --transaction {one.name}` goes on; then apply "
                    "again"
                )
            if not one.applied:
                goes = "it goes back at its time, or now" if one.unconfirmed else "it goes back"
                raise FabtuneError(
                    f"{one.name} was interrupted, and is not all that was asked for; {goes} by "
                    f"`fabtune revert --transaction {one.name}`"
                )
        for one in found:
            writer = Writer(one.path)
            try:
                writer.append(ConfirmedLine())
            finally:
                writer.close()
        armed.disarm(progress)
    if not (found or only):
        raise FabtuneError("nothing waits to be confirmed; `fabtune history` says what is in force and what went back")
    return found


def _named(known: Sequence[Transaction], waiting: Sequence[Transaction], only: Collection[str]) -> list[Transaction]:
    """Return those of `waiting` that `only` names.  Raises FabtuneError where another one is named."""
    states = {one.name: one.state for one in known}
    for name in only:
        if name not in states:
            raise InputError(f"transaction {name}: not in the journal; see `fabtune history`")
        if name not in [one.name for one in waiting]:
            raise FabtuneError(f"transaction {name} does not wait to be confirmed: it is {states[name]}")
    return [one for one in waiting if one.name in only]
