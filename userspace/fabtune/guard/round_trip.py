# SPDX-License-Identifier: GPL-2.0-or-later
"""Tells when a connection's round trip is at rest, and whether it is another one than before."""

from collections import deque

import attrs

# So many looks in a row must agree, within so much, before a round trip is believed: TCP's smoothed one takes some
# acknowledgements to arrive at a new value.
_LOOKS, _ALIKE = 3, 1.1
# What a profile computes from a round trip has room for less than this; below it a queue comes and goes.
_MOVED = 1.25
# A host's own delays reach so far.
_SLACK_MS = 0.5


@attrs.define
class RoundTrip:
    """A connection's round trip, look by look: what looks agreed on last, if they ever did, and the longest of that.

    The longest begins anew with another plan.
    """

    longest_ms: float = 0.0
    settled_ms: float | None = None
    _seen_ms: deque[float] = attrs.field(factory=lambda: deque(maxlen=_LOOKS))

    def look(self, rtt_ms: float) -> None:
        """Take what TCP says now, smoothed."""
        self._seen_ms.append(rtt_ms)
        now_ms = self.now_ms
        if now_ms is not None:
            self.settled_ms, self.longest_ms = now_ms, max(self.longest_ms, now_ms)

    @property
    def now_ms(self) -> float | None:
        """The round trip as the last looks agree on it, None while they do not."""
        if len(self._seen_ms) < _LOOKS:
            return None
        least, most = min(self._seen_ms), max(self._seen_ms)
        return least if most <= least * _ALIKE + _SLACK_MS else None


def has_moved(before_ms: float, now_ms: float) -> bool:
    """Tell whether one round trip is another one than before."""
    most, least = max(before_ms, now_ms), min(before_ms, now_ms)
    return most - least > _SLACK_MS and most > least * _MOVED


def is_longer(before_ms: float, now_ms: float) -> bool:
    """Tell whether it is another one than before, and longer."""
    return now_ms > before_ms and has_moved(before_ms, now_ms)
