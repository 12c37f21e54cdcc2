# SPDX-License-Identifier: GPL-2.0-or-later
"""Laws between runs: each holds for curves made by the model, and fails for curves bent elsewhere."""

import base64
import csv
import io
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from run_records import EMULATED, make_record, said, with_latency, with_step

from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.measure import checks, recordfile
from fabtune.measure.checks import FAIL, NOT_APPLICABLE, PASS
from fabtune.model.outputs import FioOutput, Iperf3Output
from fabtune.model.path import NetworkPath, bound_bytes_per_s
from fabtune.model.runrecord import Edge, RunRecord, SessionTurn, StepResult
from fabtune.report import cells, laws

SIZE = 262144
RTTS_MS = (1, 10, 50, 100, 150)
BURSTS = {
    "ImmediateData": "Yes", "InitialR2T": "Yes", "FirstBurstLength": "65536", "MaxBurstLength": "65536",
    "MaxXmitDataSegmentLength": "262144",
}  # fmt: skip


def at_depth(record: RunRecord, depth: int) -> RunRecord:
    """Give a record of depth 1 the latency that goes with `depth`."""
    return with_step(with_latency(record, depth), depth=depth)


def curve(depth: Any = 32, rtts_ms: Any = RTTS_MS, label: Any = "wan", slower: Any = 1.0, stretched: Any = 1.0) -> Any:
    """Runs that follow the bound: `slower` scales the whole, `stretched` the round trips that each request takes."""
    made = []
    for rtt_ms in rtts_ms:
        path = NetworkPath(stretched * rtt_ms / 1e3, 1.25e8)
        rate = 0.99 * slower * bound_bytes_per_s(path, SIZE, depth) / 1e6
        parameters = {"block_bytes": SIZE, "queue_depth": depth}
        given = {"rtt_ms": rtt_ms, "rate_bytes_per_s": 1.25e8, "mtu": 1500}
        made.append(at_depth(make_record(rate, label, parameters=parameters, path=given, seconds=100), depth))
    return made


def verdicts(records: Any, law: Any) -> Any:
    return [check.verdict for check in laws.of_records(records) if check.law == law]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (curve(), PASS),
        # Each request takes a quarter more than its round trip: the bend comes early.
        (curve(stretched=1.25), FAIL),
        (curve(rtts_ms=(1, 10, 50)), NOT_APPLICABLE),
        # A CPU that never fills the link.
        (curve(slower=0.5), NOT_APPLICABLE),
    ],
)
def test_the_knee_is_where_the_queue_stops_filling_the_link(made: Any, expected: Any) -> None:
    assert verdicts(made, laws.KNEE) == [expected]


def test_a_curve_that_does_not_bend_where_it_must_fails() -> None:
    made = curve(rtts_ms=(1, 50, 80))
    flat = make_record(118, "wan", parameters=made[-1].steps[0].parameters, seconds=100)
    flat = attrs.evolve(flat, path=made[-1].path)
    assert verdicts([*made[:2], at_depth(flat, 32)], laws.KNEE) == [FAIL]
    # Past the bound of an emulated path the run cannot be right, and takes no part in the report's laws between runs.
    cannot_be = attrs.evolve(at_depth(flat, 32), environment=EMULATED)
    assert verdicts([*made[:2], cannot_be], laws.KNEE) == [NOT_APPLICABLE]


def writes_at_the_bound(rtt_ms: int, *, depth: int) -> RunRecord:
    """A run of writes of 1 MiB, of which the kernel makes two, each of two R2Ts: as fast as its path allows."""

    def at(mb_per_s: float) -> RunRecord:
        made = make_record(
            mb_per_s, "wan", op="write", parameters={"block_bytes": 2**20, "queue_depth": depth}, seconds=100,
            path={"rtt_ms": rtt_ms, "rate_bytes_per_s": 1.25e8, "mtu": 1500},
        )  # fmt: skip
        made = attrs.evolve(made, target=attrs.evolve(made.target, queue={"max_sectors_kb": "512"}))
        bursts = BURSTS | {"MaxBurstLength": "262144", "MaxOutstandingR2T": "1"}
        return with_step(with_latency(made, depth), depth=depth, before=Edge(negotiated={"1": bursts}))

    slow = at(50)
    with_depth = checks.bound(slow, slow.steps[0], "write")
    assert with_depth
    return at(0.999 * with_depth / 1e6)


