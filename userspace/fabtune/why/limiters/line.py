# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the line is full, by this connection or by others, or kept below its rate by the sender's own host."""

import math
from collections.abc import Iterator
from functools import lru_cache

import attrs

from fabtune.model.limits import Evidence
from fabtune.model.observation import INITIATOR, EndSeen
from fabtune.why.limiter import LINE, OWED, Limiter, mb
from fabtune.why.one_way import FULL, Moment, OneWay

_AT_THE_LIMIT = 0.85
# At so much of it nothing need be seen to wait: what waits may be in the queueing discipline.
_FILLS = 0.95
# With more of it nobody gains by what could be sent in the gaps.
_NO_ROOM = 0.95
# With this much of a line that has a queue, and no less, nobody else's traffic matters.
OURS = 0.8
# With so much of what passes while a queue stands, the line is full without one, too.
_AS_QUEUED = 0.97
# Others' share of the line from which on they matter.
_OTHERS = 0.1
# Link headers, data that is sent again, and what samples miss at both ends of the look.
_HEADERS_MORE = 1.1


def _at_own_limit(moment: Moment) -> bool:
    """Tell whether data leaves at the rate of a limit on the sender's own host."""
    limit = moment.paced_payload
    if limit is None or not (moment.waits_to_send or moment.bytes_per_s >= _FILLS * limit):
        return False
    # What leaves faster is not under the limit, which came or went while somebody looked.
    return _AT_THE_LIMIT * limit <= moment.bytes_per_s <= limit / _AT_THE_LIMIT


def _line_has_more(moment: Moment) -> bool:
    """Tell whether the line is known to carry more than the limit: by its rate, or because it did during the look."""
    limit, one_way = moment.paced_payload or math.inf, moment.one_way
    return one_way.goodput is not None or one_way.fastest_bytes_per_s > limit / _AT_THE_LIMIT


def _paced(moment: Moment) -> float:
    return float(_at_own_limit(moment) and _line_has_more(moment))


def _paced_or_line(moment: Moment) -> float:
    # Who paces to the line's rate sees the same: no queue, and data that waits in the socket.
    return float(_at_own_limit(moment) and not _line_has_more(moment))


def _paced_seen(one_way: OneWay) -> Iterator[Evidence]:
    assert one_way.sender
    qdisc = one_way.sender.qdisc
    if one_way.qdisc_limit is not None and qdisc and one_way.qdisc_rate:
        value = f"{qdisc.kind} lets {one_way.qdisc_rate * 8 / 1e6:g} Mb/s pass on {qdisc.nic}"
        yield Evidence(one_way.sender.end, "qdisc", value)
    if one_way.socket_limit is not None:
        yield Evidence(one_way.sender.end, "SO_MAX_PACING_RATE", f"{mb(one_way.socket_limit)} of payload")


def _paced_ends(one_way: OneWay) -> tuple[str, ...]:
    return (one_way.sender.end,) if one_way.sender else ()


def _line_untold(moment: Moment) -> float:
    if moment.line_share is not None:
        return 0.0
    # A queue that overflows drains, and the line is full all the same.
    queued = moment.one_way.queued_bytes_per_s or math.inf
    full = moment.queued_on_path or moment.bytes_per_s >= _AS_QUEUED * queued
    return float(full and not moment.queued_bursts)


def _line(moment: Moment) -> float:
    share = moment.line_share
    if share is None:
        return 0.0
    # What it carried on the whole counts too: moments are uneven.  Acknowledgements of what comes the other way take a
    # little of it.
    whole = moment.one_way.carried_bytes_per_s + moment.beside_bytes_per_s
    full = share >= FULL or whole >= FULL * (moment.one_way.goodput or math.inf)
    if full and share < _NO_ROOM and _asked_for(moment):
        return 0.0
    return float(full or (share >= OURS and moment.queued_on_path))


def _bursts(moment: Moment) -> float:
    return float(moment.line_share is None and moment.queued_bursts)


def _asked_for(moment: Moment) -> bool:
    """Tell whether writes wait for R2Ts, and neither socket nor path holds data that could leave meanwhile."""
    return moment.one_way.r2t_round_trips > 0 and not (moment.backlogged or moment.queued_on_path)


def _line_seen(one_way: OneWay) -> Iterator[Evidence]:
    end = one_way.sender or one_way.receiver
    if end is None or end.socket is None:
        return
    if one_way.goodput:
        carries = (
            f"{mb(one_way.goodput)} at {(one_way.seen.rate_bytes_per_s or 0) * 8 / 1e6:g} Mb/s ({one_way.seen.rate_by})"
        )
        yield Evidence(end.end, "the line carries", carries)
        if one_way.own.shared_with:
            value = f"{mb(one_way.own.on_line)} over it{one_way.own.named}"
            yield Evidence(INITIATOR, "other sessions of this host", value)
    samples = end.socket.samples
    rtt_ms = sum(one.rtt_ms for one in samples) / len(samples)
    yield Evidence(end.end, "round trip", f"{rtt_ms:.1f} ms, least {one_way.rtt_s * 1e3:.1f} ms")
    if one_way.sender is end:
        flying = sum(one.in_flight_bytes for one in samples) / len(samples)
        bdp = one_way.carried_bytes_per_s * one_way.rtt_s
        yield Evidence(end.end, "in flight", f"{flying / 1e6:.2f} MB; {bdp / 1e6:.2f} MB fill the round trip")


