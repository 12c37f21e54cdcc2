# SPDX-License-Identifier: GPL-2.0-or-later
"""Log-linear histograms of times: percentiles with their error, sums and differences."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

# What two readings lack is known but for the times of requests that end while they are taken.
_WHILE_READ = 1 / 1000


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile as far as a histogram knows it: the true value lies in [low_ns, high_ns).

    `high_ns` is infinite for a time beyond the histogram's range (2^40 ns, 18 minutes).
    """

    low_ns: int
    high_ns: float

    @property
    def value_ns(self) -> float:
        """The middle of the bucket; its lower bound where it has no upper one."""
        return (self.low_ns + self.high_ns) / 2 if math.isfinite(self.high_ns) else float(self.low_ns)

    @property
    def error_ns(self) -> float:
        """How far `value_ns` may be from the true value."""
        return self.high_ns - self.value_ns

    @property
    def value_ms(self) -> float:
        return self.value_ns / 1e6


@dataclass(slots=True)  # not frozen: a reading has thousands of them, and a frozen one takes much longer to make
class Histogram:
    """How many times fell in each bucket.

    `from_ns` is the lower bound of every bucket, ascending; a bucket ends where the next begins and
    the last one is open.  `counts` maps a bucket's index to its count; empty buckets are left out.  `lacking` are the
    times beside them that the module had no memory for: where there are some no percentile is told.
    """

    from_ns: tuple[int, ...]
    counts: Mapping[int, int] = field(default_factory=dict)
    lacking: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def percentile(self, percent: float) -> Percentile | None:
        """Return the nearest-rank percentile, 0 < `percent` <= 100; None without samples, or with some lacking."""
        if not 0 < percent <= 100:
            raise ValueError(f"percentile {percent}: expected more than 0 and at most 100")
        if self.lacking:
            return None
        rank = math.ceil(self.count * percent / 100)
        for index in sorted(self.counts):
            rank -= self.counts[index]
            if rank <= 0 and self.counts[index]:
                last = index + 1 >= len(self.from_ns)
                return Percentile(self.from_ns[index], math.inf if last else self.from_ns[index + 1])
        return None

    def __add__(self, other: "Histogram") -> "Histogram":
        counts = dict(self.counts)
        for index, count in other.counts.items():
            counts[index] = counts.get(index, 0) + count
        return Histogram(self.from_ns, counts, self.lacking + other.lacking)

    def __sub__(self, earlier: "Histogram") -> "Histogram":
        """Return what was added since `earlier`, an older reading of the same histogram."""
        counts = {index: count - earlier.counts.get(index, 0) for index, count in self.counts.items()}
        found = Histogram(self.from_ns, {index: count for index, count in counts.items() if count > 0})
        grown = max(0, self.lacking - earlier.lacking)
        found.lacking = grown if not earlier.lacking or grown > _WHILE_READ * found.count else 0
        return found