def test_the_knee_of_writes_that_the_kernel_splits_is_that_of_their_bound() -> None:
    """The law counted the round trips of a whole write, the bound those of its parts: at the bound it was broken."""
    made = [writes_at_the_bound(rtt_ms, depth=32) for rtt_ms in (1, 10, 50, 100, 200, 300)]
    assert verdicts(made, laws.KNEE) == [PASS]


def test_a_load_both_ways_has_no_knee_of_its_own_way_alone() -> None:
    """Reads and writes share depth and link: held against a depth that is all of one's, both always failed."""
    made = []
    for rtt_ms in RTTS_MS:
        path = {"rtt_ms": rtt_ms, "rate_bytes_per_s": 1.25e8, "mtu": 1500}
        rate = 0.99 * bound_bytes_per_s(NetworkPath(rtt_ms / 1e3, 1.25e8), SIZE, 32, share=0.5) / 1e6
        read, write = (
            make_record(rate, "wan", op=op, parameters={"block_bytes": SIZE}, path=path, seconds=100)
            for op in ("read", "write")
        )
        jobs = tuple(job for one in (read, write) for job in one.steps[0].document.jobs)
        made.append(with_step(read, fio=FioOutput(jobs), depth=32, samples=()))
    assert verdicts(made, laws.KNEE) == []


@pytest.mark.parametrize(("stretched", "expected"), [(1.0, PASS), (0.7, FAIL)])
def test_twice_the_depth_moves_the_knee_to_twice_its_place(stretched: Any, expected: Any) -> None:
    deeper = curve(64, rtts_ms=(1, 50, 150, 300), stretched=stretched)
    found = [c.verdict for c in laws._doubled(list(laws._knees(cells.cells([*curve(), *deeper]))))]
    assert found == [expected]


@pytest.mark.parametrize(("extra_ms", "expected"), [(0, PASS), (12, FAIL)])
def test_fewer_r2ts_save_their_round_trips(extra_ms: Any, expected: Any) -> None:
    made = []
    for label, outstanding, trips in (("default", "1", 4), ("wan", "16", 2)):
        latency_ms = 10 * trips + 3 + (extra_ms if label == "default" else 0)
        one = make_record(
            SIZE / latency_ms / 1e3,
            label,
            op="write",
            parameters={"block_bytes": SIZE},
            path={"rtt_ms": 10},
            seconds=100,
        )
        before = Edge(negotiated={"1": BURSTS | {"MaxOutstandingR2T": outstanding}})
        made.append(with_step(one, before=before))
    assert verdicts(made, laws.SAVED) == [expected]


def test_one_window_is_the_same_product_at_every_round_trip() -> None:
    def runs(windows: Any) -> Any:
        path = {"rate_bytes_per_s": 1.25e8, "mtu": 1500}
        return [
            make_record(window / rtt / 1e3, path=path | {"rtt_ms": rtt}, parameters={"block_bytes": 10**6}, seconds=100)
            for rtt, window in zip((10, 20, 50), windows, strict=True)
        ]

    assert verdicts(runs([65536] * 3), laws.WINDOW) == [PASS]
    assert verdicts(runs([65536, 65536, 131072]), laws.WINDOW) == [NOT_APPLICABLE]


@pytest.mark.parametrize(("factor", "expected"), [(1.0, PASS), (1.3, FAIL)])
def test_a_window_that_was_asked_for_bounds_raw_tcp_at_every_round_trip(factor: Any, expected: Any) -> None:
    def net(rtt_ms: Any, window_rate: Any) -> Any:
        steps = tuple(
            StepResult(
                name,
                {"op": "send", "window_bytes": window},
                iperf3=said(Iperf3Output, {"end": {"sum_received": {"bits_per_second": rate * 8e6}}}),
            )
            for name, window, rate in (("send, window 64 KiB", 65536, window_rate), ("send", 0, 110))
        )
        return attrs.evolve(make_record(1, "wan", workload="net"), steps=steps, round_trips_ms=(rtt_ms,) * 3)

    assert verdicts([net(10, 6.55), net(20, 3.28 * factor)], laws.WINDOW) == [expected]


