# SPDX-License-Identifier: GPL-2.0-or-later
"""What is said of observations of known causes, kept from guests at 200 Mb/s and 20 ms (tests/unit/data)."""

import gzip
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from fabtune.model import typed
from fabtune.model.change import Change
from fabtune.model.foretell import foretell
from fabtune.model.observation import EndSeen, Observation, SocketSample, SocketSeen
from fabtune.why import judging, words
from fabtune.why.judging import Judged, every_limiter, judged
from fabtune.why.limiter import CANNOT_TELL

_RATE = 200e6 / 8
_KEPT: dict[str, object] = json.loads(
    gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes())
)


def _kept(name: str, rate: float | None = _RATE, *, one_end: bool = False) -> Observation:
    seen = typed.STRICT.read(Observation, _KEPT[name], name)
    seen = attrs.evolve(seen, rate_bytes_per_s=rate, rate_by="--rate" if rate else "")
    return attrs.evolve(seen, target=None) if one_end else seen


def over_ipv6(seen: Observation) -> Observation:
    """Return a look at the same connections over IPv6: 20 bytes less of each packet are payload."""

    def end(one: EndSeen | None) -> EndSeen | None:
        socket = one and one.socket
        if one is None or socket is None:
            return one
        places = {name: f"fd00::{getattr(socket, name)[-6:]}" for name in ("local", "remote")}
        return attrs.evolve(one, socket=attrs.evolve(socket, mss_bytes=1428, **places))

    initiator = end(seen.initiator)
    assert initiator
    return attrs.evolve(seen, initiator=initiator, target=end(seen.target))


@pytest.mark.parametrize("one_end", [False, True])
def test_over_ipv6_a_line_carries_what_its_headers_leave(one_end: bool) -> None:
    """It was said to carry 1.3 % more, of which a full one never had all."""
    seen = over_ipv6(_kept("wan-read", one_end=one_end))
    (one,) = judged(seen)
    assert one.goodput_bytes_per_s == pytest.approx(_RATE * 1428 / 1514)
    assert f" of {_RATE * 1428 / 1514 / 1e6:.1f} MB/s" in words.verdict(one)
    (told,) = foretell(over_ipv6(_kept("maxrate-read")), {Change("target", "qdisc.maxrate"): 0.0})
    assert told.first.limiter == "line" and told.bytes_per_s == pytest.approx(_RATE * 1428 / 1514)


def _first(seen: Observation) -> tuple[str, float]:
    (one,) = judged(seen)
    assert sum(share.share for share in one.shares) == pytest.approx(1)
    return one.first.limiter, one.first.share


@pytest.mark.parametrize(
    ("name", "limiter"),
    [
        ("untouched-read", "receive-window"),
        ("untouched-write", "send-buffer"),
        ("wan-read", "line"),
        ("wan-write", "line"),
        ("depth1", "load"),
        ("wan-depth1", "load"),
        ("wan-depth2w", "load"),
        ("maxrate-read", "pacing"),
        ("loss-read", "loss"),
        ("loss-write", "loss"),
        ("qdepth3", "congestion-window"),  # what the losses before it have left
    ],
)
def test_each_known_cause_is_named_from_both_ends(name: str, limiter: str) -> None:
    found, share = _first(_kept(name))
    assert found == limiter and share > 0.9


@pytest.mark.parametrize(
    ("name", "limiter"),
    [
        ("untouched-read", "receive-window"),
        ("untouched-write", "send-buffer"),
        ("wan-read", "line"),
        ("wan-write", "line"),
        ("depth1", "load"),
        ("loss-read", "loss"),
        ("loss-write", "loss"),
    ],
)
@pytest.mark.parametrize("rate", [_RATE, None])
def test_the_initiator_alone_knows_these_too(name: str, limiter: str, rate: float | None) -> None:
    found, _ = _first(_kept(name, rate, one_end=True))
    # Where nobody told the line's rate, what fills it may be others' too, and a limit to the rate may be the line's.
    untold = {"wan-read": "cannot-tell-line", "wan-write": "cannot-tell-pacing"} if rate is None else {}
    assert found == untold.get(name, limiter)


def test_what_the_initiator_cannot_tell_apart_is_said_and_holds_the_truth() -> None:
    (one,) = judged(_kept("maxrate-read", one_end=True))
    assert "pacing" in one.first.among
    assert "cannot tell" in words.verdict(one)
    assert not one.liftable


@pytest.mark.parametrize("name", ["wan-read", "wan-write"])
def test_nothing_is_advised_where_the_line_is_full(name: str) -> None:
    for one_end in (False, True):
        (one,) = judged(_kept(name, one_end=one_end))
        assert one.at_the_bound and not one.liftable
        assert "fill the line" in words.verdict(one)


