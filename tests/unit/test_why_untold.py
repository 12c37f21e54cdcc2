# SPDX-License-Identifier: GPL-2.0-or-later
"""What nobody told may not be said: the line's rate, the target's disk, a counter, when the other end looked."""

import gzip
import json
from pathlib import Path

import attrs
import pytest

from fabtune.autotune.view import View
from fabtune.cli import why as cli_why
from fabtune.model import typed
from fabtune.model.observation import BackstoreSeen, EndSeen, Observation
from fabtune.tune import lift
from fabtune.why import words
from fabtune.why.judging import Judged, every_limiter, judged
from fabtune.why.summing_up import with_rate

_DATA = Path(__file__).parent / "data"
_WIDE, _PAIRS, _SLOW = "observations.json.gz", "observations-pairs.json.gz", "observations-100mbit.json.gz"


def _kept(file: str, name: str, rate_bit_per_s: float | None = None) -> Observation:
    raw = json.loads(gzip.decompress((_DATA / file).read_bytes()))[name]
    rate = None if rate_bit_per_s is None else rate_bit_per_s / 8
    return attrs.evolve(typed.STRICT.read(Observation, raw, name), rate_bytes_per_s=rate, rate_by="--rate")


def _shares(one: Judged) -> dict[str, float]:
    return {found.limiter: found.share for found in one.shares}


@pytest.mark.parametrize("name", ["wan-read", "wan-write", "maxrate-read"])
def test_a_limit_to_the_rate_and_a_line_of_that_rate_look_alike_where_nobody_told_the_line_s(name: str) -> None:
    """`wan` paces to the line's rate: to raise that limit would only overflow the path's queue."""
    (one,) = judged(_kept(_WIDE, name))
    assert one.first.limiter == "cannot-tell-pacing" and set(one.first.among) == {"pacing", "line"}
    assert not one.liftable
    assert "cannot tell" in words.verdict(one) and "give --rate" in words.verdict(one)


def test_a_limit_to_the_rate_is_named_where_data_went_faster_during_the_look() -> None:
    (one,) = judged(_kept(_SLOW, "duty-pacing-30-read"))
    assert _shares(one)["pacing"] == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("name", ["wan-read", "maxrate-read"])
def test_reads_that_come_late_may_be_a_full_line_s_where_nobody_told_its_rate(name: str) -> None:
    """The target paces to the line's rate: no queue stands on the path, and the initiator alone sees none of it."""
    seen = attrs.evolve(_kept(_WIDE, name), target=None)
    samples = [attrs.evolve(one, rtt_ms=one.min_rtt_ms) for one in seen.initiator.socket.samples]  # type: ignore[union-attr]
    assert seen.initiator.socket
    socket = attrs.evolve(seen.initiator.socket, samples=tuple(samples))
    (one,) = judged(attrs.evolve(seen, initiator=attrs.evolve(seen.initiator, socket=socket)))
    assert "line" in one.first.among and not one.liftable


def _beside_a_bulk_flow(rate_bit_per_s: float | None = None) -> Observation:
    """Return reads with 13.9 of 23.9 MB/s and a round trip of 270 ms, for one flow of somebody else's (deep buffer)."""
    seen = _kept(_WIDE, "wan-read", rate_bit_per_s)
    assert seen.target and seen.target.socket and seen.initiator.socket
    less = 13.9e6 * seen.disk.elapsed_s / seen.disk.ways["read"].moved_bytes
    sent = [
        attrs.evolve(
            one, rtt_ms=270.0, in_flight_bytes=3_753_000, sent_bytes=round(less * one.sent_bytes),
            qdisc_bytes_per_s=None, max_pacing_bytes_per_s=None,
        )
        for one in seen.target.socket.samples
    ]  # fmt: skip
    came = [attrs.evolve(one, received_bytes=round(less * one.received_bytes)) for one in seen.initiator.socket.samples]
    ways = {
        name: attrs.evolve(way, moved_bytes=round(less * way.moved_bytes), completed=round(less * way.completed))
        for name, way in seen.disk.ways.items()
    }
    ends = {
        name: attrs.evolve(end, socket=attrs.evolve(end.socket, samples=tuple(samples)), qdisc=None)
        for name, end, samples in (("target", seen.target, sent), ("initiator", seen.initiator, came))
    }
    return attrs.evolve(seen, disk=attrs.evolve(seen.disk, ways=ways), **ends)


