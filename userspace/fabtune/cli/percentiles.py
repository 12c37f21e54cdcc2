# SPDX-License-Identifier: GPL-2.0-or-later
"""How times that fabstat.ko has in histograms are printed, in ms."""

import math
from collections.abc import Callable, Mapping

from fabtune.stat import Histogram, Percentile

PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9, "max": 100.0}


def of_histogram(
    histogram: Histogram | None, percent: float, show: Callable[[Percentile | None], str] | None = None
) -> str:
    """Return a percentile as the tables show it, or as `show` does; one that cannot be told as ``?``."""
    if histogram is None:
        return "-"
    return "?" if histogram.lacking else (show or in_ms)(histogram.percentile(percent))


def in_ms(percentile: Percentile | None) -> str:
    """Return a percentile as the tables show it; of the last bucket, which has no end, the time that it exceeds."""
    if percentile is None:
        return "-"
    return f"{'> ' * math.isinf(percentile.high_ns)}{three_digits(percentile.value_ms)}"


def three_digits(value: float) -> str:
    """Return a figure with as many digits behind its point as make three."""
    if value == 0:
        return "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def times_json(total_ns: int, count: int, histogram: Histogram) -> dict[str, float | int | None]:
    """Return the mean of `count` times that sum up to `total_ns`, and their percentiles, each with its error; in ms.

    `missing` are the times that are in no histogram: then there are no percentiles.
    """
    told = {"mean": total_ns / count / 1e6 if count else None, "missing": histogram.lacking}
    return told | percentiles_json(histogram, PERCENTS)


def percentiles_json(histogram: Histogram, percents: Mapping[str, float]) -> dict[str, float | None]:
    """Return percentiles in ms by name, each with its error, which one in the last bucket, without an end, has not."""
    data: dict[str, float | None] = {}
    for name, percent in percents.items():
        found = histogram.percentile(percent)
        data[name] = found.value_ms if found else None
        data[f"{name}_error"] = found.error_ns / 1e6 if found and math.isfinite(found.error_ns) else None
    return data
