# SPDX-License-Identifier: GPL-2.0-or-later
"""The laws hold for consistent records, break for each kind of inconsistent one, and say when they do not apply."""

from typing import Any

import attrs
import pytest
from run_records import make_record, told, with_step

from fabtune.measure import checks, metrics
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


def iscsi_write(r2ts_per_write: Any, commands: Any = 400, size: Any = 262144) -> Any:
    """A record of writes over one session that negotiated NEGOTIATED."""
    record = make_record(50, op="write", parameters={"block_bytes": size})
    before = Edge(negotiated={"1": NEGOTIATED}, iscsi={"1": {"scsicmd_pdus": 7, "r2t_pdus": 3}})
    after = {"scsicmd_pdus": 7 + commands, "r2t_pdus": 3 + round(r2ts_per_write * commands)}
    return with_step(record, before=before, after=Edge(iscsi={"1": after}))


def test_bound_of_a_read_is_size_over_round_trip() -> None:
    limit = checks.bound(make_record(1, path=path(10)), make_record(1).steps[0], "read")
    assert limit == pytest.approx(1000 / (0.010 + 1000 / 119.55e6), rel=1e-4)


@pytest.mark.parametrize(("mb_per_s", "expected"), [(0.0999, checks.PASS), (0.102, checks.FAIL)])
def test_nothing_is_faster_than_its_bound(mb_per_s: Any, expected: Any) -> None:
    record = make_record(mb_per_s, path=path(10), seconds=1000)
    assert verdict(record, "faster than its bound") == expected


def test_a_short_window_may_hold_one_queue_more_than_the_bound() -> None:
    # 2 s at 10 ms: 200 round trips of 1 MB bound it to 99.9 MB/s x 2 s, and one request begun before may end inside.
    def record(mb_per_s: Any) -> Any:
        return make_record(mb_per_s, path=path(10), parameters={"block_bytes": 10**6}, seconds=2)

    bound = checks.bound(record(1), record(1).steps[0], "read")
    assert bound is not None
    limit = bound / 1e6
    assert verdict(record(limit + 0.4), "faster than its bound") == checks.PASS
    assert verdict(record(limit * 1.01 + 0.6), "faster than its bound") == checks.FAIL


def test_bound_of_a_write_pays_for_its_r2ts() -> None:
    record = attrs.evolve(iscsi_write(3), path=told(path(10)))
    # 192 KiB come in three bursts, one R2T at a time: four round trips.
    limit = checks.bound(record, record.steps[0], "write")
    assert limit == pytest.approx(262144 / (0.040 + 262144 / 119.55e6), rel=1e-4)
    assert checks.bound(record, record.steps[0], "read") == pytest.approx(
        262144 / (0.010 + 262144 / 119.55e6), rel=1e-4
    )


def test_bound_is_not_applicable_without_a_path() -> None:
    assert verdict(make_record(10), "faster than its bound") == checks.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("r2ts", "expected"), [(3, checks.PASS), (3.05, checks.PASS), (1, checks.FAIL), (4, checks.FAIL)]
)
def test_r2ts_follow_from_the_bursts(r2ts: Any, expected: Any) -> None:
    assert verdict(iscsi_write(r2ts), "R2Ts a write follow") == expected


def test_r2ts_of_requests_that_the_kernel_splits_are_not_judged() -> None:
    record = iscsi_write(7)
    record = attrs.evolve(record, target=attrs.evolve(record.target, queue={"max_sectors_kb": "128"}))
    assert verdict(record, "R2Ts a write") == checks.NOT_APPLICABLE


@pytest.mark.parametrize(("factor", "expected"), [(1.0, checks.PASS), (1.015, checks.PASS), (0.9, checks.FAIL)])
def test_the_disk_moved_what_fio_asked_for(factor: Any, expected: Any) -> None:
    record = make_record(100, seconds=3)
    record = with_step(record, job=record.steps[0].job + "direct=1\n")
    for sample in record.steps[0].samples:
        sample["disk.dev.read_bytes"] *= factor
    assert verdict(record, "bytes that fio asked for") == expected
    record = with_step(record, job=record.steps[0].job + "ramp_time=1000ms\n")
    assert verdict(record, "bytes that fio asked for") == checks.NOT_APPLICABLE