@pytest.mark.parametrize(("shift", "lost", "expected"), [(0, 0, PASS), (0, 3, NOT_APPLICABLE), (5, 0, FAIL)])
def test_a_against_itself_proves_a_bias_or_none(shift: Any, lost: Any, expected: Any) -> None:
    made = []
    for pair in range(6):
        for side in "AB":
            one = make_record(
                100 + pair % 3 + (shift if side == "B" else 0) + (pair % 2) * (side == "B") * 0.1, pair=pair
            )
            made.append(attrs.evolve(one, session=SessionTurn("s-calibration", pair, side)))
    (job,) = made[1].steps[0].document.jobs
    less = attrs.evolve(job.read, io_bytes=job.read.io_bytes - lost * 10**6)
    made[1] = with_step(made[1], fio=FioOutput((attrs.evolve(job, read=less),)))
    assert verdicts(made, laws.A_AGAINST_A) == [expected]


def stalled(record: Any) -> Any:
    """The run with a disk that moved nothing while it was measured: all that it was asked for came back after it."""
    *samples, last = record.steps[0].samples
    idle = [one | {"disk.dev.read": 0, "disk.dev.read_bytes": 0} for one in (*samples, last)]
    later = {"time.unix": last["time.unix"] + 1, "time.monotonic": last["time.monotonic"] + 1}
    job = f"{record.steps[0].job}time_based=1\nruntime={last['time.monotonic']:.0f}\n"
    return with_step(record, job=job, samples=(*idle, last | later))


def test_a_round_trip_at_which_nothing_moved_is_no_point_of_the_curve(tmp_path: Path) -> None:
    """The report of a target that stalled for the whole measured part was a ZeroDivisionError, and no page."""
    made = [*curve(), *map(stalled, curve(rtts_ms=(200,)))]
    assert made[-1].complete and cells.cells(made)[-1].median("mb_per_s") == 0
    assert verdicts(made, laws.KNEE) == [PASS]
    # Nor does it show that the curve was measured beyond its knee.
    assert verdicts([*curve(rtts_ms=(1, 10, 50)), made[-1]], laws.KNEE) == [NOT_APPLICABLE]
    assert verdicts(list(map(stalled, curve())), laws.KNEE) == []
    for number, one in enumerate(made):
        recordfile.write(one, tmp_path / "runs" / f"{number}.run.json.gz")
    assert main(["report", str(tmp_path / "runs")]) == ExitCode.DONE


def test_a_pair_without_a_ratio_is_shown_without_one(tmp_path: Path) -> None:
    """One run of a session during which nothing moved, and its page was a ZeroDivisionError."""
    made = [
        make_record(rate + pair, label, pair, seconds=10) for pair in range(4)
        for label, rate in (("default", 100), ("wan", 110))
    ]  # fmt: skip
    for number, one in enumerate([stalled(made[0]), *made[1:]]):
        recordfile.write(one, tmp_path / "runs" / f"{number}.run.json.gz")
    assert main(["report", str(tmp_path / "runs")]) == ExitCode.DONE
    assert "a value of 0 has no ratio" in (tmp_path / "runs/report.html").read_text()


def test_the_report_names_them(tmp_path: Path) -> None:
    for number, one in enumerate(curve()):
        recordfile.write(one, tmp_path / "runs" / f"{number}.run.json.gz")
    assert main(["report", str(tmp_path / "runs")]) == ExitCode.DONE
    html = (tmp_path / "runs/report.html").read_text()
    shown = [
        list(csv.DictReader(io.StringIO(base64.b64decode(encoded).decode())))
        for encoded in re.findall(r"data:text/csv;base64,([^\"]+)", html)
    ]
    rows = next(rows for rows in shown if rows and rows[0].get("law") == laws.KNEE)
    assert (rows[0]["verdict"], rows[0]["runs"]) == ("pass", "xdd read, wan, block_bytes 262144, queue_depth 32")
