# SPDX-License-Identifier: GPL-2.0-or-later
"""What this host's other sessions carry beside a direction of a disk: it is nobody else's, and may be on its line."""

from collections.abc import Mapping
from functools import cached_property

from fabtune.model.beside_seen import BesideSeen
from fabtune.model.observation import Observation
from fabtune.model.path import SITE_RTT_MS, TOO_MUCH

# So much more than a session carries itself, and it shares the line with whoever carries the rest.
_SHARES = 0.1
# What a name is of must be all of it but for so much.
_ALL = 0.99


class OwnData:
    """The data of other sessions than that of `seen` in direction `way`, in bytes/s; 0 of what nobody told.

    `carried` is what the own session does, `queued` tells whether a queue stands on its path.
    """

    def __init__(self, seen: Observation, way: str, carried: float, *, queued: bool) -> None:
        self._seen, self._way, self._carried, self._queued = seen, way, carried, queued
        self._beside = seen.beside or BesideSeen((), {}, {})

    def _others(self, sums: Mapping[str, float]) -> float:
        """Return the part of a sum that its own session does not carry: that is its connection's."""
        return max(0.0, sums.get(self._way, 0.0) - self._beside.session_bytes_per_s.get(self._way, 0.0))

    @cached_property
    def on_path(self) -> float:
        """What goes by the same NIC with about the same round trip."""
        return self._others(self._beside.bytes_per_s)

    @cached_property
    def through_nic(self) -> float:
        """What goes by the same NIC."""
        return max(self.on_path, self._others(self._beside.nic_bytes_per_s))

    @cached_property
    def of_host(self) -> float:
        """What all sessions of this host carry, which may come together at the target."""
        return max(self.through_nic, self._others(self._beside.host_bytes_per_s))

    @cached_property
    def on_line(self) -> float:
        """What goes over the same line, as far as its rate is known, and that it does."""
        rate = self._seen.rate_bytes_per_s or 0.0
        # What is more than a line of such a rate carries is not all on it.
        return next((one for one in self._sharing(rate) if self._carried + one <= TOO_MUCH * rate), 0.0)

    @property
    def together(self) -> float:
        """What the line carries of this host's sessions."""
        return self._carried + self.on_line

    def _sharing(self, rate: float) -> tuple[float, ...]:
        """Return what may share a line of that rate, the most first."""
        nic = self._seen.initiator.nic
        if nic and nic.speed_bytes_per_s and rate >= nic.speed_bytes_per_s:
            return (self.through_nic,)
        peer = self._others(self._beside.peer_bytes_per_s)
        # Within a site the slowest link may be a target's own; beyond it, or where data queues, it is where all meets.
        far = (self._seen.rtt_ms or 0.0) > SITE_RTT_MS
        return (self.on_path, peer) if far or self._queued else (peer,)

    @property
    def shared_with(self) -> str:
        """Whose disks have a part of the line that matters, '' for none: the one that it is where there is no other."""
        if self.on_line <= _SHARES * self._carried:
            return ""
        alone = len(self._beside.disks) == 1 and self.on_path >= _ALL * self.on_line
        return self._beside.disks[0] if alone else "other disks of this host"

    @property
    def named(self) -> str:
        """The busiest disks of other sessions on the same path, both ways, in brackets; '' where none is known."""
        names = [one for one in self._beside.disks if one not in self._seen.session.disks]
        return f" ({'busiest: ' * (len(names) > 1)}{', '.join(names)})" if names else ""
