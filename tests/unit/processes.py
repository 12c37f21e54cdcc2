# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes that tests wait for."""

from pathlib import Path


def runs(pid: int | str) -> bool:
    """Tell whether a process still runs; one that ended and waits to be reaped, by whoever inherited it, does not."""
    try:
        # The file may go between its opening and its reading.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
