# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether new connections can be made in place, asked before a step that is felt by them alone; and what is not tried.

Where they cannot, as under a multipathd that has requests fail after seconds, such values would be written in vain.
"""

import time
from collections.abc import Callable, Iterable, Sequence

import attrs

from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.tuned_ends import AT_ONCE
from fabtune.autotune.view import nothing_moves
from fabtune.autotune.wanted import Wanted
from fabtune.errors import FabtuneError, InputError
from fabtune.host.sessions import Connections, live_sessions
from fabtune.host.sockets import established
from fabtune.measure.disk_look import DiskLook
from fabtune.measure.looked import chosen
from fabtune.tune import confirm, journal, pending, reconnect, relogin, signals
from fabtune.tune.pending import RECONNECT
from fabtune.tune.plan import Row
from fabtune.tune.unfelt import Unfelt, unfelt, ways_on, who_waits
from fabtune.why.judging import Share

_SETTLE_S, _SETTLE_RTTS = 2.0, 30
# How often it is looked whether anything moves.
_EVERY_S = 0.2


def _lost() -> frozenset[int]:
    return frozenset(one.sid for one in live_sessions() if one.state == "FAILED")


def settle_s(rtt_ms: float) -> float:
    """Return how long a new connection takes to find its window."""
    return max(_SETTLE_S, _SETTLE_RTTS * rtt_ms / 1e3)


def bring_owed(asked: ClimbAsked, progress: Callable[[str], None]) -> list[str]:
    """Make the connections anew that an earlier revert has left due; return what is to be said of that.

    A step would bring the values from before, and what that gains would count as its own.  Raises FabtuneError where
    they cannot be made, or an apply that is in force waits for them: whether that stays is not for a tune to decide.
    Who may not read the journal looks all the same.
    """
    try:
        owing = unfelt(journal.transactions())
    except FabtuneError:
        return []
    if not _of_reverts(owing):
        return []
    confirm.require_nobody_waits(then="tune")
    _require_load(asked)
    with journal.locked(), relogin.journalled() as log, signals.noted() as stop:
        if not (owing := _of_reverts(unfelt(journal.transactions()))):
            return []
        due, name = pending.merge([], [task for _, tasks in owing for task in tasks]), owing[-1][0].name
        progress(f"new connections first: what a revert took back may be in force in that of {who_waits(due)}")
        made, left = reconnect.in_place(due, progress, log, stop, way_back=False)
        stop.check()
    if why := next((task.reason for task in left if task.action == RECONNECT), ""):
        raise InputError(
            f"what {name} took back may be in force in the connection of {who_waits(due)}, a new one would count as a "
            f"step's gain, and none can be made in place now: {why}; `fabtune revert --transaction {name} "
            "--allow-relogin` logs it in again; then tune again"
        )
    sessions = live_sessions()
    ends = Connections(established(), sessions)
    time.sleep(settle_s(max(map(ends.rtt_ms, sessions), default=0.0)))
    pause_s = max((one.pause_s for one in made), default=0.0)
    return [
        f"before the first look all connections were made anew, in {pause_s:.1f} s: what an earlier revert took back "
        f"may have been in force in that of {who_waits(due)}"
    ]


def _require_load(asked: ClimbAsked) -> None:
    """Raise InputError for a disk that is not there, FabtuneError where none moves in a look: no session is to pause.

    Under a load that is seen at once.
    """
    looks = [DiskLook(one.disk) for one in chosen(asked.disks, established())]
    for one in looks:
        one.begin()
    over_s = time.monotonic() + asked.seconds
    while True:
        for one in looks:
            one.stop()
        if not all(one.is_idle for one in looks):
            return
        if time.monotonic() >= over_s:
            raise nothing_moves(looks[0].name)
        time.sleep(_EVERY_S)


def _of_reverts(owing: Unfelt) -> Unfelt:
    """Return `owing`.  Raises InputError where some of it is of what is in force."""
    for one, tasks in owing:
        if not one.closed:
            raise InputError(
                f"{who_waits(tasks)} lacks the new connection by which what {one.name} ({one.profile}) wrote is felt; "
                f"a step would bring it, and count what that gains as its own: {ways_on(one)}; then tune again"
            )
    return owing


@attrs.define
class NewConnections:
    """What a climb knows of them; made after its first look, which has waited for lost sessions already."""

    _progress: Callable[[str], None]
    # Sessions without a connection that nobody waits for any more: a dead path must not hold up every step.
    _given_up: frozenset[int] = attrs.field(factory=_lost)
    # Why not: the same for all that may be the next step, each of which would have to be planned to ask.
    _refused: str = ""
    # What was not written against each limiter, and why.
    _left_out: dict[str, tuple[tuple[str, ...], str]] = attrs.field(factory=dict)

    def ask_again(self) -> None:
        """Forget why they cannot be made: another step is to be chosen."""
        self._refused = ""

    def why_not(self, rows: Callable[[], Iterable[Row]]) -> str:
        """Return why the sessions of this host would not be connected anew once `rows` are written, '' if they would.

        No portal is asked, which may take seconds: that is done before any connection is ended.
        """
        if not self._refused:
            if _lost() - self._given_up:
                reconnect.wait_for_lost(self._progress, lambda: None)
                self._given_up = _lost()
            self._refused = reconnect.why_not_for(rows(), live_sessions())
        return self._refused

    def without(self, wanted: Wanted, rows: Sequence[Row], why: str) -> Wanted:
        """Return `wanted` against that alone which those of `rows` lift that count at once; the rest is said, once."""
        kept = list[Share]()
        for share in wanted.reason.shares:
            mine = [row.tunable for row in rows if row.tunable.name in share.lifts and row.role in share.ends]
            kept += [share] if any(one.effect == AT_ONCE for one in mine) else []
            if names := tuple(dict.fromkeys(one.name for one in mine if one.effect != AT_ONCE)):
                known = share.limiter in self._left_out
                self._left_out[share.limiter] = names, why
                if not known:
                    self._progress(self._sentence(share.limiter))
        return attrs.evolve(wanted, reason=attrs.evolve(wanted.reason, shares=tuple(kept)))

    def tries(self, limiters: Iterable[str]) -> None:
        """Note that everything against `limiters` is written."""
        for one in limiters:
            self._left_out.pop(one, None)

    @property
    def not_tried(self) -> list[str]:
        """A sentence on what was not written against each limiter."""
        return [self._sentence(one) for one in self._left_out]

    def _sentence(self, limiter: str) -> str:
        names, why = self._left_out[limiter]
        return (
            f"not tried against {limiter}: {', '.join(names)}; no new connection can be made in place, by which alone "
            f"that would be felt: {why}"
        )
