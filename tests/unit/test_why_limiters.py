# SPDX-License-Identifier: GPL-2.0-or-later
"""Limiters in observations kept from guests at 100 Mb/s and 20 ms, each case with a cause of its own.

And those that no kept observation shows: one of them, with what makes the limiter put in.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.model import typed
from fabtune.model.observation import (
    BackstoreSeen,
    DiskSeen,
    EndSeen,
    NicSeen,
    Observation,
    SessionSeen,
    SocketSample,
    ThreadSeen,
)
from fabtune.model.served_seen import ServedSeen
from fabtune.why.judging import every_limiter, judged


def _read(name: str) -> dict[str, object]:
    return dict(json.loads(gzip.decompress((Path(__file__).parent / "data" / name).read_bytes())))


_KEPT = _read("observations.json.gz")
_CAUSES = _read("observations-100mbit.json.gz")
_BURSTS = _read("observations-bursts.json.gz")
Put = Callable[[Observation], Observation]


def _kept(name: str) -> Observation:
    return attrs.evolve(typed.STRICT.read(Observation, _KEPT[name], name), rate_bytes_per_s=200e6 / 8, rate_by="--rate")


def _samples(end: EndSeen | None, change: Callable[[SocketSample], SocketSample]) -> EndSeen:
    assert end and end.socket
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=tuple(map(change, end.socket.samples))))


def _disk(seen: Observation, **values: object) -> Observation:
    disk: DiskSeen = attrs.evolve(seen.disk, **values)
    return attrs.evolve(seen, disk=disk)


def _longer(seen: Observation, ms: float) -> Observation:
    ways = {
        name: attrs.evolve(way, device_ms=ms, total_ms=ms, block_ms=ms)
        for name, way in seen.disk.ways.items()
        if way.completed
    }
    return _disk(seen, ways=ways)


def _session(seen: Observation, **values: object) -> Observation:
    session: SessionSeen = attrs.evolve(seen.session, **values)
    return attrs.evolve(seen, session=session)


def _target(seen: Observation) -> EndSeen:
    assert seen.target
    return seen.target


def _small_buffer(seen: Observation) -> Observation:
    """tcp_wmem of 256 KiB at the target: as measured, three quarters of it in use, nothing of it unsent."""

    def small(one: SocketSample) -> SocketSample:
        return attrs.evolve(
            one, notsent_bytes=0, in_flight_bytes=192_584, send_queue_bytes=196_096, send_buffer_bytes=262_144,
            below_tcp_bytes=0, rtt_ms=20.2,
        )  # fmt: skip

    return attrs.evolve(seen, target=attrs.evolve(_samples(seen.target, small), qdisc=None))


def _slow_reader(seen: Observation) -> Observation:
    def unread(one: SocketSample) -> SocketSample:
        return attrs.evolve(one, receive_queue_bytes=round(0.7 * one.receive_buffer_bytes))

    return attrs.evolve(seen, initiator=_samples(seen.initiator, unread))


def _nic_drops(seen: Observation) -> Observation:
    assert seen.initiator.nic
    nic: NicSeen = attrs.evolve(seen.initiator.nic, counters={**seen.initiator.nic.counters, "rx_missed_errors": 50})
    return attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, nic=nic))


def _grows(seen: Observation) -> Observation:
    def first(one: SocketSample) -> SocketSample:
        return attrs.evolve(one, retransmitted_bytes=0, ssthresh_bytes=None)

    return attrs.evolve(seen, target=_samples(seen.target, first))


def _busy_target(seen: Observation) -> Observation:
    target = attrs.evolve(_target(seen), threads=(ThreadSeen("iscsi_trx", 0.97), ThreadSeen("iscsi_ttx", 0.1)))
    return attrs.evolve(_longer(seen, 120.0), target=target)


def _cpus(seen: Observation, initiator: float, target: float) -> Observation:
    """So busy is every CPU of each end; no thread is."""
    return attrs.evolve(
        _longer(seen, 120.0), initiator=attrs.evolve(seen.initiator, cpu_busy=(initiator, 1.0)),
        target=attrs.evolve(_target(seen), cpu_busy=(target, 1.0)),
    )  # fmt: skip


def _shared_cpu(seen: Observation) -> Observation:
    return _cpus(seen, 0.99, 0.99)


def _no_rest_at_the_target(seen: Observation) -> Observation:
    return _cpus(seen, 0.3, 0.99)


def _late_disk_beside_busy_cpus(seen: Observation) -> Observation:
    return _cpus(_late_disk(seen), 0.3, 0.99)


def _served(seen: Observation, ms: float) -> Observation:
    """The target's fabstat counted reads of `ms` at the target; their CPUs have time left, and so has the line."""
    seen = _session(_disk(_longer(seen, 120.0), lun=0), initiator="iqn.one")
    told = ServedSeen("iqn.one", seen.session.target, 0, {"read": 1000}, {"read": ms})
    other = ServedSeen("iqn.two", seen.session.target, 0, {"read": 1000}, {"read": 119.0 - ms})
    return attrs.evolve(seen, target=attrs.evolve(_target(seen), served=(other, told)))