def test_a_full_line_of_a_rate_that_nobody_told_may_be_others_and_is_not_said_to_be_at_the_bound() -> None:
    """The sentence said so; the JSON had a line at the bound, and exit code 0 that the limiter was named."""
    seen = _beside_a_bulk_flow()
    (one,) = judged(seen)
    assert one.first.limiter == "cannot-tell-line" and one.first.share > 0.95
    assert set(one.first.among) == {"line", "competing-traffic"}
    assert not one.at_the_bound and not lift.is_named(one)
    assert words.verdict(one) == "Reads of sda fill the line, or others' traffic on it (give --rate to tell): 13.9 MB/s"
    (told,) = judged(_beside_a_bulk_flow(200e6))
    assert told.first.limiter == "competing-traffic" and lift.is_named(told)
    (own,) = judged(_kept(_WIDE, "wan-read", 200e6))
    assert own.first.limiter == "line" and own.at_the_bound and lift.is_named(own)


def test_a_full_line_is_full_whoever_fills_it_and_nothing_is_advised() -> None:
    """Of the same look `fabtune tune` takes the line's rate: nobody told it, and what moves is all that it shows."""
    seen = _beside_a_bulk_flow()
    (one,) = judged(seen)
    assert one.line_is_full and not one.liftable and one.rest_behind.startswith("the line, or others' traffic")
    view = View((seen,), (one,), ())
    assert view.at_the_bound and view.main_is_full
    assert view.filled_bit_per_s == pytest.approx(8 * 13.9e6 * 1538 / 1448, rel=0.05)
    half = (attrs.evolve(one.first, share=0.5), attrs.evolve(one.first, limiter="load", among=(), share=0.5))
    assert not attrs.evolve(one, shares=half).line_is_full


def test_one_request_at_a_time_fills_no_line_whatever_its_rate() -> None:
    """A session of one command was called late for the line or the target: for that a second request has to wait."""
    (one,) = judged(attrs.evolve(_kept(_SLOW, "cmds-max-read"), target=None))
    assert one.first.limiter == "session-commands" and one.liftable


def _late_for_the_initiator(file: str, name: str, ms: float) -> Judged:
    seen = attrs.evolve(_kept(file, name), target=None)
    late = attrs.evolve(seen.disk.ways["read"], device_ms=ms, total_ms=ms, block_ms=16 * ms)
    (one,) = judged(attrs.evolve(seen, disk=attrs.evolve(seen.disk, ways={"read": late})))
    assert one.first.limiter == "cannot-tell-sender-line"
    return one


def test_a_depth_that_is_reached_all_the_time_is_among_what_reads_may_be_late_for() -> None:
    """Two reads at once, late by more than the path: that a third is not let through was not among what is said."""
    one = _late_for_the_initiator(_SLOW, "queue-depth-read", 100.0)
    assert {"queue-depth", "line"} < set(one.first.among) and "the disk's queue depth" in one.first.subject


def test_one_request_at_a_time_may_be_too_few_for_a_slow_line() -> None:
    one = _late_for_the_initiator(_WIDE, "wan-depth1", 60.0)
    assert {"load", "line"} < set(one.first.among) and "too few requests" in one.first.subject


def test_nothing_is_advised_that_lint_warns_of() -> None:
    assert not any("iscsi.recv_from_iscsi_q" in one.lifts for one in every_limiter())


