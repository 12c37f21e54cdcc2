# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares the module's times, and their histograms, with those of the model."""

import math
from collections.abc import Iterator

from model_books import Books, Model, Retry
from model_rows import APART_NS, INTERRUPT_NS, INTERRUPTED, INTERRUPTED_PART, SINGLE_NS, Row, about, end_ns

from fabtune.stat import DeviceInterval, Histogram, Op

# What waits in the device's own queue until it is issued again.
_REFUSALS_BY_TARGET = ("task_set_full", "busy", "nvme_path", "nvme_not_ready")


def times(name: str, ours: Op, theirs: Books, path: bool) -> Iterator[Row]:
    """Compare the times of one op, of a `path` as far as its trace shows them."""
    allowed = APART_NS * theirs.completed + INTERRUPTED * INTERRUPT_NS + theirs.unclear_ns
    device, total = sum(theirs.times_ns), sum(theirs.total_times_ns)
    yield about(f"{name} device_ns", ours.device_ns, device, allowed)
    yield f"{name} total_ns", ours.total_ns, (device if path else total) - allowed, total + allowed
    if theirs.unclear:
        return
    histograms = [ours.histograms.get(key, Histogram((0,))) for key in ("device", "total", "refused")]
    yield from _ranks(f"{name} device", histograms[0], theirs.times_ns)
    if not path:
        yield from _ranks(f"{name} total", histograms[1], theirs.total_times_ns)
    yield from _again(name, histograms[0], histograms[1], theirs.retries, path)


def _ranks(name: str, histogram: Histogram, times_ns: list[int]) -> Iterator[Row]:
    """Compare each time with those of about its rank: the first and the last one of each bucket."""
    ordered = sorted(times_ns)
    # An interrupt between the two moves a few times far.
    moved = INTERRUPTED + len(ordered) // INTERRUPTED_PART
    first = 0
    for index in sorted(histogram.counts):
        for rank in (first, first + histogram.counts[index] - 1) if histogram.counts[index] else ():
            if rank >= len(ordered):
                # Their number is compared elsewhere.
                return
            low_ns, high_ns = histogram.from_ns[index], end_ns(histogram, index)
            least = ordered[rank - moved] - APART_NS if rank >= moved else ordered[0] - SINGLE_NS
            most = ordered[rank + moved] + APART_NS if rank + moved < len(ordered) else ordered[-1] + SINGLE_NS
            yield f"{name} at rank {rank} ns", min(max(low_ns, least), high_ns - 1), least, most
        first += histogram.counts[index]


def _again(name: str, device: Histogram, total: Histogram, retries: list[Retry], path: bool) -> Iterator[Row]:
    """Compare how many times are below each bucket from the first issue less from the last: those sent back differ."""
    less = 0
    for index in range(len(total.from_ns) - 1):
        less += device.counts.get(index, 0) - total.counts.get(index, 0)
        end = total.from_ns[index + 1]
        most = sum(one.device_ns - SINGLE_NS < end <= one.total_ns + SINGLE_NS for one in retries)
        least = sum(one.device_ns + SINGLE_NS < end <= one.total_ns - SINGLE_NS for one in retries)
        # What dm throws away begins anew.
        yield f"{name} sent back, from device to total over {end} ns", less, 0 if path else least, most


def refusals(model: Model, one: DeviceInterval, path: bool) -> Iterator[Row]:
    """Compare what was refused, and for how long: which of those that were sent back, the trace does not tell."""
    for name in sorted({*model.ops, *one.ops}):
        ours, theirs = one.ops.get(name, Op()), model.ops[name]
        least = least_refused(model, one, name, path)
        yield f"{name} refused", ours.refused, least, len(theirs.retries) + theirs.unclear
        shortest = sorted(retry.shortest_ns(path) for retry in theirs.retries)
        longest = sorted(retry.longest_ns for retry in theirs.retries)
        slack = INTERRUPT_NS * ours.refused + theirs.unclear_ns
        low, high = sum(shortest[: ours.refused]), sum(longest[-ours.refused :] if ours.refused else ())
        yield f"{name} refused_ns", ours.refused_ns, low - slack, high + slack
        yield (
            f"{name} total_ns less device_ns beside refused_ns",
            ours.total_ns - ours.device_ns, ours.refused_ns - _unseen_ns(theirs) - ours.completed, math.inf,
        )  # fmt: skip
        if not theirs.unclear and "refused" in ours.histograms:
            yield from _refused_histogram(f"{name} refused", ours.histograms["refused"], shortest, longest)


def _unseen_ns(theirs: Books) -> int:
    """Return how long requests were held before their first issue, from when their total time runs."""
    return sum(max(0, one.longest_ns - (one.total_ns - one.device_ns)) + INTERRUPT_NS for one in theirs.retries)


def _refused_histogram(name: str, histogram: Histogram, shortest: list[int], longest: list[int]) -> Iterator[Row]:
    number, below = histogram.count, 0
    for index in range(len(histogram.from_ns) - 1):
        below += histogram.counts.get(index, 0)
        end = histogram.from_ns[index + 1]
        most = min(number, sum(one - SINGLE_NS < end for one in shortest))
        least = max(0, number - sum(one + SINGLE_NS >= end for one in longest))
        yield f"{name} for less than {end} ns", below, least, most


def least_refused(model: Model, one: DeviceInterval, name: str, path: bool) -> int:
    """Return how many requests of an op must have been refused at least, by how often each was sent back."""
    events, theirs = one.events, model.ops[name]
    refusals_by_target = sum(events.get(key, 0) for key in _REFUSALS_BY_TARGET)
    # What a path's driver refuses, dm throws away.
    count = refusals_by_target + (0 if path else events["requeued_by_driver"])
    # The other ops' may all have been refusals, and so may those of requests that never came through.
    elsewhere = sum(books.sent_back for other, books in model.ops.items() if other != name)
    count -= elsewhere + theirs.sent_back - sum(len(retry.sent_back_ns) for retry in theirs.retries)
    held = [len(retry.sent_back_ns) for retry in theirs.retries if retry.held_ns and not path]
    others = [len(retry.sent_back_ns) for retry in theirs.retries if path or not retry.held_ns]
    count -= sum(held)
    found = len(held)
    for times_sent_back in sorted(others, reverse=True):
        if count <= 0:
            break
        count -= times_sent_back
        found += 1
    again = 0 if path else len(theirs.retries) - max(0, events["requeued_by_target"] - refusals_by_target)
    return max(0, max(found, again) - theirs.unclear)
