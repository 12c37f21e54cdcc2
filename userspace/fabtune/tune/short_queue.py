# SPDX-License-Identifier: GPL-2.0-or-later
"""Lets few requests of each busy disk be under way while its session's connection is made anew.

Those that wait for a slow line are all sent again over the new connection, which begins slowly: a LIO target ends a
connection whose data do not come within 3 s (dataout_timeout), and after five such ends a request fails.  iscsid's
looks at a disk wait behind them, too, several dozen times each.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence

import attrs

from fabtune.backends import attribute
from fabtune.errors import FabtuneError
from fabtune.host import tree
from fabtune.host.blocks import SECTOR_BYTES
from fabtune.host.sessions import Connections, Session
from fabtune.host.sockets import established
from fabtune.model.device import Device
from fabtune.tune import carry

_LOOK_S = 1.0
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

    def hold(self) -> bool:
        """Let that few be under way; return whether that could be written."""
        with contextlib.suppress(FabtuneError):
            attribute.BACKEND.write(self.disk, carry.DEPTH, str(self.few))
            return True
        return False

    def let_go(self) -> None:
        """Give the depth back, unless another one has been written since."""
        with contextlib.suppress(FabtuneError):
            if attribute.BACKEND.read(self.disk, carry.DEPTH) == str(self.few):
                attribute.BACKEND.write(self.disk, carry.DEPTH, self.was)


@attrs.frozen
class _Moved:
    requests: int
    moved_bytes: int

    @classmethod
    def of(cls, disk: Device) -> "_Moved":
        words = (tree.read_text(tree.SYS / "block" / disk.label / "stat") or "").split()
        counts = [int(word) for word in words[:7]] if len(words) >= 7 else [0] * 7
        return cls(counts[0] + counts[4], SECTOR_BYTES * (counts[2] + counts[6]))


def of(sessions: Sequence[Session]) -> list[ShortQueue]:
    """Return the disks of `sessions` whose requests wait for their path for much longer than that is long.

    Takes a second where anything is under way.
    """
    disks = [
        (one, place, disk)
        for one in sessions
        if one.state == "LOGGED_IN"
        for place, disk in carry.disks_by_place(one).items()
    ]
    busy = [(one, place, disk) for one, place, disk in disks if _under_way(disk) > _WORTH * _BESIDE]
    if not busy:
        return []
    before = [_Moved.of(disk) for *_, disk in busy]
    begun_s = time.monotonic()
    time.sleep(_LOOK_S)
    ends = Connections(established())
    found = []
    for (one, place, disk), earlier in zip(busy, before, strict=True):
        end, now = ends.of(one), _Moved.of(disk)
        each_bytes_per_s = (now.moved_bytes - earlier.moved_bytes) / (time.monotonic() - begun_s)
        few = _filling(each_bytes_per_s, now, earlier, end.path_rtt_ms / 1e3 if end else 0.0)
        with contextlib.suppress(FabtuneError):
            was = attribute.BACKEND.read(disk, carry.DEPTH)
            if end and _under_way(disk) > _WORTH * few and (tree.whole(was) or 0) > _WORTH * few:
                found.append(ShortQueue(one.sid, place, disk, was, few))
    return found


def _filling(bytes_per_s: float, now: _Moved, before: _Moved, rtt_s: float) -> int:
    """Return how many requests, of the size of those that came back, fill a path of that rate and round trip."""
    requests = now.requests - before.requests
    if not requests:
        return _BESIDE
    mean_bytes = (now.moved_bytes - before.moved_bytes) / requests
    return _BESIDE + (math.ceil(_ROUND_TRIPS * rtt_s * bytes_per_s / mean_bytes) if mean_bytes else 0)


def _under_way(disk: Device) -> int:
    text = tree.read_text(tree.SYS / "block" / disk.label / "inflight") or ""
    return sum(int(word) for word in text.split())


@contextlib.contextmanager
def held(queues: Sequence[ShortQueue], progress: Callable[[str], None]) -> Iterator[None]:
    """Hold `queues` short, as far as they can be, while the body runs; what that takes away is in the journal."""
    done: list[ShortQueue] = []
    try:
        done += [one for one in queues if one.hold()]
        if done:
            disks = ", ".join(f"{one.disk.label} {one.few} (of {one.was})" for one in done)
            progress(f"requests at once until they are there, as more only wait: {disks}")
        yield
    finally:
        for one in done:
            one.let_go()
