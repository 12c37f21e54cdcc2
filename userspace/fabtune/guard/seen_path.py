# SPDX-License-Identifier: GPL-2.0-or-later
"""What an apply's path shows look by look: its longest round trip, where that is no queue of the load's own."""

import math
import time
from collections.abc import Sequence

import attrs

from fabtune.guard.least import Least
from fabtune.guard.rate import FULL, LOAD_BYTES_PER_S, AtPace, Carried
from fabtune.guard.round_trip import RoundTrip, has_moved, is_longer
from fabtune.host.sockets import TcpSocket
from fabtune.tune.planned_paths import Ends, at_distance, but_others, ends_of

# Both ends of a connection.
_Ends = tuple[str, int, str, int]


@attrs.define
class SeenPath:
    """The path that an apply was planned for: `told_ms` was told, for `tried_ms` there was nothing to write.

    Plans are for the longest of the connections' round trips.  Each connection has its own: what one that rests showed
    last stands beside any that is busy, until the connection is gone.
    """

    planned_ms: float
    told_ms: float | None = None
    tried_ms: float | None = None
    rests_until_s: float = 0.0
    trips: dict[_Ends, RoundTrip] = attrs.field(factory=dict)
    # The longest round trip that connections had which are gone, by addresses: for those that are made anew.
    gone_ms: dict[tuple[str, str], float] = attrs.field(factory=dict)
    # Between which addresses connections have had the planned one.
    own: set[Ends] = attrs.field(factory=set)
    # Those that a step lifted for which it was planned: by no other connection it can be judged.
    lifted: frozenset[Ends] = frozenset()
    # When its connections were looked at last, and the bytes of each that were acknowledged and received by then.
    looked_at_s: float = 0.0
    flow: dict[_Ends, tuple[int, int]] = attrs.field(factory=dict)
    # The most that moved from one look to the next one over the path as it was.
    most_bytes_per_s: float = 0.0
    leasts: dict[_Ends, Least] = attrs.field(factory=dict)
    rate: Carried = attrs.field(factory=Carried)
    at_pace: AtPace = attrs.field(factory=AtPace)
    # Whether less moves over the longer path while TCP's least round trip may be from before: it may be a queue.
    unsure: bool = False
    # The transaction that it was applied by.
    root: str = ""
    # What was planned for before a path was followed that is unsure.
    before_ms: float | None = None

    @property
    def now_ms(self) -> float | None:
        """The longest round trip, None while it is not at rest, or while one that is not known yet may be longer."""
        settled = [(one.settled_ms, one) for one in self.trips.values() if one.settled_ms is not None]
        longest_ms, longest = max(settled, key=lambda pair: pair[0], default=(0.0, None))
        if longest is None or (len(settled) < len(self.trips) and not self._is_longer(longest_ms)):
            return None
        return longest.now_ms

    @property
    def moved_to_ms(self) -> float | None:
        """The new round trip where it is steady and not the planned one; else None.

        It is a shorter one only where a connection that had the planned one has it: else that connection is away.
        """
        now_ms = self.now_ms
        if now_ms is None or not has_moved(self.planned_ms, now_ms):
            return None
        longest_ms = max(one.longest_ms for one in self.trips.values())
        is_its = longest_ms > self.planned_ms or not has_moved(self.planned_ms, longest_ms)
        return now_ms if is_its else None

    def plan_for(self, rtt_ms: float, *, followed: bool = False) -> None:
        """Take `rtt_ms` for the planned round trip; what a connection had before is none that it was planned for.

        `followed`: for what was seen, and not because somebody said so.
        """
        if followed and self.unsure and rtt_ms > self.planned_ms:
            # If it is a queue, the larger buffers make it longer, and no more arrives.
            self.before_ms, self.most_bytes_per_s = self.before_ms or self.planned_ms, self.rate.bytes_per_s
        else:
            self.before_ms = None
        self.unsure = False
        self.planned_ms, self.told_ms, self.tried_ms = rtt_ms, None, None
        self.gone_ms.clear()
        self.own.clear()
        for one in self.trips.values():
            one.longest_ms = one.settled_ms or 0.0

    def know(self, found: Sequence[TcpSocket]) -> None:
        """Note which of the connections that are there are of this path: they are, wherever it moves."""
        self.own |= at_distance(found, self.planned_ms)

    def mine(self, found: Sequence[TcpSocket], others: Sequence["SeenPath"]) -> list[TcpSocket]:
        """Return the connections by which this path can be judged: not those that `others` are known to be theirs."""
        if self.lifted:
            return [one for one in found if ends_of(one) in self.lifted]
        return but_others(found, self.own, [(one.planned_ms, one.lifted or one.own) for one in others])

    def look(self, found: Sequence[TcpSocket], rate_bit_per_s: float | None, kept_s: float = math.inf) -> None:
        """See the round trips of the connections that are there.

        TCP knows one from what was acknowledged: a connection for which nothing was since the last look tells the same
        once more.  A longer one that a queue of the load's own explains is not looked at.  TCP keeps the least round
        trip for `kept_s`.
        """
        self._forget_all_but({_ends(one) for one in found})
        before, since_s = self.flow, self.looked_at_s
        self.flow = {_ends(one): (one.acked_bytes, one.received_bytes) for one in found}
        self.looked_at_s = time.monotonic()
        known = [(one, *before[_ends(one)]) for one in found if _ends(one) in before]
        live = [(one, one.acked_bytes - acked) for one, acked, _ in known if one.acked_bytes > acked and one.rtt_ms]
        if not live:
            return
        # A line carries as much one way as the other at the same time.
        moved = max(
            sum(one.acked_bytes - acked for one, acked, _ in known),
            sum(one.received_bytes - received for one, _, received in known),
        )
        elapsed_s = max(self.looked_at_s - since_s, 1e-9)
        sent = [(one, size / elapsed_s) for one, size in live]
        for one, each in sent:
            full = each * one.rtt_ms / 1e3 >= one.mss_bytes
            self.leasts[_ends(one)].look(one.min_rtt_ms, one.rtt_ms, self.looked_at_s, kept_s, full=full)
        self.at_pace.look([(_ends(one), one, each) for one, each in sent], self.looked_at_s)
        self._judge([one for one, _ in live], moved / elapsed_s, rate_bit_per_s)
        self._note_nearer()

    def _judge(self, live: Sequence[TcpSocket], bytes_per_s: float, rate_bit_per_s: float | None) -> None:
        """Note the round trips of the connections that tell of theirs, but for queues, and what moves beside them."""
        if self.before_ms is not None and any(is_longer(self.before_ms, one.min_rtt_ms) for one in live):
            # It was a longer path.
            self.before_ms = None
        known = [one for one in live if self._is_known_queue(one)]
        others = [one for one in live if one not in known]
        longer = [one for one in others if self._is_longer(one.rtt_ms)]
        queues = [one for one in longer if self._may_be_queue(one, bytes_per_s, rate_bit_per_s)]
        fell = LOAD_BYTES_PER_S <= bytes_per_s < FULL * self.most_bytes_per_s
        moved = [one for one in longer if one not in queues]
        self.unsure = fell and any(not self._is_longer(one.path_rtt_ms) for one in moved)
        if not moved:
            self.most_bytes_per_s = max(self.most_bytes_per_s, bytes_per_s)
        longest = max((*known, *queues), key=lambda one: one.rtt_ms, default=None)
        queue = (longest.rtt_ms, longest.path_rtt_ms, longest in known) if longest else None
        self.rate.look(bytes_per_s, queue, as_it_was=not moved)
        for one in known:
            # One with a shorter path of its own has not what was planned for.
            if not has_moved(self._as_it_was_ms, one.min_rtt_ms):
                self.trips[_ends(one)].look(self._as_it_was_ms)
        for one in others:
            if one not in queues:
                self.trips[_ends(one)].look(one.rtt_ms)

    @property
    def _as_it_was_ms(self) -> float:
        return self.planned_ms if self.before_ms is None else self.before_ms

    def _is_known_queue(self, one: TcpSocket) -> bool:
        """Tell whether TCP saw since its round trips are longer that the path itself is as it was."""
        least, was_ms = self.leasts[_ends(one)], self._as_it_was_ms
        return least.anew and is_longer(was_ms, one.rtt_ms) and not is_longer(was_ms, least.least_ms)

    def _note_nearer(self) -> None:
        """Of connections beside one that has the planned round trip forget that they had a longer one.

        A neighbour's queue may have been that, or a way round: values are not theirs when the other one is away.
        """
        now_ms = self.now_ms
        if now_ms is None or has_moved(self.planned_ms, now_ms):
            return
        for one in self.trips.values():
            if one.settled_ms is not None and has_moved(self.planned_ms, one.settled_ms):
                one.longest_ms = one.settled_ms

    def _forget_all_but(self, there: set[_Ends]) -> None:
        for ends in self.trips.keys() - there:
            addresses = ends[0], ends[2]
            self.gone_ms[addresses] = max(self.gone_ms.get(addresses, 0.0), self.trips.pop(ends).longest_ms)
            del self.leasts[ends]
        for ends in there - self.trips.keys():
            self.trips[ends] = RoundTrip(self.gone_ms.get((ends[0], ends[2]), 0.0))
            self.leasts[ends] = Least()

    def _is_longer(self, rtt_ms: float) -> bool:
        return is_longer(self.planned_ms, rtt_ms)

    def _may_be_queue(self, one: TcpSocket, bytes_per_s: float, rate_bit_per_s: float | None) -> bool:
        """Tell whether a longer round trip may be that of a queue that the load itself fills.

        Buffers for it would make that queue longer still, and the next ones for that.
        """
        if rate_bit_per_s is not None and 8 * bytes_per_s > FULL * rate_bit_per_s:
            return True
        # The rate may be untold or wrong.  Over a longer path windows and requests under way move less.
        if min(bytes_per_s, self.most_bytes_per_s) >= LOAD_BYTES_PER_S:
            if bytes_per_s < FULL * self.most_bytes_per_s:
                return False
            if FULL * bytes_per_s <= self.most_bytes_per_s:
                return True
        # With no such load to compare, who told a rate is believed; else TCP keeps the least round trip of minutes.  Of
        # a load that has ended it tells smoothed times of its queue for a while.
        told = rate_bit_per_s is not None and bytes_per_s >= LOAD_BYTES_PER_S
        return not told and not self._is_longer(one.path_rtt_ms)


def _ends(one: TcpSocket) -> _Ends:
    return one.local, one.local_port, one.remote, one.remote_port
