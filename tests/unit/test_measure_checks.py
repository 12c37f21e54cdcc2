# SPDX-License-Identifier: GPL-2.0-or-later
"""The laws hold for consistent records, break for each kind of inconsistent one, and say when they do not apply."""

from typing import Any

import attrs
import pytest
from run_records import EMULATED, make_record, told, with_fio, with_latency, with_step

from fabtune.measure import checks, measured
from fabtune.model.outputs import FioOutput
from fabtune.model.runrecord import Captured, Edge, HangingRequest, Stuck

NEGOTIATED = {
    "ImmediateData": "Yes", "InitialR2T": "Yes", "FirstBurstLength": "65536", "MaxBurstLength": "65536",
    "MaxOutstandingR2T": "1", "MaxXmitDataSegmentLength": "262144",
}  # fmt: skip


def verdict(record: Any, words: Any) -> Any:
    found = [check for check in checks.of_record(record) if words in check.law]
    assert len(found) == 1
    return found[0].verdict


def path(rtt_ms: Any) -> Any:
    return {"rtt_ms": rtt_ms, "rate_bytes_per_s": 1.25e8, "mtu": 1500}


def iscsi_write(r2ts_per_write: Any, size: Any = 262144) -> Any:
    """A record of 1,000 writes in 5 s over one session that negotiated NEGOTIATED."""
    record = make_record(size * 200 / 1e6, op="write", parameters={"block_bytes": size}, seconds=5)
    before = Edge(negotiated={"1": NEGOTIATED}, iscsi={"1": {"scsicmd_pdus": 7, "r2t_pdus": 3}})
    after = {"scsicmd_pdus": 7 + 1000, "r2t_pdus": 3 + round(r2ts_per_write * 1000)}
    return with_step(record, before=before, after=Edge(iscsi={"1": after}))


def mixed(record: Any, reads: int) -> Any:
    """The record with as many reads of the same size beside its writes, by fio, the disk and the session."""
    step = record.steps[0]
    size = int(step.parameters["block_bytes"])
    (job,) = step.document.jobs
    times = attrs.evolve(job.write.lat_ns, N=reads)
    read = attrs.evolve(job.write, total_ios=reads, io_bytes=reads * size, lat_ns=times)
    record = with_step(record, fio=FioOutput((attrs.evolve(job, read=read),)))
    for sample in step.samples:
        done = reads * sample["time.monotonic"] / step.samples[-1]["time.monotonic"]
        sample["disk.dev.read"], sample["disk.dev.read_bytes"] = done, done * size / 1024
    counters = {"1": step.after.iscsi["1"] | {"scsicmd_pdus": step.after.iscsi["1"]["scsicmd_pdus"] + reads}}
    return with_step(record, after=attrs.evolve(step.after, iscsi=counters))


def test_bound_of_a_read_is_size_over_round_trip() -> None:
    limit = checks.bound(make_record(1, path=path(10)), make_record(1).steps[0], "read")
    assert limit == pytest.approx(1000 / (0.010 + 1000 / 119.55e6), rel=1e-4)


@pytest.mark.parametrize(("mb_per_s", "expected"), [(0.0999, checks.PASS), (0.102, checks.FAIL)])
def test_nothing_is_faster_than_its_bound(mb_per_s: Any, expected: Any) -> None:
    record = make_record(mb_per_s, path=path(10), seconds=1000)
    assert verdict(record, "faster than its bound") == expected


def test_bursts_of_requests_pass_no_bound() -> None:
    """A queue of 32 MB comes back once a round trip of 1 s: what falls into 6.2 s is 7 of them, the rate 6.2."""
    bound = 32 * 10**6 / (1 + 10**6 / 119.55e6)
    record: Any = make_record(bound * 7 / 6.2 / 1e6, path=path(1000), parameters={"block_bytes": 10**6})
    size = bound * (1 + 10**6 / 119.55e6)
    times = [number * 0.25 for number in range(26)]
    samples = [
        {
            "time.unix": t,
            "time.monotonic": t,
            "disk.dev.read_bytes": int(t + 0.9) * size / 1024,
            "disk.dev.write_bytes": 0.0,
        }
        for t in times
    ]
    record = with_fio(record, lambda job: job["read"].update(runtime=6200))
    assert verdict(with_step(record, depth=1), "faster than its bound") == checks.FAIL
    record = with_step(
        record, depth=32, samples=tuple(samples), job=record.steps[0].job + "time_based=1\nruntime=6200ms\n"
    )
    found = measured.throughput_of(record.steps[0], "read")
    assert found is not None and found.bytes_per_s == pytest.approx(bound, rel=0.03)
    assert abs(found.bytes_per_s - bound) < found.error_bytes_per_s < 0.1 * bound
    assert verdict(record, "faster than its bound") == checks.PASS


def test_bound_of_a_write_pays_for_its_r2ts() -> None:
    record = attrs.evolve(iscsi_write(3), path=told(path(10)))
    # 192 KiB come in three bursts, one R2T at a time: four round trips.
    limit = checks.bound(record, record.steps[0], "write")
    assert limit == pytest.approx(262144 / (0.040 + 262144 / 119.55e6), rel=1e-4)
    assert checks.bound(record, record.steps[0], "read") is None