def _slow_answers(seen: Observation) -> Observation:
    return _served(seen, 90.0)


def _quick_answers(seen: Observation) -> Observation:
    return _served(seen, 0.3)


def _late_disk(seen: Observation) -> Observation:
    disk = BackstoreSeen("dm-0", {"write": 100}, {"write": 98.0}, 0.99, 2.0)
    return attrs.evolve(_longer(seen, 120.0), target=attrs.evolve(_target(seen), backstores=(disk,)))


def _busy_initiator(seen: Observation) -> Observation:
    return attrs.evolve(_longer(seen, 120.0), initiator=attrs.evolve(seen.initiator, softirq=(0.2, 0.93)))


def _one_command(seen: Observation) -> Observation:
    return _session(_disk(seen, limit=1, at_limit=0.99, mean_depth=0.99), can_queue=1)


def _two_deep(seen: Observation) -> Observation:
    """The queue depth is in use all of the time; without fabstat nobody knows whether more wait."""
    return _disk(seen, limit=2, mean_depth=1.99, by_fabstat=False, at_limit=None)


def _no_rest(seen: Observation) -> Observation:
    """Data waits without end, nothing holds it back, and half of the line stays empty."""

    def free(one: SocketSample) -> SocketSample:
        return attrs.evolve(one, cwnd_bytes=1 << 24, sent_bytes=one.sent_bytes // 2, rtt_ms=20.4)

    half = _disk(seen, ways={"write": attrs.evolve(seen.disk.ways["write"], moved_bytes=30_000_000)})
    initiator = attrs.evolve(_samples(seen.initiator, free), cpu_busy=(1.0,), nic=None)
    return attrs.evolve(half, initiator=initiator, target=attrs.evolve(_target(seen), nic=None))


@pytest.mark.parametrize(
    ("name", "put", "limiter", "one_end"),
    [
        ("maxrate-read", _small_buffer, "send-buffer", "cannot-tell-sender"),
        ("untouched-read", _slow_reader, "slow-receiver", "slow-receiver"),
        ("loss-read", _nic_drops, "nic-drops", "loss"),
        ("loss-read", _grows, "slow-start", "loss"),
        ("wan-depth2w", _busy_target, "target-cpu", "cannot-tell-target"),
        ("wan-depth2w", _late_disk, "target-disk", "cannot-tell-target"),
        ("wan-depth2w", _shared_cpu, "cannot-tell-cpu", "cannot-tell-cpu"),
        ("wan-depth2w", _no_rest_at_the_target, "target-cpu", "cannot-tell-target"),
        ("wan-depth2w", _late_disk_beside_busy_cpus, "target-disk", "cannot-tell-target"),
        ("wan-depth1", _slow_answers, "target-disk", "cannot-tell-sender"),
        ("wan-depth1", _quick_answers, "cannot-tell", "cannot-tell-sender"),
        ("wan-depth1", _busy_initiator, "initiator-cpu", "initiator-cpu"),
        ("wan-write", _no_rest, "initiator-cpu", "initiator-cpu"),
        ("wan-depth1", _one_command, "session-commands", "session-commands"),
        ("wan-depth2w", _two_deep, "cannot-tell-depth", "cannot-tell-depth"),
    ],
)
def test_a_limiter_that_is_put_in_is_named(name: str, put: Put, limiter: str, one_end: str) -> None:
    seen = put(_kept(name))
    (both,) = judged(seen)
    assert both.first.limiter == limiter
    assert both.first.evidence or limiter == "cannot-tell", "what shows it"
    (one,) = judged(attrs.evolve(seen, target=None))
    assert one.first.limiter == one_end
    for told in (both, one):
        assert sum(share.share for share in told.shares) == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "limiter", "one_end"),
    [
        ("initiator-rmem-read", "receive-window", "receive-window"),
        ("initiator-wmem-write", "send-buffer", "send-buffer"),
        ("target-wmem-read", "send-buffer", "cannot-tell-sender"),
        ("target-rmem-write", "receive-window", "receive-window"),
        ("cmds-max-read", "session-commands", "session-commands"),
        ("queue-depth-read", "queue-depth", "queue-depth"),
        ("nr-requests-read", "nr-requests", "nr-requests"),
        ("r2t-write", "r2t", "r2t"),
        ("no-immediate-data-write", "r2t", "r2t"),
        ("both-r2t-wmem-write", "r2t", "r2t"),
        ("command-window-read", "command-window", "command-window"),
        ("command-window-harmless", "line", "line"),
        ("queue-depth-harmless", "line", "line"),
        ("line-unpaced-read", "line", "line"),
        ("line-mixed", "line", "line"),
        ("depth-mixed", "load", "load"),
    ],
)
def test_a_cause_that_was_put_into_a_session_is_named(name: str, limiter: str, one_end: str) -> None:
    seen = typed.STRICT.read(Observation, _CAUSES[name], name)
    for end, expected in ((seen, limiter), (attrs.evolve(seen, target=None), one_end)):
        for one in judged(end):
            assert one.first.limiter == expected
            assert sum(share.share for share in one.shares) == pytest.approx(1)
            assert one.liftable == [] or limiter != "line"


