# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune: a pace where a load has nearly all of its line, which its own losses show."""

from collections.abc import Callable

import attrs
import pytest
from test_shown_line import delivering, lines, wanted_of  # noqa: F401
from tuned_looks import ASKED, Make, climber, limited_by, no_path, nobody, paced_line, seen, uneven  # noqa: F401

from fabtune.autotune import first_look as looking
from fabtune.autotune.climb import climb
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import KnownLine, Learnt
from fabtune.autotune.view import View
from fabtune.autotune.wanted import wanted_steps
from fabtune.model.observation import SocketSample
from fabtune.why.judging import Judged, Share
from fabtune.why.one_way import OneWay


def losing() -> View:
    found = limited_by(paced_line(None), "loss")
    share = Share("loss", 1.0, "loss", lifts=("route.congctl",), ends=("target",))
    return attrs.evolve(found, ways=tuple(attrs.evolve(one, shares=(share,)) for one in found.ways))


@pytest.mark.parametrize(
    ("shares_of_20_mb", "sampled", "first"),
    [
        # A sawtooth of some percent, the peaks of which single round trips confirm.
        ((0.9, 1.0), 1.0, "queue-overflow"),
        # Single round trips are faster: what arrived at best is an average, and no rate to pace to.
        ((0.9, 1.0), 1.06, "loss"),
        # Far from the line at times: losses of the path's own are as likely.
        ((0.5, 1.0), 1.0, "loss"),
    ],
)
@pytest.mark.usefixtures("lines")
def test_what_loses_and_has_nearly_all_of_a_line_is_paced_before_its_connections_are_made_anew(
    monkeypatch: pytest.MonkeyPatch, shares_of_20_mb: tuple[float, ...], sampled: float, first: str
) -> None:
    for name, own in _OWN.items():
        monkeypatch.setattr(View, name, own)
    found = wanted_of(delivering(losing(), *shares_of_20_mb, sent_again=1448, sampled=sampled))
    assert found[0].reason.shares[0].limiter == first


_FLOODS = View.__dict__["floods"]
_OWN = {name: View.__dict__[name] for name in ("nearly_full", "overfills")}


@pytest.mark.parametrize(("rtt_s", "congctl", "first"), [
    (0.003, "cubic", "loss"), (0.05, "cubic", "queue-overflow"), (0.003, "bbr", "queue-overflow"),
])  # fmt: skip
@pytest.mark.usefixtures("lines")
def test_what_goes_up_and_down_within_a_moment_shows_an_average_and_no_line(
    monkeypatch: pytest.MonkeyPatch, rtt_s: float, congctl: str, first: str
) -> None:
    """A line of 644 Mb/s and 3 ms with a queue of five packets was paced to 0.7 of it, and called full."""
    monkeypatch.setattr(OneWay, "rtt_s", rtt_s)
    monkeypatch.setattr(View, "filled_bit_per_s", 160e6)
    full = limited_by(paced_line(None), "line")
    found = wanted_of(delivering(full, 0.9, 1.05, sent_again=1448, congctl=congctl))
    assert found[0].reason.shares[0].limiter == first
    assert {one.reason.shares[0].limiter for one in found} >= {"loss", "queue-overflow"}


def buffered() -> View:
    found = limited_by(paced_line(None), "send-buffer")
    share = Share("send-buffer", 1.0, "its buffer", lifts=("tcp.wmem_max",), ends=("target",))
    return attrs.evolve(found, ways=tuple(attrs.evolve(one, shares=(share,)) for one in found.ways))


@pytest.mark.parametrize(
    ("sent_again", "congctl", "first"),
    [(500_000, "bbr", "queue-overflow"), (50_000, "bbr", "send-buffer"), (500_000, "cubic", "send-buffer")],
)
@pytest.mark.usefixtures("lines")
def test_what_probes_and_sends_much_again_is_paced_whatever_limits_it(
    monkeypatch: pytest.MonkeyPatch, sent_again: int, congctl: str, first: str
) -> None:
    """BBR on a queue of a fifth of the BDP sent 16 % again at 0.57 of its line, "for its buffer", and was left so."""
    monkeypatch.setattr(View, "floods", _FLOODS)
    given = wanted_of(delivering(buffered(), 1.0, sent_again=sent_again, congctl=congctl, sampled=1.7))
    assert given[0].reason.shares[0].limiter == first
    paced = [one for one in given if one.reason.shares[0].limiter == "queue-overflow"]
    # Single round trips show more than what is left of the line on average.
    assert all((one.reason.rate_bit_per_s or 0.0) > 1.5 * 160e6 for one in paced)


