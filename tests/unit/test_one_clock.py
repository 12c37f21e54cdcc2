# SPDX-License-Identifier: GPL-2.0-or-later
"""The target's end as another host saw it, that began its look later: both are matched by what has passed."""

import gzip
import json
from pathlib import Path

import attrs
import pytest

from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.measure import look
from fabtune.measure.connection_group import end_place
from fabtune.measure.looked import Looked
from fabtune.model import typed
from fabtune.model.observation import BackstoreSeen, EndSeen, Observation, SocketSample, WaySeen
from fabtune.model.one_clock import on_one_clock
from fabtune.why.in_common import members_of
from fabtune.why.judging import judged
from fabtune.why.same_time import at_the_same_time

_KEPT = json.loads(gzip.decompress((Path(__file__).parent / "data/observations-100mbit.json.gz").read_bytes()))
_COUNTERS = ("sent_bytes", "received_bytes", "busy_us", "rwnd_limited_us", "sndbuf_limited_us", "retransmitted_bytes")
_SHALLOW = 0.3


def _kept(name: str) -> Observation:
    seen = typed.STRICT.read(Observation, _KEPT[name], name)
    return attrs.evolve(seen, rate_bytes_per_s=100e6 / 8, rate_by="--rate")


def _with(end: EndSeen | None, samples: list[SocketSample]) -> EndSeen:
    assert end and end.socket
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=tuple(samples)))


def _joined(first: EndSeen | None, second: EndSeen | None) -> EndSeen:
    assert first and first.socket and second and second.socket
    cut = round((1 - _SHALLOW) * len(first.socket.samples))
    head, tail, start = first.socket.samples[: cut + 1], second.socket.samples[cut + 1 :], second.socket.samples[cut]
    grown = [
        attrs.evolve(one, **{name: getattr(one, name) - getattr(start, name) + getattr(head[-1], name)
                             for name in _COUNTERS})
        for one in tail
    ]  # fmt: skip
    return _with(first, [*head, *grown])


def _shallow_at_last() -> Observation:
    """Return reads whose queue depth is not at all in the way at first, when the line is full, and 2 later."""
    small, line = _kept("queue-depth-read"), _kept("line-unpaced-read")
    count = round((1 - _SHALLOW) * len(small.disk.samples))
    samples = tuple(
        attrs.evolve(one, in_flight=2 if i > count else 32, limit=2 if i > count else 113, nr_requests=128)
        for i, one in enumerate(small.disk.samples)
    )
    shallow, full = small.disk.ways["read"], line.disk.ways["read"]
    moved = round(_SHALLOW * shallow.moved_bytes + (1 - _SHALLOW) * full.moved_bytes)
    way = attrs.evolve(
        shallow, moved_bytes=moved, completed=round(moved / shallow.request_bytes), device_ms=90.0, total_ms=90.0,
        block_ms=160.0,
    )  # fmt: skip
    disk = attrs.evolve(small.disk, ways={"read": way}, samples=samples, limit=113, at_limit=_SHALLOW, mean_depth=20.0)
    ends = {end: _joined(getattr(line, end), getattr(small, end)) for end in ("initiator", "target")}
    return attrs.evolve(small, disk=disk, **ends)


def _later(seen: Observation, by: int) -> Observation:
    """Return `seen` as its target tells it whose look began `by` samples later, timed from its own beginning."""
    assert seen.target and seen.target.socket
    begun_s = seen.target.socket.samples[by].at_s
    samples = [attrs.evolve(one, at_s=one.at_s - begun_s) for one in seen.target.socket.samples[by:]]
    # The NIC's counters are of the whole look, that the target had none of.
    return attrs.evolve(seen, target=attrs.evolve(_with(seen.target, samples), nic=None))


@pytest.mark.parametrize("by", [1, 3, 5])
def test_a_target_that_began_to_look_later_is_matched_in_time(by: int) -> None:
    told, apart = _shallow_at_last(), _later(_shallow_at_last(), by)
    (aligned,) = judged(on_one_clock(apart))
    shares = {one.limiter: one.share for one in aligned.shares}
    # What the target did not see at the beginning is not in the shares.
    count = len(told.disk.samples)
    assert shares["queue-depth"] == pytest.approx(_SHALLOW * count / (count - by), abs=0.08)
    assert shares.get("load", 0.0) + shares.get("cannot-tell", 0.0) < 0.02
    on_one = on_one_clock(apart).target
    assert on_one and on_one.socket and told.target and told.target.socket
    assert on_one.socket.samples[0].at_s == pytest.approx(told.target.socket.samples[by].at_s, abs=0.03)


