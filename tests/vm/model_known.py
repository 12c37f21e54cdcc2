# SPDX-License-Identifier: GPL-2.0-or-later
"""What is known of a device besides its trace: what was done to it, and what others counted of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from model_answers import answers

_SECTOR = 512


@dataclass(frozen=True)
class DiskStat:
    """What the block layer counted: requests and bytes by op."""

    requests: Mapping[str, int]
    bytes: Mapping[str, int]  # noqa: A003


def disk_stat(text: str) -> DiskStat:
    """Return what a disk's file ``stat`` says."""
    words = [int(word) for word in text.split()]
    at = {"read": 0, "write": 4, "discard": 11}
    requests = {op: words[place] for op, place in at.items()} | {"flush": words[15]}
    return DiskStat(requests, {op: words[place + 2] * _SECTOR for op, place in at.items()})


def since(before: DiskStat, after: DiskStat) -> DiskStat:
    """Return the increase."""
    return DiskStat(
        {op: count - before.requests[op] for op, count in after.requests.items()},
        {op: count - before.bytes[op] for op, count in after.bytes.items()},
    )


@dataclass(frozen=True)
class Known:
    """What is known of a device besides the trace.

    `kind` is scsi, dm or nvme.  `refused_above` is how often dm, of a path below it, got one back.  `injected` has
    how often each event was made to happen, None where that is not known; `loses` is whether commands were lost
    besides, so that their time ran out.  `answers` is what the kernel counted of drivers and target.  `limits` are the
    lowest and the highest limit of its depth, `last_limit` that of its last request, as closely as it is known.  `fio`
    has the bytes that were moved, by op; `flushes` how often fio asked for one.
    """

    kind: str = "scsi"
    path: bool = False
    refused_above: int = 0
    highest_before: int = 0
    eh_wakeups_before: int = 0
    injected: Mapping[str, int] | None = None
    loses: bool = False
    answers: Mapping[str, int] | None = None
    limits: tuple[int, int] = (1, 1 << 30)
    last_limit: tuple[int, int] = (1, 1 << 30)
    stat: DiskStat | None = None
    fio: Mapping[str, int] | None = None
    flushes: int | None = None


def known(told: Mapping[str, Any], device: str) -> Known:
    """Return what a round's file tells of `device` besides its trace."""
    one, head = told["devices"][device], device == told["head"]
    before, after = told["looks"]
    answered = answers(before["answers"], after["answers"], one["hctl"]) if one["hctl"] else None
    limits, last_limit = _limits(one, answered)
    moved = told["moved"]
    return Known(
        kind=one["kind"], path=not head, loses=bool(told["troubles"].get("resets")), answers=answered,
        injected=None if one["injected"] is None else Counter(one["injected"]), limits=limits, last_limit=last_limit,
        stat=since(*(disk_stat(look["stats"][device]) for look in (before, after))),
        fio={op: moved[op]["bytes"] for op in ("read", "write")} if head else None,
        flushes=moved["flush"]["ios"] if head and told["can_flush"] else 0,
    )  # fmt: skip


def _limits(one: Mapping[str, Any], answered: Mapping[str, int] | None) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the bounds of the limit while the load went on, and of the last request's."""
    ends = [usable(limits, limits.get("depth")) for limits in one["limits"]]
    name = "depth" if "depth" in one["limits"][0] else "nr_requests"
    seen = ends + [
        usable({**one["limits"][-1], name: depth}, depth if name == "depth" else None) for depth in one["depths"] or ()
    ]
    # The midlayer takes a device's depth back that answers TASK SET FULL, and gives it back one by one.
    moves = bool(answered and answered["task_set_full"])
    return (1 if moves else min(seen), max(seen)), (max(1, ends[-1] - moves), ends[-1])


def usable(limits: Mapping[str, int], depth: int | None) -> int:
    """Return how many requests may be in flight: no more than tags, less the reserved, and SCSI's own depth."""
    tags = max(1, min(limits["nr_requests"], limits["tags"]) - limits["reserved"])
    return tags if depth is None else min(tags, depth)
