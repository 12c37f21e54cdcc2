# SPDX-License-Identifier: GPL-2.0-or-later
"""How many sessions of this host are always busy together on one line: those below a stripe, or a multipath device."""

from collections.abc import Sequence

from fabtune.host import blocks
from fabtune.host.sessions import Connections, Session
from fabtune.host.sockets import TcpSocket
from fabtune.host.stripes import Stripes
from fabtune.model.one_path import alike


def striped(sessions: Sequence[Session], sockets: Sequence[TcpSocket]) -> int:
    """Return how many sessions share a line whenever any one is busy; 1 where one may be busy by itself.

    Of all sessions the least: what portals or a NIC are given holds each of them.
    """
    found = [one for one in sessions if one.state == "LOGGED_IN" and one.luns]
    if len(found) <= 1:
        return 1
    by_disk = {lun: one for one in found for lun in one.luns}
    shared = _Shared(by_disk, Connections(sockets, sessions), Stripes())
    least = len(found)
    for disk in by_disk:
        least = min(least, shared.below(disk, disk))
        if least == 1:
            break
    return least


class _Shared:
    """The sessions of this host by their disks, and what is built on these."""

    def __init__(self, by_disk: dict[str, Session], ends: Connections, stripes: Stripes) -> None:
        self._by_disk, self._ends, self._stripes = by_disk, ends, stripes

    def below(self, block: str, disk: str) -> int:
        """Return how many sessions are busy on one line whenever that of `disk` is, by whatever uses `block`."""
        groups = (group for group in self._stripes.busy_together(block) if disk in group)
        own = max((self._on_line_with(disk, group) for group in groups), default=1)
        # A part of it that nothing is built on is used by itself.
        users = blocks.partitions(block) or blocks.holders(block)
        return max(own, min((self.below(one, disk) for one in users), default=1))

    def _on_line_with(self, disk: str, group: frozenset[str]) -> int:
        mine = self._by_disk[disk]
        others = {self._by_disk[one].sid: self._by_disk[one] for one in group if one in self._by_disk}
        return 1 + sum(self._share_line(mine, one) for sid, one in others.items() if sid != mine.sid)

    def _share_line(self, mine: Session, other: Session) -> bool:
        """Tell whether both are known to go by one line: from one address of this host, over alike round trips."""
        ours, theirs = self._ends.perhaps_of(mine), self._ends.perhaps_of(other)
        rtts_ms = [one.path_rtt_ms for one in (*ours, *theirs)]
        if not ours or not theirs or not all(rtts_ms) or len({one.local for one in (*ours, *theirs)}) > 1:
            return False
        return alike(min(rtts_ms), max(rtts_ms))
