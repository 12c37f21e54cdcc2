# SPDX-License-Identifier: GPL-2.0-or-later
"""A receive window is blamed for what it explains alone: not for a full line, nor for data that nobody fetches."""

import gzip
import json
from pathlib import Path

import attrs
import pytest

from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.view import View
from fabtune.autotune.wanted import wanted_steps
from fabtune.model import typed
from fabtune.model.observation import EndSeen, Observation, SocketSample
from fabtune.tune import lift
from fabtune.why import words
from fabtune.why.judging import judged
from fabtune.why.limiters.windows import WINDOW
from fabtune.why.summing_up import with_rate

_KEPT = json.loads(gzip.decompress((Path(__file__).parent / "data/observations-100mbit.json.gz").read_bytes()))
# What the line of the kept looks carries of payload.
_GOODPUT = 11.96e6


def _kept(name: str, rate_bit_per_s: float | None = None) -> Observation:
    """Return what the initiator alone saw."""
    seen = typed.STRICT.read(Observation, _KEPT[name], name)
    rate = None if rate_bit_per_s is None else rate_bit_per_s / 8
    return attrs.evolve(seen, target=None, rate_bytes_per_s=rate, rate_by="--rate" if rate else "")


def _with(end: EndSeen, samples: list[SocketSample]) -> EndSeen:
    assert end.socket
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=tuple(samples)))


def _filled(of_bdp: float, rate_bit_per_s: float | None, rtt_ms: float = 20.0) -> Observation:
    """Return reads that fill their line through a window of so many BDP: what is more than one stands in its queue."""
    seen = _kept("line-unpaced-read", rate_bit_per_s)
    assert seen.initiator.socket
    window = round(of_bdp * _GOODPUT * rtt_ms / 1e3)
    samples = [
        attrs.evolve(one, receive_window_bytes=window, rtt_ms=of_bdp * rtt_ms, min_rtt_ms=rtt_ms)
        for one in seen.initiator.socket.samples
    ]
    return attrs.evolve(seen, initiator=_with(seen.initiator, samples))


@pytest.mark.parametrize("of_bdp", [1.0, 1.02, 1.1, 1.2, 1.24])
@pytest.mark.parametrize("rate_bit_per_s", [100e6, 106e6])
def test_a_window_as_large_as_the_line_fills_is_not_blamed_for_it(of_bdp: float, rate_bit_per_s: float) -> None:
    """The window was named for all of the time, and a larger one advised at 94 % of the line."""
    (one,) = judged(_filled(of_bdp, rate_bit_per_s))
    assert one.at_the_bound and not one.liftable
    assert [(share.limiter, share.share) for share in one.shares] == [("line", 1.0)]


@pytest.mark.parametrize("of_bdp", [1.06, 1.1, 1.2, 1.24])
def test_a_full_window_and_a_full_line_are_not_told_apart_where_what_is_under_way_waits(of_bdp: float) -> None:
    (one,) = judged(_filled(of_bdp, None))
    assert one.first.limiter == "cannot-tell-window" and set(one.first.among) == {"receive-window", "line"}
    assert not lift.is_named(one) and not one.liftable
    said = words.verdict(one)
    assert "cannot tell" in said and "receive window" in said and "give --rate to tell" in said
    assert {"receive buffer", "round trip"} <= {shown.counter for shown in one.first.evidence}


def test_a_window_that_comes_full_in_half_of_the_moments_of_a_full_line_is_not_blamed_for_these() -> None:
    (one,) = judged(_filled(1.25, None))
    assert not lift.is_named(one) and not one.liftable
    assert all("line" in share.among for share in one.shares)


def test_a_queue_on_a_long_path_is_a_full_line_before_it_is_a_window() -> None:
    (one,) = judged(_filled(1.2, None, rtt_ms=100.0))
    assert one.line_is_full and one.first.limiter == "cannot-tell-line"


def test_a_window_whose_data_comes_in_bursts_is_blamed_as_ever() -> None:
    """Half of the line is idle, and each request finds a burst of data in its way."""
    (one,) = judged(_kept("initiator-rmem-read"))
    assert one.first.limiter == "receive-window" and one.first.share > 0.95 and one.liftable


