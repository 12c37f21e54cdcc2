# SPDX-License-Identifier: GPL-2.0-or-later
"""What an apply's path shows look by look: its round trip, where that is no queue of the load's own."""

import time
from collections.abc import Sequence

import attrs

from fabtune.guard.round_trip import RoundTrip, has_moved
from fabtune.host.sockets import TcpSocket

# Of this share of its rate on a line is full, and of this share of another load a load moves as much.
_FULL = 0.85
# What moves less is no load that fills any line.
_LOAD_BYTES_PER_S = 1e5

# Both ends of a connection.
_Ends = tuple[str, int, str, int]


@attrs.define
class SeenPath:
    """The path that an apply was for: `told_ms` was told, for `tried_ms` there was nothing to write."""

    trip: RoundTrip
    told_ms: float | None = None
    tried_ms: float | None = None
    rests_until_s: float = 0.0
    # When its connections were looked at last, and the bytes of each that were acknowledged and received by then.
    looked_at_s: float = 0.0
    flow: dict[_Ends, tuple[int, int]] = attrs.field(factory=dict)
    # The most that moved from one look to the next one over the path as it was.
    most_bytes_per_s: float = 0.0

    def look(self, found: Sequence[TcpSocket], rate_bit_per_s: float | None) -> None:
        """See the longest round trip: plans are for the longest.

        TCP knows it from what was acknowledged: a connection for which nothing was since the last look tells the same
        once more.  A longer one that a queue of the load's own explains is not looked at.
        """
        before, since_s = self.flow, self.looked_at_s
        self.flow = {_ends(one): (one.acked_bytes, one.received_bytes) for one in found}
        self.looked_at_s = time.monotonic()
        known = [(one, *before[_ends(one)]) for one in found if _ends(one) in before]
        live = [one for one, acked, _ in known if one.acked_bytes > acked and one.rtt_ms]
        if not live:
            return
        # A line carries as much one way as the other at the same time.
        moved = max(
            sum(one.acked_bytes - acked for one, acked, _ in known),
            sum(one.received_bytes - received for one, _, received in known),
        )
        bytes_per_s = moved / max(self.looked_at_s - since_s, 1e-9)
        longest = max(live, key=lambda one: one.rtt_ms)
        if self._is_longer(longest.rtt_ms) and self._may_be_queue(longest, bytes_per_s, rate_bit_per_s):
            self.most_bytes_per_s = max(self.most_bytes_per_s, bytes_per_s)
            return
        if not self._is_longer(longest.rtt_ms):
            self.most_bytes_per_s = max(self.most_bytes_per_s, bytes_per_s)
        self.trip.look(longest.rtt_ms)

    def _is_longer(self, rtt_ms: float) -> bool:
        return rtt_ms > self.trip.planned_ms and has_moved(self.trip.planned_ms, rtt_ms)

    def _may_be_queue(self, longest: TcpSocket, bytes_per_s: float, rate_bit_per_s: float | None) -> bool:
        """Tell whether a longer round trip may be that of a queue that the load itself fills.

        Buffers for it would make that queue longer still, and the next ones for that.
        """
        if rate_bit_per_s is not None and 8 * bytes_per_s > _FULL * rate_bit_per_s:
            return True
        # The rate may be untold or wrong.  Over a longer path windows and requests under way move less.
        if min(bytes_per_s, self.most_bytes_per_s) >= _LOAD_BYTES_PER_S:
            if bytes_per_s < _FULL * self.most_bytes_per_s:
                return False
            if _FULL * bytes_per_s <= self.most_bytes_per_s:
                return True
        # With no such load to compare, who told a rate is believed; else TCP keeps the least round trip of minutes.  Of
        # a load that has ended it tells smoothed times of its queue for a while.
        told = rate_bit_per_s is not None and bytes_per_s >= _LOAD_BYTES_PER_S
        return not told and not self._is_longer(longest.path_rtt_ms)


def _ends(one: TcpSocket) -> _Ends:
    return one.local, one.local_port, one.remote, one.remote_port
