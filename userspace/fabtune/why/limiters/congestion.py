# SPDX-License-Identifier: GPL-2.0-or-later
"""The sender has data and its own congestion window holds it: after losses, at a beginning, or for its algorithm."""

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from fabtune.model.capacity import FEW_LOSSES, LOSS_SPREAD, loss_bytes_per_s
from fabtune.model.limits import Evidence
from fabtune.model.observation import SocketSample
from fabtune.why.limiter import HELD, Limiter, kib, mb
from fabtune.why.one_way import Moment, OneWay
from fabtune.why.pauses import slow_beginnings

_FILLED = 0.75
# Requests that wait this many times longer than the path explains have data behind them that the sender holds.
_WAITS = 1.5
# A window that is begun anew after a pause is halved for each time-out that this lasts (tcp_cwnd_restart).
_CUT = 0.5
# Drops at the receiver's NIC that explain half of what was sent again.
_EXPLAINED = 0.5


def _again(one_way: OneWay) -> int:
    """Return the bytes that the sender sent again."""
    return one_way.sender.socket.grown("retransmitted_bytes") if one_way.sender and one_way.sender.socket else 0


def _dropped_by_nic(one_way: OneWay) -> int:
    """Return the packets that the receiver's own NIC dropped."""
    nic = one_way.receiver.nic if one_way.receiver else None
    names = ("rx_dropped", "rx_missed_errors", "rx_fifo_errors", "rx_over_errors", "rx_crc_errors")
    return sum(nic.counters.get(name, 0) for name in names) if nic else 0


def _nic_explains(one_way: OneWay) -> bool:
    lost = _again(one_way) / one_way.seen.mss_bytes or _out_of_order(one_way)
    return _dropped_by_nic(one_way) >= max(1.0, _EXPLAINED * lost)


def _out_of_order(one_way: OneWay) -> int:
    socket = one_way.receiver.socket if one_way.receiver else None
    if socket is None or socket.samples[-1].out_of_order_segments is None:
        return 0
    return socket.grown("out_of_order_segments")


def _full(moment: Moment) -> bool:
    one = moment.sender
    return one is not None and moment.waits_to_send and one.mean("in_flight_bytes") >= _FILLED * one.mean("cwnd_bytes")


def _fills(one: SocketSample) -> bool:
    return one.notsent_bytes > 0 and one.in_flight_bytes >= _FILLED * one.cwnd_bytes


@lru_cache(maxsize=1)
def _losses_explain(one_way: OneWay) -> bool:
    """Tell whether what came out of order tells of losses that leave no more than passes."""
    socket = one_way.receiver.socket if one_way.receiver else None
    busy = [one for one in one_way.moments() if not one.idle]
    if socket is None or not busy or not _out_of_order(one_way):
        return False
    passes = sum(one.bytes_per_s * one.seconds for one in busy) / sum(one.seconds for one in busy)
    # Behind each gap comes what is under way: it is closed a round trip later.
    losses = _out_of_order(one_way) / max(1.0, passes * one_way.rtt_s / socket.mss_bytes)
    # Whoever receives does not see the sender's congestion control; cubic is what there usually is.
    share = losses * socket.mss_bytes / max(1, socket.grown("received_bytes"))
    leave = loss_bytes_per_s(socket.mss_bytes, one_way.rtt_s, share, "cubic")
    return losses >= FEW_LOSSES and leave <= LOSS_SPREAD * passes


def _lossy(moment: Moment) -> bool:
    one, one_way = moment.sender, moment.one_way
    if one is not None:
        # What a congestion window has room for it does not hold, whatever was lost.
        filled = _fills(one.before) or _fills(one.after)
        return filled and moment.waits_to_send and _again(one_way) > 0
    latency_s = one_way.latency_s or 0.0
    return latency_s > _WAITS * (one_way.rtt_s + one_way.wire_s) and _losses_explain(one_way)


def _lost(moment: Moment) -> float:
    if not _lossy(moment):
        return 0.0
    one, one_way = moment.sender, moment.one_way
    if one is None or moment.backlogged or one.mean("notsent_bytes") >= one_way.way.request_bytes:
        return 1.0
    # Where the sender runs dry in between, no request loses more by it than it waits.
    return min(1.0, one_way.waits)


def _loss(moment: Moment) -> float:
    return 0.0 if _nic_explains(moment.one_way) else _lost(moment)


def _nic(moment: Moment) -> float:
    return _lost(moment) if _nic_explains(moment.one_way) else 0.0


def _by_model(one_way: OneWay) -> bool:
    """Tell whether the sender sets its window by what it measures of the path (bbr).

    It has no slow-start threshold all its life, is not begun anew after a pause, and takes nothing from what is kept of
    earlier connections (net/ipv4/tcp_bbr.c, tcp_slow_start_after_idle_check).
    """
    socket = one_way.sender.socket if one_way.sender else None
    return socket is not None and socket.congestion_control.startswith("bbr")


def _growing(moment: Moment) -> bool:
    one = moment.sender
    if one is None or _by_model(moment.one_way):
        return False
    threshold = one.after.ssthresh_bytes
    return threshold is None or one.after.cwnd_bytes < threshold