def test_refusals_and_time_at_the_limit_accuse_nobody_while_the_line_is_full() -> None:
    seen = _kept("wan-read")
    disk = attrs.evolve(seen.disk, refusals={"target_busy": 10_000, "task_set_full": 500}, at_limit=1.0)
    assert _first(attrs.evolve(seen, disk=disk))[0] == "line"


def test_refusals_accuse_where_the_line_is_idle() -> None:
    seen = _kept("wan-depth2w")
    for kind, limiter in (("target_busy", "command-window"), ("task_set_full", "task-set-full")):
        disk = attrs.evolve(seen.disk, refusals={kind: 10_000})
        assert _first(attrs.evolve(seen, disk=disk))[0] == limiter


def test_time_at_the_limit_accuses_only_where_more_requests_wait() -> None:
    seen = _kept("wan-depth2w")
    way = seen.disk.ways["write"]
    assert way.total_ms is not None
    for block_ms, limiter in ((way.total_ms, "load"), (4 * way.total_ms, "queue-depth")):
        ways = {"write": attrs.evolve(way, block_ms=block_ms)}
        disk = attrs.evolve(seen.disk, ways=ways, limit=2, at_limit=1.0)
        assert _first(attrs.evolve(seen, disk=disk))[0] == limiter


def test_shares_follow_a_cause_that_comes_and_goes() -> None:
    """Three moments of ten from a window that is shut, seven from a full line: what each has is what it gets."""
    shut, full = _kept("untouched-read"), _kept("wan-read")
    assert shut.target and shut.target.socket and full.target and full.target.socket
    joined = _joined(shut.target.socket, full.target.socket, 0.3)
    target = attrs.evolve(shut.target, socket=joined)
    (one,) = judged(attrs.evolve(shut, target=target, rate_bytes_per_s=None))
    told = {share.limiter: share.share for share in one.shares}
    assert told["receive-window"] == pytest.approx(0.3, abs=0.05)


def _joined(first: SocketSeen, second: SocketSeen, share: float) -> SocketSeen:
    """Return `share` of `first`, then the rest of `second`, its counters going on where those of `first` end."""
    count = len(first.samples)
    head = first.samples[: round(share * count) + 1]
    tail = second.samples[round(share * count) + 1 :]
    return attrs.evolve(first, samples=(*head, *(_onwards(one, head[-1], tail[0]) for one in tail)))


def _onwards(one: SocketSample, end: SocketSample, start: SocketSample) -> SocketSample:
    counters = ("sent_bytes", "received_bytes", "busy_us", "rwnd_limited_us", "sndbuf_limited_us")
    return attrs.evolve(
        one, **{name: getattr(one, name) - getattr(start, name) + getattr(end, name) for name in counters}
    )


def test_an_idle_disk_has_no_shares_and_says_what_to_do() -> None:
    seen = _kept("wan-read")
    ways = {name: attrs.evolve(way, completed=0, moved_bytes=0) for name, way in seen.disk.ways.items()}
    still = attrs.evolve(seen, disk=attrs.evolve(seen.disk, ways=ways, samples=()))
    assert judged(still) == []
    assert "idle" in words.idle(still)
    failed = attrs.evolve(still, session=attrs.evolve(seen.session, state="FAILED"))
    assert "FAILED" in words.idle(failed)


@pytest.mark.parametrize("one_end", [False, True])
def test_requests_that_wait_while_nothing_moves_are_a_blocked_session(one_end: bool) -> None:
    seen = _kept("wan-read", one_end=one_end)
    ways = {name: attrs.evolve(way, completed=0, moved_bytes=0) for name, way in seen.disk.ways.items()}
    assert all(one.in_flight for one in seen.disk.samples)
    # A command is under way at the initiator's end, or data at the target's.
    ends = [one and _unacknowledged(one) for one in (seen.initiator, seen.target)]
    assert ends[0]
    stuck = attrs.evolve(seen, disk=attrs.evolve(seen.disk, ways=ways), initiator=ends[0], target=ends[1])
    assert _first(stuck) == ("blocked-session", 1.0)


def _unacknowledged(end: EndSeen) -> EndSeen:
    assert end.socket
    first = attrs.evolve(end.socket.samples[0], in_flight_bytes=48)
    samples = tuple(attrs.evolve(first, at_s=one.at_s) for one in end.socket.samples)
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=samples))


