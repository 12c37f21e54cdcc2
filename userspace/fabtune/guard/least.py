# SPDX-License-Identifier: GPL-2.0-or-later
"""Tells whether TCP's least round trip is that of the path as it is now, while the smoothed one is longer.

TCP keeps the least of some minutes: when a path has become longer it goes on telling what it had before.
"""

import contextlib
import math

import attrs

from fabtune.errors import FabtuneError
from fabtune.guard.round_trip import is_longer
from fabtune.host import namespaces, tree

# A queue comes and goes by less than so many times; what rises more was away in between.
_AGAIN = 2.0


@attrs.define
class Least:
    """A connection's least round trip, look by look; `anew`: it was seen since the smoothed one has been longer."""

    least_ms: float = 0.0
    anew: bool = False
    # The smoothed one when it began to be longer, and the lowest since.
    _longer_ms: float = 0.0
    _lowest_ms: float = 0.0
    _since_s: float | None = None

    def look(self, least_ms: float, rtt_ms: float, now_s: float, kept_s: float, *, full: bool) -> None:
        """Take what TCP tells, which keeps the least for `kept_s`.

        Not `full`: what is acknowledged in a round trip may be lone runts, for which TCP does not renew the least.
        """
        if not least_ms or not is_longer(least_ms, rtt_ms):
            self._since_s, self.anew = None, False
        elif self._since_s is None or is_longer(self._longer_ms, rtt_ms) or rtt_ms > _AGAIN * self._lowest_ms:
            # What was seen beside a queue tells nothing of a path that grew after that.
            self._longer_ms = self._lowest_ms = rtt_ms
            self._since_s, self.anew = now_s, False
        elif least_ms < self.least_ms:
            self.anew = True
        elif not full:
            self._since_s = now_s
        elif now_s - self._since_s >= kept_s:
            self.anew = True
        self.least_ms, self._lowest_ms = least_ms, min(self._lowest_ms, rtt_ms)


def kept_s(netns: str) -> float:
    """Return for how long TCP keeps the least round trip in `netns`, for ever where that is not told."""
    with contextlib.suppress(FabtuneError), namespaces.inside(netns):
        found = tree.whole(tree.read_text(tree.PROC / "sys/net/ipv4/tcp_min_rtt_wlen") or "")
        return math.inf if found is None else found
    return math.inf
