# SPDX-License-Identifier: GPL-2.0-or-later
"""What a climb was asked for, and how it looks at that."""

import attrs

from fabtune.autotune import view
from fabtune.autotune.goal import Goal
from fabtune.autotune.view import View


@attrs.frozen
class ClimbAsked:
    """Which disks, at which ends, told how much of the path, and how long and how often to look."""

    disks: tuple[str, ...]
    target_netns: str | None
    rate_bit_per_s: float | None
    seconds: float
    most_steps: int
    # The host that the target is, where that is another one.
    target_host: str = ""
    goal: Goal = Goal.THROUGHPUT
    # Whether others that use the line, too, are to keep their part of it.
    friendly: bool = True

    def look(self, seconds: float = 0.0) -> View:
        """Look at these disks, for as long as was asked for unless told otherwise.  Raises as `view.see` does."""
        by_times = self.goal is not Goal.THROUGHPUT
        return view.see(
            self.disks,
            self.target_netns,
            self.target_host,
            seconds or self.seconds,
            self.rate_bit_per_s,
            with_times=by_times,
        )
