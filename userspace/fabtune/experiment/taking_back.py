# SPDX-License-Identifier: GPL-2.0-or-later
"""Taking back what a run or a session put in force, to its end: what is not back is known, whatever comes meanwhile."""

from collections.abc import Callable

from fabtune.errors import FabtuneError
from fabtune.tune import signals


def taken_back_whole(take_back: Callable[[], object]) -> tuple[str, bool]:
    """Call `take_back`, which no signal ends; return why not all is back, '' where it is, and whether a signal came."""
    left = ""
    try:
        with signals.held_back():
            try:
                take_back()
            except (FabtuneError, OSError) as error:
                left = str(error)
    except KeyboardInterrupt:
        return left, True
    return left, False