def test_a_look_at_another_host_matches_its_samples_with_this_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _later(_shallow_at_last(), 3)
    mine = TcpSocket("10.0.0.1", "10.0.0.2", 40000, 3260, 20.0, 20.0, 0, 10, 1448, 0, "cubic", 1 << 18, 1 << 18)
    there = end_place(mine, far=True), end_place(mine)
    one = object.__new__(look.Look)
    assert seen.target
    one._missing, one._theirs, one._host, one._afar = [], {}, "target", {there: seen.target}
    monkeypatch.setattr(look.Look, "_session", lambda *_: seen.session)
    session = Session(1, "iqn", "10.0.0.2", "default", "LOGGED_IN", "10.0.0.2", 3260, 40000, ("sda",), 128, {})
    looked = Looked("sda", session, mine)
    told = one._observation(looked, seen.disk, {mine: seen.initiator}, seen.initiator)
    assert told.target == on_one_clock(seen).target != seen.target and not told.missing
    assert seen.initiator.socket
    socket = attrs.evolve(seen.initiator.socket, lacks=("tcpi_rwnd_limited", "tcpi_rcv_wnd"))
    told = one._observation(looked, seen.disk, {mine: attrs.evolve(seen.initiator, socket=socket)}, seen.initiator)
    assert told.missing[0].endswith("does not tell tcpi_rwnd_limited, tcpi_rcv_wnd")


def test_the_ends_of_a_fleet_are_matched_in_time_too() -> None:
    apart = _later(_shallow_at_last(), 3)
    assert apart.target and apart.target.socket and apart.initiator.socket
    mine = attrs.evolve(apart, target=None, initiator=attrs.evolve(apart.initiator, begun_unix_s=1e9))
    joined = at_the_same_time({"one": [mine]}, [attrs.evolve(apart.target, begun_unix_s=1e9 + 0.3)])
    (member,) = members_of(joined.observations)
    (aligned,) = judged(on_one_clock(apart))
    assert member.judged == aligned and aligned.both_ends


