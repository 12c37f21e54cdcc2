# SPDX-License-Identifier: GPL-2.0-or-later
"""Test hook: FABTUNE_FAULT=kill:7 ends the process at its 7th checkpoint, as a crash would.

`kill` is SIGKILL, `torn` leaves half a journal line and kills, `interrupt` is Ctrl-C, `stop` is SIGSTOP and
`full` a full disk.  Without the variable a checkpoint does nothing.
"""

import errno
import os
import signal

_KINDS = ("kill", "torn", "interrupt", "stop", "full")
_spec = os.environ.get("FABTUNE_FAULT", "")
_count = 0


def checkpoint(writes: bool = True) -> str:
    """Count one step; do the fault asked for here, or return its kind if the caller has to act it out.

    A step that `writes` nothing to disk cannot meet a full one: that fault is not done there.
    """
    global _count
    _count += 1
    kind, _, step = _spec.partition(":")
    if kind not in _KINDS or step != str(_count):
        return ""
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "full" and not writes:
        return ""
    if kind == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "journal")
    return kind
