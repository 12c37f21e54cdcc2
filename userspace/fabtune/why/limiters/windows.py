# SPDX-License-Identifier: GPL-2.0-or-later
"""The sender has data and may not send it: the receiver's window, its own buffer."""

import math
import statistics
from collections.abc import Iterator
from functools import lru_cache

import attrs

from fabtune.model.capacity import shown_window, window_bytes_per_s
from fabtune.model.limits import Evidence
from fabtune.model.observation import INITIATOR
from fabtune.why import cpu_busy
from fabtune.why.limiter import HELD, LINE, Limiter, kib, mb
from fabtune.why.one_way import Moment, OneWay

# A receiver that does not fetch what has come lets its window shrink; nobody's setting is at fault.
_NOT_FETCHED = 0.5
# A window this full every round trip is what limits, seen from its own end.
_FILLED = 0.8
# Round trips that are so much longer than the least show that data waits on the way, if nearly all are.
_LONGER, _ALWAYS = 1.05, 0.9
# A writer sleeps until a third of the buffer is free again (sk_stream_is_writeable).
_BUFFER_FULL, _WAITING_SHARE = 0.7, 0.2
# What the requests under way have to send beyond what the socket holds.
_MORE = 1.2
# A part of a request's time that is smaller is within what its other parts are off.
_TELLING = 0.15


def _limited(moment: Moment) -> float:
    return min(1.0, moment.sender.share("rwnd_limited_us")) if moment.sender else 0.0


def _unfetched(moment: Moment) -> bool:
    one = moment.receiver
    return one is not None and one.mean("receive_queue_bytes") >= _NOT_FETCHED * one.mean("receive_buffer_bytes")


def _window(moment: Moment) -> float:
    if _unfetched(moment):
        return 0.0
    if moment.sender is None:
        return _inferred(moment) if moment.one_way.goodput else 0.0
    return _full(moment) if _explains(moment) else 0.0


def _full(moment: Moment) -> float:
    # Where the sender runs dry a burst may fill the window all the same: no request loses more by that than it waits.
    return _limited(moment) if moment.backlogged else min(_limited(moment), moment.one_way.waits)


@lru_cache(maxsize=1)
def _window_carries(one_way: OneWay) -> float:
    """Return what the largest window that the sender was offered during the look carries, infinite where none tells."""
    samples = one_way.sender.socket.samples if one_way.sender and one_way.sender.socket else ()
    most = max((one.send_window_bytes or 0 for one in samples), default=0)
    # How long a burst of it is on the line is at most what it is at the rate that was seen there.
    peak = one_way.goodput or one_way.fastest_bytes_per_s or math.inf
    return window_bytes_per_s(shown_window(most, one_way.rtt_s), one_way.rtt_s, peak) if most else math.inf


def _explains(moment: Moment) -> bool:
    """Tell whether the size of the window that the sender finds full is what limits.

    One that is not fetched from is shut whatever its size, which shows in the receiver's queue; where that end is not
    seen, only in how little passes.
    """
    return moment.receiver is not None or moment.bytes_per_s >= _FILLED * _window_carries(moment.one_way)


def _window_or_fetching(moment: Moment) -> float:
    return _full(moment) if moment.sender and not _explains(moment) else 0.0


def _slow_reader(moment: Moment) -> float:
    if not _unfetched(moment):
        return 0.0
    # Without the sender's word, a queue that stands full is all that is needed.
    return 1.0 if moment.sender is None else _limited(moment)


def _filled(moment: Moment) -> float:
    """Where the sender is not seen: how much of the window that this end offers comes each round trip."""
    one = moment.receiver
    if moment.sender is not None or one is None or not one.after.receive_window_bytes or _unfetched(moment):
        return 0.0
    return moment.bytes_per_s * moment.one_way.rtt_s / one.after.receive_window_bytes


def _inferred(moment: Moment) -> float:
    return float(_filled(moment) >= _FILLED)


@lru_cache(maxsize=1)
def _may_be_the_line(one_way: OneWay) -> bool:
    """Tell whether a window that is full all the time may be so of a queue that stands on the path.

    Round trips are longer then, and no longer than all that the window lets be under way explains (Little).  Of a line
    that is idle in between they are as long as the bursts are that they wait behind, which is more.
    """
    busy = [
        (one.receiver.mean("rtt_ms") / 1e3, _filled(one)) for one in one_way.moments() if one.receiver and not one.idle
    ]
    full = [(rtt_s, filled) for rtt_s, filled in busy if filled >= _ALWAYS * _FILLED]
    if not one_way.rtt_s or not full or len(full) < _ALWAYS * len(busy):
        return False
    longer = [rtt_s / one_way.rtt_s for rtt_s, _ in full]
    # Of the window, what comes in a round trip as it is now.
    under_way = statistics.fmean(more * filled for more, (_, filled) in zip(longer, full, strict=True))
    return statistics.fmean(longer) >= _LONGER and under_way <= 1.0


