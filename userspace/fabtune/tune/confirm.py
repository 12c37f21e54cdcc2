# SPDX-License-Identifier: GPL-2.0-or-later
"""The dead-man's switch: what is applied with a time limit goes back unless it is confirmed, whoever dies meanwhile.

A program of its own waits for the limit, under systemd in a unit of its own, so that neither a terminal nor ssh nor the
apply itself is needed; after a power cut a unit that is there only so long takes it back before any session logs in.
"""

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import fabtune
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.facts.collect import this_host
from fabtune.host import files, mounts, systemd, tools, tree
from fabtune.host.run import launch
from fabtune.host.sessions import live_sessions
from fabtune.host.users import Users
from fabtune.tune import journal, pending, reconnect, relogin, signals
from fabtune.tune.journal import Transaction, Writer
from fabtune.tune.lines import ConfirmedLine, UnconfirmedLine
from fabtune.tune.locate import OUTLIVE_A_BOOT
from fabtune.tune.pending import Leave, Pending
from fabtune.tune.plan import Plan
from fabtune.tune.unconfirmed import awaited, now_s, overdue
from fabtune.tune.undo import undo

_UNIT = "fabtune-unconfirmed"
_AT_BOOT = "fabtune-unconfirmed-at-boot.service"
_WATCH_WAIT_S, _LOOK_EVERY_S = 30.0, 1.0
# A revert that is refused something, by a disk or a device that is not there yet, is tried again.
_TRIES, _TRY_EVERY_S = 3, 5.0
# A session that is down when its values go back is given its old ones as soon as it is up, within a day.
_LATE_S = 86400.0
_GONE_AT_BOOT = ("tmpfs", "ramfs", "rootfs")
_BOOT_TEXT = """# Written by fabtune apply --confirm-within; gone as soon as that is confirmed or taken back.
[Unit]
Description=Take back what fabtune applied and nobody confirmed
DefaultDependencies=no
RequiresMountsFor={state}
After=local-fs.target
Before=iscsid.service open-iscsi.service rtslib-fb-targetctl.service network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
{environment}
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""


def line(within_s: float, leave: Leave) -> UnconfirmedLine:
    """Return the line that sets the limit to `within_s` from now."""
    return UnconfirmedLine(now_s() + within_s, within_s, this_host().boot_id, leave.reconnect, leave.relogin)


def require_nobody_waits(beside: Collection[str] = ()) -> None:
    """Raise InputError where other transactions than those `beside` wait to be confirmed.

    What is written over theirs would stay when their time is up, or keep theirs in force.
    """
    # One without a step was cut short before its first write, and its watcher with it.
    others = [one for one in awaited(journal.transactions()) if one.name not in beside]
    waiting = [one for one in others if one.open_steps or _is_watched()]
    if waiting:
        raise InputError(
            f"transaction {_told(waiting[0])} waits to be confirmed: `fabtune confirm` keeps it, `fabtune revert` "
            "takes it back; then apply again"
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
    if leave.reconnect or leave.relogin:
        _require_nothing_carried()
    users = Users()
    for session in live_sessions():
        for disk in session.luns:
            system = users.system_on(disk, journal.state_dir())
            if system:
                raise FabtuneError(
                    f"--confirm-within: {disk} of {session.target} carries {system}, and could be gone when the values "
                    "must go back; keep the journal on a local disk (FABTUNE_STATE_DIR)"
                )
    lasting = [row.tunable.name for row in plan.changes if row.tunable.backend in OUTLIVE_A_BOOT]
    if lasting and not systemd.manages_host():
        raise FabtuneError(
            f"--confirm-within: no systemd runs here that would take {lasting[0]} back after a power cut; "
            "apply without it, or only what a boot undoes"
        )
    _require_journal_stays(lasting)


def _require_journal_stays(lasting: Sequence[str]) -> None:
    """Raise FabtuneError where the journal may be away when `lasting` values, or any, must go back."""
    place = str(journal.state_dir().resolve())
    mount = mounts.at(place, mounts.seen_by(tree.PROC / "self"))
    if mount is None:
        return
    move = "keep the journal on a local disk (FABTUNE_STATE_DIR)"
    if not mount.answers:
        raise FabtuneError(
            f"--confirm-within: {place} lies on {mount.kind} ({mount.source}), which may be away when the values must "
            f"go back; {move}"
        )
    if lasting and mount.kind in _GONE_AT_BOOT:
        raise FabtuneError(
            f"--confirm-within: {place} lies in memory ({mount.kind}), and after a power cut nothing would take "
            f"{lasting[0]} back; {move}"
        )


def _require_nothing_carried() -> None:
    """Raise InputError where values that were written before, without a limit, would come into force as well."""
    found = pending.still_pending(journal.transactions(), this_host().boot_id)
    for one in found:
        if one.action in (pending.RECONNECT, pending.RELOGIN):
            raise InputError(
                f"--confirm-within: {one.label} would also take values of an earlier apply, which stay; take them "
                "back by `fabtune revert`, then apply all of it again"
            )


def _command() -> list[str]:
    return [sys.executable, "-m", "fabtune", "revert", "--unconfirmed"]


def _environment() -> dict[str, str]:
    found = {"PYTHONPATH": str(Path(fabtune.__file__).parents[1]), "FABTUNE_STATE_DIR": str(journal.state_dir())}
    return found | {name: os.environ[name] for name in ("PATH", "FABTUNE_ROOT") if name in os.environ}


def _boot_file() -> Path:
    return tree.ETC / "systemd/system" / _AT_BOOT


def arm() -> None:
    """Start what takes unconfirmed values back, now and at a boot; the caller holds the journal's lock.

    Who watches still, for a transaction just confirmed, goes on with this one.  Raises FabtuneError, nothing started.
    """
    if systemd.manages_host():
        text = "\n".join(f'Environment="{name}={value}"' for name, value in _environment().items())
        files.replace(
            _boot_file(),
            _BOOT_TEXT.format(state=journal.state_dir(), environment=text, command=" ".join(_command())),
        )
        systemd.systemctl("daemon-reload")
        systemd.systemctl("enable", _AT_BOOT)
    if not _is_watched():
        _start_watching()
    deadline = time.monotonic() + _WATCH_WAIT_S
    while not _is_watched():
        if time.monotonic() > deadline:
            disarm()
            raise FabtuneError("--confirm-within: what would take the values back does not run; nothing was changed")
        time.sleep(0.1)


def _start_watching() -> None:
    if not systemd.manages_host():
        launch(_command(), env={**os.environ, **_environment()}, cwd=Path("/"))
        return
    # The unit of one that has just ended may still be there.
    unit = f"{_UNIT}-{now_s() * 1e3:.0f}"
    words = [f"--setenv={name}={value}" for name, value in _environment().items()]
    # Not on an exit code: that is the revert's.
    words += ["--property=Restart=on-abnormal", "--property=RestartSec=1", "--property=OOMScoreAdjust=-1000"]
    done = tools.run_tool("systemd-run", "systemd", "--collect", f"--unit={unit}", *words, *_command())
    if done.status:
        disarm()
        raise FabtuneError(f"--confirm-within: {tools.last_words(done)}; nothing was changed")


def disarm() -> None:
    """Remove the unit that takes unconfirmed values back at a boot."""
    if _boot_file().exists():
        systemd.systemctl("disable", _AT_BOOT)
        files.remove(_boot_file())
        systemd.systemctl("daemon-reload")


def _watch_file() -> int:
    return os.open(journal.state_dir() / "watched", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_watched() -> bool:
    fd = _watch_file()
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def accept(progress: Callable[[str], None], only: Collection[str] = ()) -> list[Transaction]:
    """Confirm what waits for it, or `only` these transactions; return that.

    Raises FabtuneError where nothing waits, or one of those that are asked for no longer does: then none is confirmed.
    """
    with journal.locked():
        known = journal.transactions()
        waiting = awaited(known)
        found = _named(known, waiting, only) if only else waiting
        for one in overdue(found):
            raise FabtuneError(
                f"the time to confirm {one.name} is up: it goes back, or has as far as it could; `fabtune revert` says "
                "what is left of it, and takes back with --force what somebody else has set; then apply again"
            )
        for one in found:
            if not one.applied:
                raise FabtuneError(
                    f"{one.name} was interrupted, and is not all that was asked for; it goes back at its time, or now "
                    "by `fabtune revert`"
                )
        for one in found:
            writer = Writer(one.path)
            try:
                writer.append(ConfirmedLine())
            finally:
                writer.close()
        try:
            if len(found) == len(waiting):
                disarm()
        except (FabtuneError, OSError) as error:
            progress(f"the unit that would look at a boot stays, and will find nothing to do: {error}")
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


def watch(progress: Callable[[str], None]) -> int:
    """Wait until nothing is unconfirmed, and take back what is overdue; return the worst exit code.

    Raises FabtuneError where another one waits already.
    """
    fd = _watch_file()
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise FabtuneError("another `fabtune revert --unconfirmed` is waiting already") from None
    worst, tries, reconnects = ExitCode.DONE, 0, set[str]()
    while tries < _TRIES:
        codes = []
        # Another fabtune is at work: perhaps it confirms, or is being interrupted.  A disk that gives an error now
        # may not the next time, and nobody else watches.
        with contextlib.suppress(FabtuneError, OSError):
            if _ended_watch(fd):
                break
            late = overdue(journal.transactions())
            reconnects |= {one.name for one in late if one.unconfirmed and one.unconfirmed.reconnect}
            codes = [_take_back(one, progress) for one in late]
        worst = max([worst, *codes])
        # What waits for its device, or a session that is down, waits on.
        tries += any(code not in (ExitCode.DONE, ExitCode.NEEDS_ACTION) for code in codes)
        if any(codes) or not codes:
            time.sleep(_TRY_EVERY_S if codes else _LOOK_EVERY_S)
    if reconnects:
        _connect_late(reconnects, progress)
    return worst


def _connect_late(names: Collection[str], progress: Callable[[str], None]) -> None:
    """Connect sessions anew that could not be when `names` went back: their path may come back any time.

    That would also bring into force what was applied since: then it is left to whoever did that.
    """
    deadline = time.monotonic() + _LATE_S
    while time.monotonic() < deadline:
        if any(one.state != "LOGGED_IN" for one in live_sessions()):
            time.sleep(_TRY_EVERY_S)
            continue
        with contextlib.suppress(FabtuneError, OSError), journal.locked(), signals.noted() as stop:
            asked, others = _reconnects_due(names)
            if not asked or others:
                for one in others if asked else ():
                    progress(
                        f"{one.label} would also take what was applied since; `fabtune apply --reconnect` does that"
                    )
                return
            with relogin.journalled() as log:
                if reconnect.in_place(asked, progress, log, stop, way_back=False)[0]:
                    return
        time.sleep(_TRY_EVERY_S)


def _reconnects_due(names: Collection[str]) -> tuple[list[Pending], list[Pending]]:
    """Return what must connect anew for the transactions `names`, and what for others."""
    known, boot_id = journal.transactions(), this_host().boot_id
    ours = [one for one in known if one.name in names]
    others = [one for one in known if one.name not in names]
    asked, more = (
        [task for task in pending.still_pending(found, boot_id) if task.action == pending.RECONNECT]
        for found in (ours, others)
    )
    return asked, more


def _take_back(one: Transaction, progress: Callable[[str], None]) -> ExitCode:
    progress(f"the time to confirm {one.name} is up")
    limit = one.unconfirmed
    leave = Leave(limit.reconnect, limit.relogin) if limit else Leave()

    def still(found: list[Transaction]) -> list[Transaction]:
        return [late for late in overdue(found) if late.name == one.name]

    return undo(None, None, None, "", False, leave, progress, only=still).exit_code


def _ended_watch(fd: int) -> bool:
    """Give `fd` up and remove the unit for a boot where nothing waits any more; tell whether that is so."""
    if awaited(journal.transactions()):
        return False
    # An apply holds the lock from its first line until it has looked who watches.
    with contextlib.suppress(FabtuneError), journal.locked():
        if not awaited(journal.transactions()):
            disarm()
            os.close(fd)
            return True
    return False