def test_a_mixed_loads_directions_share_one_bound() -> None:
    record = attrs.evolve(mixed(iscsi_write(3), 3000), path=told(path(10)))
    read, write = (checks.bound(record, record.steps[0], op) for op in ("read", "write"))
    # Of four requests three are reads of one round trip, one is a write of four.
    every = 262144 / (0.010 * (3 + 4) / 4 + 262144 / 119.55e6)
    assert (read, write) == pytest.approx((0.75 * every, 0.25 * every), rel=1e-4)


def test_the_bound_counts_an_ethernets_framing_where_there_is_one() -> None:
    record = attrs.evolve(make_record(1, parameters={"block_bytes": 10**6}), path=told(path(0)))
    loose = checks.bound(record, record.steps[0], "read")
    record = attrs.evolve(record, path=attrs.evolve(record.path, framing_bytes=38))
    assert loose == pytest.approx(125e6 * 1448 / 1514)
    assert checks.bound(record, record.steps[0], "read") == pytest.approx(125e6 * 1448 / 1538)
    # What Linux shapes counts less of each packet; a rate that such a path allows is none that cannot be.
    fast = attrs.evolve(make_record(119.5, parameters={"block_bytes": 10**6}, seconds=9), path=record.path)
    assert verdict(fast, "faster than its bound") == checks.PASS


def test_a_disk_with_a_limit_bounds_its_load() -> None:
    record = attrs.evolve(make_record(1, parameters={"block_bytes": 10**6}), path=told(path(0)))
    record = attrs.evolve(record, target=attrs.evolve(record.target, limit_bytes_per_s=13e6))
    assert checks.bound(record, record.steps[0], "read") == 13e6


def test_bound_is_not_applicable_without_a_path() -> None:
    assert verdict(make_record(10), "faster than its bound") == checks.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("r2ts", "expected"), [(3, checks.PASS), (3.05, checks.PASS), (1, checks.FAIL), (4, checks.FAIL)]
)
def test_r2ts_follow_from_the_bursts(r2ts: Any, expected: Any) -> None:
    assert verdict(iscsi_write(r2ts), "R2Ts a write follow") == expected


@pytest.mark.parametrize("reads", [500, 3000])
def test_r2ts_are_counted_by_writes_whatever_is_read_beside_them(reads: int) -> None:
    assert verdict(mixed(iscsi_write(3), reads), "R2Ts a write follow") == checks.PASS
    assert verdict(mixed(iscsi_write(2), reads), "R2Ts a write follow") == checks.FAIL


def test_r2ts_of_requests_that_the_kernel_splits_are_not_judged() -> None:
    record = iscsi_write(7)
    for sample in record.steps[0].samples:
        sample["disk.dev.write"] *= 2
    assert verdict(record, "R2Ts a write") == checks.NOT_APPLICABLE


@pytest.mark.parametrize(("factor", "expected"), [(1.0, checks.PASS), (1.015, checks.PASS), (0.9, checks.FAIL)])
@pytest.mark.parametrize("ramp_s", [0, 4])
def test_the_disk_moved_what_fio_asked_for(factor: Any, expected: Any, ramp_s: int) -> None:
    record: Any = make_record(100, seconds=10)
    moved = record.steps[0].document.moved_bytes() * (10 - ramp_s) // 10
    record = with_fio(record, lambda job: job["read"].update(io_bytes=moved, runtime=(10 - ramp_s) * 1000))
    record = with_step(record, job=record.steps[0].job + f"ramp_time={ramp_s}000ms\n")
    for sample in record.steps[0].samples:
        sample["disk.dev.read_bytes"] *= factor
    assert verdict(record, "bytes that fio asked for") == expected


def wire(tx_bytes: Any, rx_bytes: Any = 144_000, tx_packets: Any = 200_000) -> Any:
    """300 MB written with 3,000 PDUs to the target and 3,000 back, as the interface counted them without headers."""
    record = make_record(100, op="write", seconds=3)
    packets = {"tx_packets": tx_packets, "rx_packets": 100_000}
    nic = {"tx_bytes": tx_bytes + 66 * tx_packets, "rx_bytes": rx_bytes + 66 * 100_000} | packets
    # What iscsi_tcp says that it sent is too little whenever the socket was full.
    counts = {"scsicmd_pdus": 1000, "dataout_pdus": 2000, "r2t_pdus": 3000, "datain_pdus": 0, "txdata_octets": 10**8}
    before = Edge(
        {"eth0": dict.fromkeys(nic, 0)}, {"1": "eth0"}, luns={"1": ("sdb",)}, iscsi={"1": dict.fromkeys(counts, 0)}
    )
    return with_step(record, before=before, after=Edge({"eth0": nic}, iscsi={"1": counts}))


