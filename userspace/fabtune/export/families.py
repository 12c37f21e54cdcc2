# SPDX-License-Identifier: GPL-2.0-or-later
"""The text forms of metrics: labels, counters, gauges and histograms, in Prometheus' format and in OpenMetrics.

prometheus_client has all this, but needs 0.4 s and 100 MB for the histograms of 1,000 disks (84,000 samples), which
is more than a scrape may take; its parsers read what is written here in tests/unit/test_export.py.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice

from fabtune.stat import Histogram

PROMETHEUS, OPENMETRICS = "prometheus", "openmetrics"
CONTENT_TYPES = {
    PROMETHEUS: "text/plain; version=0.0.4; charset=utf-8",
    OPENMETRICS: "application/openmetrics-text; version=1.0.0; charset=utf-8",
}

_LINES_AT_ONCE = 500
_PARTS_PER_S = 2**17

# Bounds of buckets in ns.  fabstat's own lie at every sixteenth of an octave, so that each power of two from 2^4 ns on
# is one of them, and nothing is counted in a wrong bucket: 66 us to 134 ms by octaves, and from there by fours to 34 s.
# Each bucket takes 4 kB a day of whoever keeps it, for each disk and kind of request.
BUCKETS_NS = tuple(2**power for power in (*range(16, 28), *range(29, 36, 2)))


@dataclass(frozen=True, slots=True)
class Family:
    """One metric's name (of a counter with its ``_total``), kind and help."""

    name: str
    kind: str
    help: str  # noqa: A003

    def head(self, form: str) -> str:
        """Return the lines that stand before its samples."""
        name = self.name.removesuffix("_total") if form == OPENMETRICS and self.kind == "counter" else self.name
        return f"# HELP {name} {self.help}\n# TYPE {name} {self.kind}\n"


def labels(pairs: Mapping[str, str]) -> str:
    """Return ``name="value",...`` with what others named escaped."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs.items())


def _escaped(value: str) -> str:
    if value.isalnum():
        return value
    # What is no UTF-8 came in as half characters, which no text can carry.
    value = value.encode(errors="replace").decode()
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def exactly(value: float) -> str:
    """Return `value` as both formats write it, exactly."""
    return str(value) if isinstance(value, int) else repr(float(value))


def seconds(time_ns: float) -> float:
    """Return a sum of times, given in ns, to the nearest 8 us: so few binary digits take half the bytes where kept."""
    return round(time_ns * _PARTS_PER_S / 1e9) / _PARTS_PER_S


def sample_line(family: Family, label_text: str, value: float) -> str:
    """Return one line."""
    return f"{family.name}{{{label_text}}} {exactly(value)}\n" if label_text else f"{family.name} {exactly(value)}\n"


@cache
def _groups(from_ns: tuple[int, ...]) -> tuple[int, ...]:
    """Return which of our buckets each of the module's belongs to."""
    missing = [bound for bound in BUCKETS_NS if bound not in from_ns]
    if missing:
        raise ValueError(f"fabstat has no bucket that begins at {missing[0]} ns")
    # A bucket ends where the next begins: what begins at a bound lies above it.
    return tuple(bisect_left(BUCKETS_NS, low + 1) for low in from_ns)


# The text of each `le`.
_BOUNDS = tuple(repr(bound / 1e9) for bound in BUCKETS_NS) + ("+Inf",)


def histogram_lines(family: Family, label_text: str, times: Histogram, sum_ns: int) -> Iterator[str]:
    """Yield the lines of one histogram of times."""
    groups = _groups(times.from_ns)
    counts = [0] * len(_BOUNDS)
    for index, count in times.counts.items():
        counts[groups[index]] += count
    start = f'{family.name}_bucket{{{label_text},le="'
    total = 0
    for bound, count in zip(_BOUNDS, counts, strict=True):
        total += count
        yield f'{start}{bound}"}} {total}\n'
    yield f"{family.name}_sum{{{label_text}}} {seconds(sum_ns)!r}\n{family.name}_count{{{label_text}}} {total}\n"


def metric_text(family: Family, lines: Iterator[str], form: str) -> Iterator[str]:
    """Yield a metric with its head, some lines at a time: the text of 1,000 disks is 24 MB; nothing without a line."""
    head = family.head(form)
    while part := "".join(islice(lines, _LINES_AT_ONCE)):
        yield head + part
        head = ""
