# SPDX-License-Identifier: GPL-2.0-or-later
"""What limited a load, in a sentence with the rate that tables have of it: a look sees a part of what is measured."""

from fabtune.measure import measured
from fabtune.model.limits import Limits
from fabtune.model.runrecord import StepResult
from fabtune.why import words

# Rates of a look and of its load that differ by more are not of one thing, as those of a file in the page cache.
_ONE_RATE = 0.05


def own_bytes_per_s(result: StepResult, one: Limits) -> float:
    """Return the bytes per second of the direction that was limited: the load's own where it is the disk's, too."""
    own = measured.throughput_of(result, one.way)
    of_one_disk = sum(other.way == one.way for other in result.limits) == 1
    if own is None or not of_one_disk or abs(one.bytes_per_s - own.bytes_per_s) > _ONE_RATE * own.bytes_per_s:
        return one.bytes_per_s
    return own.bytes_per_s


def limited_by(result: StepResult, one: Limits) -> str:
    """Return what limited a direction of a step in a sentence."""
    return words.at_rate(one.verdict, one.bytes_per_s, own_bytes_per_s(result, one))
