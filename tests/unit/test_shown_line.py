# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: what a line shows of its rate and losses, and what is tried of that."""

import time

import attrs
import pytest
from tuned_looks import ASKED, limited_by, no_path, paced_line  # noqa: F401

from fabtune.autotune import wanted
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.shown_line import blocks_sent_again, shown_line
from fabtune.autotune.step import TuningStep
from fabtune.autotune.view import View
from fabtune.model.observation import SocketSample
from fabtune.tune.lift import Reason
from fabtune.why.judging import Share
from fabtune.why.one_way import OneWay

# As they are, without what tests put in their place.
_OWN = {
    name: View.__dict__[name]
    for name in ("shown", "shown_bit_per_s", "lossy_line", "loses_little", "began_with_losses")
}


def delivering(
    found: View, *shares_of_20_mb: float, sent_again: int, congctl: str = "cubic", sampled: float = 1.0
) -> View:
    """Return `found` with a sender of which such shares of 20 MB/s arrived, in parts of the look that are as long.

    It sends so many bytes again between two samples, which show `sampled` times the rate.
    """
    (one,) = found.seen
    end = one.sender("read")
    assert end is not None and end.socket is not None
    samples, arrived = list[SocketSample](), 0.0
    for turn, sample in enumerate(end.socket.samples):
        elapsed_s = sample.at_s - end.socket.samples[turn - 1].at_s if turn else 0.0
        share = shares_of_20_mb[turn * len(shares_of_20_mb) // len(end.socket.samples)]
        arrived += 20e6 * share * elapsed_s
        samples.append(
            attrs.evolve(
                sample, delivered_segments=(round(arrived / 1448) + 2**32 - 5000) % 2**32, sent_bytes=round(arrived),
                retransmitted_bytes=sent_again * turn, app_limited=False,
                delivery_bytes_per_s=int(20e6 * share * sampled),
            )
        )  # fmt: skip
    socket = attrs.evolve(end.socket, samples=tuple(samples), congestion_control=congctl)
    mean = 20e6 * sum(shares_of_20_mb) / len(shares_of_20_mb)
    way = attrs.evolve(found.ways[0], bytes_per_s=mean, session_bytes_per_s=mean)
    return View((attrs.evolve(one, target=attrs.evolve(end, socket=socket)),), (way,), found.blocks_bytes_per_s)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views show the line that their observations show."""
    for name, own in _OWN.items():
        monkeypatch.setattr(View, name, own)


def wanted_of(found: View, *tried: str, known: View | None = None) -> list[wanted.Wanted]:
    """Return what is tried of a look, after others that did not help."""
    learnt = Learnt(set(tried))
    for one in (known, found):
        if one is not None:
            learnt.saw(one)
    return list(wanted.wanted_steps(found, Aim(Goal.THROUGHPUT), learnt))


@pytest.mark.usefixtures("lines")
def test_what_a_line_shows_is_what_arrived_in_its_best_moments() -> None:
    shown = delivering(limited_by(paced_line(None), "line"), 0.5, 1.0, sent_again=1448).shown
    assert shown is not None and not shown.probed
    assert shown.most_bytes_per_s == pytest.approx(20e6, rel=0.02)
    assert shown.mean_bytes_per_s == pytest.approx(15e6, rel=0.05)
    assert not shown.full(but_for=0.2) and shown.full(but_for=0.5)
    # A kernel that does not tell it shows nothing.
    (one,) = paced_line(None).seen
    assert shown_line([OneWay(one, "read")]) is None


@pytest.mark.usefixtures("lines")
def test_sessions_that_share_a_line_show_it_together_and_disks_of_one_session_once() -> None:
    found = delivering(paced_line(None), 1.0, 1.0, sent_again=1448)
    (one,) = found.seen
    assert one.target is not None and one.target.socket is not None
    socket = attrs.evolve(one.target.socket, remote="192.0.2.1:1")
    other = attrs.evolve(one, device="sdb", target=attrs.evolve(one.target, socket=socket))
    same = attrs.evolve(one, device="sdc")
    ways = [OneWay(each, "read") for each in (one, other, same)]
    shown = shown_line(ways)
    assert shown is not None and shown.mean_bytes_per_s == pytest.approx(40e6, rel=0.02)
    assert max(blocks_sent_again(ways)) == pytest.approx(0.05 + 1448 / (20e6 * 0.2), abs=1e-4)
    # Where one of them is not seen nobody knows the sum.
    unseen = attrs.evolve(other, target=None)
    assert shown_line([*ways, OneWay(unseen, "read")]) is None


@pytest.mark.usefixtures("lines")
def test_a_full_line_that_loses_is_paced_to_what_arrives_at_its_best_then_tried_with_bbr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a queue that overflows now and then leaves it idle, though it is full on average."""
    monkeypatch.setattr(View, "filled_bit_per_s", 160e6)
    full = limited_by(paced_line(None), "line")
    found = delivering(full, 0.9, 1.05, sent_again=1448)
    pace, bbr = wanted_of(found)
    share = pace.reason.shares[0]
    assert share.limiter == "queue-overflow" and share.ends == ("target",) and pace.reason.profile == "wan"
    # Headers and framing; a little below what showed.
    line_bit_per_s = 8 * 21e6 * 1514 / 1448
    assert pace.reason.rate_bit_per_s == pytest.approx(0.995 * line_bit_per_s, rel=0.01)
    assert (bbr.reason.shares[0].limiter, bbr.reason.profile) == ("loss", "wan-lossy")
    # bbr minds no overflow, and is idle now and then.
    probing = wanted_of(delivering(full, 0.9, 1.05, sent_again=1448, congctl="bbr"))[0]
    assert probing.reason.rate_bit_per_s == pytest.approx(line_bit_per_s, rel=0.003)
    assert wanted_of(found, "queue-overflow", "loss") == []
    for quiet in (delivering(full, 0.9, 1.05, sent_again=0), delivering(full, 0.99, 1.01, sent_again=1448)):
        assert wanted_of(quiet) == []
    # A pace costs nothing; a fortieth of the line is not worth new connections, and others when it goes back.
    nearly = wanted_of(delivering(full, 0.95, 1.0, sent_again=1448))
    assert [one.reason.shares[0].limiter for one in nearly] == ["queue-overflow"]


@pytest.mark.parametrize(("sampled", "pace_mb_per_s"), [(1.05, 21.0), (1.3, 1.3 * 21.0)])
@pytest.mark.usefixtures("lines")
def test_a_line_that_is_idle_between_bursts_is_paced_to_what_single_round_trips_showed_first(
    sampled: float, pace_mb_per_s: float
) -> None:
    """bbr had 64 MB/s of a line of 117 with a short queue, and 103 when it was paced to what its kernel estimated."""
    found, learnt = paced_line(None), Learnt()
    share = Share("loss", 1.0, "loss", lifts=("route.congctl",), ends=("target",))
    lossy = attrs.evolve(found, ways=tuple(attrs.evolve(one, shares=(share,)) for one in found.ways))
    look = delivering(lossy, 0.5, 1.05, sent_again=1448, sampled=sampled)
    learnt.saw(look)

    def pace_bit_per_s() -> float | None:
        steps = wanted.wanted_steps(look, Aim(Goal.THROUGHPUT), learnt)
        return next(
            (one.reason.rate_bit_per_s for one in steps if one.reason.shares[0].limiter == "queue-overflow"), None
        )

    first = pace_bit_per_s()
    assert first == pytest.approx(0.995 * 8e6 * pace_mb_per_s * 1514 / 1448, rel=0.01)
    learnt.did_not_help(["queue-overflow"], first, look)
    second = pace_bit_per_s()
    if sampled > 1.1:
        # Acknowledgements that come in bunches show too much: what arrived is left.
        assert second == pytest.approx(0.995 * 8 * 21e6 * 1514 / 1448, rel=0.01)
        learnt.did_not_help(["queue-overflow"], second, look)
    assert pace_bit_per_s() is None


@pytest.mark.usefixtures("lines")
def test_losses_that_cost_nothing_are_not_lifted() -> None:
    found = paced_line(None)
    share = Share("loss", 1.0, "loss", lifts=("route.congctl",), ends=("target",))
    lossy = attrs.evolve(found, ways=tuple(attrs.evolve(one, shares=(share,)) for one in found.ways))
    little = [one.reason.shares[0].limiter for one in wanted_of(delivering(lossy, 1.0, 1.01, sent_again=1448))]
    nearly = delivering(lossy, 0.95, 1.0, sent_again=1448, sampled=1.02)
    assert [one.reason.shares[0].limiter for one in wanted_of(nearly)] == little
    assert little == ["queue-overflow"]
    # Of the last a sawtooth of a few round trips, which half a second hides.
    for *telling, sampled in ((0.9, 1.1, 1.0), (0.5, 0.7, 1.0), (1.0, 1.0, 1.06)):
        found = delivering(lossy, *telling, sent_again=1448, sampled=sampled)
        assert [one.reason.shares[0].limiter for one in wanted_of(found)] == ["loss", "queue-overflow"]


@pytest.mark.usefixtures("lines")
def test_bbr_that_overfills_a_queue_gives_way_to_cubic_where_the_path_itself_loses_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends at 0.96 of a line with a short queue, and sends some percent again."""
    found = paced_line(None)
    monkeypatch.setattr(OneWay, "rtt_s", 0.01)
    probing = delivering(found, 0.93, 0.98, sent_again=20_000, congctl="bbr")
    quiet = delivering(found, 0.96, 0.96, sent_again=0, congctl="bbr")
    (step,) = [one for one in wanted_of(probing, known=quiet) if one.reason.shares[0].limiter == "probing"]
    assert step.reason.profile == "wan-clean" and step.spares and "route.congctl" in step.reason.shares[0].lifts
    lossy = delivering(found, 0.96, 0.96, sent_again=20_000, congctl="bbr")
    sends_nothing_again = delivering(found, 0.93, 0.98, sent_again=0, congctl="bbr")
    cubic = delivering(found, 0.93, 0.98, sent_again=20_000)
    for other, known in ((probing, lossy), (sends_nothing_again, quiet), (cubic, quiet)):
        assert "probing" not in [one.reason.shares[0].limiter for one in wanted_of(other, known=known)]
    assert "probing" not in [one.reason.shares[0].limiter for one in wanted_of(probing, "probing", known=quiet)]


def test_a_step_that_sends_less_again_for_as_much_stays() -> None:
    aim = Aim(Goal.THROUGHPUT)
    before = aim.figures((10e6, 10.1e6, 9.9e6, 10e6), (), (0.09, 0.1, 0.095, 0.1))
    for rates, sent, kept in (
        ((10e6, 10.05e6, 10.1e6, 10e6), (0.05, 0.0501, 0.05, 0.05), True),
        ((10e6, 10.05e6, 10.1e6, 10e6), (0.09, 0.1, 0.1, 0.09), False),
        ((9e6, 9.05e6, 9.1e6, 9e6), (0.05, 0.0501, 0.05, 0.05), False),
    ):
        assert aim.outcome(before, aim.figures(rates, (), sent)).serves(Goal.THROUGHPUT) is kept


def test_what_would_limit_next_is_written_with_what_takes_new_connections() -> None:
    """Else each takes a pause and a look of its own."""
    found = paced_line(None)
    share = Share("loss", 1.0, "loss", lifts=("route.congctl",), ends=("target",), profile="wan-lossy")
    lossy = attrs.evolve(found, ways=tuple(attrs.evolve(one, shares=(share,)) for one in found.ways))
    (step,) = wanted_of(lossy)
    beside = {(name, end) for one in step.beside for name in one.lifts for end in one.ends}
    assert {("tcp.wmem_max", "target"), ("tcp.rmem_max", "initiator"), ("qdisc.kind", "target")} <= beside
    assert ("tcp.rmem_max", "target") not in beside and step.reason.tunables == {"route.congctl"}
    assert step.whole.tunables >= {"route.congctl", "tcp.wmem_max"}


def queued(
    found: View, mb_per_s: float, *, congctl: str = "cubic", rtt_ms: float = 30.0, wander_ms: float = 3.0
) -> View:
    """Return a look at so many MB/s, of a sender with more to send, behind round trips of 20 ms without a queue.

    They vary by 1 ms from packet to packet, and by so much from sample to sample.
    """
    seen_at = delivering(found, mb_per_s / 20, mb_per_s / 20, sent_again=1448, congctl=congctl)
    (one,) = seen_at.seen
    assert one.target is not None and one.target.socket is not None
    samples = tuple(
        attrs.evolve(
            sample, rtt_ms=rtt_ms + (-1) ** turn * wander_ms, min_rtt_ms=20.0, rtt_deviation_ms=1.0,
            in_flight_bytes=10**5, notsent_bytes=10**5,
        )
        for turn, sample in enumerate(one.target.socket.samples)
    )  # fmt: skip
    target = attrs.evolve(one.target, socket=attrs.evolve(one.target.socket, samples=samples))
    return attrs.evolve(seen_at, seen=(attrs.evolve(one, target=target),))


@pytest.mark.usefixtures("lines")
def test_whoever_has_less_than_the_line_while_a_queue_stands_shares_it_and_bbr_does_not_take_the_rest() -> None:
    """Beside one flow of cubic bbr would leave that a tenth: 10.7 of 12 MB/s instead of 4.1."""
    found = paced_line(None)
    share = Share("loss", 1.0, "loss", lifts=("route.congctl",), ends=("target",))
    lossy = attrs.evolve(found, ways=tuple(attrs.evolve(one, shares=(share,)) for one in found.ways))
    before, with_bbr = queued(lossy, 5.0), queued(lossy, 18.0, congctl="bbr")
    learnt = Learnt()
    learnt.saw(before)
    assert not learnt.shared
    learnt.saw(with_bbr)
    assert learnt.shared and learnt.unfair(with_bbr) and not learnt.unfair(queued(lossy, 18.0))
    (step,) = wanted.wanted_steps(before, Aim(Goal.THROUGHPUT), learnt)
    assert [one.limiter for one in step.reason.shares] == ["competing-traffic"] * 2
    assert "route.congctl" not in step.whole.tunables and "tcp.wmem_max" in step.whole.tunables
    # Whoever asks for all has it.
    learnt.friendly = False
    assert not learnt.unfair(with_bbr)
    limiters = [one.reason.shares[0].limiter for one in wanted.wanted_steps(before, Aim(Goal.THROUGHPUT), learnt)]
    assert limiters and "competing-traffic" not in limiters


@pytest.mark.usefixtures("lines")
def test_what_waits_for_its_own_pace_shares_no_line() -> None:
    """It waits in its own host's queue, which makes round trips longer; `tune` said that others had the rest."""
    paced, unpaced = queued(paced_line(None), 5.0), queued(paced_line(None), 18.0, congctl="bbr")
    (one,) = paced.seen
    assert one.target is not None and one.target.socket is not None
    for pace, others in ((5.2e6, False), (10e6, True)):
        samples = tuple(attrs.evolve(each, max_pacing_bytes_per_s=int(pace)) for each in one.target.socket.samples)
        target = attrs.evolve(one.target, socket=attrs.evolve(one.target.socket, samples=samples))
        learnt = Learnt()
        learnt.saw(attrs.evolve(paced, seen=(attrs.evolve(one, target=target),)))
        learnt.saw(unpaced)
        assert bool(learnt.shared) == others, pace


@pytest.mark.usefixtures("lines")
def test_a_line_that_a_short_window_or_jitter_leaves_empty_is_not_shared() -> None:
    found = paced_line(None)
    for before in (
        queued(found, 5.0, rtt_ms=21.0),
        queued(found, 5.0, rtt_ms=24.0),
        # Jitter that keeps packets in order: all of them are as late as the latest.
        queued(found, 5.0, wander_ms=1.0),
        delivering(found, 0.25, sent_again=0),
    ):
        learnt = Learnt()
        learnt.saw(before)
        learnt.saw(queued(found, 18.0, congctl="bbr"))
        assert not learnt.shared


@pytest.mark.usefixtures("lines")
def test_a_paced_sender_is_looked_at_when_it_has_grown_from_its_last_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 20 MB/s and 100 ms cubic takes 10 s for that (RFC 9438); bbr minds no loss, a new connection had none."""
    monkeypatch.setattr(OneWay, "rtt_s", 0.1)
    slept = list[float]()
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    for congctl, spares, connects in (
        ("cubic", True, False), ("bbr", True, False), ("cubic", False, False), ("cubic", True, True),
    ):  # fmt: skip
        before = delivering(paced_line(None), 1.0, sent_again=1448, congctl=congctl)
        step = wanted.Wanted(Reason("wan", 1e8, (), ()), spares=spares)
        one = TuningStep(ASKED, Aim(Goal.THROUGHPUT), before, Learnt(), step, lambda _: None)
        one._connects = connects
        one._settle()
    assert slept == [pytest.approx(10.12, rel=0.01), 2.0, 2.0, 2.0]


@pytest.mark.parametrize(("again_bytes", "limiter", "began"), [
    (1448, "congestion-window", True), (0, "congestion-window", False), (1448, "receive-window", False),
])  # fmt: skip
def test_a_window_is_small_for_losses_only_where_something_was_lost(
    monkeypatch: pytest.MonkeyPatch, again_bytes: int, limiter: str, began: bool
) -> None:
    """It may still grow, or have stopped early by itself."""
    monkeypatch.setattr(View, "began_with_losses", _OWN["began_with_losses"])
    share = Share(limiter, 1.0, "window", lifts=("a.tunable",), ends=("target",))
    found = delivering(limited_by(paced_line(None), limiter), 0.5, 0.5, sent_again=0)
    (one,) = found.seen
    assert one.target is not None and one.target.socket is not None
    samples = tuple(attrs.evolve(sample, retransmitted_bytes=again_bytes) for sample in one.target.socket.samples)
    target = attrs.evolve(one.target, socket=attrs.evolve(one.target.socket, samples=samples))
    ways = tuple(attrs.evolve(way, shares=(share,)) for way in found.ways)
    found = attrs.evolve(found, seen=(attrs.evolve(one, target=target),), ways=ways)
    assert (found.losing == {(way.device, way.way) for way in ways}) == began