@pytest.mark.parametrize(
    ("sampled", "in_vain", "line_mbit"),
    # Single round trips are a little above what a line carries: that is no other rate.
    [(1.06, False, 1.06), (1.02, False, 1.0), (1.06, True, 1.0)],
)
@pytest.mark.usefixtures("lines")
def test_the_pace_of_a_flood_is_what_single_round_trips_show(
    monkeypatch: pytest.MonkeyPatch, sampled: float, in_vain: bool, line_mbit: float
) -> None:
    """A line of 501 Mb/s was paced to 0.92 of it, the average of what BBR left."""
    monkeypatch.setattr(View, "floods", _FLOODS)
    found = delivering(buffered(), 1.0, sent_again=500_000, congctl="bbr", sampled=sampled)
    learnt = Learnt(lines={found.main.way: KnownLine(glimpsed_in_vain=in_vain)})
    learnt.saw(found)
    step = next(iter(wanted_steps(found, Aim(Goal.THROUGHPUT), learnt)))
    assert step.reason.rate_bit_per_s == pytest.approx(line_mbit * learnt.line_bit_per_s, rel=0.005)


@pytest.mark.usefixtures("lines")
def test_what_does_not_flood_beside_a_flood_is_not_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trickle of writes was paced at the other end to what the reads had of their line."""
    monkeypatch.setattr(View, "floods", _FLOODS)
    found = delivering(buffered(), 1.0, sent_again=500_000, congctl="bbr")
    (read,) = found.ways
    share = Share("receive-window", 1.0, "window", lifts=("tcp.rmem_max",), ends=("target",))
    found = attrs.evolve(found, ways=(read, Judged(read.device, "write", 0.1e6, True, None, (share,))))
    first = wanted_of(found)[0].reason
    assert [(one.limiter, one.ends) for one in first.shares] == [("queue-overflow", ("target",))]


@pytest.mark.usefixtures("lines")
def test_of_several_connections_it_is_not_known_which_one_floods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "floods", _FLOODS)
    found = delivering(buffered(), 1.0, sent_again=500_000, congctl="bbr")
    shown = found.shown
    assert found.floods and shown is not None
    for other in (attrs.evolve(shown, senders=2), attrs.evolve(shown, sent_again=False)):
        monkeypatch.setattr(View, "shown", other)
        assert not found.floods


def paced_first(monkeypatch: pytest.MonkeyPatch, bit_per_s: float) -> None:
    """Let a queue of its own overflow wherever losses limit."""
    monkeypatch.setattr(
        View, "overflowing_bit_per_s", property(lambda self: bit_per_s if self.main.first.limiter == "loss" else None)
    )


def test_a_pace_whose_effect_cannot_be_told_yet_is_looked_at_for_longer(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paced_first(monkeypatch, 100e6)
    # Of views without observations that is all there is to put together.
    monkeypatch.setattr(View, "behind", lambda self, _: self)
    looks: list[View | BaseException] = [seen(10, "loss"), uneven(13), seen(13, "line", lifts=())]
    others: list[View | BaseException] = [seen(10, "receive-window"), uneven(11)]
    hopes: list[View | BaseException] = [seen(10, "receive-window"), uneven(13), seen(13, "line", lifts=())]
    made = climber(looks)
    found = climb(attrs.evolve(ASKED, most_steps=1), nobody)
    assert [one.kept for one in found.steps] == [True] and len(made.looks_s) == 3
    # So is another step that seems to bring something, of which chance may be all.
    hopeful = climber(hopes)
    assert [one.kept for one in climb(attrs.evolve(ASKED, most_steps=1), nobody).steps] == [True]
    assert len(hopeful.looks_s) == 3
    # One is not that brought no more, on average, than chance does: the next one may tell more.
    made = climber(others)
    found = climb(attrs.evolve(ASKED, most_steps=1), nobody)
    assert [one.kept for one in found.steps] == [False] and len(made.looks_s) == 2


@pytest.mark.parametrize(("limiter", "looks"), [("loss", 3), ("receive-window", 2)])
def test_what_losses_hold_is_looked_at_twice_before_the_first_step(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
    limiter: str,
    looks: int,
) -> None:
    """A gain of a fifth was lost in ten seconds of a sawtooth."""
    monkeypatch.setattr(View, "sawtooth", property(lambda self: self.main.first.limiter == "loss"))
    monkeypatch.setattr(looking, "other_disks", lambda *_: None)
    monkeypatch.setattr(View, "behind", lambda self, _: self)
    before: list[View | BaseException] = [seen(10, limiter) for _ in range(looks - 1)]
    made = climber([*before, seen(20, "line", lifts=())])
    assert climb(ASKED, nobody).steps[0].kept and len(made.looks_s) == looks


def test_a_pace_that_did_not_help_is_tried_again_once_another_step_has(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paced_first(monkeypatch, 100e6)
    climber([seen(10, "loss"), seen(10, "loss"), seen(20, "loss"), seen(22, "line", lifts=())])
    steps = [(one.limiters, one.kept) for one in climb(ASKED, nobody).steps]
    assert steps == [(("queue-overflow",), False), (("loss",), True), (("queue-overflow",), True)]


@pytest.mark.parametrize(("held", "first"), [(0.0, "queue-overflow"), (0.033, "loss")])
@pytest.mark.usefixtures("lines")
def test_what_its_own_buffer_holds_now_and_then_shows_no_line(
    monkeypatch: pytest.MonkeyPatch, held: float, first: str
) -> None:
    """A load of 111 Mb/s that its buffer held at 74 between its losses was paced to that, and called full."""
    for name, own in _OWN.items():
        monkeypatch.setattr(View, name, own)
    found = delivering(losing(), 0.9, 1.0, sent_again=1448)
    (way,) = found.ways
    buffered = Share("send-buffer", held, "buffer", lifts=("tcp.wmem_max",), ends=("target",))
    ways = (attrs.evolve(way, shares=(attrs.evolve(way.first, share=1 - held), buffered)),)
    assert wanted_of(attrs.evolve(found, ways=ways))[0].reason.shares[0].limiter == first


def with_samples(found: View, **changes: Callable[[int, SocketSample], float]) -> View:
    """Return `found` with other figures of its sender, by the number of the sample and what it had."""
    (one,) = found.seen
    assert one.target is not None and one.target.socket is not None
    samples = [
        attrs.evolve(sample, **{name: of(turn, sample) for name, of in changes.items()})
        for turn, sample in enumerate(one.target.socket.samples)
    ]
    socket = attrs.evolve(one.target.socket, samples=tuple(samples))
    return attrs.evolve(found, seen=(attrs.evolve(one, target=attrs.evolve(one.target, socket=socket)),))


@pytest.mark.parametrize(
    ("shares_of_20_mb", "jitter", "rtt_s", "steps"),
    [
        # Round trips vary too much for single ones to tell anything: nearly all is there, whatever they show.
        ((0.97, 1.0), 0.3, 0.05, ["queue-overflow"]),
        # An average of a sawtooth wanders more, ...
        ((0.95, 1.05), 0.3, 0.05, ["loss", "queue-overflow"]),
        ((0.97, 1.0), 0.05, 0.003, ["loss", "queue-overflow"]),
        ((0.998, 1.0), 0.05, 0.003, ["queue-overflow"]),
        # ... and where round trips are alike single ones are believed.
        ((0.998, 1.0), 0.05, 0.05, ["loss", "queue-overflow"]),
    ],
)
@pytest.mark.usefixtures("lines")
def test_what_has_all_of_its_line_but_for_jitter_is_not_connected_anew(
    monkeypatch: pytest.MonkeyPatch, shares_of_20_mb: tuple[float, ...], jitter: float, rtt_s: float, steps: list[str]
) -> None:
    """A line of 267 Mb/s and 0.5 ms was 0.998 full, and got bbr for 25 s, with 0.87 of that."""
    monkeypatch.setattr(OneWay, "rtt_s", rtt_s)
    lossy = delivering(losing(), *shares_of_20_mb, sent_again=1448, sampled=1.12)
    found = wanted_of(with_samples(lossy, rtt_deviation_ms=lambda _, one: jitter * one.rtt_ms))
    assert [one.reason.shares[0].limiter for one in found] == steps


@pytest.mark.parametrize(("segments_again", "paced"), [(1, False), (20, True)])
@pytest.mark.usefixtures("lines")
def test_what_probes_is_paced_where_it_sends_much_again(segments_again: int, paced: bool) -> None:
    """Under a path's own few losses bbr keeps to its line by itself: a pace took 20 s and more to change nothing."""
    probing = delivering(losing(), 0.9, 1.0, sent_again=0, congctl="bbr")
    found = with_samples(probing, retransmitted_bytes=lambda turn, _: 1448 * segments_again * (turn > 0))
    assert found.shown is not None and (found.shown.lost >= 0.0003) == paced
    assert ("queue-overflow" in [step.reason.shares[0].limiter for step in wanted_of(found, "loss")]) == paced


@pytest.mark.parametrize(
    ("sent_again", "tried", "brings"), [(14480, (), True), (0, (), False), (14480, ("loss",), False)]
)
@pytest.mark.usefixtures("lines")
def test_a_larger_window_comes_with_what_minds_no_losses_where_cubic_would_have_no_use_for_it(
    sent_again: int, tried: tuple[str, ...], brings: bool
) -> None:
    """A window of 5 MB/s hid losses that left cubic 2.7: the wider one went back, 27 s later."""
    share = Share("receive-window", 1.0, "window", lifts=("tcp.rmem_max",), ends=("initiator",))
    limited = limited_by(paced_line(None), "receive-window")
    held = attrs.evolve(limited, ways=tuple(attrs.evolve(one, shares=(share,)) for one in limited.ways))
    (first, *_) = wanted_of(delivering(held, 0.5, 0.5, sent_again=sent_again), *tried)
    assert first.reason.shares[0].limiter == "receive-window"
    assert ("route.congctl" in first.whole.tunables) == brings
    assert "route.congctl" not in first.reason.tunables
    assert (first.reason.profile == "wan-lossy") == brings
