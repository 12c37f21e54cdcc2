# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the requests of disks take, block by block of a look: percentiles need histograms, which fabstat alone has.

fabstat's times begin where a request is first given to the driver.  What it waits in the block queue before that is
known on average, by the block layer's own times, and is added: a disk that is given fewer requests at once only
makes them wait there.
"""

from collections.abc import Mapping, Sequence

import attrs

from fabtune.errors import CannotTellError, FabtuneError
from fabtune.host import blocks, tree
from fabtune.stat import NOT_COUNTING, Histogram, Snapshot, snapshot
from fabtune.stat.coverage import coverage
from fabtune.stat.interval import diff

_OPS = ("read", "write")
# Places of Documentation/block/stat.rst: requests and ms of reads and of writes.
_REQUESTS, _SPENT_MS = (0, 4), (3, 7)

_UNTOLD = "cannot tell how long requests take without fabstat's histograms"


@attrs.frozen
class DiskTimes:
    """The requests of one disk that completed in a block: fabstat's times, and the sum of what they waited before."""

    histogram: Histogram
    waited_ms: float = 0.0

    def __add__(self, other: "DiskTimes") -> "DiskTimes":
        return DiskTimes(self.histogram + other.histogram, self.waited_ms + other.waited_ms)

    @property
    def requests(self) -> int:
        """How many completed."""
        return self.histogram.count

    def percentile_ms(self, percent: float) -> float | None:
        """Return a percentile of fabstat's times and the mean wait before them together, None without a request."""
        found = self.histogram.percentile(percent)
        return None if found is None else found.value_ms + self.waited_ms / self.requests


@attrs.frozen
class TimesReading:
    """fabstat's counters, and what the block layer counts of each disk: requests, and the ms that they took."""

    fabstat: Snapshot
    spent: Mapping[str, tuple[int, float]]


class RequestTimes:
    """Reads while `sample` is called again and again, each `every_s`; then `blocks` are the differences."""

    def __init__(self, every_s: float) -> None:
        self._every_s, self._next_s = every_s, 0.0
        self._readings: list[TimesReading] = []

    def sample(self, disks: Sequence[str], at_s: float) -> None:
        """Read if it is time.  Raises CannotTellError where fabstat tells nothing."""
        if at_s >= self._next_s:
            now = _read(disks)
            if self._readings and not coverage(self._readings[-1].fabstat, now.fabstat).whole:
                raise CannotTellError(f"{_UNTOLD}: fabstat was switched off for a while (enabled=N)")
            self._readings.append(now)
            self._next_s = at_s + self._every_s

    def blocks(self) -> list[dict[str, DiskTimes]]:
        """Return the times of each disk, block by block."""
        return [times_between(*pair) for pair in zip(self._readings, self._readings[1:], strict=False)]


def check_histograms() -> None:
    """Raise CannotTellError unless fabstat can be read."""
    _read([])


def _read(disks: Sequence[str]) -> TimesReading:
    try:
        counted = snapshot()
    except FabtuneError as error:
        raise CannotTellError(f"{_UNTOLD}: {error}") from error
    if not counted.counting:
        raise CannotTellError(f"{_UNTOLD}: {NOT_COUNTING}")
    return TimesReading(counted, {disk: _spent(disk) for disk in disks})


def _spent(disk: str) -> tuple[int, float]:
    words = [int(word) for word in (tree.read_text(f"{blocks.directory(disk)}/stat") or "").split()]
    if len(words) <= max(_SPENT_MS):
        return 0, 0.0
    return sum(words[place] for place in _REQUESTS), float(sum(words[place] for place in _SPENT_MS))


def times_between(before: TimesReading, after: TimesReading) -> dict[str, DiskTimes]:
    """Return the times of the requests that completed between two readings, by disk."""
    found = {}
    for one in diff(before.fabstat, after.fabstat).devices:
        if one.device.state == "gone" or one.device.disk not in after.spent:
            continue
        ops = [one.ops[name] for name in _OPS if name in one.ops]
        histograms = [op.histograms["total"] for op in ops]
        if not histograms:
            continue
        now, then = (reading.spent.get(one.device.disk, (0, 0.0)) for reading in (after, before))
        requests, spent_ms = now[0] - then[0], now[1] - then[1]
        driver_ms, completed = sum(op.total_ns for op in ops) / 1e6, sum(op.completed for op in ops)
        waits_ms = max(0.0, spent_ms / requests - driver_ms / completed) if requests and completed else 0.0
        times = sum(histograms[1:], histograms[0])
        found[one.device.disk] = DiskTimes(times, waits_ms * times.count)
    return found
