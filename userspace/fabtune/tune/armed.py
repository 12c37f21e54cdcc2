# SPDX-License-Identifier: GPL-2.0-or-later
"""What takes unconfirmed values back by itself is started here, and looked after: a program that watches, and a unit.

The program waits for the limit, under systemd in a unit of its own, so that neither a terminal nor ssh nor the apply
itself is needed.  The other unit, for the next boot, is there only as long as somebody waits to be confirmed.
"""

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fabtune import installed
from fabtune.errors import FabtuneError
from fabtune.host import files, systemd, tools, tree
from fabtune.host.run import launch
from fabtune.tune import fault, journal
from fabtune.tune.unconfirmed import awaited, now_s

_UNIT = "fabtune-unconfirmed"
_AT_BOOT = "fabtune-unconfirmed-at-boot.service"
_WATCH_WAIT_S = 30.0
# Exit codes are the revert's, and end the watch; a signal does not.
_NO_RESTART = "RestartPreventExitStatus=1 2 3 4 5"
# Of these systemd thinks that somebody asked it to end, who would ask systemd.
_RESTART = "RestartForceExitStatus=SIGTERM SIGINT SIGHUP SIGPIPE"
_NO_OOM = "OOMScoreAdjust=-1000"
_FIRST_LINE = "# Written by fabtune apply --confirm-within; gone as soon as that is confirmed or taken back."
_WAITS = "# It waits for transaction {name} in {state}"
# The boot waits for it, so it takes one look: what is not there yet is left to a program that watches.
_BOOT_TEXT = """{first}
{waits}
[Unit]
Description=Take back what fabtune applied and nobody confirmed
DefaultDependencies=no
RequiresMountsFor={places}
After=local-fs.target systemd-sysctl.service systemd-modules-load.service
Before=iscsid.service open-iscsi.service iscsi.service srp_daemon.service srptools.service
Before=rtslib-fb-targetctl.service target.service targetcli.service tgt.service tgtd.service
Before=network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
TimeoutStartSec=60
# Something waits for its device, and who watches for that.
SuccessExitStatus=4
{no_oom}
{environment}
ExecStart={command}

[Install]
WantedBy=multi-user.target
"""


def _command(*words: str) -> list[str]:
    return [*installed.command_again(), "revert", *words]


def _environment() -> dict[str, str]:
    found = installed.environment_again() | {"FABTUNE_STATE_DIR": str(journal.state_dir())}
    return found | {name: os.environ[name] for name in ("PATH", "FABTUNE_ROOT") if name in os.environ}


def places() -> list[Path]:
    """Return what must be there when values go back: the journal, fabtune itself and what runs it."""
    return [journal.state_dir(), installed.PROGRAM, Path(sys.executable)]


def _boot_file() -> Path:
    return tree.ETC / "systemd/system" / _AT_BOOT


def _boot_link() -> Path:
    return tree.ETC / "systemd/system/multi-user.target.wants" / _AT_BOOT


def _waits_for(path: Path) -> str | None:
    """Return the line of the unit's file that says for what it waits; None for a mask, or a file of somebody else's."""
    lines = [] if path.is_symlink() else (tree.read_text(path) or "").splitlines()
    return lines[1] if len(lines) > 1 and lines[0] == _FIRST_LINE else None


def _awaits(name: str) -> str:
    return _WAITS.format(name=name, state=journal.state_dir())


def arm(name: str) -> None:
    """Start what takes unconfirmed values back, now and at a boot, for the transaction `name`.

    The caller holds the journal's lock.  Nothing that waits for it may be journalled yet: who watches looks again and
    again, and ends as soon as the lock is free and nothing waits.  Who watches still, for a transaction just
    confirmed, goes on.  Raises FabtuneError, nothing changed.
    """
    try:
        if systemd.manages_host():
            _require_our_place()
        if not is_watched():
            start_watching()
        deadline = time.monotonic() + _WATCH_WAIT_S
        while not is_watched():
            if time.monotonic() > deadline:
                raise FabtuneError("what would take the values back does not run")
            time.sleep(0.1)
        if systemd.manages_host():
            _enable_at_boot(name)
    except (FabtuneError, OSError) as error:
        disarm(lambda _: None)
        raise FabtuneError(f"no time limit can be kept: {error}; nothing was changed") from error