def test_full_packets_that_vanish_while_small_ones_come_back_are_told_from_a_path_that_is_down() -> None:
    seen = _kept("wan-write")
    assert seen.initiator.socket
    samples = tuple(
        attrs.evolve(
            one, sent_bytes=0, in_flight_bytes=14480, retransmitted_bytes=place * 1448, received_bytes=place * 48
        )
        for place, one in enumerate(seen.initiator.socket.samples)
    )
    initiator = attrs.evolve(seen.initiator, socket=attrs.evolve(seen.initiator.socket, samples=samples))
    assert _first(attrs.evolve(seen, initiator=initiator))[0] == "mtu-black-hole"
    deaf = tuple(attrs.evolve(one, received_bytes=0) for one in samples)
    initiator = attrs.evolve(seen.initiator, socket=attrs.evolve(seen.initiator.socket, samples=deaf))
    assert _first(attrs.evolve(seen, initiator=initiator))[0] == "blocked-session"


def test_what_was_heard_before_a_path_was_cut_makes_it_no_black_hole() -> None:
    seen = _kept("wan-write")
    assert seen.initiator.socket
    before = seen.initiator.socket.samples
    cut = len(before) // 10
    # As a path that is cut after a tenth of the look has it: the same data is sent again and nothing comes back.
    silent = (attrs.evolve(before[cut], at_s=one.at_s, in_flight_bytes=14480) for one in before[cut + 1 :])
    again = (attrs.evolve(one, retransmitted_bytes=place * 1448) for place, one in enumerate(silent, 1))
    samples = (*before[:cut], attrs.evolve(before[cut], in_flight_bytes=14480, retransmitted_bytes=0), *again)
    initiator = attrs.evolve(seen.initiator, socket=attrs.evolve(seen.initiator.socket, samples=samples))
    assert _first(attrs.evolve(seen, initiator=initiator))[0] == "blocked-session"


def test_a_connection_that_was_not_seen_leaves_all_of_the_time_untold() -> None:
    seen = _kept("untouched-read")
    (one,) = judged(attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, socket=None), target=None))
    assert [(share.limiter, share.share) for share in one.shares] == [(CANNOT_TELL, 1.0)]
    assert "cannot tell" in words.verdict(one)


def test_the_verdict_names_the_limiter_its_end_and_its_share() -> None:
    def said(name: str) -> str:
        (one,) = judged(_kept(name))
        return words.verdict(one)

    assert "Reads of sda are limited to 12.0 MB/s by the initiator's locked receive window (100 %" in said(
        "untouched-read"
    )
    assert "by the initiator's locked send buffer" in said("untouched-write")


def test_every_limiter_can_be_told_from_the_others() -> None:
    names = {one.name for one in every_limiter()}
    for one in every_limiter():
        assert set(one.among) <= names, one.name
    places = [(one.stage, one.order) for one in every_limiter()]
    assert len(places) == len(set(places))


def test_a_direction_that_hardly_moves_anything_is_passed_over() -> None:
    seen = _kept("wan-read")
    few = attrs.evolve(seen.disk.ways["read"], completed=1, moved_bytes=4096)
    told: list[Judged] = judging.judged(
        attrs.evolve(seen, disk=attrs.evolve(seen.disk, ways={**seen.disk.ways, "write": few}))
    )
    assert [one.way for one in told] == ["read"]


def test_one_path_of_several_that_carries_all_is_told() -> None:
    seen = _kept("wan-read")
    one = attrs.evolve(seen, session=attrs.evolve(seen.session, multipath="dm-0"))
    still = {name: attrs.evolve(way, completed=0, moved_bytes=0) for name, way in seen.disk.ways.items()}
    other = attrs.evolve(one, device="sdb", disk=attrs.evolve(one.disk, ways=still))
    (told,) = words.lone_paths([one, other])
    assert "(sda, sdb) only sda" in told
    assert words.lone_paths([one, attrs.evolve(one, device="sdb")]) == [] == words.lone_paths([one])


def test_a_block_queue_whose_requests_are_used_up_is_accused_whoever_else_takes_more() -> None:
    seen = _kept("wan-depth2w")
    for tags, limiter in (("2", "nr-requests"), ("64", "load")):
        disk = attrs.evolve(seen.disk, queue={**seen.disk.queue, "nr_requests": tags})
        assert _first(attrs.evolve(seen, disk=disk))[0] == limiter


@pytest.mark.parametrize("name", sorted(_KEPT))
@pytest.mark.parametrize("one_end", [False, True])
def test_the_parts_of_a_request_s_time_sum_to_the_whole(name: str, one_end: bool) -> None:
    seen = _kept(name, one_end=one_end)
    (one,) = judged(seen)
    way = seen.disk.ways[one.way]
    assert sum(part.ms for part in one.request) == pytest.approx(way.block_ms or way.total_ms)
    assert all(part.ms >= 0 for part in one.request[:-1])
    if name == "untouched-read" and not one_end:
        told = {part.name: part.ms for part in one.request}
        # 32 requests through a window of 256 KiB: nearly all of the time is spent behind the others in the socket.
        assert told["path"] == pytest.approx(20, abs=0.1) and told["socket"] > 200