@lru_cache(maxsize=1)
def _others(one_way: OneWay) -> tuple[float, EndSeen | None]:
    """Return what nobody of this host sends the same way through the NIC of an end that was seen, and that end."""
    found: list[tuple[float, EndSeen]] = []
    of_wire = _HEADERS_MORE * one_way.mtu / one_way.seen.mss_bytes
    for end, counter, own in (
        (one_way.sender, "tx_bytes", "sent_bytes"),
        (one_way.receiver, "rx_bytes", "received_bytes"),
    ):
        if end and end.socket and end.nic:
            beside = one_way.own.through_nic if end.end == INITIATOR else one_way.own.of_host
            mine = of_wire * (end.socket.grown(own) / end.socket.elapsed_s + beside)
            found.append((end.nic.counters.get(counter, 0) / end.socket.elapsed_s - mine, end))
    most, end = max(found, key=lambda one: one[0], default=(0.0, None))
    return max(0.0, most), end


def _competing_seen(one_way: OneWay) -> Iterator[Evidence]:
    others, end = _others(one_way)
    if one_way.goodput and others >= _OTHERS * one_way.goodput and end and end.nic:
        yield Evidence(end.end, f"others' through {end.nic.name}", mb(others))
    yield from _line_seen(one_way)


def _line_subject(one_way: OneWay) -> str:
    return f"the line, shared with {one_way.own.shared_with}" if one_way.own.shared_with else "the line"


def _competing(moment: Moment) -> float:
    one_way, share = moment.one_way, moment.line_share
    if share is None:
        return 0.0
    others = _others(one_way)[0] / (one_way.goodput or math.inf)
    if others >= _OTHERS and share + others >= OURS:
        return 1.0
    # From the receiver alone a queue at the sender's own host looks the same.
    return float(moment.sender is not None and _queued_below(moment) and not one_way.seen.rate_is_a_nics)


def _queued_below(moment: Moment) -> bool:
    """Tell whether a queue stands on the path while this host's sessions have less than the line as it is known."""
    return moment.line_share is not None and moment.line_share < OURS and moment.queued_on_path


def _slower_link(moment: Moment) -> float:
    # How much of the queue is its own says nothing of the rest: what is in flight is what passes in a round trip,
    # whoever waits beside it.
    return float(moment.sender is not None and _queued_below(moment) and moment.one_way.seen.rate_is_a_nics)


def _unseen(moment: Moment) -> float:
    return float(moment.sender is None and _queued_below(moment))


def _slower_too(one_way: OneWay) -> tuple[str, ...]:
    return (LINE_FULL.name,) if one_way.seen.rate_is_a_nics else ()


def _unseen_subject(one_way: OneWay) -> str:
    slower = ": a slower link's" if _slower_too(one_way) else ""
    return f"a queue on the way{slower}, others' or the target's own"


PACING = Limiter(
    name="pacing", stage=LINE, order=0, claim=_paced, evidence=_paced_seen, ends=_paced_ends,
    subject=lambda one_way: f"a limit to the rate on the {one_way.sender.end if one_way.sender else INITIATOR} itself",
    lifts=("qdisc.maxrate",),
    advice=lambda _: "raise or remove the limit, unless it is the rate of the line",
)  # fmt: skip
# Requests that are too few to come up against the limit all the time wait for it one by one.
_EACH_PACED = attrs.evolve(PACING, stage=OWED, order=-2, claim=lambda moment: moment.parts.paced)
PACED_OR_LINE = Limiter(
    name="cannot-tell-pacing", stage=LINE, order=1, claim=_paced_or_line, evidence=_paced_seen,
    subject=lambda one_way: f"{PACING.subject(one_way)}, or the line that it is set for (give --rate to tell)",
    among=("pacing", "line"),
)  # fmt: skip
# A buffer that is as long as the path sends no less, and looks the same.
LINE_OR_BUFFER = Limiter(
    name="cannot-tell-bursts", stage=LINE, order=6, claim=_bursts, evidence=_line_seen,
    subject=lambda _: "the line, or the sender's buffer, which lets data leave in bursts (give --rate to tell)",
    among=("line", "send-buffer"),
)  # fmt: skip
LINE_FULL = Limiter(
    name="line", doing="path", stage=LINE, order=3, claim=_line, evidence=_line_seen, subject=_line_subject
)
# The same queue stands whoever fills it, and requests wait behind it either way.
LINE_UNTOLD = Limiter(
    name="cannot-tell-line", stage=LINE, order=7, claim=_line_untold, evidence=_line_seen, serves=True,
    subject=lambda _: "the line, or others' traffic on it (give --rate to tell)",
    among=("line", "competing-traffic"),
)  # fmt: skip
COMPETING = Limiter(
    name="competing-traffic", doing="path", stage=LINE, order=4, claim=_competing, evidence=_competing_seen,
    subject=lambda _: "others' traffic on the same path",
    advice=lambda _: "nothing to set on either end: give storage a path or a class of its own",
)  # fmt: skip
SLOWER_LINK = Limiter(
    name="cannot-tell-link", stage=LINE, order=8, claim=_slower_link, evidence=_line_seen, serves=True,
    subject=lambda _: "a slower link on the way, or others' traffic (give --rate to tell)",
    among=("line", "competing-traffic"),
)  # fmt: skip
QUEUED_SOMEWHERE = Limiter(
    name="cannot-tell-queue", doing="path", stage=LINE, order=5, claim=_unseen, evidence=_line_seen,
    subject=_unseen_subject, among=("competing-traffic", "pacing"), also=_slower_too,
)  # fmt: skip

LIMITERS = (
    PACING, _EACH_PACED, PACED_OR_LINE, LINE_OR_BUFFER, LINE_FULL, LINE_UNTOLD, COMPETING, SLOWER_LINK,
    QUEUED_SOMEWHERE,
)  # fmt: skip
