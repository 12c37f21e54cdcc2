# SPDX-License-Identifier: GPL-2.0-or-later
"""What a look shows of the path by the way: round trip, rate, losses, queue, and packet sizes."""

import statistics

import attrs

from fabtune.autotune.path_queue import QueueFound, longest, queue_found
from fabtune.autotune.shown_line import HARDLY, ShownLine, stretches_bytes_per_s
from fabtune.autotune.view import View
from fabtune.model.document import Json
from fabtune.model.judgement import ALPHA
from fabtune.model.observation import INITIATOR, TARGET, EndSeen, Observation
from fabtune.model.statistics import mean_interval


@attrs.frozen
class PathFound:
    """The path of the disk that moved most, in the direction that moved most; None for what a look did not show.

    Round trips are the connection's; what arrived is that of all connections of that direction: on average (with the
    interval of that mean), in the best tenth of the look, and by the sender's estimates of single round trips.  A line
    that was not seen full carries the best tenth at least.  What was sent again is a share of what arrived, over the
    look and in the least and the most of its windows of half a second.  A queue holds about what stood in it where it
    overflowed, else that at least, beside what others' packets took of it; its bytes are those of the connection.
    """

    of: str
    rtt_least_ms: float | None = None
    rtt_median_ms: float | None = None
    rtt_most_ms: float | None = None
    arrived_bit_per_s: float | None = None
    arrived_low_bit_per_s: float | None = None
    arrived_high_bit_per_s: float | None = None
    arrived_most_bit_per_s: float | None = None
    single_round_trips_bit_per_s: float | None = None
    line_seen_full: bool | None = None
    sent_again_share: float | None = None
    sent_again_least_share: float | None = None
    sent_again_most_share: float | None = None
    queue_most_ms: float | None = None
    queue_most_bytes: float | None = None
    queue_overflowed: bool | None = None
    mss_bytes: int | None = None
    path_mtu_bytes: int | None = None
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
        said += self._rates_in_words
        if self.sent_again_share is not None:
            between = ""
            if self.sent_again_most_share:
                between = f" ({self.sent_again_least_share:.2%}..{self.sent_again_most_share:.2%} of half a second's)"
            said.append(f"{self.sent_again_share:.2%} sent again{between}")
        if self.queue_most_ms is not None:
            size = self.queue_most_bytes
            bytes_too = "" if size is None else f", {size / 1e3:.1f} kB of this connection's"
            most = "about" if self.queue_overflowed else "at least"
            said.append(f"its queue holds {most} {self.queue_most_ms:.1f} ms{bytes_too}")
        sizes = {
            "MSS": self.mss_bytes,
            "the path's MTU": self.path_mtu_bytes,
            "MTU": self.mtu_initiator_bytes,
            "the target's MTU": self.mtu_target_bytes,
        }
        said += [f"{name} {size} bytes" for name, size in sizes.items() if size]
        return f"path of {self.of}: {'; '.join(said)}" if said else ""

    @property
    def _rates_in_words(self) -> list[str]:
        if self.arrived_bit_per_s is None or self.arrived_most_bit_per_s is None:
            return []
        low, high, single = self.arrived_low_bit_per_s, self.arrived_high_bit_per_s, self.single_round_trips_bit_per_s
        between = f" ({low / 1e6:.1f}..{high / 1e6:.1f})" if low is not None and high is not None else ""
        up_to = f", single round trips up to {single / 1e6:.1f}" if single else ""
        most = f"{self.arrived_most_bit_per_s / 1e6:.1f}"
        return [
            f"{self.arrived_bit_per_s / 1e6:.1f} Mb/s arrived{between}, {most} in the best tenth{up_to}",
            f"the line carries {'' if self.line_seen_full else 'at least '}{most} Mb/s",
        ]


def path_found(view: View, before: View | None = None) -> PathFound:
    """Return what a look shows of the path, and of its queue what it or one `before` shows: a pace keeps it short."""
    way = view.main
    seen = next((one for one in view.seen if one.device == way.device), None)
    if seen is None:
        return PathFound(way.device)
    sender = _sender(seen, way.way)
    socket, shown = sender.socket if sender else None, view.shown
    rtts_ms = [one.rtt_ms for one in socket.samples] if socket else []
    again = [max(0.0, one - HARDLY) for one in view.sent_again_shares]
    nics = {one.end: one.nic.mtu_bytes for one in (seen.initiator, seen.target) if one and one.nic}
    low, high = mean_interval(stretches_bytes_per_s(view.main_ways), ALPHA) if shown else (None, None)
    earlier = (one for one in (before.seen if before else ()) if one.device == way.device)
    queue = longest(found for one in (seen, *earlier) if (found := _queue(one, way.way)))
    sampled = max(shown.sampled_bytes_per_s, shown.glimpsed_bytes_per_s) if shown else 0.0
    return PathFound(
        of=way.device,
        rtt_least_ms=seen.rtt_ms if rtts_ms else None,
        rtt_median_ms=statistics.median(rtts_ms) if rtts_ms else None,
        rtt_most_ms=max(rtts_ms, default=None),
        arrived_bit_per_s=view.on_the_wire(shown.mean_bytes_per_s) if shown else None,
        arrived_low_bit_per_s=None if low is None else view.on_the_wire(low),
        arrived_high_bit_per_s=None if high is None else view.on_the_wire(high),
        arrived_most_bit_per_s=view.on_the_wire(shown.most_bytes_per_s) if shown else None,
        single_round_trips_bit_per_s=view.on_the_wire(sampled) if sampled else None,
        line_seen_full=_seen_full(view, shown) if shown else None,
        sent_again_share=(shown.lost if shown.sent_again else 0.0) if shown else None,
        sent_again_least_share=min(again, default=None),
        sent_again_most_share=max(again, default=None),
        queue_most_ms=queue.most_ms if queue else None,
        queue_most_bytes=_on_the_wire(view, queue),
        queue_overflowed=queue.overflowed if queue else None,
        path_mtu_bytes=_path_mtu_bytes(seen),
        mss_bytes=socket.mss_bytes if socket else None,
        mtu_initiator_bytes=nics.get(INITIATOR),
        mtu_target_bytes=nics.get(TARGET),
    )


def _sender(seen: Observation, way: str) -> EndSeen | None:
    """Return the end that sends the data, or the other one where it was not seen."""
    return seen.sender(way) or seen.sender("read" if way == "write" else "write")


def _queue(seen: Observation, way: str) -> QueueFound | None:
    end = _sender(seen, way)
    return queue_found(end.socket, sends=seen.sender(way) is not None) if end and end.socket else None


def _seen_full(view: View, shown: ShownLine) -> bool:
    """Tell whether the line was full when most arrived: it was no pace, and no average of ups and downs."""
    return not view.main_is_paced and (view.at_the_bound or view.main_is_full and not shown.averaged)


def _on_the_wire(view: View, queue: QueueFound | None) -> float | None:
    return None if queue is None or queue.most_bytes is None else view.on_the_wire(queue.most_bytes) / 8


def _path_mtu_bytes(seen: Observation) -> int | None:
    """Return the least that an end of the disk's connection knows: each learns of its own direction."""
    sockets = (one.socket for one in (seen.initiator, seen.target) if one)
    return min((one.path_mtu_bytes for one in sockets if one and one.path_mtu_bytes), default=None)