def _require_our_place() -> None:
    path = _boot_file()
    if not os.path.lexists(path):
        return
    waits = _waits_for(path)
    if waits is None:
        raise FabtuneError(
            f"{path} is masked or not fabtune's, so that nothing would take the values back after a power cut; "
            f"`systemctl unmask {_AT_BOOT}` if it is masked, else move it away"
        )
    if waits.partition(" in ")[2] != str(journal.state_dir()):
        raise FabtuneError(
            f"{path} is of an apply with another state directory ({waits.lstrip('# ')}); confirm or revert that first, "
            "or remove the file where that is gone"
        )


def _enable_at_boot(name: str) -> None:
    """Put the unit for a boot in its place; the file comes last and goes first, so that where it is, all of it is."""
    pairs = _environment().items()
    text = _BOOT_TEXT.format(
        first=_FIRST_LINE,
        waits=_awaits(name),
        no_oom=_NO_OOM,
        places=" ".join(f'"{place}"' for place in places()),
        environment="\n".join(f'Environment="{key}={value}"' for key, value in pairs),
        command=" ".join(f'"{word}"' for word in _command("--unconfirmed=once")),
    )
    files.link(_boot_link(), str(_boot_file()))
    fault.checkpoint()
    # A percent sign would be the beginning of a specifier.
    files.replace(_boot_file(), text.replace("%", "%%"))
    fault.checkpoint()
    systemd.systemctl("daemon-reload")


def start_watching(wait: bool = True) -> None:
    """Start the program that watches; without `wait` as soon as the boot has come so far.  Raises FabtuneError."""
    if not systemd.manages_host():
        launch(_command("--unconfirmed"), env={**os.environ, **_environment()}, cwd=Path("/"))
        return
    # The unit of one that has just ended may still be there.
    unit = f"{_UNIT}-{now_s() * 1e3:.0f}"
    words = [f"--setenv={name}={value}" for name, value in _environment().items()]
    given = ("Restart=on-failure", _NO_RESTART, _RESTART, "RestartSec=1", "StartLimitIntervalSec=0", _NO_OOM)
    words += [f"--property={one}" for one in given]
    words += [] if wait else ["--no-block"]
    done = tools.run_tool("systemd-run", "systemd", "--collect", f"--unit={unit}", *words, *_command("--unconfirmed"))
    if done.status:
        raise FabtuneError(tools.last_words(done))


def disarm(tell: Callable[[str], None]) -> None:
    """Remove the unit for a boot where nothing waits to be confirmed; what fails is told.

    The caller holds the journal's lock.
    """
    try:
        unit, link = _boot_file(), _boot_link()
        if not (os.path.lexists(unit) or os.path.lexists(link)):
            return
        known = journal.transactions()
        waits = _waits_for(unit)
        # A journal that is elsewhere, or on a disk that is not mounted yet, says nothing of what the unit waits for.
        mine = waits in [_awaits(one.name) for one in known]
        if awaited(known):
            return
        # A link alone is what a power cut leaves of it; one to a unit that is masked is the administrator's.
        found = [unit] if mine else []
        alone = link.is_symlink() and str(link.readlink()) == str(unit)
        found += [link] if alone and (mine or not os.path.lexists(unit)) else []
        for path in found:
            files.remove(path)
        if found and systemd.manages_host():
            systemd.systemctl("daemon-reload")
    except (FabtuneError, OSError) as error:
        tell(f"the unit that would look at a boot stays, and will find nothing to do: {error}")


def forget() -> None:
    """Let systemd forget the unit for a boot: whoever was killed after its removal has not told it."""
    if systemd.manages_host() and not os.path.lexists(_boot_file()):
        with contextlib.suppress(FabtuneError):
            systemd.systemctl("daemon-reload")


def is_of_elsewhere() -> str:
    """Return for which transaction the unit for a boot waits that this journal does not have, '' for none."""
    waits = _waits_for(_boot_file())
    return waits.lstrip("# ") if waits and waits not in [_awaits(one.name) for one in journal.transactions()] else ""


def _watch_file() -> int:
    return os.open(journal.state_dir() / "watched", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def is_watched() -> bool:
    """Tell whether somebody watches.  Raises OSError."""
    fd = _watch_file()
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def hold_watch() -> int:
    """Return what tells others, as long as it is open, that this process watches.  Raises FabtuneError, OSError."""
    fd = _watch_file()
    # Who only looks has it for a moment, too.
    for _ in range(20):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        time.sleep(0.05)
    os.close(fd)
    raise FabtuneError("another `fabtune revert --unconfirmed` is waiting already")