@pytest.mark.parametrize(
    ("tx_bytes", "rx_bytes", "expected"),
    [
        (300_144_000, 144_000, checks.PASS),
        (300_200_000, 180_000, checks.PASS),
        # Somebody else's traffic, either way; and a session that went another way.
        (320_000_000, 144_000, checks.FAIL),
        (300_144_000, 10_144_000, checks.FAIL),
        (1_000_000, 144_000, checks.FAIL),
    ],
)
def test_the_interface_carried_what_the_disk_did(tx_bytes: Any, rx_bytes: Any, expected: Any) -> None:
    record = wire(tx_bytes, rx_bytes)
    assert verdict(record, "interface carried") == expected
    assert not checks.voiding(record)
    before = record.steps[0].before
    two_luns, no_way = attrs.evolve(before, luns={"1": ("sdb", "sdc")}), attrs.evolve(before, session_nics={"1": None})
    for other in (two_luns, no_way):
        assert verdict(with_step(record, before=other), "interface carried") == checks.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("tx_bytes", "expected"), [(302_000_000, checks.PASS), (317_000_000, checks.PASS), (340_000_000, checks.FAIL)]
)
def test_packets_counted_joined_may_hide_headers(tx_bytes: Any, expected: Any) -> None:
    assert verdict(wire(tx_bytes - 66 * 5_000, tx_packets=5_000), "interface carried") == expected


def test_what_was_sent_again_is_no_other_traffic() -> None:
    record = wire(330_000_000)
    assert verdict(record, "interface carried") == checks.FAIL
    record.steps[0].samples[-1]["network.tcp.retranssegs"] = 20_000
    assert verdict(record, "interface carried") == checks.PASS


def test_a_stream_that_did_nothing_is_found() -> None:
    record = make_record(100)
    assert verdict(record, "every stream") == checks.PASS
    (busy,) = record.steps[0].document.jobs
    record = with_step(record, fio=FioOutput((busy, attrs.evolve(busy, read=busy.write))))
    assert verdict(record, "every stream") == checks.FAIL


@pytest.mark.parametrize(("r2ts", "expected"), [(3, checks.PASS), (2.5, checks.FAIL), (None, checks.NOT_APPLICABLE)])
def test_r2ts_of_a_capture_follow_from_the_bursts(r2ts: Any, expected: Any) -> None:
    record = attrs.evolve(iscsi_write(3), capture=Captured(32, 262144, r2ts))
    assert verdict(record, "in the capture") == expected


@pytest.mark.parametrize(("factor", "expected"), [(1.02, checks.PASS), (1.2, checks.FAIL), (0.8, checks.FAIL)])
def test_littles_law(factor: Any, expected: Any) -> None:
    record: Any = make_record(100)
    record = with_latency(record, factor)
    assert verdict(record, "latency is the depth") == expected


def test_littles_law_holds_for_few_requests_within_what_lies_outside_the_part() -> None:
    # 64 requests of 3 s each, 32 at a time, in 6 s: a full queue may count up to 3 s from before.
    record: Any = make_record(64 / 6 / 1e3, parameters={"block_bytes": 1000}, seconds=6)
    record = with_fio(with_step(record, depth=32), lambda job: job["read"]["lat_ns"].update(mean=3e9))
    assert verdict(record, "latency is the depth") == checks.PASS
    record = with_fio(record, lambda job: job["read"]["lat_ns"].update(mean=0.4e9))
    assert verdict(record, "latency is the depth") == checks.FAIL


@pytest.mark.parametrize("law", [law for law in checks.LAWS if law is not checks._streams])
def test_a_law_says_so_where_a_record_has_nothing_to_hold_against_it(law: Any) -> None:
    record = make_record(100)
    bare = with_step(record, samples=(), before=Edge(), after=Edge(), fabstat=None, closed_loop=False, job="")
    check = law(bare, bare.steps[0])
    assert check is None or check.verdict == checks.NOT_APPLICABLE


def test_only_a_run_whose_own_figure_cannot_be_right_is_left_out() -> None:
    record = iscsi_write(1)
    assert [one.law for one in checks.failed(record)] == ["R2Ts a write follow from the negotiated bursts"]
    assert not checks.voiding(record)
    fast = make_record(100, path=path(10), seconds=9, environment=EMULATED)
    assert [one.law for one in checks.voiding(fast)] == ["no direction is faster than its bound"]


def test_a_path_that_was_only_told_makes_no_figure_impossible() -> None:
    """Ping overstates a round trip; told 1 % too long, what the disk really gave was "cannot be right"."""
    fast = make_record(100, path=path(10), seconds=9)
    (broken,) = checks.failed(fast)
    assert broken.law == "no direction is faster than its bound" and broken.expected.endswith("as it was told")
    assert not checks.voiding(fast)


def test_stuck_requests_fail_the_stress_test() -> None:
    record = with_step(make_record(100), stuck=Stuck(60, 0.0))
    assert verdict(record, "stays outstanding") == checks.PASS
    record = with_step(record, stuck=Stuck(60, 61.0, (HangingRequest("read", 8, 61.0, "in_flight"),)))
    assert verdict(record, "stays outstanding") == checks.FAIL
