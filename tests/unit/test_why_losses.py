# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune why: which losses limit, which are only there, and what is advised against those that do."""

import gzip
import json
from pathlib import Path

import attrs
import pytest

from fabtune.model import typed
from fabtune.model.observation import EndSeen, Observation
from fabtune.why.judging import Judged, judged
from fabtune.why.limiter import CANNOT_TELL

_KEPT: dict[str, object] = json.loads(
    gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes())
)
_LOST = ("loss", "nic-drops")


def _seen(name: str) -> Observation:
    return attrs.evolve(typed.STRICT.read(Observation, _KEPT[name], name), rate_bytes_per_s=200e6 / 8, rate_by="--rate")


def _judged(seen: Observation) -> Judged:
    (one,) = judged(seen)
    return one


def _sent_again(end: EndSeen | None, segments: int) -> EndSeen:
    """Return the end with so many segments sent again, all shortly before its last sample."""
    assert end and end.socket
    *before, last = end.socket.samples
    again = end.socket.samples[0].retransmitted_bytes + segments * end.socket.mss_bytes
    samples = (*before, attrs.evolve(last, retransmitted_bytes=again))
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=samples))


def _out_of_order(end: EndSeen, segments: int) -> EndSeen:
    """Return the end with so many segments that came out of order, all shortly before its last sample."""
    assert end.socket
    *before, last = (attrs.evolve(one, out_of_order_segments=0) for one in end.socket.samples)
    samples = (*before, attrs.evolve(last, out_of_order_segments=segments))
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=samples))


def _held_elsewhere(segments: int) -> Observation:
    """A sender at a quarter of the line, which fills 15 % of its congestion window: by a limit that nobody sees."""
    seen = _seen("maxrate-read")
    end = _sent_again(seen.target, segments)
    assert end.socket
    samples = (attrs.evolve(one, qdisc_bytes_per_s=None) for one in end.socket.samples)
    return attrs.evolve(
        seen, target=attrs.evolve(end, qdisc=None, socket=attrs.evolve(end.socket, samples=tuple(samples)))
    )


@pytest.mark.parametrize("segments", [1, 5, 50])
@pytest.mark.parametrize("dropped", [0, 50])
def test_losses_that_leave_the_congestion_window_open_limit_nothing(segments: int, dropped: int) -> None:
    """One segment of 11,500 was 'packets lost, which keep the congestion window small', of which 15 % was in use."""
    seen = _held_elsewhere(segments)
    nic = seen.initiator.nic
    assert nic and _judged(_held_elsewhere(0)).first.limiter == CANNOT_TELL
    nic = attrs.evolve(nic, counters={**nic.counters, "rx_missed_errors": dropped})
    one = _judged(attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, nic=nic)))
    assert one.first.limiter == CANNOT_TELL and one.first.share == pytest.approx(1)
    assert not one.liftable


@pytest.mark.parametrize("name", ["loss-read", "loss-write"])
def test_losses_that_fill_the_congestion_window_limit(name: str) -> None:
    assert _judged(_seen(name)).first.limiter == "loss"


def test_of_a_sender_that_runs_dry_in_between_each_instant_with_data_tells() -> None:
    """Half of the samples are of a window that is full, the others of nothing at all: none is full on average."""
    seen = _seen("loss-read")
    assert seen.target and seen.target.socket
    samples = tuple(
        attrs.evolve(one, in_flight_bytes=0, notsent_bytes=0) if number % 2 else one
        for number, one in enumerate(seen.target.socket.samples)
    )
    target = attrs.evolve(seen.target, socket=attrs.evolve(seen.target.socket, samples=samples))
    assert _judged(attrs.evolve(seen, target=target)).first.limiter == "loss"


@pytest.mark.parametrize("segments", [0, 1])
def test_a_window_is_said_to_be_without_a_loss_only_where_it_is(segments: int) -> None:
    """Where the requests lose little by a full one, it had part of the time beside the losses, and was without any."""
    seen = _seen("qdepth3")
    one = _judged(attrs.evolve(seen, target=_sent_again(seen.target, segments)))
    windows = [share.subject for share in one.shares if share.limiter == "congestion-window"]
    told = ["the sender's congestion window" + ("" if segments else ", without a loss in this time")]
    assert windows == told


