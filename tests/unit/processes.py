# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes that tests wait for."""

import os
from collections.abc import Callable
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.tune import fault


def runs(pid: int | str) -> bool:
    """Tell whether a process still runs; one that ended and waits to be reaped, by whoever inherited it, does not."""
    try:
        # The file may go between its opening and its reading.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def in_child(action: Callable[[], object], spec: str) -> int:
    """Run `action` in a process of its own with fault `spec`; return its exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        fault._spec, fault._count = spec, 0
        try:
            action()
        except FabtuneError as error:
            os._exit(error.exit_code)
        except BaseException:
            os._exit(99)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