def test_the_targets_own_count_of_this_initiators_commands_is_a_part_of_a_reads_time() -> None:
    seen = _slow_answers(_kept("wan-depth1"))
    (one,) = judged(seen)
    told = {part.name: part.ms for part in one.request}
    assert told["target"] == pytest.approx(90.0) and told["rest"] < 10
    assert sum(told.values()) == pytest.approx(120.0)
    other = _session(seen, initiator="iqn.three")
    assert {part.name: part.ms for part in judged(other)[0].request}["target"] == 0


def test_what_one_end_cannot_tell_apart_holds_what_both_ends_name() -> None:
    among = {one.name: one.among for one in every_limiter()}
    assert {"send-buffer", "pacing", "target-disk", "target-cpu"} <= set(among["cannot-tell-sender"])
    assert {"target-disk", "target-cpu"} <= set(among["cannot-tell-target"])


def test_a_limiter_that_another_congestion_control_lifts_names_the_profile_that_has_one() -> None:
    found = [one for one in every_limiter() if "route.congctl" in one.lifts]
    assert len(found) == 2
    for one in found:
        assert "route.congctl" in load_profile(one.profile or "wan", shipped_catalog()).entries["initiator"], one.name


@pytest.mark.parametrize(("slower", "limiter"), [(1.0, "cannot-tell-line"), (0.6, "loss")])
def test_a_full_line_whose_queue_overflows_now_and_then_is_no_lossy_path(slower: float, limiter: str) -> None:
    """Nobody told the rate: where a queue stands it shows, and a moment without one in which as much passes is full."""
    seen = typed.STRICT.read(Observation, _CAUSES["line-unpaced-read"], "")
    seen = attrs.evolve(seen, rate_bytes_per_s=None, rate_by="")
    assert seen.target and seen.target.socket
    samples = list(seen.target.socket.samples)
    half = len(samples) // 2
    begun, first_sent = samples[half], samples[half].sent_bytes
    for number, one in enumerate(samples[half:], half):
        sent = first_sent + round(slower * (one.sent_bytes - first_sent))
        samples[number] = attrs.evolve(
            one, rtt_ms=one.min_rtt_ms, retransmitted_bytes=begun.retransmitted_bytes + 1448 * number,
            sent_bytes=sent, notsent_bytes=1_000_000,
        )  # fmt: skip
    socket = attrs.evolve(seen.target.socket, samples=tuple(samples))
    (found,) = judged(attrs.evolve(seen, target=attrs.evolve(seen.target, socket=socket)))
    assert found.first.limiter == limiter
    assert found.line_is_full is (limiter == "cannot-tell-line") and not found.at_the_bound


@pytest.mark.parametrize("name", ["r2t-bursts-write-40ms", "r2t-bursts-write-87ms"])
def test_the_bursts_that_r2ts_ask_for_are_no_queue_that_a_full_line_has(name: str) -> None:
    """Untouched writes over 176 and 87 Mb/s had 2/3 of it: the buffer was empty of what was not sent, and full."""
    seen = typed.STRICT.read(Observation, _BURSTS[name], name)
    assert seen.rate_bytes_per_s is None
    (found,) = judged(seen)
    assert not found.line_is_full
    among = {limiter for share in found.shares for limiter in share.among}
    assert "send-buffer" in among, found.shares
