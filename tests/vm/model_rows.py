# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of a comparison of the model test, the bounds that all of them share, and what every reading owes itself."""

import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "userspace"))

from fabtune.stat import Histogram, Op  # noqa: E402

# The two take their time a moment apart, in the order in which they were attached; and as long as it takes to end
# another request, where each is issued just when the timer of another one runs out.  That goes on for whole rounds.
APART_NS = 6000
# Of a single request: memory may be taken for it, and an interrupt may come between the two, which ends other requests.
INTERRUPT_NS = 30_000
# The first one of an op that had been sent back takes memory for three histograms when it ends: 35 us were seen.
SINGLE_NS = 2 * INTERRUPT_NS
# So many of few requests may have met one, and such a part of many.
INTERRUPTED, INTERRUPTED_PART = 3, 50

NEVER = ("unmatched", "untracked", "no_histogram", "no_retry", "failed_over")
BY_DRIVER = ("host_busy", "device_busy", "target_busy", "eh_retry", "driver_other")
ANSWERS = (*BY_DRIVER, "task_set_full", "busy", "timeout")

# What is compared, what the module says, and the least and the most that it may say.
Row = tuple[str, float, float, float]


def said(rows: Iterable[Row]) -> list[str]:
    """Return what is out of its bounds."""
    return [
        f"{name}: {ours:.0f}, expected {low:.0f}" + (f" to {high:.0f}" if high != low else "")
        for name, ours, low, high in rows
        if not low <= ours <= high
    ]


def exact(name: str, ours: float, theirs: float) -> Row:
    return name, ours, theirs, theirs


def about(name: str, ours: float, theirs: float, error: float) -> Row:
    return name, ours, theirs - error, theirs + error


def adds_up(name: str, op: Op) -> Iterator[Row]:
    """What one op's counters say of each other, whoever else has seen it."""
    yield exact(f"{name} errors by class", sum(op.errors_by_class.values()), op.errors)
    for key, count in (("device", op.completed), ("total", op.completed), ("refused", op.refused)):
        histogram = op.histograms.get(key, Histogram((0,)))
        yield exact(f"{name} in the histogram {key}", histogram.count, count)
        low = sum(histogram.from_ns[index] * number for index, number in histogram.counts.items())
        high = sum(end_ns(histogram, index) * number for index, number in histogram.counts.items() if number)
        # Each of them was rounded down, or its bucket's bounds were.
        yield f"{name} {key}_ns beside its histogram", getattr(op, f"{key}_ns"), low - count, high + count
    yield f"{name} total_ns beside what was refused", op.total_ns, op.device_ns, math.inf
    yield exact(f"{name} details, which are off", len(op.details), 0)


def end_ns(histogram: Histogram, index: int) -> float:
    """Return where bucket `index` ends."""
    return histogram.from_ns[index + 1] if index + 1 < len(histogram.from_ns) else math.inf
