# SPDX-License-Identifier: GPL-2.0-or-later
"""What a load is before a step: over the connections that it has when all is well, and for long enough."""

import time
from collections.abc import Callable

from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.disturbed import Witness, other_disks
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.view import View
from fabtune.errors import FabtuneError
from fabtune.host.sessions import Connections, live_sessions
from fabtune.host.sockets import established
from fabtune.tune import reconnect
from fabtune.tune.far_end import OTHERS_WAIT_S

# A target that gets a write's data too late ends the connection, again and again perhaps.
_MOST_LOOKS = 3
# So often at least the rise after a loss fits into what a step is judged against.
_SAWTEETH = 3
# Until all that waited is under way again.
_AGAIN_S = 2.0


def first_look(asked: ClimbAsked, learnt: Learnt, progress: Callable[[str], None]) -> View:
    """Return what the load is before any step, and note in `learnt` what it shows of the path.

    Raises as `ClimbAsked.look`.
    """
    now = _connected(asked, progress)
    learnt.saw(now)
    # What losses leave goes up and down for many round trips: how much that is takes longer to see.
    if not now.sawtooth:
        return now
    return joined(now, _again(asked, learnt, progress))


def on_quiet_ground(
    asked: ClimbAsked, learnt: Learnt, witness: Witness, now: View, progress: Callable[[str], None]
) -> View:
    """Return what the next step is judged against when no step of others is under way at the target's host.

    That is `now`, or a new look where they have changed something there since.  Raises as `first_look`, and
    FabtuneError where they go on for too long.
    """
    if witness.far is None:
        return now
    deadline_s = time.monotonic() + OTHERS_WAIT_S
    while True:
        if not (changed := witness.changed_there(witness.far.wait_for_others(progress))):
            return now
        if time.monotonic() > deadline_s:
            raise FabtuneError(f"{changed}: others go on tuning that host: tune again when they are through")
        progress(f"{changed} was written, kept or taken back there since the last look")
        witness.renew()
        now = first_look(asked, learnt, progress)


def of_several_sawteeth(asked: ClimbAsked, learnt: Learnt, now: View, progress: Callable[[str], None]) -> View:
    """Return what a load is that the next step is judged against: as a lucky stretch of its sawtooth shows it, or not.

    `now` is what was seen of it so far.  Raises as `ClimbAsked.look`.
    """
    rises_s = now.shown.recovery_s if now.sawtooth and now.shown else 0.0
    if rises_s <= now.looks * asked.seconds / _SAWTEETH:
        return now
    again = _again(asked, learnt, progress)
    if other_disks(now, again):
        return again
    if again.sawtooth:
        return again.behind(now)
    # Where losses are rare the line is full for as long as one look, and less than that on average.
    return now.ahead_of(again) if again.at_the_bound else again


def joined(now: View, again: View) -> View:
    """Return `again` with what was seen at the same values before, as far as it is the same load."""
    return again if other_disks(now, again) else again.behind(now)


def _again(asked: ClimbAsked, learnt: Learnt, progress: Callable[[str], None]) -> View:
    progress(f"looking for {asked.seconds:g} s more ...")
    again = asked.look()
    learnt.saw(again)
    return again


def _connected(asked: ClimbAsked, progress: Callable[[str], None]) -> View:
    """Return a look in which all sessions keep their connection, and all disks are there, or the last one of some."""
    found = _look(asked, progress)
    for _ in range(_MOST_LOOKS - 1):
        if gone := found.gone_bytes_per_s:
            progress(f"{', '.join(gone)} went away meanwhile; looking again ...")
        elif lost := _lost(found):
            progress(f"the connection of {', '.join(lost)} was lost meanwhile; looking again ...")
        else:
            break
        found = _look(asked, progress)
    return found


def _lost(found: View) -> list[str]:
    """Return the disks whose connection was lost in that look: one that is not to be seen now either may never be."""
    if not (unseen := found.unconnected):
        return []
    sessions = live_sessions()
    ends = Connections(established(), sessions)
    there = [disk for one in sessions if one.state == "FAILED" or ends.of(one) for disk in one.luns]
    return [disk for disk in unseen if disk in there]


def _look(asked: ClimbAsked, progress: Callable[[str], None]) -> View:
    """Look once the sessions of these disks that have just lost their connection have one, if that is soon."""
    if reconnect.wait_for_lost(progress, lambda: None, asked.disks):
        time.sleep(_AGAIN_S)
    progress(f"looking for {asked.seconds:g} s ...")
    return asked.look()