def test_the_verdict_ends_with_what_lifting_would_bring() -> None:
    seen = _kept("untouched-read")
    (after,) = foretell(
        seen, {Change("initiator", "iscsi.tcp_window"): 0.0, Change("initiator", "iscsi.queue_depth"): 128.0}
    )
    assert words.gain(after).startswith("; lifting it would give ")
    open_ = attrs.evolve(after, bytes_per_s=None, in_step_bytes_per_s=None, low=after.now_bytes_per_s)
    assert words.gain(open_) == words.gain(None) == ""


def test_from_one_end_the_verdict_ends_with_what_lifting_would_bring_at_most() -> None:
    change = {Change("initiator", "iscsi.tcp_window"): 0.0}
    ends = [words.gain(*foretell(_kept("untouched-read", one_end=one), change)) for one in (False, True)]
    assert ends[0].startswith("; lifting it would give about 23.9 MB/s")
    assert ends[1].startswith("; lifting it would give up to 23.9 MB/s")


def test_what_settings_lift_is_named_before_a_longer_share_of_the_load() -> None:
    seen = _kept("wan-depth2w")
    # One round trip for R2Ts of two and some: half of the time, and the load has the larger half.
    slow = {**seen.session.negotiated, "InitialR2T": "Yes", "ImmediateData": "No", "MaxBurstLength": "262144"}
    ways = {"write": attrs.evolve(seen.disk.ways["write"], device_ms=44.0, total_ms=44.0, block_ms=44.0)}
    seen = attrs.evolve(
        seen, session=attrs.evolve(seen.session, negotiated=slow), disk=attrs.evolve(seen.disk, ways=ways)
    )
    (one,) = judged(seen)
    assert [share.limiter for share in one.shares[:2]] == ["r2t", "load"]
    assert one.shares[0].share < one.shares[1].share


def test_others_that_fill_the_line_through_the_same_nic_are_told_from_one_end() -> None:
    seen = _kept("untouched-read", one_end=True)
    assert seen.initiator.nic and seen.initiator.socket
    for others, limiter in ((0, "receive-window"), (11_000_000, "competing-traffic")):
        moved = seen.initiator.socket.grown("received_bytes") + others * seen.initiator.socket.elapsed_s
        nic = attrs.evolve(seen.initiator.nic, counters={"rx_bytes": round(1.05 * moved)})
        # A window that is larger than what comes each round trip.
        samples = tuple(
            attrs.evolve(one, receive_window_bytes=262_140 if not others else 1 << 20)
            for one in seen.initiator.socket.samples
        )
        socket = attrs.evolve(seen.initiator.socket, samples=samples)
        assert _first(attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, nic=nic, socket=socket)))[0] == limiter


@pytest.mark.parametrize("name", ["wan-read", "depth1"])
@pytest.mark.parametrize("stalled", [False, True])
def test_a_look_of_an_hour_is_judged_in_a_moment(name: str, *, stalled: bool) -> None:
    """A thousand samples, the most that a look takes: to judge them once took seven seconds."""
    seen = _kept(name)
    assert seen.target and seen.target.socket
    samples = tuple(_repeated(seen.target.socket.samples, 1000))
    if stalled:
        samples = tuple(attrs.evolve(one, sent_bytes=0, received_bytes=0, in_flight_bytes=14480) for one in samples)
    target = attrs.evolve(seen.target, socket=attrs.evolve(seen.target.socket, samples=samples))
    begun_s = time.process_time()
    (one,) = judged(attrs.evolve(seen, target=target, initiator=attrs.evolve(seen.initiator, socket=None)))
    assert time.process_time() - begun_s < 1
    assert (one.first.limiter == "blocked-session") == stalled


def _repeated(samples: Sequence[SocketSample], count: int) -> Iterator[SocketSample]:
    whole_s = samples[-1].at_s + samples[1].at_s
    start, end = samples[0], samples[-1]
    counters = ("sent_bytes", "received_bytes", "busy_us")
    for turn, one in ((i // len(samples), samples[i % len(samples)]) for i in range(count)):
        more = {name: getattr(one, name) + turn * (getattr(end, name) - getattr(start, name)) for name in counters}
        yield attrs.evolve(one, at_s=one.at_s + turn * whole_s, **more)
