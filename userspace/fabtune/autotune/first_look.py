# SPDX-License-Identifier: GPL-2.0-or-later
"""What a load is before any step: over the connections that it has when all is well, and for long enough."""

import time
from collections.abc import Callable

from fabtune.autotune.disturbed import other_disks
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.step import ClimbAsked
from fabtune.autotune.view import View
from fabtune.host.sessions import Session, live_sessions

# A target that gets a write's data too late ends the connection; iscsid has another one within seconds, or not soon.
_BACK_WAIT_S, _MOST_LOOKS = 20.0, 3
# Until all that waited is under way again.
_AGAIN_S = 2.0


def first_look(asked: ClimbAsked, learnt: Learnt, progress: Callable[[str], None]) -> View:
    """Return what the load is before any step, and note in `learnt` what it shows of the path.

    Raises as `ClimbAsked.look`.
    """
    now = _connected(asked, progress)
    learnt.saw(now)
    if not now.sawtooth:
        return now
    # What losses leave goes up and down for many round trips: how much that is takes longer to see.
    progress(f"looking for {asked.seconds:g} s more ...")
    again = asked.look()
    learnt.saw(again)
    return again if other_disks(now, again) else again.behind(now)


def _connected(asked: ClimbAsked, progress: Callable[[str], None]) -> View:
    """Return a look in which all sessions keep their connection, or the last one of some."""
    for _ in range(_MOST_LOOKS - 1):
        _wait_for_connections(asked, progress)
        progress(f"looking for {asked.seconds:g} s ...")
        if not (lost := (found := asked.look()).unconnected):
            return found
        progress(f"the connection of {', '.join(lost)} was lost meanwhile; looking again ...")
    _wait_for_connections(asked, progress)
    progress(f"looking for {asked.seconds:g} s ...")
    return asked.look()


def _wait_for_connections(asked: ClimbAsked, progress: Callable[[str], None]) -> None:
    """Wait until the sessions of these disks that have just lost their connection have one, if that is soon."""
    if not (lost := _failed(asked)):
        return
    progress(f"without a connection now, waiting for it: {', '.join(one.label for one in lost)}")
    deadline = time.monotonic() + _BACK_WAIT_S
    while _failed(asked) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(_AGAIN_S)


def _failed(asked: ClimbAsked) -> list[Session]:
    """Return the sessions without a connection of the disks that were asked for, or of all."""
    failed = [one for one in live_sessions() if one.state == "FAILED"]
    return [one for one in failed if not asked.disks or not set(asked.disks).isdisjoint(one.luns)]