def test_ends_that_cannot_be_matched_are_judged_from_the_initiator_s_alone_and_that_is_said() -> None:
    seen = _later(_kept("target-wmem-read"), 1)
    assert seen.target and seen.target.socket
    samples = seen.target.socket.samples
    for others in (
        # Bytes that this initiator never had; one that began when this look was over.
        [attrs.evolve(one, sent_bytes=one.sent_bytes + (1 << 40)) for one in samples],
        [attrs.evolve(one, at_s=one.at_s + 0.001) for one in samples[len(samples) * 7 // 8 :]],
    ):
        alone = on_one_clock(attrs.evolve(seen, target=_with(seen.target, others)))
        assert alone.target is None and "it looked at another time" in alone.missing[-1]
        (one,) = judged(alone)
        assert not one.both_ends and one.first.among


def _slow(way: str, every_s: float, later_s: float) -> Observation:
    """Return 64 KiB each `every_s`, for which a disk of the target works; its look began `later_s` after the other."""
    seen, size, look_s = _kept("queue-depth-read"), 65600, 10.0
    still = dict.fromkeys((*_COUNTERS[2:], "in_flight_bytes", "notsent_bytes", "send_queue_bytes"), 0)

    def end(told: EndSeen | None, begun_s: float, *, sends: bool) -> EndSeen:
        assert told and told.socket
        samples = []
        for i in range(50):
            # No two hosts look at the same instants.
            at_s = 0.2 * i + 0.003 * (begun_s > 0)
            count = int((7.0 + begun_s + at_s) / every_s)
            # Who opens a connection has its SYN acknowledged, too.
            syn = told.end == "initiator"
            sent, received = (size, 48) if sends else (48, size)
            grown = {"sent_bytes": count * sent + syn, "received_bytes": count * received}
            samples.append(attrs.evolve(told.socket.samples[0], at_s=at_s, **grown, **still))
        return attrs.evolve(_with(told, samples), cpu_busy=(0.02,), softirq=(0.01,), threads=(), served=())

    done, ms = round(look_s / every_s), 950 * every_s
    store = BackstoreSeen("sdq", {way: done}, {way: ms}, 0.97, 0.97)
    disk = attrs.evolve(
        seen.disk, elapsed_s=look_s, ways={way: WaySeen(done, done * size, ms, ms, ms)}, samples=(), mean_depth=1.0,
        limit=128, at_limit=0.0, refusals={}, refused_ms={},
    )  # fmt: skip
    return attrs.evolve(
        seen, elapsed_s=look_s, disk=disk, initiator=end(seen.initiator, 0.0, sends=way == "write"),
        target=attrs.evolve(end(seen.target, later_s, sends=way == "read"), backstores=(store,)),
    )  # fmt: skip


@pytest.mark.parametrize("every_s", [0.3, 0.5, 0.7, 1.1])
@pytest.mark.parametrize("way", ["read", "write"])
def test_a_disk_so_slow_that_counts_stand_still_between_samples_is_named(way: str, every_s: float) -> None:
    seen = on_one_clock(_slow(way, every_s, 0.33))
    assert seen.target and seen.target.socket and not seen.missing
    assert seen.target.socket.samples[0].at_s == pytest.approx(0.33, abs=0.2)
    (one,) = judged(seen)
    assert one.both_ends and one.first.limiter == "target-disk" and "sdq" in one.first.subject


def _unsteady(seen: Observation) -> Observation:
    """Return `seen` as a target tells it whose clock runs at three times this host's rate."""
    assert seen.target and seen.target.socket
    samples = [attrs.evolve(one, at_s=3 * one.at_s + 0.001) for one in seen.target.socket.samples]
    return attrs.evolve(seen, target=_with(seen.target, samples))


@pytest.mark.parametrize("way", ["read", "write"])
def test_what_the_target_s_disks_did_needs_no_clock(way: str) -> None:
    seen = on_one_clock(_unsteady(_slow(way, 0.5, 0.33)))
    assert seen.target and seen.target.socket is None and "its samples are left out" in seen.missing[-1]
    (one,) = judged(seen)
    assert not one.both_ends and one.first.limiter == "target-disk" and "sdq" in one.first.subject


@pytest.mark.parametrize("backstore_ms", [None, 0.1])
def test_a_disk_that_does_not_tell_is_not_blamed_where_the_target_s_connection_is_not_seen(
    backstore_ms: float | None,
) -> None:
    seen = _unsteady(_kept("target-wmem-read"))
    assert seen.target
    done = {"read": seen.disk.ways["read"].completed}
    stores = () if backstore_ms is None else (BackstoreSeen("sdq", done, {"read": backstore_ms}, 0.01, 0.01),)
    seen = on_one_clock(attrs.evolve(seen, target=attrs.evolve(seen.target, backstores=stores)))
    assert seen.target and seen.target.socket is None
    (one,) = judged(seen)
    assert one.first.limiter == "cannot-tell-sender" and "send-buffer" in one.first.among


def test_a_target_that_saw_a_part_of_the_look_is_taken_for_that_and_it_is_said() -> None:
    part = on_one_clock(_later(_shallow_at_last(), 12))
    assert part.target and "it was seen for 3.5 s of these 5.9 s" in part.missing[-1]
    assert not on_one_clock(_later(_shallow_at_last(), 1)).missing


def test_ends_of_one_loop_and_ends_where_nothing_moves_stay_as_they_are() -> None:
    seen = _kept("target-wmem-read")
    assert on_one_clock(seen) is seen

    def still(end: EndSeen | None) -> EndSeen:
        assert end and end.socket
        return _with(end, [attrs.evolve(one, sent_bytes=7, received_bytes=9) for one in end.socket.samples])

    stalled = _later(attrs.evolve(seen, initiator=still(seen.initiator), target=still(seen.target)), 1)
    assert on_one_clock(stalled) == stalled
