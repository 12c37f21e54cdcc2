# SPDX-License-Identifier: GPL-2.0-or-later
"""When to take samples: on a grid, but off the beat of requests that come back regularly.

A closed loop's requests come back in bursts, one a round trip.  Readings that are a whole number of bursts apart see
each time nearly the same part of one, and their slope is wrong by up to a burst while they lie on a straight line.
"""

import time

# Longer than a fleet takes to be reached: where an instant is further away, a clock is wrong, or what was told.
FAR_S = 60.0
# Multiples of the golden ratio fall evenly between whole numbers.
_GOLDEN, _OFF_BEAT = 0.618, 0.5


def off_beat(turn: int, every_s: float) -> float:
    """Return when the sample number `turn` is due, in s from that of number 0, where one is taken `every_s`."""
    return (turn + _OFF_BEAT * (turn * _GOLDEN % 1)) * every_s


def wait_until(unix_s: float) -> float:
    """Sleep until this host's clock shows `unix_s`; return how long ago that was when asked, 0 where it was to come."""
    late_s = max(0.0, time.time() - unix_s)
    while (left_s := unix_s - time.time()) > 0:
        time.sleep(left_s)
    return late_s


def wait_for_others(unix_s: float | None) -> None:
    """Sleep until `unix_s`, at which others begin, too; not at all where it is far ahead: their clock is wrong."""
    if unix_s is not None and unix_s - time.time() <= FAR_S:
        wait_until(unix_s)
