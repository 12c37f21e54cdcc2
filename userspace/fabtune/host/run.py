# SPDX-License-Identifier: GPL-2.0-or-later
"""The one way to run another program: to its end (`run`, `finish`) or in the background (`launch`).

Its failure becomes a readable error.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fabtune import packages
from fabtune.errors import FabtuneError
from fabtune.host import tree

_TAIL_LINES = 12

# What `launch` returns.
Process = subprocess.Popen


class TimeLimitError(FabtuneError):
    """A program had not ended when its time was up, and was killed."""


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit status (negative: a signal's number) and what it printed."""

    status: int
    stdout: str
    stderr: str


def where_is(program: str) -> str | None:
    """Return the path of `program`, also where no user's PATH leads; None where it is not installed."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def require(program: str, package: str) -> str:
    """Return the path of `program`, which the Debian `package` brings.  Raises FabtuneError."""
    path = where_is(program)
    if path is None:
        how = packages.command(tree.ETC, (program, package), apt="apt-get")
        raise FabtuneError(f"{program} not found{how and f'; install it with: {how}'}")
    return path


def privileged(command: Sequence[str | Path]) -> list[str | Path]:
    """Return `command` so that it runs as root: itself where we are root, else behind sudo."""
    return list(command) if os.geteuid() == 0 else [require("sudo", "sudo"), *command]


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run `command` to its end and return its stdout.

    Raises FabtuneError with `what`, the exit status and the end of the output when it fails.
    """
    try:
        done = finish(command, stdin=stdin, env=env, timeout_s=timeout_s)
    except FabtuneError as error:
        raise FabtuneError(f"{what}: {error}") from None
    if done.status != 0:
        words = shlex.join(str(word) for word in command)
        raise FabtuneError(f"{what} failed (exit {done.status}): {words}\n{tail(done.stderr or done.stdout)}")
    return done.stdout


def finish(
    command: Sequence[str | Path],
    *,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    own_session: bool = False,
    pass_fds: Collection[int] = (),
) -> Ended:
    """Run `command` to its end, whether it fails or not; output that is not UTF-8 is read as far as possible.

    In a session of its own it gets neither the terminal's Ctrl-C nor its hang-up, which are then for us alone.
    Raises TimeLimitError, or FabtuneError where it cannot be started.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, errors="replace", env=env, timeout=timeout_s,
            check=False, start_new_session=own_session, pass_fds=pass_fds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TimeLimitError(f"no end after {timeout_s:g} s: {shlex.join(words)}") from None
    except OSError as error:
        raise _not_started(words, error) from None
    return Ended(done.returncode, done.stdout, done.stderr)


# A parent that died before the signal was asked for sends none.
_WITH_PARENT = ("sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"')


def launch(
    command: Sequence[str | Path],
    *,
    log: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_terminal: bool = False,
    pass_fds: Collection[int] = (),
    dies_by: str = "",
) -> "Process[bytes]":
    """Start `command` in the background, in a session of its own: the terminal's Ctrl-C is for us, who then end it.

    What it prints goes to `log`, else nowhere.  `on_terminal` leaves it our terminal instead, Ctrl-C included; stderr
    still goes to `log`, if there is one.  `dies_by` names the signal that it gets when this process dies, however
    that happens.  Raises FabtuneError where it cannot be started.
    """
    words = [str(word) for word in command]
    if dies_by:
        words = [require("setpriv", "util-linux"), "--pdeathsig", dies_by, *_WITH_PARENT, str(os.getpid()), *words]
    sink: IO[bytes] | int = subprocess.DEVNULL if log is None else log
    try:
        process = subprocess.Popen(
            words, env=env, cwd=cwd, pass_fds=pass_fds, start_new_session=not on_terminal,
            stdin=None if on_terminal else subprocess.DEVNULL,
            stdout=None if on_terminal else sink, stderr=log if on_terminal else sink,
        )  # fmt: skip
    except OSError as error:
        raise _not_started(words, error) from None
    if (niceness := os.nice(0)) and not on_terminal:
        # Where the kernel shares CPUs out by session (sched_autogroup) a new one is at 0, however nice its processes.
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(str(niceness))
    return process


def ended(process: "Process[bytes]", within_s: float) -> bool:
    """Wait that long for `process` to end; tell whether it has."""
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _not_started(words: Sequence[str], error: OSError) -> FabtuneError:
    why = "not found" if isinstance(error, FileNotFoundError) else f"cannot be started: {error.strerror}"
    return FabtuneError(f"{words[0]} {why}")


def tail(text: str, lines: int = _TAIL_LINES) -> str:
    """Return the last `lines` non-empty lines of `text`, indented for an error message."""
    return "\n".join(f"  {line}" for line in [line for line in text.splitlines() if line.strip()][-lines:])
