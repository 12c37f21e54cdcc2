# SPDX-License-Identifier: GPL-2.0-or-later
"""Nothing moves at all: the session is not logged in, the path is down, or only large packets vanish."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

import attrs

from fabtune.model.limits import Evidence
from fabtune.why.limiter import STOPPED, Limiter, kib
from fabtune.why.one_way import Moment, OneWay

_LEAST_S, _LEAST_RTTS = 1.0, 5


def _stands(moment: Moment) -> bool:
    """Tell whether data, or requests, are under way in this moment and nothing of it arrives."""
    one = moment.sender
    if one is not None:
        return one.after.sent_bytes == one.before.sent_bytes and one.after.in_flight_bytes > 0
    other, disk = moment.receiver, moment.disk
    waiting = disk is not None and disk.in_flight > 0
    return other is not None and waiting and other.after.received_bytes == other.before.received_bytes


@attrs.frozen
class _Stretch:
    """Moments in a row in which nothing arrives: how long, and whether the sender hears from the other end meanwhile.

    It does while it sends the same data again: what came before the stall, or in the moment in which it began, says
    nothing of the path as it is in it.
    """

    seconds: float
    hears: bool


@lru_cache(maxsize=1)
def _stretches(one_way: OneWay) -> Mapping[int, _Stretch]:
    """Return the stretch of each moment in which nothing arrives, by the moment's index."""
    found = {}
    for stands, moments in groupby(one_way.moments(), key=_stands):
        if stands:
            around = tuple(moments)
            stretch = _Stretch(sum(one.seconds for one in around), _hears(around))
            found.update(dict.fromkeys((one.index for one in around), stretch))
    return found


def _hears(stretch: Sequence[Moment]) -> bool:
    ends = [one.sender.after for one in stretch if one.sender]
    if not ends:
        return False
    grown = ends[-1].received_bytes - ends[0].received_bytes
    return grown > 0 and ends[-1].retransmitted_bytes > ends[0].retransmitted_bytes


def _stall(moment: Moment) -> bool:
    """Tell whether this moment lies in a stretch of several round trips in which nothing arrives."""
    one_way = moment.one_way
    if not one_way.way.moved_bytes:
        return True
    stretch = _stretches(one_way).get(moment.index)
    return stretch is not None and stretch.seconds >= max(_LEAST_S, _LEAST_RTTS * one_way.rtt_s)


def _logged_out(one_way: OneWay) -> bool:
    return not one_way.seen.session.is_up


def _blocked(moment: Moment) -> float:
    return float(_logged_out(moment.one_way) or _stall(moment))


def _black_hole(moment: Moment) -> float:
    stretch = _stretches(moment.one_way).get(moment.index)
    return float(not _logged_out(moment.one_way) and _stall(moment) and stretch is not None and stretch.hears)


def _seen(one_way: OneWay) -> Iterator[Evidence]:
    yield Evidence("initiator", "session state", one_way.seen.session.state or "not told")
    if one_way.sender and one_way.sender.socket:
        last = one_way.sender.socket.samples[-1]
        again = one_way.sender.socket.grown("retransmitted_bytes")
        yield Evidence(
            one_way.sender.end, "unacknowledged", f"{kib(last.in_flight_bytes)}, {kib(again)} sent again in vain"
        )


BLACK_HOLE = Limiter(
    name="mtu-black-hole", doing="path", stage=STOPPED, claim=_black_hole, evidence=_seen,
    subject=lambda _: "packets of the full size that vanish on the path (an MTU black hole)",
    advice=lambda _: "`fabtune measure net --peer ADDRESS` finds the path's MTU; lower the NIC's or mend the path",
)  # fmt: skip
BLOCKED = Limiter(
    name="blocked-session", doing="path", stage=STOPPED, claim=_blocked, evidence=_seen, order=1,
    subject=lambda _: "a blocked session: nothing is acknowledged",
    advice=lambda _: "look at the path and the target first: `fabtune show`, `fabtune stuck`",
)  # fmt: skip

LIMITERS = (BLACK_HOLE, BLOCKED)
