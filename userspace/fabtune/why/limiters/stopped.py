# SPDX-License-Identifier: GPL-2.0-or-later
"""Nothing moves at all: the session is not logged in, the path is down, only large packets vanish, or nobody answers.

A path that is down leaves data unacknowledged at one end at least.  Where none is, the other end's host is there, and
requests wait for its answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

import attrs

from fabtune.model.limits import Evidence
from fabtune.model.observation import INITIATOR
from fabtune.why.limiter import STOPPED, Limiter, kib
from fabtune.why.one_way import Moment, OneWay

_LEAST_S, _LEAST_RTTS = 1.0, 5


def _unanswered(moment: Moment) -> bool:
    """Tell whether an end has data under way of which nothing is acknowledged in this moment."""
    return any(
        one.seconds > 0
        and min(one.before.in_flight_bytes, one.after.in_flight_bytes) > 0
        and one.after.sent_bytes == one.before.sent_bytes
        for one in (moment.sender, moment.receiver)
        if one
    )


def _silent(moment: Moment) -> bool:
    """Tell whether requests wait and nothing arrives, where whoever sends it is not seen."""
    other, disk = moment.receiver, moment.disk
    waiting = disk is not None and disk.in_flight > 0
    return (
        moment.sender is None
        and other is not None
        and waiting
        and other.after.received_bytes == other.before.received_bytes
    )


def _still(moment: Moment) -> bool:
    return not moment.one_way.way.moved_bytes or _unanswered(moment) or _silent(moment)


@attrs.frozen
class _Stretch:
    """Moments in a row in which nothing moves: how long, and for how much of it data is under way unacknowledged.

    `hears` is whether the sender hears from the other end meanwhile.  It does while it sends the same data again: what
    came before the stall, or in the moment in which it began, says nothing of the path as it is in it.
    """

    seconds: float
    unanswered_s: float
    hears: bool


@lru_cache(maxsize=1)
def _stretches(one_way: OneWay) -> Mapping[int, _Stretch]:
    """Return the stretch of each moment in which nothing moves, by the moment's index."""
    found = {}
    for still, moments in groupby(one_way.moments(), key=_still):
        if still:
            around = tuple(moments)
            unanswered = tuple(filter(_unanswered, around))
            whole_s, unanswered_s = (sum(one.seconds for one in some) for some in (around, unanswered))
            stretch = _Stretch(whole_s, unanswered_s, _hears(unanswered))
            found.update(dict.fromkeys((one.index for one in around), stretch))
    return found


def _hears(stretch: Sequence[Moment]) -> bool:
    ends = [one.sender.after for one in stretch if one.sender]
    if not ends:
        return False
    grown = ends[-1].received_bytes - ends[0].received_bytes
    return grown > 0 and ends[-1].retransmitted_bytes > ends[0].retransmitted_bytes


def _least_s(one_way: OneWay) -> float:
    return max(_LEAST_S, _LEAST_RTTS * one_way.rtt_s)


def _cut(moment: Moment) -> _Stretch | None:
    """Return the stretch that this moment lies in, if for several round trips of it nothing is acknowledged."""
    stretch = _stretches(moment.one_way).get(moment.index)
    return stretch if stretch and stretch.unanswered_s >= _least_s(moment.one_way) else None


def _logged_out(one_way: OneWay) -> bool:
    return not one_way.seen.session.is_up


def _blocked(moment: Moment) -> float:
    return float(_logged_out(moment.one_way) or _cut(moment) is not None)


def _black_hole(moment: Moment) -> float:
    cut = _cut(moment)
    return float(not _logged_out(moment.one_way) and cut is not None and cut.hears)


def hangs(moment: Moment) -> bool:
    """Tell whether nothing moves in the whole look, and no path is seen to be down."""
    return not moment.one_way.way.moved_bytes and not _blocked(moment)


def is_heard(one_way: OneWay) -> bool:
    """Tell whether the path is seen to be well while nothing moves: nothing is on it, or iscsid is answered."""
    if one_way.both_ends and not any(one.unanswered_s for one in _stretches(one_way).values()):
        return True
    socket = one_way.seen.initiator.socket
    if socket is None:
        return False
    # What was under way as it began says nothing of the rest.
    then, last = socket.samples[len(socket.samples) // 2], socket.samples[-1]
    return last.sent_bytes > then.sent_bytes or last.received_bytes > then.received_bytes


def _nobody_answers(moment: Moment) -> float:
    stretch = _stretches(moment.one_way).get(moment.index)
    return float(hangs(moment) or (stretch is not None and stretch.seconds >= _least_s(moment.one_way)))


def waiting_seen(one_way: OneWay) -> Iterator[Evidence]:
    """Yield the requests that are under way of which none ended, and that their connection is well where it is seen."""
    samples = one_way.seen.disk.samples
    if samples:
        value = f"{samples[-1].in_flight}, and none ended in {one_way.seen.elapsed_s:.0f} s"
        yield Evidence(INITIATOR, "requests under way", value)
    if is_heard(one_way):
        yield Evidence(INITIATOR, "connection", "all that was sent is acknowledged")


def _seen(one_way: OneWay) -> Iterator[Evidence]:
    yield Evidence("initiator", "session state", one_way.seen.session.state or "not told")
    if one_way.sender and one_way.sender.socket:
        last = one_way.sender.socket.samples[-1]
        again = one_way.sender.socket.grown("retransmitted_bytes")
        yield Evidence(
            one_way.sender.end, "unacknowledged", f"{kib(last.in_flight_bytes)}, {kib(again)} sent again in vain"
        )


def _silence_seen(one_way: OneWay) -> Iterator[Evidence]:
    yield from _seen(one_way)
    samples = one_way.seen.disk.samples
    if samples:
        most = max(one.in_flight for one in samples)
        yield Evidence(INITIATOR, "requests under way", f"up to {most}, and nothing arrives for them")


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
NOBODY_ANSWERS = Limiter(
    name="cannot-tell-silence", stage=STOPPED, order=4, claim=_nobody_answers, evidence=_silence_seen,
    subject=lambda _: "the target, which does not answer, or the path back from it",
    among=("target-disk", "target-cpu", "blocked-session"),
    advice=BLOCKED.advice,
)  # fmt: skip

LIMITERS = (BLACK_HOLE, BLOCKED, NOBODY_ANSWERS)
