# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether all of an interval was counted: the module may have been off at its begin, or for a while meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fabtune.errors import InputError

# So long it may take a module to attach its probes once it is loaded.
_ATTACHED_IN_NS = 10**9


class TimedReading(Protocol):
    """What a reading of either kind tells of that."""

    @property
    def time_ns(self) -> int: ...
    @property
    def loaded_ns(self) -> int: ...
    @property
    def module(self) -> Mapping[str, str]: ...
    @property
    def counting(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Coverage:
    """Whether the `whole` interval was counted, and how much at its end without a break (`last_ns`).

    None: not known.  Older modules tell no more than whether they count at each of the two readings.
    """

    whole: bool
    last_ns: int | None


def coverage(before: TimedReading, after: TimedReading) -> Coverage:
    """Tell what was counted of the time between two readings.  Raises InputError."""
    since_ns = _since_ns(after)
    if since_ns is None:
        return Coverage(before.counting and after.counting, None if after.counting else 0)
    return Coverage(0 < since_ns <= before.time_ns, _last_ns(after, since_ns, before.time_ns))


def coverage_since_load(reading: TimedReading) -> Coverage:
    """Tell what was counted of the time since the module was loaded.  Raises InputError."""
    since_ns = _since_ns(reading)
    if since_ns is None:
        return Coverage(reading.counting, None if reading.counting else 0)
    whole = 0 < since_ns <= reading.loaded_ns + _ATTACHED_IN_NS
    return Coverage(whole, _last_ns(reading, since_ns, reading.loaded_ns))


def _since_ns(reading: TimedReading) -> int | None:
    """Return since when it has counted without a break, 0 where it does not count, None where it does not tell."""
    told = reading.module.get("counting_since_ns")
    if told is None:
        return None
    if not told.isdecimal():
        raise InputError(f"counting_since_ns={told}: expected a number; the reading is damaged, take it again")
    return int(told) if reading.counting else 0


def _last_ns(reading: TimedReading, since_ns: int, begin_ns: int) -> int:
    return max(0, reading.time_ns - max(since_ns, begin_ns)) if since_ns else 0