def _window_in_bursts(moment: Moment) -> float:
    """Where nobody told the line's rate: what waits on the path is the bursts that the window lets leave, no queue."""
    return 0.0 if moment.one_way.goodput or _may_be_the_line(moment.one_way) else _inferred(moment)


def _window_or_line(moment: Moment) -> float:
    return _inferred(moment) if moment.one_way.goodput is None and _may_be_the_line(moment.one_way) else 0.0


def _window_seen(one_way: OneWay) -> Iterator[Evidence]:
    sender, receiver = one_way.sender, one_way.receiver
    if sender and sender.socket:
        share = sender.socket.grown("rwnd_limited_us") / 1e4 / sender.socket.elapsed_s
        last = sender.socket.samples[-1]
        yield Evidence(sender.end, "rwnd_limited", f"{share:.0f} % of the time")
        if last.send_window_bytes:
            flying = f"{kib(last.in_flight_bytes)} of {kib(last.send_window_bytes)}"
            yield Evidence(sender.end, "in flight of the window", flying)
    if receiver and receiver.socket:
        last = receiver.socket.samples[-1]
        offered = "" if last.receive_window_bytes is None else f"window {kib(last.receive_window_bytes)}, "
        yield Evidence(receiver.end, "receive buffer", f"{offered}buffer {kib(last.receive_buffer_bytes)}")
    yield from _record(one_way)


def _window_or_fetching_seen(one_way: OneWay) -> Iterator[Evidence]:
    yield from _window_seen(one_way)
    carries = _window_carries(one_way)
    if one_way.sender and carries < math.inf:
        value = f"{mb(carries)} at {one_way.rtt_s * 1e3:.1f} ms"
        yield Evidence(one_way.sender.end, "what the largest window carries", value)


def _window_or_line_seen(one_way: OneWay) -> Iterator[Evidence]:
    yield from _window_seen(one_way)
    if one_way.receiver and one_way.receiver.socket:
        samples = one_way.receiver.socket.samples
        rtt_ms = statistics.fmean(one.rtt_ms for one in samples)
        yield Evidence(one_way.receiver.end, "round trip", f"{rtt_ms:.1f} ms, least {one_way.rtt_s * 1e3:.1f} ms")


def _record(one_way: OneWay) -> Iterator[Evidence]:
    window = one_way.seen.session.window_bytes
    if window:
        yield Evidence(INITIATOR, "node.conn[0].tcp.window_size", f"{kib(window)}: iscsid locks both buffers to it")


def _locked(one_way: OneWay, end: str) -> str:
    return "locked " if end == INITIATOR and one_way.seen.session.window_bytes else ""


def _window_subject(one_way: OneWay) -> str:
    end = one_way.receiver.end if one_way.receiver else one_way.seen.initiator.end
    if one_way.receiver is None:
        return "the target's receive window"
    return f"the {end}'s {_locked(one_way, end)}receive window"


def _buffer(moment: Moment) -> float:
    one = moment.sender
    if one is None:
        return 0.0
    queued = one.mean("send_queue_bytes")
    full = moment.one_way.buffer_mostly_full or queued >= _BUFFER_FULL * one.mean("send_buffer_bytes")
    # A buffer that is full of data which the window or the path holds back is not what limits.
    waiting = one.mean("notsent_bytes") > _WAITING_SHARE * queued
    # Of the session's other disks as much for each byte that they moved.
    sendable = moment.one_way.seen.sendable_bytes(moment.one_way.way_name) / (moment.one_way.own_share or 1.0)
    held = full and not waiting and sendable >= _MORE * one.mean("in_flight_bytes")
    claim = 1.0 if held else min(1.0, one.share("sndbuf_limited_us"))
    # However full it is: requests that path and disk explain lose nothing by it.
    waits = moment.one_way.waits
    return claim if waits >= _TELLING else min(claim, waits)