def test_tuning_tries_a_larger_window_where_that_or_the_line_limits() -> None:
    """Whether it is better is measured; nothing else is tried against it."""
    seen = _filled(1.2, None)
    found = View((seen,), tuple(judged(seen)), (12e6,) * 8)
    shares = [share for step in wanted_steps(found, Aim(Goal.THROUGHPUT), Learnt()) for share in step.reason.shares]
    assert [(one.limiter, one.lifts, one.ends) for one in shares] == [
        ("cannot-tell-window", WINDOW.lifts, ("initiator",))
    ]
    assert found.held_for(0.5)
    tried = Learnt({"cannot-tell-window"})
    assert not list(wanted_steps(found, Aim(Goal.THROUGHPUT), tried))


def _unfetched(rtt_ms: float, *, near: bool) -> Observation:
    """Return writes to a target that fetches 6.6 MB/s: it offered 3 MB at first, and then what it has room for."""
    seen = _kept("target-rmem-write")
    assert seen.initiator.socket and seen.initiator.nic
    samples = [
        attrs.evolve(
            one, send_window_bytes=3_000_000 if place == 0 else (0, 20_000, 60_000)[place % 3],
            in_flight_bytes=15_000 if place % 3 else 0, rtt_ms=1.5 * rtt_ms, min_rtt_ms=rtt_ms,
        )
        for place, one in enumerate(seen.initiator.socket.samples)
    ]  # fmt: skip
    nic = attrs.evolve(seen.initiator.nic, speed_bytes_per_s=10e9 / 8)
    seen = with_rate(attrs.evolve(seen, initiator=attrs.evolve(_with(seen.initiator, samples), nic=nic)), None)
    assert (seen.rate_by == "of the NIC") == near
    return seen


@pytest.mark.parametrize(("rtt_ms", "near"), [(0.2, True), (5.0, False)])
def test_a_window_that_a_target_does_not_fetch_from_is_not_said_to_be_too_small(rtt_ms: float, near: bool) -> None:
    """A target whose disk took no more was told to raise rmem: what passes in a round trip was 1.3 KiB."""
    (one,) = judged(_unfetched(rtt_ms, near=near))
    assert one.first.limiter == "cannot-tell-unfetched" and one.first.share > 0.95
    assert set(one.first.among) == {"receive-window", "slow-receiver", "target-disk", "target-cpu"}
    assert not lift.is_named(one) and not one.liftable
    assert "cannot tell" in words.verdict(one) and "the target" in words.verdict(one)
    assert "what the largest window carries" in {shown.counter for shown in one.first.evidence}


def test_a_window_that_nobody_tells_is_not_said_to_be_too_small() -> None:
    """The kernel's tcp_info of the sender has no window of the other end."""
    seen = _kept("target-rmem-write")
    assert seen.initiator.socket
    samples = [attrs.evolve(one, send_window_bytes=None) for one in seen.initiator.socket.samples]
    (one,) = judged(attrs.evolve(seen, initiator=_with(seen.initiator, samples)))
    assert one.first.limiter == "cannot-tell-unfetched"


@pytest.mark.parametrize("rate_bit_per_s", [100e6, None])
@pytest.mark.parametrize("rtt_ms", [5.0, 20.0])
def test_a_window_that_explains_what_passes_is_named_from_the_sender_alone(
    rtt_ms: float, rate_bit_per_s: float | None
) -> None:
    """It is used again some packets at a time: on a short path that is less than itself in each round trip."""
    seen = _kept("target-rmem-write", rate_bit_per_s)
    assert seen.initiator.socket
    window = round((rtt_ms / 1e3 + 0.0022) * 6.7e6)
    samples = [
        attrs.evolve(one, send_window_bytes=window, min_rtt_ms=rtt_ms, rtt_ms=rtt_ms + 2.2)
        for one in seen.initiator.socket.samples
    ]
    (one,) = judged(attrs.evolve(seen, initiator=_with(seen.initiator, samples)))
    assert one.first.limiter == "receive-window" and one.first.share > 0.95


def test_tuning_holds_a_shut_window_for_one_that_is_full() -> None:
    """Its best moments are the target's, whichever of it they are, and no line's."""
    seen = _unfetched(5.0, near=False)
    found = View((seen,), tuple(judged(seen)), (6.6e6,) * 8)
    assert found.held_for(0.5)
