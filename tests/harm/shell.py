# SPDX-License-Identifier: GPL-2.0-or-later
"""Small tools to build hosts with: run a program, feed a batch, wait until something is so."""

import subprocess
import time
from collections.abc import Callable, Sequence


class HostError(Exception):
    """The host could not be built, changed or cleaned: the test's own fault or the lab's, never fabtune's."""


def run(*words: str, stdin: str = "", check: bool = True, timeout_s: float = 120) -> str:
    """Run a program and return what it prints.  Raises HostError when it fails and `check` is set."""
    try:
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, errors="replace", check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise HostError(f"{' '.join(words)}: no end within {timeout_s:g} s") from None
    if done.returncode and check:
        raise HostError(
            f"{' '.join(words)}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}\n{stdin}"
        )
    return done.stdout


def batch(program: str, lines: Sequence[str], namespace: str = "", family: int = 0, force: bool = False) -> None:
    """Run many commands of `ip` or `tc` in one process; `force` goes on after one that fails."""
    options = [
        *(["-n", namespace] if namespace else []),
        *([f"-{family}"] if family else []),
        *(["-force"] if force else []),
    ]
    if lines:
        run(program, *options, "-batch", "-", stdin="\n".join(lines) + "\n", check=not force)


def until(is_so: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Wait until `is_so`.  Raises HostError."""
    deadline = time.monotonic() + timeout_s
    pause = 0.005
    while not is_so():
        if time.monotonic() > deadline:
            raise HostError(f"waited {timeout_s:g} s for {what}")
        time.sleep(pause)
        pause = min(0.1, pause * 1.5)
