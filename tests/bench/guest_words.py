# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest: programs that must do as they are told, fabtune and the guest's own set-up among them."""

import subprocess
import sys
from collections.abc import Sequence

_GUEST = (sys.executable, "-m", "fabtune.lab.guest")


def output_of(*words: str, allowed: Sequence[int] = (0,)) -> str:
    """Return what a program printed; ends this one where its exit code is not `allowed`."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}: {done.stdout[-500:]} {done.stderr[-2000:]}")
    return done.stdout


def fabtune(*words: str, allowed: Sequence[int] = (0, 4)) -> str:
    """Return what fabtune printed; 4 says that something waits for a re-login."""
    return output_of(sys.executable, "-m", "fabtune", *words, allowed=allowed)


def guest(*words: str) -> str:
    """Return what the guest's set-up printed, such as a disk's name for `login`."""
    return output_of(*_GUEST, *words).strip()