@lru_cache(maxsize=1)
def _starts_anew(one_way: OneWay) -> bool:
    """Tell whether the window was cut while nothing was under way and nothing was lost: after a pause (RFC 2861)."""
    samples = one_way.sender.socket.samples if one_way.sender and one_way.sender.socket else ()
    pauses = (one.in_flight_bytes == 0 and two.cwnd_bytes <= _CUT * one.cwnd_bytes for one, two in pairwise(samples))
    return not _by_model(one_way) and not _again(one_way) and any(pauses)


def _slow_start(moment: Moment) -> float:
    if _full(moment) and _growing(moment):
        return 1.0
    one, one_way = moment.sender, moment.one_way
    if one is None:
        slow = None if moment.idle else slow_beginnings(one_way)
        return slow.each_s / (one_way.latency_s or math.inf) if slow else 0.0
    held = (one_way.goodput or one_way.fastest_bytes_per_s) * one_way.rtt_s
    if not held or not _starts_anew(one_way):
        return 0.0
    # It lasts for a few round trips; samples show a window below what the path holds, full or not at that instant.
    return sum(max(0.0, 1 - end.cwnd_bytes / held) for end in (one.before, one.after) if end.notsent_bytes) / 2


def _window(moment: Moment) -> float:
    return float(_full(moment) and not _starts_anew(moment.one_way))


def _seen(one_way: OneWay) -> Iterator[Evidence]:
    if one_way.sender and one_way.sender.socket:
        socket, samples = one_way.sender.socket, one_way.sender.socket.samples
        window, flying, waiting = (
            sum(getattr(one, name) for one in samples) / len(samples)
            for name in ("cwnd_bytes", "in_flight_bytes", "notsent_bytes")
        )
        value = f"{kib(window)} ({socket.congestion_control}), {kib(flying)} in flight, {kib(waiting)} waits"
        yield Evidence(one_way.sender.end, "congestion window", value)
        sent = socket.grown("sent_bytes")
        if _again(one_way):
            yield Evidence(
                one_way.sender.end, "sent again", f"{100 * _again(one_way) / max(sent, 1):.3f} % of the data"
            )
    elif one_way.receiver and _out_of_order(one_way):
        yield Evidence(one_way.receiver.end, "segments out of order", str(_out_of_order(one_way)))
    elif one_way.receiver and (slow := slow_beginnings(one_way)):
        value = f"at most {mb(slow.first_bytes_per_s)} at first, then {mb(slow.later_bytes_per_s)}"
        yield Evidence(one_way.receiver.end, "data after each pause", value)
    if _dropped_by_nic(one_way) and one_way.receiver and one_way.receiver.nic:
        yield Evidence(one_way.receiver.end, f"dropped by {one_way.receiver.nic.name}", str(_dropped_by_nic(one_way)))


def _ends(one_way: OneWay) -> tuple[str, ...]:
    return ("target",) if one_way.way_name == "read" else ("initiator",)


def _window_subject(one_way: OneWay) -> str:
    model = ", which bbr sets by what it measures of the path" if _by_model(one_way) else ""
    return f"the sender's congestion window{model}" + ("" if _again(one_way) else ", without a loss in this time")


def _against_losses(one_way: OneWay) -> str:
    (end,) = _ends(one_way)
    bbr = "bbr minds losses less than cubic does (profile wan-lossy)"
    if one_way.sender is None or one_way.sender.socket is None:
        return f"mend the path first; unless the {end} has it, {bbr}"
    if _by_model(one_way):
        return f"mend the path: the {end} sends with bbr, which minds losses least already"
    return f"mend the path first; {bbr}"


def _other_end(one_way: OneWay) -> tuple[str, ...]:
    return ("initiator",) if one_way.way_name == "read" else ("target",)


NIC = Limiter(
    name="nic-drops", stage=HELD, order=3, claim=_nic, evidence=_seen, ends=_other_end,
    subject=lambda one_way: f"packets that the {_other_end(one_way)[0]}'s NIC drops",
    lifts=("nic.rx_ring", "nic.channels"),
)  # fmt: skip
LOSS = Limiter(
    name="loss", doing="path", stage=HELD, order=4, claim=_loss, evidence=_seen, ends=_ends,
    subject=lambda _: "packets lost on the path, which keep the congestion window small",
    lifts=("route.congctl", "tcp.mtu_probing"), profile="wan-lossy",
    advice=_against_losses,
)  # fmt: skip
SLOW_START = Limiter(
    name="slow-start", stage=HELD, order=5, claim=_slow_start, evidence=_seen, ends=_ends,
    subject=lambda _: "a congestion window that still grows (slow start, or a start anew after a pause)",
    lifts=("tcp.slow_start_after_idle", "tcp.no_metrics_save"),
)  # fmt: skip
CONGESTION = Limiter(
    name="congestion-window", stage=HELD, order=6, claim=_window, evidence=_seen, ends=_ends,
    subject=_window_subject,
    lifts=("route.congctl", "tcp.no_metrics_save"), felt=lambda one_way: not _by_model(one_way), profile="wan-lossy",
)  # fmt: skip

LIMITERS = (NIC, LOSS, SLOW_START, CONGESTION)
