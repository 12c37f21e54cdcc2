# SPDX-License-Identifier: GPL-2.0-or-later
"""Which request a plan's queue was sized for and among how many sessions it divides the line, in words."""

import math

from fabtune.model.observation import INITIATOR
from fabtune.tune.plan import Plan

_SMALL_BYTES, _LARGE_BYTES = 4096, 1 << 20
_LARGEST_QUEUE = 512


def in_words(plan: Plan) -> str:
    """Return what the plan's queue means for its path, '' for a plan without a queue or a path."""
    io_bytes, queue = plan.io_bytes, plan.parameters.get("queue")
    if plan.path is None or not io_bytes or not queue:
        return ""
    goodput = plan.path.goodput_bytes_per_s
    text = (
        f"sized for requests of {io_bytes / 1024:g} KiB, {queue:g} of them in flight; "
        f"a full queue takes {1e3 * queue * io_bytes / goodput:.0f} ms to pass"
    )
    bdp = plan.path.bdp_bytes
    needed = bdp / _SMALL_BYTES
    if io_bytes > _SMALL_BYTES and queue * io_bytes < bdp:
        text += f"; {_lacking(queue, io_bytes, bdp)}"
    elif io_bytes > _SMALL_BYTES and needed > queue:
        capped = "" if needed <= _LARGEST_QUEUE else f" (a target takes at most {_LARGEST_QUEUE})"
        text += f"; to fill this path with requests of 4 KiB, {needed:.0f} are needed{capped}"
        if queue < _LARGEST_QUEUE:
            text += ": --set io_size=4KiB"
    return text


def division_in_words(plan: Plan) -> str:
    """Return among how many sessions the plan divides the line, and how to tell otherwise; '' where it does not."""
    sessions = plan.parameters.get("busy_sessions", 1)
    if sessions <= 1:
        return ""
    text = (
        f"{sessions:g} sessions are always busy together on one line: each is paced at 1/{sessions:g} of its rate, "
        "also while others are idle"
    )
    if plan.roles != (INITIATOR,):
        return text
    told = f"tell the target the same (--set busy_sessions={sessions:g})"
    return f"{text}; {told}; --set busy_sessions=1 gives each all of it, as requests that come one at a time need"


def _lacking(queue: float, io_bytes: float, bdp: float) -> str:
    """Return how much of a path a queue that cannot fill it fills, and what fills it where no longer queue does."""
    text = f"{queue:g} x {io_bytes / 1024:g} KiB fill {100 * queue * io_bytes / bdp:.0f} % of this path"
    if queue < _LARGEST_QUEUE:
        return text
    size = 1 << math.ceil(math.log2(bdp / _LARGEST_QUEUE))
    larger = f"larger requests (--set io_size={size / 1024:g}KiB) or " if size <= _LARGE_BYTES else ""
    return f"{text}, and a target takes at most {_LARGEST_QUEUE}: {larger}more sessions fill it"
