# SPDX-License-Identifier: GPL-2.0-or-later
"""What a look shows of the path by the way: round trip, what arrived, what was sent again, and segment sizes."""

import statistics

import attrs

from fabtune.autotune.shown_line import HARDLY
from fabtune.autotune.view import View
from fabtune.model.document import Json
from fabtune.model.observation import INITIATOR, TARGET


@attrs.frozen
class PathFound:
    """The path of the disk that moved most, in the direction that moved most; None for what a look did not show.

    Round trips are the connection's; what arrived is that of all connections of that direction: on average, in the best
    tenth of the look, and by the sender's estimates of single round trips.  What was sent again is a share of what
    arrived, over the look and in the least and the most of its windows of half a second.
    """

    of: str
    rtt_least_ms: float | None = None
    rtt_median_ms: float | None = None
    rtt_most_ms: float | None = None
    arrived_bit_per_s: float | None = None
    arrived_most_bit_per_s: float | None = None
    single_round_trips_bit_per_s: float | None = None
    sent_again_share: float | None = None
    sent_again_least_share: float | None = None
    sent_again_most_share: float | None = None
    mss_bytes: int | None = None
    mtu_initiator_bytes: int | None = None
    mtu_target_bytes: int | None = None

    def as_json(self) -> dict[str, Json]:
        """Return it with stable keys."""
        return {name: round(one, 6) if isinstance(one, float) else one for name, one in attrs.asdict(self).items()}

    @property
    def in_words(self) -> str:
        """What is known of it, in a sentence."""
        said = []
        if self.rtt_least_ms is not None:
            spread = f"{self.rtt_median_ms:.1f} in the middle, {self.rtt_most_ms:.1f} at most"
            said.append(f"round trip {self.rtt_least_ms:.1f} ms at least, {spread}")
        if self.arrived_bit_per_s is not None and self.arrived_most_bit_per_s is not None:
            most = self.arrived_most_bit_per_s / 1e6
            single = self.single_round_trips_bit_per_s
            up_to = f", single round trips up to {single / 1e6:.1f}" if single else ""
            said.append(f"{self.arrived_bit_per_s / 1e6:.1f} Mb/s arrived, {most:.1f} in the best tenth{up_to}")
        if self.sent_again_share is not None:
            between = ""
            if self.sent_again_most_share:
                between = f" ({self.sent_again_least_share:.2%}..{self.sent_again_most_share:.2%} of half a second's)"
            said.append(f"{self.sent_again_share:.2%} sent again{between}")
        sizes = {"MSS": self.mss_bytes, "MTU": self.mtu_initiator_bytes, "the target's MTU": self.mtu_target_bytes}
        said += [f"{name} {size} bytes" for name, size in sizes.items() if size]
        return f"path of {self.of}: {'; '.join(said)}" if said else ""


def path_found(view: View) -> PathFound:
    """Return what a look shows of the path."""
    way = view.main
    seen = next((one for one in view.seen if one.device == way.device), None)
    if seen is None:
        return PathFound(way.device)
    sender = seen.sender(way.way) or seen.sender("read" if way.way == "write" else "write")
    socket, shown = sender.socket if sender else None, view.shown
    rtts_ms = [one.rtt_ms for one in socket.samples] if socket else []
    again = [max(0.0, one - HARDLY) for one in view.sent_again_shares]
    nics = {one.end: one.nic.mtu_bytes for one in (seen.initiator, seen.target) if one and one.nic}
    sampled = max(shown.sampled_bytes_per_s, shown.glimpsed_bytes_per_s) if shown else 0.0
    return PathFound(
        of=way.device,
        rtt_least_ms=seen.rtt_ms if rtts_ms else None,
        rtt_median_ms=statistics.median(rtts_ms) if rtts_ms else None,
        rtt_most_ms=max(rtts_ms, default=None),
        arrived_bit_per_s=view.on_the_wire(shown.mean_bytes_per_s) if shown else None,
        arrived_most_bit_per_s=view.on_the_wire(shown.most_bytes_per_s) if shown else None,
        single_round_trips_bit_per_s=view.on_the_wire(sampled) if sampled else None,
        sent_again_share=(shown.lost if shown.sent_again else 0.0) if shown else None,
        sent_again_least_share=min(again, default=None),
        sent_again_most_share=max(again, default=None),
        mss_bytes=socket.mss_bytes if socket else None,
        mtu_initiator_bytes=nics.get(INITIATOR),
        mtu_target_bytes=nics.get(TARGET),
    )
