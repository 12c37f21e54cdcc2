# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune why: this host's own sessions that share a line are nobody else's traffic, and fill it together."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from fabtune.autotune.view import View
from fabtune.measure.beside import Beside, Moved
from fabtune.model import typed
from fabtune.model.beside_seen import BesideSeen
from fabtune.model.observation import EndSeen, Observation, SocketSample
from fabtune.why import words
from fabtune.why.judging import Judged, judged

_KEPT: dict[str, object] = json.loads(
    gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes())
)
# What a disk of the kept look moved of a line of 200 Mb/s, which it filled; a line of twice the rate.
_MINE = 23.5e6
_BOTH = 400e6 / 8


def _unpaced(end: EndSeen | None) -> EndSeen | None:
    if end is None or end.socket is None:
        return end
    samples = tuple(attrs.evolve(one, qdisc_bytes_per_s=None) for one in end.socket.samples)
    return attrs.evolve(end, qdisc=None, socket=attrs.evolve(end.socket, samples=samples))


def _beside(*names: str, **sums: float) -> BesideSeen:
    """Return what others than this session move: `names`, and by which NIC, path and target so much is read."""
    told = {name: {"read": moved} for name, moved in sums.items()}
    path = told.pop("bytes_per_s", {"read": _MINE})
    return BesideSeen(names or ("sdc",), path, {}, **told)


def _seen(
    beside: BesideSeen | None,
    rate: float = _BOTH,
    *,
    one_end: bool = False,
    passes: float = 2 * _MINE,
    paced: bool = False,
) -> Observation:
    """Return a look at a disk with half of what passes its NIC."""
    seen = typed.STRICT.read(Observation, _KEPT["wan-read"], "wan-read")
    nic, socket = seen.initiator.nic, seen.initiator.socket
    assert nic and socket
    nic = attrs.evolve(nic, counters={"rx_bytes": round(1.046 * passes * socket.elapsed_s), "tx_bytes": 1000})
    return attrs.evolve(
        seen, rate_bytes_per_s=rate, rate_by="--rate", beside=beside,
        initiator=attrs.evolve(seen.initiator, nic=nic),
        target=None if one_end else seen.target if paced else _unpaced(seen.target),
    )  # fmt: skip


def _near(seen: Observation) -> Observation:
    """Return the same on a path of 0.2 ms, where nothing waits on the way."""

    def short(one: SocketSample) -> SocketSample:
        return attrs.evolve(one, rtt_ms=0.2, min_rtt_ms=0.2)

    def end(one: EndSeen) -> EndSeen:
        assert one.socket
        return attrs.evolve(one, socket=attrs.evolve(one.socket, samples=tuple(map(short, one.socket.samples))))

    return attrs.evolve(seen, initiator=end(seen.initiator), target=seen.target and end(seen.target))


def _judged(seen: Observation) -> Judged:
    (one,) = judged(seen)
    assert sum(share.share for share in one.shares) == pytest.approx(1)
    return one


def _limiters(seen: Observation) -> set[str]:
    return {share.limiter for share in _judged(seen).shares if share.share > 0.05}


@pytest.mark.parametrize("one_end", [False, True])
def test_two_sessions_that_fill_a_line_together_are_at_the_bound(one_end: bool) -> None:
    """Each was said to be limited by others' traffic, and to need a path of its own."""
    two = [
        attrs.evolve(_seen(_beside(other), one_end=one_end), device=name)
        for name, other in (("sda", "sdc"), ("sdc", "sda"))
    ]
    found = [_judged(one) for one in two]
    for one in found:
        assert one.first.limiter == "line" and one.at_the_bound and not one.liftable
        assert not any(share.advice for share in one.shares)
    assert words.verdict(found[0]) == (
        "Reads of sda and of sdc fill the line: 47.0 MB/s of 47.8 MB/s, 23.5 MB/s of it of sda"
    )
    shown = {one.counter: one.value for one in found[0].first.evidence}
    assert shown["other sessions of this host"] == "23.5 MB/s over it (sdc)"
    view = View(tuple(two), tuple(found), ())
    assert view.at_the_bound and view.rate_doubts == []
    # What one of them had where its queue overflowed is no rate of the line either.
    assert view.rates_above(8 * _MINE) == []


@pytest.mark.parametrize("one_end", [False, True])
def test_others_beside_two_sessions_of_ones_own_are_told_and_are_not_the_own(one_end: bool) -> None:
    seen = _seen(_beside("sdc"), 600e6 / 8, one_end=one_end, passes=3 * _MINE)
    one = _judged(seen)
    assert one.first.limiter == "competing-traffic" and not one.at_the_bound
    shown = {each.counter: each.value for each in one.first.evidence}
    # Less what headers take at most.
    assert float(shown["others' through i0"].split()[0]) == pytest.approx(_MINE / 1e6, rel=0.2)
    (doubt,) = View((seen,), (one,), ()).rate_doubts
    assert "while sda and sdc move 376" in doubt


def test_a_line_that_they_do_not_fill_is_not_full() -> None:
    seen = _seen(_beside("sdc"), 600e6 / 8, one_end=True)
    assert _limiters(seen) == {"cannot-tell-queue"} and not _judged(seen).at_the_bound


def test_sessions_that_carry_more_than_the_line_do_not_share_it() -> None:
    seen = _seen(_beside("sdc"), 300e6 / 8, one_end=True)
    assert _limiters(seen) == {"cannot-tell-queue"} and not _judged(seen).at_the_bound


