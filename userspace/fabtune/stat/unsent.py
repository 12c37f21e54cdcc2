# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests that have waited for too long in the block layer: no driver has them, and the module sees only sent ones."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabtune.host import tree
from fabtune.host.blocks import SECTOR_BYTES
from fabtune.stat.queue_lists import QueuedRequest, by_reason, queue_lists
from fabtune.stat.stuck import StuckRequest

# From this age on, unless the module says another one (its stuck_ms).
THRESHOLD_NS = 60 * 10**9
# A request of unknown age waits if its disk ends nothing for so long.
_LOOK_S = 1.0
# Of sysfs' stat (Documentation/block/stat.rst): what has ended or was merged, by kind.
_ENDED = (0, 1, 2, 4, 5, 6, 11, 12, 13, 15)
_OPS = {"read": "read", "write": "write", "flush": "flush", "discard": "discard", "zone_append": "write"}


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """One request that waits: since `age_ns`, None where the kernel does not know.

    `lba` and `blocks` are in the disk's own blocks, None where the kernel does not tell; `place` is ``requeue_list``,
    ``dispatch`` or ``scheduler``.
    """

    disk: str
    op: str
    lba: int | None
    blocks: int | None
    age_ns: int | None
    place: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Those that wait, the oldest first, then those of unknown age; and what is not seen, as ends of a sentence."""

    requests: tuple[WaitingRequest, ...] = ()
    unseen: tuple[str, ...] = ()


def unsent(threshold_ns: int = THRESHOLD_NS, listed: Sequence[StuckRequest] = (), sys: Path | None = None) -> Waiting:
    """Return what has waited for `threshold_ns` or, of unknown age, while its disk ended nothing.

    Those that the module has `listed` are left out.
    """
    place = sys or tree.SYS
    now = queue_lists(place)
    told = list(now.unseen)
    unknown = [one for one in now.requests if one.age_ns is None]
    still: set[tuple[str, str, str]] = set()
    if unknown:
        before = _ended(unknown, place)
        time.sleep(_LOOK_S)
        now = queue_lists(place)
        after = _ended(unknown, place)
        still = {_whose(one) for one in unknown if before[one.disk] and before[one.disk] == after[one.disk]}
        told = list(now.unseen)
        why = "the disk keeps no I/O statistics, so a request of unknown age cannot be told from the next"
        told += by_reason({why: blind} if (blind := _blind(unknown, now.requests, before)) else {})
    found = [
        one
        for one in now.requests
        if (one.age_ns >= threshold_ns if one.age_ns is not None else one.counted and _whose(one) in still)
    ]
    rest = sorted(_unlisted(found, listed), key=lambda one: -(one.age_ns or 0))
    return Waiting(
        tuple(WaitingRequest(one.disk, one.op, one.lba, one.blocks, one.age_ns, one.place) for one in rest),
        tuple(told),
    )


def _whose(one: QueuedRequest) -> tuple[str, str, str]:
    return one.disk, one.request, one.op


def _ended(requests: Iterable[QueuedRequest], sys: Path) -> dict[str, tuple[str, ...]]:
    """Return how much the disks of `requests` have ended by now; nothing where that is not known."""
    found = {}
    for disk in {one.disk for one in requests}:
        words = (tree.read_text(sys / "block" / disk / "stat") or "").split()
        found[disk] = tuple(words[index] for index in _ENDED if index < len(words))
    return found


def _blind(
    before: Iterable[QueuedRequest], now: Iterable[QueuedRequest], ended: dict[str, tuple[str, ...]]
) -> list[str]:
    """Return the disks with requests of unknown age at both looks of which no count says whether they are others."""
    both = {_whose(one) for one in before} & {_whose(one) for one in now}
    uncounted = (one for one in before if not (one.counted and ended[one.disk]))
    return sorted({one.disk for one in uncounted if _whose(one) in both})


def _unlisted(found: Iterable[QueuedRequest], listed: Sequence[StuckRequest]) -> list[QueuedRequest]:
    """Return those of `found` that are not `listed`, each of which stands for one."""
    places = defaultdict(list)
    for request in listed:
        places[request.disk, request.op].append(request)
    rest = []
    for one in found:
        same = next((other for other in places[_kind(one)] if _same_place(one, other)), None)
        if same:
            places[_kind(one)].remove(same)
        else:
            rest.append(one)
    # Where one of unknown place is, and the module has one that was sent back, it is that.
    back = Counter(kind for kind, of in places.items() for other in of if other.state == "sent_back")
    return [one for one in rest if one.lba is not None or not _taken(back, _kind(one))]


def _taken(left: Counter[tuple[str, str]], kind: tuple[str, str]) -> bool:
    left[kind] -= 1
    return left[kind] >= 0


def _kind(one: QueuedRequest) -> tuple[str, str]:
    return one.disk, _OPS.get(one.op, "other")


def _same_place(one: QueuedRequest, other: StuckRequest) -> bool:
    """Tell whether both are about the same blocks, however large the disk's blocks are."""
    if one.lba is None or not one.blocks or other.bytes % (one.blocks * SECTOR_BYTES):
        return False
    return other.sector == one.lba * (other.bytes // (one.blocks * SECTOR_BYTES))