@pytest.mark.parametrize("name", ["short-cmds-max-read-20ms", "both-queue-window-mixed-20ms"])
def test_a_disk_of_the_target_that_answers_at_once_is_not_accused(name: str) -> None:
    for one in judged(_kept(_PAIRS, name, 100e6)):
        assert "target-disk" not in _shares(one)


def test_writes_that_take_long_are_not_the_disk_s_that_was_seen_to_be_idle() -> None:
    seen = _kept(_WIDE, "wan-depth2w", 200e6)
    ways = {"write": attrs.evolve(seen.disk.ways["write"], device_ms=120.0, total_ms=120.0, block_ms=120.0)}
    seen = attrs.evolve(seen, disk=attrs.evolve(seen.disk, ways=ways))
    assert seen.target
    idle = BackstoreSeen("dm-0", {"write": 500}, {"write": 0.05}, 0.01, 0.02)
    (one,) = judged(attrs.evolve(seen, target=attrs.evolve(seen.target, backstores=(idle,))))
    assert one.first.limiter == "cannot-tell" and "target-disk" not in _shares(one)
    # Another LUN's disk, that had none of these requests, tells nothing of theirs.
    other = attrs.evolve(idle, completed={"write": 0}, mean_ms={})
    (one,) = judged(attrs.evolve(seen, target=attrs.evolve(seen.target, backstores=(other,))))
    assert one.first.limiter == "target-disk"


@pytest.mark.parametrize("name", ["wan-read", "wan-write"])
def test_a_rate_below_what_passes_is_not_believed_and_that_is_said(name: str) -> None:
    seen = with_rate(_kept(_WIDE, name), 50e6 / 8)
    assert seen.rate_bytes_per_s is None
    assert "50 Mb/s, as --rate says" in seen.missing[-1] and "passed" in seen.missing[-1]
    assert "of 6.0 MB/s" not in words.verdict(judged(seen)[0])
    believed = with_rate(_kept(_WIDE, name), 200e6 / 8)
    assert believed.rate_bytes_per_s == 25e6 and not believed.missing


def _near(end: EndSeen | None, speed_bit_per_s: float) -> EndSeen:
    """Return an end at a round trip of 1 ms, with what queued on its way, behind a NIC of that speed."""
    assert end and end.socket and end.nic
    samples = [
        attrs.evolve(one, min_rtt_ms=1.0, rtt_ms=max(1.0, one.rtt_ms - one.min_rtt_ms + 1.0), qdisc_bytes_per_s=None)
        for one in end.socket.samples
    ]
    nic = attrs.evolve(end.nic, speed_bytes_per_s=speed_bit_per_s / 8)
    return attrs.evolve(end, socket=attrs.evolve(end.socket, samples=tuple(samples)), nic=nic, qdisc=None)


@pytest.mark.parametrize("name", ["wan-read", "wan-write"])
def test_a_target_s_slower_nic_is_the_line_on_a_short_path(name: str) -> None:
    seen = _kept(_WIDE, name)
    seen = attrs.evolve(seen, initiator=_near(seen.initiator, 10e9), target=_near(seen.target, 200e6))
    seen = with_rate(attrs.evolve(seen, rate_by=""), None)
    assert (seen.rate_bytes_per_s, seen.rate_by) == (25e6, "of the target's NIC")
    (one,) = judged(seen)
    assert one.at_the_bound and one.first.limiter == "line" and not one.liftable
    alone = with_rate(attrs.evolve(seen, target=None), None)
    assert (alone.rate_bytes_per_s, alone.rate_by) == (1.25e9, "of the NIC")