def test_an_own_session_on_another_path_of_the_nic_is_neither_on_this_line_nor_somebody_elses() -> None:
    seen = _seen(_beside("sdc", bytes_per_s=0.0, nic_bytes_per_s=_MINE), one_end=True)
    assert _limiters(seen) == {"cannot-tell-queue"} and not _judged(seen).at_the_bound
    # Where the line is the NIC's own, all of them share it.
    assert seen.initiator.nic
    nic = attrs.evolve(seen.initiator.nic, speed_bytes_per_s=_BOTH)
    one = _judged(attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, nic=nic)))
    assert one.first.limiter == "line" and one.at_the_bound
    assert "of other disks of this host fill the line: 47.0 MB/s" in words.verdict(one)


def test_an_own_session_through_another_nic_is_not_somebody_elses_at_the_target() -> None:
    """Of two paths of a multipath device each has a NIC of its own at one end, and both have one at the other."""
    seen = _seen(_beside("sdc", bytes_per_s=0.0), passes=_MINE)
    assert seen.target and seen.target.socket and seen.initiator.nic
    sent = round(1.046 * 2 * _MINE * seen.target.socket.elapsed_s)
    nic = attrs.evolve(seen.initiator.nic, name="t0", counters={"tx_bytes": sent, "rx_bytes": 0})
    seen = _near(attrs.evolve(seen, target=attrs.evolve(seen.target, nic=nic)))
    assert _limiters(seen) == {"competing-traffic"}
    own = attrs.evolve(seen, beside=_beside("sdc", bytes_per_s=0.0, host_bytes_per_s=_MINE))
    assert not _limiters(own) & {"competing-traffic", "line"} and not _judged(own).at_the_bound


@pytest.mark.parametrize(("peer", "limiter"), [(_MINE, "line"), (0.0, "")])
def test_within_a_site_two_targets_have_a_line_each(peer: float, limiter: str) -> None:
    """No queue shows where the slowest link is: that of one NIC of a switch is not another's."""
    one = _judged(_near(_seen(_beside("sdc", peer_bytes_per_s=peer))))
    assert one.at_the_bound == bool(limiter)
    assert (one.first.limiter == "line") == bool(limiter) and one.first.limiter != "competing-traffic"


def test_what_is_paced_to_its_part_of_a_line_that_all_of_them_fill_is_at_the_bound() -> None:
    seen = _seen(_beside("sdc"), paced=True)
    one = _judged(seen)
    assert one.first.limiter == "line" and one.at_the_bound
    # With room beside them it is the pace that limits.
    assert _judged(attrs.evolve(seen, rate_bytes_per_s=2 * _BOTH)).first.limiter == "pacing"


def test_what_asks_for_nothing_is_held_by_no_line_that_others_fill() -> None:
    seen = _seen(_beside("sdc", bytes_per_s=_MINE))
    half = len(seen.disk.samples) // 2
    stopped = seen.disk.samples[half]
    samples = tuple(
        one if number < half else attrs.evolve(stopped, at_s=one.at_s, in_flight=0)
        for number, one in enumerate(seen.disk.samples)
    )
    one = _judged(attrs.evolve(seen, disk=attrs.evolve(seen.disk, samples=samples)))
    told = {share.limiter: share.share for share in one.shares}
    assert told["line"] == pytest.approx(0.5, abs=0.15)


def test_of_several_others_none_is_named_in_the_verdict() -> None:
    """They are the busiest both ways: which of them reads is not told."""
    one = _judged(_seen(_beside("sdc", "sdd")))
    assert "Reads of sda and of other disks of this host fill the line: 47.0 MB/s" in words.verdict(one)
    assert any(each.value == "23.5 MB/s over it (busiest: sdc, sdd)" for each in one.first.evidence)


def test_disks_of_the_same_session_are_counted_once() -> None:
    mine = {"read": _MINE / 2}
    seen = _seen(BesideSeen(("sdb",), mine, mine), 200e6 / 8, passes=_MINE)
    ways = {"read": attrs.evolve(seen.disk.ways["read"], moved_bytes=seen.disk.ways["read"].moved_bytes // 2)}
    seen = attrs.evolve(
        seen, disk=attrs.evolve(seen.disk, ways=ways), session=attrs.evolve(seen.session, disks=("sda", "sdb"))
    )
    assert "of the other disks of its session fill the line: 23.5 MB/s of 23.9 MB/s" in words.verdict(_judged(seen))


def test_what_moved_is_summed_by_path_target_nic_and_host() -> None:
    def moved(disk: str, bearer: str, nic: str, peer: str, rtt_ms: float, rate: float) -> Moved:
        return Moved(disk, nic, bearer, {"read": rate}, rtt_ms, peer)

    every = [
        moved("sda", "1", "eth0", "10.0.0.1", 20.0, 1.0),
        moved("sdb", "1", "eth0", "10.0.0.1", 20.0, 2.0),
        moved("sdc", "2", "eth0", "10.0.0.1", 20.1, 4.0),
        moved("sdd", "3", "eth0", "10.0.0.2", 20.2, 8.0),
        moved("sde", "4", "eth0", "10.0.0.1", 80.0, 16.0),
        moved("sdf", "5", "eth1", "10.0.0.1", 20.0, 32.0),
    ]
    found = Beside(every).of(every[0])

    def read(sums: Mapping[str, float]) -> float:
        return sums["read"]

    assert read(found.session_bytes_per_s) == 2.0
    assert read(found.peer_bytes_per_s) == 6.0
    assert read(found.bytes_per_s) == 14.0
    assert read(found.nic_bytes_per_s) == 30.0
    assert read(found.host_bytes_per_s) == 62.0
    # Of what has no connection nobody knows the target's address, nor the NIC.
    alone = Beside([*every, Moved("sdg", "", "6", {"read": 1.0})]).of(Moved("sdg", "", "6", {"read": 1.0}))
    assert not alone.peer_bytes_per_s and read(alone.nic_bytes_per_s) == 0.0 and read(alone.host_bytes_per_s) == 63.0
