# SPDX-License-Identifier: GPL-2.0-or-later
"""Nothing moves, and the path is well: a target that does not answer is told from a session that is blocked."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from fabtune.host import blocks
from fabtune.measure.disk_look import DiskLook
from fabtune.model import typed
from fabtune.model.observation import BackstoreSeen, EndSeen, Observation, SocketSample
from fabtune.tune import lift
from fabtune.why import words
from fabtune.why.in_common import in_common, members_of
from fabtune.why.judging import Judged, judged

_KEPT = json.loads(gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes()))
_HUNG = BackstoreSeen("sdz", {"read": 0, "write": 0}, {}, 1.0, 32.0)
_ANSWERS = BackstoreSeen("sdz", {"read": 90_000, "write": 0}, {"read": 0.1}, 0.9, 1.0)
# A NOP and its answer, each so many samples.
_NOP_BYTES, _NOP_SAMPLES = 48, 10


def _kept(name: str) -> Observation:
    return typed.STRICT.read(Observation, _KEPT[name], name)


def _samples(end: EndSeen | None, change: Callable[[int, SocketSample], SocketSample]) -> EndSeen:
    assert end and end.socket
    samples = tuple(change(place, one) for place, one in enumerate(end.socket.samples))
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=samples))


def _quiet(place: int, one: SocketSample, nops: int = 1) -> SocketSample:
    """Nothing is under way, unsent or unfetched; iscsid asks whether the target is there, and it is."""
    passed = 1000 + nops * _NOP_BYTES * (place // _NOP_SAMPLES)
    return attrs.evolve(
        one, sent_bytes=passed, received_bytes=passed, in_flight_bytes=0, notsent_bytes=0, send_queue_bytes=0,
        receive_queue_bytes=0, rtt_ms=20.1, rwnd_limited_us=0, sndbuf_limited_us=0, retransmitted_bytes=0,
    )  # fmt: skip


def _silent(place: int, one: SocketSample) -> SocketSample:
    return _quiet(place, one, nops=0)


def _stuck(seen: Observation, waiting: dict[str, int]) -> Observation:
    """Return `seen` with requests that wait, and none that ends."""
    nothing = {"completed": 0, "moved_bytes": 0, "device_ms": None, "total_ms": None, "block_ms": None, "p99_ms": None}
    ways = {name: attrs.evolve(way, **nothing) for name, way in seen.disk.ways.items()}
    samples = tuple(attrs.evolve(one, read_bytes=0, write_bytes=0, in_flight=32) for one in seen.disk.samples)
    disk = attrs.evolve(seen.disk, ways=ways, mean_depth=32.0, at_limit=1.0, samples=samples, in_flight=waiting)
    return attrs.evolve(seen, disk=disk)


def _hung(
    *stores: BackstoreSeen, waiting: dict[str, int] | None = None, one_end: bool = False,
    change: Callable[[int, SocketSample], SocketSample] = _quiet,
) -> Observation:  # fmt: skip
    seen = _stuck(_kept("untouched-read"), {"read": 32} if waiting is None else waiting)
    target = attrs.evolve(_samples(seen.target, change), backstores=stores, cpu_busy=(0.01, 0.02))
    return attrs.evolve(seen, initiator=_samples(seen.initiator, change), target=None if one_end else target)


def _one(seen: Observation) -> Judged:
    (found,) = judged(seen)
    assert sum(share.share for share in found.shares) == pytest.approx(1)
    return found


@pytest.mark.parametrize("way", ["read", "write"])
def test_a_disk_of_the_target_that_ends_nothing_is_named(way: str) -> None:
    """All that is sent is acknowledged, and it was called a blocked session, of reads whatever waited."""
    found = _one(_hung(_HUNG, waiting={way: 32}))
    assert (found.way, found.first.limiter, found.first.share) == (way, "target-disk", 1.0)
    said = words.verdict(found)
    assert said.startswith(f"{way.capitalize()}s of sda") and "the target's disk (sdz)" in said
    shown = {one.counter: one.value for one in found.first.evidence}
    assert shown["disk sdz"] == "busy 100 %, and ended nothing"
    assert shown["requests under way"].startswith("32, and none ended in ")
    assert lift.is_named(found) and not found.liftable


@pytest.mark.parametrize("stores", [(), (_ANSWERS,)])
def test_a_target_that_answers_nothing_and_shows_no_such_disk_is_not_told_apart(
    stores: tuple[BackstoreSeen, ...],
) -> None:
    found = _one(_hung(*stores))
    assert found.first.limiter == "cannot-tell-target" and set(found.first.among) == {"target-disk", "target-cpu"}
    assert not lift.is_named(found)
    assert {"requests under way", "connection"} <= {one.counter for one in found.first.evidence}


def test_a_target_s_disk_is_named_where_its_connection_is_not_seen() -> None:
    seen = _hung(_HUNG, change=_silent)
    assert seen.target
    assert _one(attrs.evolve(seen, target=attrs.evolve(seen.target, socket=None))).first.limiter == "target-disk"


def test_from_the_initiator_alone_what_is_acknowledged_meanwhile_clears_the_path() -> None:
    found = _one(_hung(one_end=True))
    assert found.first.limiter == "cannot-tell-target"
    # Nothing was sent that might have been acknowledged: the answers may be lost as well.
    found = _one(_hung(one_end=True, change=_silent))
    assert found.first.limiter == "cannot-tell-silence"
    assert set(found.first.among) == {"target-disk", "target-cpu", "blocked-session"}
    assert "the path back from it" in words.verdict(found) and not lift.is_named(found)


def _unanswered_from(first: int) -> Callable[[int, SocketSample], SocketSample]:
    """From that sample on a command, or iscsid's question, is under way and nothing comes back."""

    def change(place: int, one: SocketSample) -> SocketSample:
        return attrs.evolve(_silent(place, one), in_flight_bytes=_NOP_BYTES if place >= first else 0)

    return change


