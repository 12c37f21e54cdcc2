# SPDX-License-Identifier: GPL-2.0-or-later
"""What a load sent that leaves at given instants, as a run record keeps it."""

import math

import attrs


@attrs.frozen
class Offered:
    """What a load that sends at given instants sent in the measured part, of `seconds`, and how well it kept to them.

    `completed` counts what ended in that part, whenever it began.  A request left `behind` its instant for whatever
    reason, `late` by the generator's own doing.
    """

    requests: int
    completed: int
    seconds: float
    most_outstanding: int
    late_p99_ns: int
    behind_p50_ns: int
    behind_p99_ns: int
    behind_max_ns: int

    @property
    def per_s(self) -> float:
        """Requests a second that were offered."""
        return self.requests / self.seconds if self.seconds else 0.0

    @property
    def reached_per_s(self) -> float:
        """Requests a second that came back."""
        return self.completed / self.seconds if self.seconds else 0.0

    @property
    def kept_up(self) -> bool:
        """Whether as much came back as was sent, but for 2 % and for what chance does to the number under way.

        Where not, requests queue up for as long as the load lasts, and what they take depends on when it ends.
        """
        return self.requests - self.completed <= 0.02 * self.requests + 3 * math.sqrt(self.most_outstanding)


@attrs.frozen
class Replayed:
    """Which trace of which device a load is the replay of, and how many of its requests are not as they stand there.

    `folded` lay beyond the device's end, `aligned` were no whole blocks of it, `left_out` move no data.
    """

    trace: str
    sha256: str
    device: str
    requests: int
    folded: int
    aligned: int
    left_out: int


def tells_latency(sent: Offered, replayed: Replayed | None) -> bool:
    """Return whether what the requests took is known of the load, and not only of when it happened to end.

    A trace's end is its own, and all of its requests were waited for.
    """
    return sent.kept_up or replayed is not None