def _behind_a_slow_port(name: str, *, counted: bool = False) -> Observation:
    """Return a load of 23 MB/s that fills a port of 200 Mb/s on the way between NICs of 10 Gb/s, 0.2 ms apart.

    All that is in flight waits there; `counted`: the NICs count as much again that is none of this host's.
    """
    seen = _kept(_WIDE, name)
    assert seen.target

    def end(one: EndSeen) -> EndSeen:
        assert one.socket and one.nic
        samples = tuple(
            attrs.evolve(
                each, min_rtt_ms=0.2, rtt_ms=0.2 + each.in_flight_bytes / 23e3, qdisc_bytes_per_s=None,
                max_pacing_bytes_per_s=None,
            )
            for each in one.socket.samples
        )  # fmt: skip
        moved = {
            counter: round(1.05 * one.socket.grown(name)) + counted * round(1.1e9 * one.socket.elapsed_s)
            for counter, name in (("tx_bytes", "sent_bytes"), ("rx_bytes", "received_bytes"))
        }
        nic = attrs.evolve(one.nic, speed_bytes_per_s=10e9 / 8, counters=moved)
        return attrs.evolve(one, socket=attrs.evolve(one.socket, samples=samples), nic=nic, qdisc=None)

    initiator, target = end(seen.initiator), end(seen.target)
    return attrs.evolve(seen, initiator=initiator, target=target, rate_by="")


@pytest.mark.parametrize("name", ["wan-read", "wan-write"])
def test_a_queue_on_the_way_between_faster_nics_is_not_said_to_be_others(name: str) -> None:
    """A target's port or a switch's uplink may be slower: all that queued was this load's own, and others were blamed.

    That the path is short says that no slower link is likely, and not, where data queues, that there is none.
    """
    both = _behind_a_slow_port(name)
    ends = [both, attrs.evolve(both, target=None)] if name == "wan-write" else [both]
    for seen in (with_rate(one, None) for one in ends):
        assert (seen.rate_bytes_per_s, seen.rate_by) == (1.25e9, "of the NIC")
        (one,) = judged(seen)
        assert one.first.limiter == "cannot-tell-link" and one.first.share > 0.9
        assert set(one.first.among) == {"line", "competing-traffic"} and not lift.is_named(one)
        assert not one.at_the_bound and not one.liftable
        assert "cannot tell what limits them: a slower link on the way, or others' traffic" in words.verdict(one)
        # Tune says the same of it as of others' traffic.
        (doubt,) = View((seen,), (one,), ()).rate_doubts
        assert doubt.endswith("others have the rest, or it is not the line's rate")
        # Whose rate was told is known to have no slower link.
        (told,) = judged(with_rate(attrs.evolve(seen, rate_bytes_per_s=None), 1.25e9))
        assert told.first.limiter == "competing-traffic"


def test_reads_that_queue_behind_a_slower_link_may_be_that_link_s_from_the_initiator_alone() -> None:
    seen = attrs.evolve(_behind_a_slow_port("wan-read"), target=None)
    assert seen.initiator.socket
    samples = tuple(attrs.evolve(one, rtt_ms=28.0) for one in seen.initiator.socket.samples)
    seen = attrs.evolve(
        seen, initiator=attrs.evolve(seen.initiator, socket=attrs.evolve(seen.initiator.socket, samples=samples))
    )
    (one,) = judged(with_rate(seen, None))
    assert one.first.limiter == "cannot-tell-queue" and "line" in one.first.among
    assert one.first.subject == "a queue on the way: a slower link's, others' or the target's own"
    (told,) = judged(with_rate(seen, 1.25e9))
    assert told.first.limiter == "cannot-tell-queue" and "line" not in told.first.among


def test_others_that_fill_the_nic_itself_are_named_whoever_told_its_rate() -> None:
    (one,) = judged(with_rate(_behind_a_slow_port("wan-write", counted=True), None))
    assert one.first.limiter == "competing-traffic"