def _buffer_seen(one_way: OneWay) -> Iterator[Evidence]:
    assert one_way.sender and one_way.sender.socket
    end, samples = one_way.sender, one_way.sender.socket.samples
    queued = sum(one.send_queue_bytes for one in samples) / len(samples)
    waiting = sum(one.notsent_bytes for one in samples) / len(samples)
    value = f"holds {kib(queued)} of {kib(samples[-1].send_buffer_bytes)}, {kib(waiting)} of it not sent yet"
    yield Evidence(end.end, "send buffer", value)
    share = one_way.sender.socket.grown("sndbuf_limited_us") / 1e4 / one_way.sender.socket.elapsed_s
    if "tcpi_sndbuf_limited" not in one_way.sender.socket.lacks:
        yield Evidence(
            end.end, "sndbuf_limited", f"{share:.0f} % of the time (counts only while the buffer runs empty)"
        )
    if end.end == INITIATOR:
        yield from _record(one_way)


def _buffer_subject(one_way: OneWay) -> str:
    end = one_way.sender.end if one_way.sender else INITIATOR
    return f"the {end}'s {_locked(one_way, end)}send buffer"


def _receiver_end(one_way: OneWay) -> tuple[str, ...]:
    return ("initiator",) if one_way.way_name == "read" else ("target",)


def _sender_end(one_way: OneWay) -> tuple[str, ...]:
    return ("target",) if one_way.way_name == "read" else ("initiator",)


def _slow_subject(one_way: OneWay) -> str:
    return f"the {_receiver_end(one_way)[0]}, which does not fetch what has arrived"


def _who_fetches(one_way: OneWay) -> tuple[str, ...]:
    return ("initiator-cpu",) if one_way.way_name == "read" else ("target-disk", "target-cpu")


def _slow_seen(one_way: OneWay) -> Iterator[Evidence]:
    if one_way.receiver and one_way.receiver.socket:
        samples = one_way.receiver.socket.samples
        held = sum(one.receive_queue_bytes for one in samples) / len(samples)
        value = f"{kib(held)} of {kib(samples[-1].receive_buffer_bytes)} wait to be fetched"
        yield Evidence(one_way.receiver.end, "receive queue", value)
        yield Evidence(
            one_way.receiver.end,
            "busiest thread or CPU",
            f"{100 * cpu_busy.busiest(one_way, one_way.receiver):.0f} % of a CPU",
        )


_OF_WINDOWS = ("iscsi.tcp_window", "tcp.rmem_max", "tcp.rmem_default", "net.rmem_max", "tcp.window_scaling")
SLOW_READER = Limiter(
    name="slow-receiver", stage=HELD, order=0, claim=_slow_reader, evidence=_slow_seen, subject=_slow_subject,
    among=("initiator-cpu", "target-cpu", "target-disk"),
)  # fmt: skip
WINDOW = Limiter(
    name="receive-window", stage=HELD, order=1, claim=_window, evidence=_window_seen, subject=_window_subject,
    lifts=_OF_WINDOWS, ends=_receiver_end,
)  # fmt: skip
WINDOW_IN_BURSTS = attrs.evolve(WINDOW, stage=LINE, order=2, claim=_window_in_bursts)
# A window that holds as much as the path and its queue do comes full as well.
WINDOW_OR_LINE = Limiter(
    name="cannot-tell-window", stage=HELD, order=-1, claim=_window_or_line, evidence=_window_or_line_seen,
    subject=lambda one_way: f"{_window_subject(one_way)}, or a full line (give --rate to tell)",
    among=("receive-window", "line"),
)  # fmt: skip
WINDOW_OR_FETCHING = Limiter(
    name="cannot-tell-unfetched", stage=HELD, order=-2, claim=_window_or_fetching, evidence=_window_or_fetching_seen,
    subject=lambda one_way: f"{_window_subject(one_way)}, or {_slow_subject(one_way)}",
    among=("receive-window", "slow-receiver"), also=_who_fetches,
)  # fmt: skip
BUFFER = Limiter(
    name="send-buffer", stage=HELD, order=2, claim=_buffer, evidence=_buffer_seen, subject=_buffer_subject,
    lifts=("iscsi.tcp_window", "tcp.wmem_max", "tcp.wmem_default", "net.wmem_max", "tcp.notsent_lowat"),
    ends=_sender_end,
)  # fmt: skip

LIMITERS = (WINDOW_IN_BURSTS, SLOW_READER, WINDOW, WINDOW_OR_LINE, WINDOW_OR_FETCHING, BUFFER)