@pytest.mark.parametrize("one_end", [False, True])
def test_a_path_that_is_down_is_a_blocked_session_from_the_first_moment_on(one_end: bool) -> None:
    """All was acknowledged as it went down; iscsid asks five seconds later."""
    seen = _hung(_HUNG, one_end=one_end)
    half = len(seen.initiator.socket.samples) // 2 if seen.initiator.socket else 0
    found = _one(attrs.evolve(seen, initiator=_samples(seen.initiator, _unanswered_from(half))))
    assert (found.first.limiter, found.first.share) == ("blocked-session", 1.0)


def test_a_look_too_short_to_tell_a_path_that_is_down_does_not_clear_it() -> None:
    found = _hung()
    ends = [_samples(one, _unanswered_from(0)) for one in (found.initiator, found.target)]
    assert ends[0].socket
    first = ends[0].socket.samples[0].at_s
    few = [
        attrs.evolve(
            one, socket=attrs.evolve(one.socket, samples=tuple(x for x in one.socket.samples if x.at_s < first + 0.9))
        )
        for one in ends
        if one.socket
    ]
    assert _one(attrs.evolve(found, initiator=few[0], target=few[1])).first.limiter == "cannot-tell-silence"


def test_a_question_that_is_under_way_as_a_sample_is_taken_blocks_nothing() -> None:
    def asks(place: int, one: SocketSample) -> SocketSample:
        return attrs.evolve(_quiet(place, one), in_flight_bytes=0 if place % _NOP_SAMPLES else _NOP_BYTES)

    assert _one(_hung(one_end=True, change=asks)).first.limiter == "cannot-tell-target"


@pytest.mark.parametrize(("in_flight", "limiter"), [(0, "cannot-tell-silence"), (_NOP_BYTES, "blocked-session")])
def test_a_pause_of_reads_is_the_path_s_only_where_the_initiator_s_own_data_waits(in_flight: int, limiter: str) -> None:
    """A target that stopped for some seconds made a session that carried all else blocked."""
    seen = attrs.evolve(_kept("untouched-read"), target=None)
    assert seen.initiator.socket
    count = len(seen.initiator.socket.samples)
    stop = seen.initiator.socket.samples[count // 2]

    def change(place: int, one: SocketSample) -> SocketSample:
        if place < count // 2:
            return one
        return attrs.evolve(stop, at_s=one.at_s, in_flight_bytes=in_flight)

    found = _one(attrs.evolve(seen, initiator=_samples(seen.initiator, change)))
    told = {share.limiter: share.share for share in found.shares}
    assert told[limiter] == pytest.approx(0.5, abs=0.06)
    assert ("blocked-session" in told) == (limiter == "blocked-session")


def test_each_direction_that_waits_is_judged_and_one_that_nobody_tells_is_not_made_up() -> None:
    assert [one.way for one in judged(_hung(_HUNG, waiting={"read": 20, "write": 12}))] == ["read", "write"]
    assert words.verdict(_one(_hung(_HUNG, waiting={}))).startswith("Requests of sda")


def test_a_login_without_a_connection_that_answers_nothing_is_not_told_from_its_path() -> None:
    seen = _hung(one_end=True)
    session = attrs.evolve(seen.session, state="running", transport="srp", negotiated={}, rdma=True)
    seen = attrs.evolve(seen, session=session, initiator=attrs.evolve(seen.initiator, socket=None))
    assert _one(seen).first.limiter == "cannot-tell-silence"


def test_the_slow_ones_of_a_fleet_have_the_target_in_common_whose_disk_hangs() -> None:
    """The path was named, which fits alike."""

    def at(seen: Observation, target: str, portal: str) -> Observation:
        return attrs.evolve(seen, session=attrs.evolve(seen.session, target=target, portal=portal))

    hung = at(_hung(_HUNG), "iqn.hung", "10.0.0.1:3260")
    well = at(attrs.evolve(_kept("wan-read"), rate_bytes_per_s=25e6), "iqn.other", "10.0.0.2:3260")
    found = in_common(members_of({"a": [hung], "b": [hung], "c": [well], "d": [well]}))
    assert (found.kind, found.names) == ("target", ("iqn.hung",))


def test_a_look_notes_which_way_the_requests_go_that_wait_as_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "directory", lambda name: tmp_path / name)
    (tmp_path / "sda").mkdir()
    look = DiskLook("sda")
    assert look.seen({}, 1.0).in_flight == {}
    (tmp_path / "sda/inflight").write_text("       3        8\n")
    assert look.seen({}, 1.0).in_flight == {"read": 3, "write": 8}
