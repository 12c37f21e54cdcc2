# SPDX-License-Identifier: GPL-2.0-or-later
"""Which request a plan's queue was sized for, and what another size would need, in words."""

from fabtune.tune.plan import Plan

_SMALL_BYTES = 4096
_LARGEST_QUEUE = 512


def in_words(plan: Plan) -> str:
    """Return what the plan's queue means for its path, '' for a plan without a queue or a path."""
    io_bytes, queue = plan.parameters.get("io_size"), plan.parameters.get("queue")
    if plan.path is None or not io_bytes or not queue:
        return ""
    goodput = plan.path.goodput_bytes_per_s
    text = (
        f"sized for requests of {io_bytes / 1024:g} KiB, {queue:g} of them in flight; "
        f"a full queue takes {1e3 * queue * io_bytes / goodput:.0f} ms to pass"
    )
    needed = plan.path.bdp_bytes / _SMALL_BYTES
    if io_bytes > _SMALL_BYTES and needed > queue:
        capped = "" if needed <= _LARGEST_QUEUE else f" (a target takes at most {_LARGEST_QUEUE})"
        text += f"; to fill this path with requests of 4 KiB, {needed:.0f} are needed{capped}: --set io_size=4KiB"
    return text
