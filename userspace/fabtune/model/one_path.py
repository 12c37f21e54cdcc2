# SPDX-License-Identifier: GPL-2.0-or-later
"""Which round trips are of one path: people tell them roughly, and those of one path differ with what queues on it."""

from collections.abc import Callable, Iterable
from typing import TypeVar

_T = TypeVar("_T")

# Round trips of one path differ by no more than this, or this.
_ALIKE, _ALIKE_MS = 1.25, 0.5


def alike(one_ms: float, other_ms: float) -> bool:
    """Tell whether two round trips can be of one path."""
    shorter_ms = min(one_ms, other_ms)
    return max(one_ms, other_ms) <= max(_ALIKE * shorter_ms, shorter_ms + _ALIKE_MS)


def by_path(every: Iterable[_T], rtt_ms: Callable[[_T], float | None]) -> list[list[_T]]:
    """Return `every` by their paths: round trips that lie apart are not of one; one not known is of the shortest."""
    paths: list[list[_T]] = []
    last_ms = 0.0
    for one in sorted(every, key=lambda one: rtt_ms(one) or 0.0):
        now_ms = rtt_ms(one) or 0.0
        if not paths or (last_ms and not alike(last_ms, now_ms)):
            paths.append([])
        paths[-1].append(one)
        last_ms = now_ms
    return paths
