# SPDX-License-Identifier: GPL-2.0-or-later
"""What the load over a path moves, held against what it did: less behind a queue, or minutes at its own pace."""

import math
from collections import deque
from collections.abc import Iterable

import attrs

from fabtune.guard.round_trip import is_longer
from fabtune.host.sockets import TcpSocket

# Of this share of its rate on a line is full, and of this share of another load a load moves as much.
FULL = 0.85
# What moves less is no load that fills any line.
LOAD_BYTES_PER_S = 1e5
# So many looks in a row must agree.
_LOOKS = 3
# A connection that sends this share of its pace is held by it: where a line of that rate holds it, headers take more.
_AT_PACE = 0.97
_AT_PACE_S = 180.0


@attrs.frozen
class Slower:
    """Less than was carried arrives while a queue stands, and no less is asked for.

    `sure`: TCP has seen the least round trip meanwhile.
    """

    carried_bytes_per_s: float
    bytes_per_s: float
    rtt_ms: float
    least_ms: float
    sure: bool

    @property
    def text(self) -> str:
        """What is known of it, and what is not."""
        least = f"TCP has seen {self.least_ms:.1f} ms meanwhile: a slower line, or others' traffic"
        if not self.sure:
            least = (
                f"TCP's least of minutes is {self.least_ms:.1f} ms: a slower line, others' traffic or a path that is "
                "longer still cannot be told apart"
            )
        return (
            f"its line carried {self.carried_bytes_per_s / 1e6:.1f} MB/s, now {self.bytes_per_s / 1e6:.1f} MB/s arrive "
            f"at round trips of {self.rtt_ms:.1f} ms with as much under way, and {least}; no buffer is enlarged for "
            "it; `fabtune tune` tells"
        )


@attrs.define
class Carried:
    """The load, look by look: the most that it moved in several in a row, and what is told of less."""

    carried_bytes_per_s: float = 0.0
    bytes_per_s: float = 0.0
    told: Slower | None = None
    told_at_s: float = -math.inf
    _loads: deque[float] = attrs.field(factory=lambda: deque(maxlen=_LOOKS))
    _found: deque[Slower | None] = attrs.field(factory=lambda: deque(maxlen=_LOOKS))

    def begin_anew(self) -> None:
        """Forget what was carried: other values may be meant to carry less."""
        self.carried_bytes_per_s, self.told = 0.0, None
        self._loads.clear()
        self._found.clear()

    def look(self, bytes_per_s: float, queue: tuple[float, float, bool] | None, *, as_it_was: bool) -> None:
        """Take what moves now beside the longest queue that stands: smoothed and least round trip, whether seen anew.

        Not `as_it_was`: the path may be another one.
        """
        self.bytes_per_s = bytes_per_s
        if bytes_per_s < LOAD_BYTES_PER_S:
            # Whoever asks for nothing shows no line.
            self._loads.clear()
            return
        if as_it_was:
            self._loads.append(bytes_per_s)
            if len(self._loads) == _LOOKS:
                self.carried_bytes_per_s = max(self.carried_bytes_per_s, min(self._loads))
        slower = Slower(self.carried_bytes_per_s, bytes_per_s, *queue) if queue else None
        self._found.append(slower if slower and self._asks_as_much(slower) else None)

    @staticmethod
    def _asks_as_much(found: Slower) -> bool:
        """Tell whether what is under way would fill the line as it was: else the queue is others', or is jitter."""
        fell = found.bytes_per_s < FULL * found.carried_bytes_per_s
        filled = FULL * found.carried_bytes_per_s * found.least_ms
        return fell and found.bytes_per_s * found.rtt_ms >= filled

    @property
    def slower(self) -> Slower | None:
        """What the last looks agree on."""
        return self._found[-1] if len(self._found) == _LOOKS and all(self._found) else None

    @property
    def moved(self) -> bool:
        """Whether it is told of, or would be if that had not been so often."""
        return self.told is not None or self.slower is not None

    @property
    def back(self) -> bool:
        """Whether the last looks agree that it is over."""
        return len(self._found) == _LOOKS and not any(self._found)


@attrs.define
class AtPace:
    """Connections that send at the pace that they were given, with no queue and no loss: since when, of which pace."""

    told: set[int] = attrs.field(factory=set)
    # By connection: its pace, the segments that it had sent again, and since when.
    _since: dict[object, tuple[int, int, float]] = attrs.field(factory=dict)

    def look(self, sent: Iterable[tuple[object, TcpSocket, float]], now_s: float) -> None:
        """Take the connections for which something was acknowledged, each with its bytes per second."""
        before, self._since = self._since, {}
        for key, one, bytes_per_s in sent:
            pace = one.max_pacing_bytes_per_s
            if pace and bytes_per_s >= _AT_PACE * pace and not is_longer(one.path_rtt_ms, one.rtt_ms):
                state = pace, one.retransmitted_segments
                since_s = before[key][2] if before.get(key, ())[:2] == state else now_s
                self._since[key] = (*state, since_s)

    def longest(self, now_s: float) -> tuple[int, float] | None:
        """Return the pace that was kept the longest, and for how long; None where that is no minutes."""
        pace, since_s = min(
            ((one[0], one[2]) for one in self._since.values()), key=lambda one: one[1], default=(0, 0.0)
        )
        return (pace, now_s - since_s) if pace and now_s - since_s >= _AT_PACE_S else None