def _by_bbr(name: str, algorithm: str = "bbr") -> Observation:
    """Return the reads as a sender with bbr shows them: it never sets a slow-start threshold, and nothing was lost."""
    seen = _seen(name)
    assert seen.target and seen.target.socket
    samples = tuple(attrs.evolve(one, ssthresh_bytes=None, retransmitted_bytes=0) for one in seen.target.socket.samples)
    socket = attrs.evolve(seen.target.socket, samples=samples, congestion_control=algorithm)
    return attrs.evolve(seen, target=attrs.evolve(seen.target, socket=socket))


@pytest.mark.parametrize("algorithm", ["bbr", "bbr3"])
def test_a_full_window_of_bbr_is_no_slow_start_and_is_given_no_knob_that_bbr_does_not_feel(algorithm: str) -> None:
    """The kernel passes bbr by where it begins anew after a pause, and bbr what is kept of earlier connections."""
    one = _judged(_by_bbr("loss-read", algorithm))
    assert one.first.limiter == "congestion-window" and one.first.share > 0.9
    assert one.first.subject.startswith("the sender's congestion window, which bbr sets by what it measures")
    assert not one.first.lifts and not one.liftable
    cubic = _judged(_by_bbr("loss-read", "cubic"))
    assert cubic.first.limiter == "slow-start" and "tcp.slow_start_after_idle" in cubic.first.lifts


def test_bbr_begins_nothing_anew_after_a_pause() -> None:
    """Its window is small for a moment now and then, with nothing under way (PROBE_RTT)."""
    seen = _by_bbr("loss-read")
    assert seen.target and seen.target.socket
    begun, cut, *later = seen.target.socket.samples
    paused = attrs.evolve(begun, in_flight_bytes=0, notsent_bytes=0)
    samples = (paused, attrs.evolve(cut, cwnd_bytes=paused.cwnd_bytes // 10), *later)
    target = attrs.evolve(seen.target, socket=attrs.evolve(seen.target.socket, samples=samples))
    one = _judged(attrs.evolve(seen, target=target))
    assert one.first.limiter == "congestion-window" and all(share.limiter != "slow-start" for share in one.shares)


# What comes in a round trip at 6 MB/s and 20 ms is 83 segments: each loss puts about as many out of order.
@pytest.mark.parametrize("segments", [1, 80, 300])
@pytest.mark.parametrize("rate", [200e6 / 8, None])
def test_from_the_initiator_alone_a_few_losses_are_none_that_limit(segments: int, rate: float | None) -> None:
    seen = attrs.evolve(_seen("maxrate-read"), target=None, rate_bytes_per_s=rate)
    before = _judged(seen)
    after = _judged(attrs.evolve(seen, initiator=_out_of_order(seen.initiator, segments)))
    assert [one.limiter for one in after.shares] == [one.limiter for one in before.shares]
    assert not {one.limiter for one in after.shares}.intersection(_LOST)


def test_from_the_initiator_alone_losses_are_named_where_they_leave_no_more() -> None:
    seen = attrs.evolve(_seen("loss-read"), target=None)
    assert _judged(seen).first.limiter == "loss"
    # A tenth of them leaves three times as much and more.
    assert seen.initiator.socket
    few = seen.initiator.socket.grown("out_of_order_segments") // 10
    assert _judged(attrs.evolve(seen, initiator=_out_of_order(seen.initiator, few))).first.limiter not in _LOST


@pytest.mark.parametrize(
    ("algorithm", "advised"),
    [
        ("cubic", "mend the path first; {bbr}"),
        ("bbr", "mend the path: the target sends with bbr, which minds losses least already"),
        ("", "mend the path first; unless the target has it, {bbr}"),
    ],
)
def test_bbr_is_advised_to_no_sender_that_has_it(algorithm: str, advised: str) -> None:
    seen = _seen("loss-read")
    assert seen.target and seen.target.socket
    target = attrs.evolve(seen.target, socket=attrs.evolve(seen.target.socket, congestion_control=algorithm))
    one = _judged(attrs.evolve(seen, target=target if algorithm else None))
    assert one.first.limiter == "loss" and one.first.advice == advised.format(
        bbr="bbr minds losses less than cubic does (profile wan-lossy)"
    )