def _one_of(disks: int, seen: Observation) -> Observation:
    """Return `seen` as one of so many disks of the session sees it, that all do the same."""
    ways = {
        name: attrs.evolve(way, completed=way.completed // disks, moved_bytes=way.moved_bytes // disks)
        for name, way in seen.disk.ways.items()
    }
    samples = tuple(attrs.evolve(one, in_flight=one.in_flight // disks) for one in seen.disk.samples)
    disk = attrs.evolve(seen.disk, ways=ways, samples=samples, mean_depth=(seen.disk.mean_depth or 0) / disks)
    session = attrs.evolve(seen.session, disks=tuple(f"sd{name}" for name in "abcdefgh"[:disks]))
    return attrs.evolve(seen, disk=disk, session=session)


@pytest.mark.parametrize("name", ["untouched-read", "untouched-write", "wan-read", "wan-write", "loss-read", "depth1"])
@pytest.mark.parametrize("one_end", [False, True])
def test_disks_of_one_session_share_what_its_connection_carries(name: str, *, one_end: bool) -> None:
    whole = _kept(_WIDE, name, 200e6)
    whole = attrs.evolve(whole, target=None) if one_end else whole
    for disks in (2, 8):
        (alone,), (one,) = judged(whole), judged(_one_of(disks, whole))
        assert (one.first.limiter, one.at_the_bound) == (alone.first.limiter, alone.at_the_bound)
        told, before = ({part.name: part.ms for part in parts} for parts in (one.request, alone.request))
        assert told["socket"] == pytest.approx(before["socket"], rel=0.05, abs=1)


def test_a_line_that_the_disks_of_a_session_fill_together_is_said_to_be_theirs() -> None:
    (one,) = judged(_one_of(8, _kept(_WIDE, "wan-read", 200e6)))
    theirs = "Reads of sda and of the other disks of its session"
    assert words.verdict(one) == f"{theirs} fill the line: 23.5 MB/s of 23.9 MB/s, 2.9 MB/s of it of sda"


@pytest.mark.parametrize(
    ("name", "held_up"),
    [
        ("untouched-read", "held up by the initiator's locked receive window"),
        ("untouched-write", "held up by the initiator's locked send buffer"),
        ("wan-read", "held up by the line"),
    ],
)
def test_what_waits_behind_a_window_or_a_buffer_is_not_the_target_s(
    name: str, held_up: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = _kept(_WIDE, name, 200e6)
    for told, text in ((seen, held_up), (attrs.evolve(seen, target=None), "")):
        cli_why._show_shares(judged(told)[0])
        said = " ".join(capsys.readouterr().out.split()).partition("a request takes")[2]
        assert "at the target" not in said and (text or "ms not told") in said


def _lacking(seen: Observation, *names: str) -> Observation:
    """Return `seen` as a target's kernel without these members of tcp_info shows it."""
    assert seen.target and seen.target.socket
    samples = [attrs.evolve(one, rwnd_limited_us=0, sndbuf_limited_us=0) for one in seen.target.socket.samples]
    socket = attrs.evolve(seen.target.socket, samples=tuple(samples), lacks=names)
    return attrs.evolve(seen, target=attrs.evolve(seen.target, socket=socket))


@pytest.mark.parametrize(
    ("name", "limiter"), [("untouched-read", "cannot-tell"), ("depth1", "cannot-tell"), ("wan-read", "line")]
)
def test_a_counter_that_the_kernel_does_not_have_is_not_taken_for_nothing(name: str, limiter: str) -> None:
    """Nobody owes the sender data of which it is not known whether a window held it back; a full line is full."""
    (one,) = judged(_lacking(_kept(_WIDE, name, 200e6), "tcpi_rwnd_limited", "tcpi_sndbuf_limited"))
    assert one.first.limiter == limiter and one.first.share > 0.95


def test_samples_without_what_they_need_are_not_looked_at() -> None:
    (one,) = judged(_lacking(_kept(_WIDE, "depth1", 200e6), "tcpi_notsent_bytes", "tcpi_min_rtt"))
    (alone,) = judged(attrs.evolve(_kept(_WIDE, "depth1", 200e6), target=None))
    assert not one.both_ends and (one.first.limiter, one.first.share) == (alone.first.limiter, alone.first.share)
