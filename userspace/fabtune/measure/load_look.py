# SPDX-License-Identifier: GPL-2.0-or-later
"""A look at the session below a load's disk while its measured part runs, taken beside the load's own samples.

Whatever goes wrong with it, the load is measured all the same.
"""

import math
import time

from fabtune.errors import FabtuneError
from fabtune.measure.look import Look
from fabtune.measure.measured import Span
from fabtune.model.limits import Limits
from fabtune.model.runrecord import Readings
from fabtune.stat import parse
from fabtune.why.summing_up import limits_of, with_rate

# The share of a look that must lie in the measured part for its verdict to be of that part.
_INSIDE = 0.8
# The share of the measured part that must have been looked at: on a busy host a look may begin when that nearly ends,
# and where fio waits for a lost packet before it says when it measures, a good part of a short one has passed.
_ENOUGH = 0.25
# Of more disks at once each sample would take its time from the load.
_MOST_DISKS = 8


class LoadLook:
    """Looks at `disk`, or nowhere where it is of no iSCSI session; the target's end is in `target_netns`, if any.

    `measured_s` is how long the measured part lasts, None for one that ends with its data; `every_s` passes between
    two samples.
    """

    def __init__(self, disk: str | None, target_netns: str | None, measured_s: float | None, every_s: float) -> None:
        self._look = _begun(disk, target_netns)
        # What is read at the end of the look must not wait for a sample that never comes.
        self._length_s = math.inf if measured_s is None else measured_s - 1.5 * every_s
        self._from_s = math.inf
        # When the first and the last of its samples were taken.
        self._first_s = self._last_s = 0.0
        self._begun = self._stopped = False

    @property
    def waits(self) -> bool:
        """Whether it has yet to be told when the measured part begins."""
        return self._look is not None and math.isinf(self._from_s)

    def start(self, from_s: float | None) -> None:
        """Note when the measured part begins, by the monotonic clock; None where that is not known yet."""
        if from_s is not None:
            self._from_s = from_s

    def sample(self) -> None:
        """Look once, in the measured part alone."""
        now_s = time.monotonic()
        if self._look is None or self._stopped or now_s < self._from_s:
            return
        try:
            if not self._begun:
                self._look.begin()
                self._begun, self._first_s = True, now_s
            self._look.sample()
            self._last_s = now_s
            if now_s >= self._from_s + self._length_s and now_s > self._first_s:
                self._look.stop()
                self._stopped = True
        except (FabtuneError, OSError):
            self.give_up()

    def give_up(self) -> None:
        """End the look without a judgement."""
        if self._look:
            self._look.give_up()
        self._look = None

    def limits(
        self, rate_bytes_per_s: float | None, readings: Readings | None, part: Span | None = None
    ) -> tuple[Limits, ...]:
        """Return what limited the load, after its end; `rate_bytes_per_s` is the line's rate where it was told.

        `readings` are fabstat's of the measured part, and `part` is when that was.  Of a load of which something else
        was looked at, as of one that begins late after its start, or too little of it, nothing is said.
        """
        if self._begun:
            self.sample()
        if not self._begun or self._look is None:
            return ()
        if not self._is_of(part):
            self.give_up()
            return ()
        first, last = (parse(readings.before), parse(readings.after)) if readings else (None, None)
        try:
            if not self._stopped:
                self._look.stop()
            seen = self._look.end(first, last)
        except (FabtuneError, OSError):
            self.give_up()
            return ()
        return tuple(one for disk in seen for one in limits_of(with_rate(disk, rate_bytes_per_s)))

    def _is_of(self, part: Span | None) -> bool:
        """Tell whether the look was of the measured `part`, as far as that is known, and of enough of it."""
        looked_s = self._last_s - self._first_s
        if part is None:
            return looked_s > 0
        seen_s = min(self._last_s, part.end_s) - max(self._first_s, part.begin_s)
        return seen_s > 0 and seen_s >= _INSIDE * looked_s and seen_s >= _ENOUGH * (part.end_s - part.begin_s)


def _begun(disk: str | None, target_netns: str | None) -> Look | None:
    """Return a look at `disk` that has yet to begin, None where there is nothing to look at."""
    if disk is None:
        return None
    try:
        look = Look([disk], target_netns)
        if look.disks > _MOST_DISKS:
            return None
    except (FabtuneError, OSError):
        return None
    try:
        look.prepare()
    except (FabtuneError, OSError):
        look.give_up()
        return None
    return look
