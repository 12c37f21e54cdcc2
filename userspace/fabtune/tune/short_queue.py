# SPDX-License-Identifier: GPL-2.0-or-later
"""Lets few requests of each busy disk be under way while its session's connection is made anew.

Those that wait for a slow line are all sent again over the new connection, which begins slowly: a LIO target ends a
connection whose data do not come within 3 s (dataout_timeout), and after five such ends a request fails.  iscsid's
looks at a disk wait behind them, too, several dozen times each.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.backends import attribute
from fabtune.errors import FabtuneError
from fabtune.host import blocks, tree
from fabtune.host.blocks import SECTOR_BYTES
from fabtune.host.sessions import Connections, Session
from fabtune.host.sockets import established
from fabtune.model.device import Device
from fabtune.tune import carry
from fabtune.tune.depth_held import DEPTH
from fabtune.tune.lines import STEP_MARK

_LOOK_S = 1.0
# What is under way for less than this is soon sent again, and no disk of the target's: a sixth of dataout_timeout.
_LONG_S = 0.5
# A write waits for the target's word before its data leave: two round trips.  One more is sent, one more is answered.
_ROUND_TRIPS, _BESIDE = 2, 2
# Less than half as many is worth it.
_WORTH = 2


@attrs.frozen
class ShortQueue:
    """A disk of a session of which `few` requests fill the path; its queue's depth `was` more."""

    sid: int
    place: str
    disk: Device
    was: str
    few: int
    # Host, channel, target and LUN: another disk may come to have the name.
    _found_at: str = attrs.field(init=False)

    @_found_at.default
    def _now_at(self) -> str:
        return os.path.realpath(Path(self.disk.where["directory"]) / "device")

    def hold(self) -> bool:
        """Let that few be under way; return whether that could be written."""
        with contextlib.suppress(FabtuneError):
            attribute.BACKEND.write(self.disk, DEPTH, str(self.few))
            return attribute.BACKEND.read(self.disk, DEPTH) == str(self.few)
        return False

    def hold_again(self) -> None:
        """Hold it once more where its depth is as before: iscsid writes its record's when it has looked at the disk."""
        with contextlib.suppress(FabtuneError):
            if self._now_at() == self._found_at and attribute.BACKEND.read(self.disk, DEPTH) == self.was:
                attribute.BACKEND.write(self.disk, DEPTH, str(self.few))

    def let_go(self) -> str:
        """Give the depth back, unless a larger one has been written since; return why it is not back, '' if it is."""
        if self._now_at() != self._found_at:
            return ""
        try:
            # The kernel makes it smaller where a target says that its queue is full.
            if (tree.whole(attribute.BACKEND.read(self.disk, DEPTH)) or 0) <= self.few:
                attribute.BACKEND.write(self.disk, DEPTH, self.was)
                now = attribute.BACKEND.read(self.disk, DEPTH)
                return "" if now == self.was else f"it is {now}"
        except FabtuneError as error:
            return str(error)
        return ""


@attrs.frozen
class _Moved:
    requests: int
    moved_bytes: int

    @classmethod
    def of(cls, disk: Device) -> "_Moved":
        words = (tree.read_text(blocks.directory(disk.label) / "stat") or "").split()
        counts = [int(word) for word in words[:7]] if len(words) >= 7 else [0] * 7
        return cls(counts[0] + counts[4], SECTOR_BYTES * (counts[2] + counts[6]))

    def since(self, earlier: "_Moved") -> "_Moved":
        return _Moved(self.requests - earlier.requests, self.moved_bytes - earlier.moved_bytes)


def of(sessions: Sequence[Session], kept: Mapping[int, carry.Values]) -> list[ShortQueue]:
    """Return the disks of `sessions` whose requests wait for their path for long.

    A depth that `kept` has as set by hand may be what the kernel made of it for a full queue: such a disk is left
    alone.  Takes a second where anything is under way.
    """
    disks = [
        (one, place, disk)
        for one in sessions
        for place, disk in carry.disks_by_place(one).items()
        if _under_way(disk) > _WORTH * _BESIDE and not _by_hand(kept.get(one.sid, {}).get(place, {}))
    ]
    if not disks:
        return []
    before, begun_s = [_Moved.of(disk) for *_, disk in disks], time.monotonic()
    time.sleep(_LOOK_S)
    seconds, ends = time.monotonic() - begun_s, Connections(established(), sessions)
    found = []
    for (one, place, disk), earlier in zip(disks, before, strict=True):
        moved = _Moved.of(disk).since(earlier)
        few = _filling(moved, seconds, ends.rtt_ms(one) / 1e3)
        with contextlib.suppress(FabtuneError):
            was = attribute.BACKEND.read(disk, DEPTH)
            if few is not None and min(_under_way(disk), tree.whole(was) or 0) > _WORTH * few:
                long = not moved.requests or _under_way(disk) * seconds / moved.requests > _LONG_S
                found += [ShortQueue(one.sid, place, disk, was, few)] if long else []
    return found


def _by_hand(kept: Mapping[str, str]) -> bool:
    return DEPTH in kept and f"{STEP_MARK}{DEPTH}" not in kept


def _filling(moved: _Moved, seconds: float, rtt_s: float) -> int | None:
    """Return how many requests, of the size of those that `moved`, fill a path of that rate and round trip.

    None where it cannot be told: another disk has the name now.
    """
    if moved.requests < 0 or moved.moved_bytes < 0:
        return None
    mean_bytes = moved.moved_bytes / moved.requests if moved.requests else 0.0
    if not mean_bytes:
        return _BESIDE
    return _BESIDE + math.ceil(_ROUND_TRIPS * rtt_s * moved.moved_bytes / seconds / mean_bytes)


def _under_way(disk: Device) -> int:
    text = tree.read_text(blocks.directory(disk.label) / "inflight") or ""
    return sum(int(word) for word in text.split())


@contextlib.contextmanager
def held(
    queues: Sequence[ShortQueue], progress: Callable[[str], None], let_go: Callable[[set[int]], None]
) -> Iterator[Callable[[], None]]:
    """Hold `queues` short, as far as they can be, while the body runs; what that takes away is in the journal.

    Yields what holds those again that iscsid has let go, for the body to call while it waits.  `let_go` is told the ids
    of the sessions whose disks all have their depth again.
    """
    done: list[ShortQueue] = []

    def hold_again() -> None:
        for one in done:
            one.hold_again()

    try:
        for one in queues:
            done.append(one)
            if not one.hold() and not one.let_go():
                done.pop()
        if done:
            disks = ", ".join(f"{one.disk.label} {one.few} (of {one.was})" for one in done)
            progress(f"requests at once until they are there, so that not all are sent again together: {disks}")
        yield hold_again
    finally:
        left = {one: why for one in done if (why := one.let_go())}
        for one, why in left.items():
            progress(f"{DEPTH} of {one.disk.label} was {one.was} and is not given back yet: {why}")
        let_go({one.sid for one in queues} - {one.sid for one in left})
