# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes one profile after another the one in force, on the target's end too, each time with new logins.

Every switch does the same: take back what is applied, log the sessions in again, apply the profile.
A run after a switch from a profile to itself would otherwise keep a warm connection that the others lost.
"""

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence

import attrs

from fabtune import installed
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode, FabtuneError
from fabtune.host.run import finish
from fabtune.host.sessions import live_sessions
from fabtune.model import typed
from fabtune.model.document import printed
from fabtune.model.untouched import UNTOUCHED
from fabtune.tune import journal, relogin, signals
from fabtune.tune.pending import RELOGIN, Pending

# No question that nobody answers, and an end within seconds when the target's host is gone.
SSH_OPTIONS = ("-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=5")


@attrs.frozen
class Ends:
    """Where the target's end is tuned: nowhere, on `target_host` by ssh, in namespace `target_netns`, or both.

    `command`, where given, replaces all of it: it is called with the profile's name.
    """

    target_host: str = ""
    target_netns: str = ""
    command: str = ""

    @property
    def apart(self) -> bool:
        """Whether the target's end is tuned on its own."""
        return bool(self.target_host or self.target_netns)


@attrs.frozen
class _Device:
    label: str
    identity: str = ""


@attrs.frozen
class _Shown:
    """What is needed of a value in what `fabtune show --json` prints."""

    tunable: str
    device: _Device
    value: str | None


@attrs.frozen
class _Readings:
    readings: tuple[_Shown, ...]


@attrs.frozen
class _Due:
    """What is needed of what `fabtune apply --json` says to be due still."""

    action: str
    label: str
    reason: str


@attrs.frozen
class _Applied:
    pending: tuple[_Due, ...]


def switch(profile: str, ends: Ends, path: Sequence[str], sids: Sequence[int]) -> None:
    """Make `profile` (or UNTOUCHED) the one in force at `ends` and log the sessions `sids` in again.

    `path` are the options that tell apply about the network.  Raises FabtuneError with the words of
    what failed, or with the reason for which a session may not be logged out.
    """
    if ends.command:
        _run(profile, [*shlex.split(ends.command), profile], (ExitCode.DONE,))
        return
    # A target's new values wait for the logins that follow, so that needing these is no failure.
    waits = (ExitCode.DONE, ExitCode.NEEDS_ACTION)
    here = ["--role", "initiator"] if ends.apart else []
    if ends.apart:
        there = ["--role", "target", *_netns(ends)]
        _fabtune(profile, [*_there(ends), "revert", *there], waits)
        if profile != UNTOUCHED:
            _fabtune(profile, [*_there(ends), "apply", profile, *there, *path], waits)
    _fabtune(profile, [*_here(), "revert", *here], waits)
    _forget_paths(ends)
    _log_in_anew(profile, sids)
    if profile != UNTOUCHED:
        said = _fabtune(profile, [*_here(), "apply", profile, *here, *path, "--allow-relogin", "--json"], waits)
        _check_felt(profile, said)


def target_values(ends: Ends) -> dict[str, str]:
    """Return every tunable of the target's end, read back there, as ``name of device`` -> value.

    A namespace of this host has its sessions and their disks, too: what only initiators have is this end's there.
    Nothing where that end is not tuned apart.  Raises FabtuneError.
    """
    if not ends.apart:
        return {}
    said = _fabtune("", [*_there(ends), "show", "--json", *_netns(ends)], (ExitCode.DONE,))
    where = ends.target_host or "the target's end"
    readings = typed.TOLERANT.read(_Readings, printed(said, where), where).readings
    mine = [one for one in readings if ends.target_host or not _is_initiators(one)]
    return {f"{one.tunable} of {one.device.label}": one.value for one in mine if one.value is not None}


def _is_initiators(one: _Shown) -> bool:
    """Tell whether a value is of an initiator's alone; of a tunable that nobody knows here it is not known."""
    known = shipped_catalog().tunables.get(one.tunable)
    if known is None:
        return False
    as_initiator = known.scope == "connection" and one.device.identity.startswith("initiator ")
    return as_initiator or "target" not in known.roles


def _netns(ends: Ends) -> list[str]:
    return ["--netns", ends.target_netns] if ends.target_netns else []


def _here() -> list[str]:
    return installed.command_again()


def _there(ends: Ends) -> list[str]:
    return [*_on_target(ends), "fabtune"] if ends.target_host else _here()


def _on_target(ends: Ends) -> list[str]:
    return ["ssh", *SSH_OPTIONS, ends.target_host] if ends.target_host else []


def _forget_paths(ends: Ends) -> None:
    """Make TCP on both ends forget what it learnt in earlier runs: ssthresh and RTT outlive the connection."""
    flush = ["ip", "tcp_metrics", "flush", "all"]
    commands = [flush]
    if ends.apart:
        netns = ends.target_netns
        inside = ["nsenter", f"--net={netns if '/' in netns else f'/run/netns/{netns}'}"] if netns else []
        commands.append([*_on_target(ends), *inside, *flush])
    for command in commands:
        # Where this fails the runs are only a little less alike.
        with contextlib.suppress(FabtuneError):
            finish(command)


def _fabtune(profile: str, command: Sequence[str], allowed: Sequence[ExitCode]) -> str:
    """Run fabtune, here or on the target's host, as one command of a switch."""
    return _run(profile, command, allowed, os.environ | installed.environment_again())


def _run(
    profile: str, command: Sequence[str], allowed: Sequence[ExitCode], env: Mapping[str, str] | None = None
) -> str:
    """Run one command of a switch to `profile` (none for a command that only reads) and return its stdout.

    Ctrl-C waits until it has ended, so that nothing is left half done; a second one kills it.
    """
    with signals.noted(second_raises=True) as stop:
        done = finish(command, env=env, own_session=True)
    stop.check()
    if done.status not in allowed:
        words = " ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        doing = f"switching to '{profile}'" if profile else "reading the target's values"
        raise FabtuneError(f"{doing} failed: {shlex.join(command)}: {words or done.status}")
    return done.stdout


def _log_in_anew(profile: str, sids: Sequence[int]) -> None:
    """Log the sessions out and in, one at a time."""
    chosen = [session for session in live_sessions() if session.sid in sids]
    if not chosen:
        return
    with journal.locked(), relogin.journalled() as log, signals.noted() as stop:
        for session in chosen:
            one = Pending(RELOGIN, session.identity, session.target, str(session.sid), "")
            _, left = relogin.perform([one], lambda _: None, log, stop)
            if left:
                raise FabtuneError(f"switching to '{profile}': {session.target} cannot log in again: {left[0].reason}")


def _check_felt(profile: str, said: str) -> None:
    """Raise FabtuneError when what apply said shows that this host does not yet feel all of `profile`."""
    due = typed.TOLERANT.read(_Applied, printed(said, "fabtune apply"), "fabtune apply").pending
    if pending := [one for one in due if one.action != "target-relogin"]:
        words = "; ".join(f"{one.action} of {one.label} {one.reason}".strip() for one in pending)
        raise FabtuneError(f"'{profile}' is applied but not in force: {words}")
