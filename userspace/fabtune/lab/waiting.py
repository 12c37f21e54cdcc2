# SPDX-License-Identifier: GPL-2.0-or-later
"""Waiting for what a kernel or a daemon does in its own time, never for a length of time."""

import time
from collections.abc import Callable

from fabtune.errors import FabtuneError

WAIT_S = 60.0


def until(condition: Callable[[], bool], what: str, wait_s: float = WAIT_S) -> None:
    """Return once `condition` holds.  Raises FabtuneError, naming `what`, when it does not within `wait_s`."""
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > deadline:
            raise FabtuneError(f"waited {wait_s:g} s in vain for {what}")
        time.sleep(0.02)
