# SPDX-License-Identifier: GPL-2.0-or-later
"""One way to run another program: the command is logged, its failure becomes a readable error."""

import logging
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from fabtune.errors import FabtuneError

_log = logging.getLogger(__name__)
_TAIL_LINES = 12


def require(program: str, package: str) -> str:
    """Return the path of `program`, which the Debian `package` brings.  Raises FabtuneError."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if path is None:
        raise FabtuneError(f"{program} not found; install it with: apt-get install {package}")
    return path


def privileged(command: Sequence[str | Path]) -> list[str | Path]:
    """Return `command` so that it runs as root: itself where we are root, else behind sudo."""
    return list(command) if os.geteuid() == 0 else [require("sudo", "sudo"), *command]


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run `command` to its end and return its stdout.

    Raises FabtuneError with `what`, the exit status and the end of the output when it fails.
    """
    words = [str(word) for word in command]
    _log.debug("run: %s", shlex.join(words))
    try:
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, env=env, timeout=timeout_s, check=False
        )
    except FileNotFoundError:
        raise FabtuneError(f"{what}: {words[0]} not found") from None
    except subprocess.TimeoutExpired:
        raise FabtuneError(f"{what}: no end after {timeout_s:g} s: {shlex.join(words)}") from None
    if done.returncode != 0:
        raise FabtuneError(
            f"{what} failed (exit {done.returncode}): {shlex.join(words)}\n{tail(done.stderr or done.stdout)}"
        )
    return done.stdout


def tail(text: str, lines: int = _TAIL_LINES) -> str:
    """Return the last `lines` non-empty lines of `text`, indented for an error message."""
    return "\n".join(f"  {line}" for line in [line for line in text.splitlines() if line.strip()][-lines:])