@pytest.mark.parametrize(("extra_bytes", "expected"), [(0, checks.PASS), (10**7, checks.FAIL), (-(10**7), checks.FAIL)])
def test_the_session_carried_what_the_disk_moved(extra_bytes: Any, expected: Any) -> None:
    record = make_record(100, op="write", seconds=3)
    counts = {"scsicmd_pdus": 1000, "scsirsp_pdus": 1000, "dataout_pdus": 2000, "r2t_pdus": 2000, "datain_pdus": 0}
    wire = {"txdata_octets": 300 * 10**6 + 48 * 3000 + extra_bytes, "rxdata_octets": 48 * 3000}
    before = Edge(luns={"1": ("sdb",)}, iscsi={"1": dict.fromkeys({**counts, **wire}, 0)})
    record = with_step(record, before=before, after=Edge(iscsi={"1": counts | wire}))
    assert verdict(record, "session carried") == expected
    record = with_step(record, before=attrs.evolve(before, luns={"1": ("sdb", "sdc")}))
    assert verdict(record, "session carried") == checks.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("tx_bytes", "rx_bytes", "expected"),
    [
        (300_000_000, 144_000, checks.PASS),
        (300_050_000, 180_000, checks.PASS),
        # Somebody else's traffic, either way; and a session that went another way.
        (320_000_000, 144_000, checks.FAIL),
        (300_000_000, 10_144_000, checks.FAIL),
        (1_000_000, 144_000, checks.FAIL),
    ],
)
def test_the_interface_carried_what_the_session_did(tx_bytes: Any, rx_bytes: Any, expected: Any) -> None:
    record = make_record(100, op="write", seconds=3)
    packets = {"tx_packets": 200_000, "rx_packets": 100_000}
    nic = {"tx_bytes": tx_bytes + 66 * 200_000, "rx_bytes": rx_bytes + 66 * 100_000} | packets
    session = {"txdata_octets": 300_000_000, "rxdata_octets": 144_000}
    before = Edge({"eth0": dict.fromkeys(nic, 0)}, {"1": "eth0"}, iscsi={"1": dict.fromkeys(session, 0)})
    record = with_step(record, before=before, after=Edge({"eth0": nic}, iscsi={"1": session}))
    assert verdict(record, "interface carried") == expected
    record = with_step(record, before=attrs.evolve(before, session_nics={"1": None}))
    assert verdict(record, "interface carried") == checks.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("tx_bytes", "expected"),
    [(302_000_000, checks.PASS), (317_000_000, checks.PASS), (340_000_000, checks.FAIL)],
)
def test_packets_counted_joined_may_hide_headers(tx_bytes: Any, expected: Any) -> None:
    record = make_record(100, op="write", seconds=3)
    nic = {"tx_bytes": tx_bytes, "tx_packets": 5_000, "rx_bytes": 144_000 + 66 * 100_000, "rx_packets": 100_000}
    session = {"txdata_octets": 300_000_000, "rxdata_octets": 144_000}
    before = Edge({"eth0": dict.fromkeys(nic, 0)}, {"1": "eth0"}, iscsi={"1": dict.fromkeys(session, 0)})
    record = with_step(record, before=before, after=Edge({"eth0": nic}, iscsi={"1": session}))
    assert verdict(record, "interface carried") == expected


def test_a_stream_that_did_nothing_is_found() -> None:
    record: Any = make_record(100)
    assert verdict(record, "every stream") == checks.PASS
    jobs = record.steps[0].fio["jobs"]
    jobs.append(dict.fromkeys(("read", "write"), jobs[0]["write"]))
    assert verdict(record, "every stream") == checks.FAIL


@pytest.mark.parametrize(("r2ts", "expected"), [(3, checks.PASS), (2.5, checks.FAIL), (None, checks.NOT_APPLICABLE)])
def test_r2ts_of_a_capture_follow_from_the_bursts(r2ts: Any, expected: Any) -> None:
    record = attrs.evolve(iscsi_write(3), capture=Captured(32, 262144, r2ts))
    assert verdict(record, "in the capture") == expected


@pytest.mark.parametrize(("factor", "expected"), [(1.02, checks.PASS), (1.2, checks.FAIL), (0.8, checks.FAIL)])
def test_littles_law(factor: Any, expected: Any) -> None:
    record: Any = make_record(100)
    record.steps[0].fio["jobs"][0]["read"]["lat_ns"]["mean"] *= factor
    assert verdict(record, "latency is the depth") == expected


def test_stuck_requests_fail_the_stress_test() -> None:
    record = with_step(make_record(100), stuck=Stuck(60, 0.0))
    assert verdict(record, "stays outstanding") == checks.PASS
    record = with_step(record, stuck=Stuck(60, 61.0, (HangingRequest("read", 8, 61.0, "in_flight"),)))
    assert verdict(record, "stays outstanding") == checks.FAIL


def test_cpu_per_gigabyte_is_of_the_measured_part() -> None:
    record = make_record(100, seconds=10)
    found = {metric.key: metric.value for metric in metrics.of_step(record.steps[0])}
    # The made-up sampler: 600 ms busy, 200 of it softirq, of 2000 ms a second, at 0.1 GB/s.
    assert found["cpu_s_per_gb"] == pytest.approx(6)
    assert found["softirq_s_per_gb"] == pytest.approx(2)
    assert found["sys_percent_per_mb_per_s"] == pytest.approx(100 * 500 / 2000 / 100)


@pytest.mark.parametrize(("ticks", "said"), [(4, False), (6, True)])
def test_a_few_ticks_of_the_cpu_clock_are_no_figure(ticks: Any, said: Any) -> None:
    step = make_record(100, seconds=10).steps[0]
    edges: Any = metrics.window(step)
    first, last = edges
    for name in ("user", "sys", "irq.soft"):
        last[f"kernel.all.cpu.{name}"] = first[f"kernel.all.cpu.{name}"]
    last["kernel.all.cpu.sys"] += 10 * ticks
    keys = [metric.key for metric in metrics.of_step(step)]
    assert ("cpu_s_per_gb" in keys) is said and "read_mb_per_s" in keys


def test_a_second_in_which_nothing_completed_has_no_percentiles_and_no_effect_on_the_cpu_figure() -> None:
    step = make_record(100, seconds=10).steps[0]
    edges: Any = metrics.window(step)
    first, _ = edges
    del first["fabstat.p50_ms"]
    found = {metric.key: metric.value for metric in metrics.of_step(step)}
    assert found["cpu_s_per_gb"] == pytest.approx(6)
