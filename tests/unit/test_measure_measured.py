# SPDX-License-Identifier: GPL-2.0-or-later
"""What fio waits for at its end is no part of what was measured, whoever counted it; by records of known content."""

from typing import Any

import attrs
import pytest
from run_records import make_record, said, with_fio, with_step

from fabtune.measure import measured, metrics
from fabtune.model import typed
from fabtune.model.outputs import FioOutput
from fabtune.model.runrecord import Readings, RunRecord, StepResult

TIMED = "time_based=1\nruntime=6000ms\nramp_time=4000ms\n"


def drained(*, early: bool = False) -> RunRecord:
    """32 requests outstanding, 3 s each: 6 s measured after 4 s of ramp, and 3 s until the last came back.

    60 of them came back in time after 3 s each, 32 bear the time of the last: up to 6 s.
    """
    record: Any = make_record(1, parameters={"block_bytes": 262144}, seconds=14)
    step = record.steps[0]
    written: Any = typed.STRICT.write(step.fio)
    (job,) = written["jobs"]
    bins = {str(3_000_000_000 + number): 1 for number in range(60)} | {"6200000000": 32}
    times = {"mean": 4.1e9, "N": 92, "max": 6_200_000_000}
    job["read"] = {
        "total_ios": 60, "io_bytes": 92 * 262144, "runtime": 9000, "clat_ns": {"bins": bins}, "lat_ns": times,
    }  # fmt: skip
    # The instant at which its ramp was over, as fio 3.39 wrote it in the lab.
    begun = {"job_start": round((step.samples[0]["time.unix"] + 4) * 1000)}
    before = None
    if early:
        mine = {
            "total_ios": 60,
            "io_bytes": 60 * 262144,
            "runtime": 6000,
            "lat_ns": {"mean": 3e9, "N": 60, "max": 3.1e9},
        }
        known = {"read": mine | {"clat_ns": {"bins": {"3000000000": 60}}}, "write": job["write"]}
        before = said(FioOutput, {"jobs": [known]})
    job.update(begun)
    for sample in step.samples:
        moved = 10 * min(10.0, sample["time.monotonic"]) + (32 if sample["time.monotonic"] >= 13 else 0)
        sample["disk.dev.read_bytes"] = moved * 256
    return with_step(record, depth=32, job=step.job + TIMED, fio=said(FioOutput, written), before_drain=before)


def figures(record: RunRecord) -> dict[str, float]:
    return {one.key: one.value for one in metrics.of_step(record.steps[0])}


def test_the_part_ends_when_the_run_time_does() -> None:
    step = drained().steps[0]
    assert measured.span(step) == measured.Span(4.0, 10.0)
    edges = measured.window(step)
    assert edges is not None
    assert [edge["time.monotonic"] for edge in edges] == [4.0, 10.0]


def test_where_fio_does_not_say_when_it_began_the_part_is_what_is_surely_inside() -> None:
    record: Any = drained()
    record = with_fio(record, lambda job: job.pop("job_start"))
    # Begun at 0 at the earliest; 9 s before 14 at the latest, if fio ended at once, or half a second before that.
    assert measured.span(record.steps[0]) == measured.Span(5.0, 10.5)


def test_the_rate_is_the_slope_over_the_part() -> None:
    found = figures(drained())
    assert found["read_mb_per_s"] == pytest.approx(10 * 0.262144)
    # By fio's own count, 60 requests begun over 9 s, it would be 7 a second.
    assert found["read_iops"] == pytest.approx(10)


@pytest.mark.parametrize("still", [(5, 6), (6, 9)])
def test_of_a_load_that_stood_still_the_rate_is_what_it_moved(still: tuple[int, int]) -> None:
    """100 requests a second of one outstanding, but for the seconds in which none came back: in the middle, late."""
    record: Any = drained()
    begin, end = still
    for sample in record.steps[0].samples:
        now = min(10.0, sample["time.monotonic"])
        sample["disk.dev.read_bytes"] = 100 * 256 * (now - max(0, min(now, end) - begin))
    found = figures(with_step(record, depth=1))
    # A line through all samples is up to a fifth below that.
    assert found["read_mb_per_s"] == pytest.approx((6 - (end - begin)) / 6 * 26.2144, rel=0.001)


def test_of_a_full_queue_that_bears_the_last_ones_time_no_percentile_is_said() -> None:
    found = figures(drained())
    # Half of all took no more than 3 s, wherever those 32 lie; more is not known.
    assert {key: value for key, value in found.items() if key.startswith("read_p")} == {"read_p50_ms": 3000.000045}
    assert measured.oldest_s(drained().steps[0], "read") is None


def test_what_fio_had_counted_before_it_waited_is_what_is_said() -> None:
    record = drained(early=True)
    found = figures(record)
    # 60 requests have no p99 but the slowest.
    assert (found["read_p50_ms"], found["read_p90_ms"], found.get("read_p99_ms")) == (3000, 3000, None)
    assert measured.oldest_s(record.steps[0], "read") == 3


def test_a_few_late_ones_leave_the_percentiles_below_them_known() -> None:
    latencies = measured.Latencies({100: 900, 105: 90, 999: 10}, drained=10)
    assert (latencies.quantile_ns(0.5), latencies.quantile_ns(0.99), latencies.quantile_ns(0.999)) == (100, 105, None)


def stats(completed: int, limit: int = 32, size: int = 262144) -> str:
    """A reading of fabstat after `completed` reads of about 3 s each."""
    return (
        "# fabstat 1\nmodule version=1 loaded_ns=0 time_ns={0} depth_modulus_ns=0\n"
        "buckets from_ns 0 2000000000 4000000000\n"
        "event_names busy\n"
        "device id=1 state=live disk=sdb dev=8:16 diskseq=1 hctl=- driver=x parent=- seen_ns=0 "
        "time_ns={0} in_flight=32 highest=32 limit={1} forgotten=0 eh_wakeups=0 depth_ns={2} at_limit_ns={0}\n"
        "op op=read issued={3} completed={3} sent_back=0 bytes={4} errors=0 "
        "device_ns={5} total_ns={5} refused=0 refused_ns=0\n"
        "histogram disk=sdb op=read time=device count={3} 1:{3}\n"
    ).format(completed * 10**8, limit, completed * 32 * 10**8, completed, completed * size, completed * 3 * 10**9)


def seen(**words: Any) -> StepResult:
    return attrs.evolve(drained().steps[0], fabstat=Readings(stats(10, **words), stats(60, **words)))


def test_fabstat_is_asked_first() -> None:
    assert measured.latencies(seen(), "read") == measured.Latencies({3 * 10**9: 50}, rounded=1 / 32, part_s=6)


def test_fabstat_is_not_asked_where_requests_wait_before_it_or_are_not_the_loads_own() -> None:
    for step in (seen(limit=16), seen(size=131072), attrs.evolve(seen(), job=seen().job.replace("direct=1\n", ""))):
        assert measured.latencies(step, "read").drained == 32


def short(label: str = "untouched", requests: int = 13, ms: int = 2300) -> RunRecord:
    """1.5 s of a queue of 32 whose requests take `ms`: only the quickest of them were seen to end."""
    record = make_record(2.5, label, parameters={"block_bytes": 262144}, seconds=3)

    def few(job: Any) -> None:
        bins = {str(ms * 1_000_000 + number): 1 for number in range(requests)}
        job["read"] |= {
            "total_ios": requests,
            "io_bytes": requests * 262144,
            "runtime": 1500,
            "clat_ns": {"bins": bins},
        }

    record = with_fio(record, few)
    step = record.steps[0]
    timed = TIMED.replace("6000ms", "1500ms").replace("4000ms", "1500ms")
    return with_step(record, depth=32, job=step.job + timed, before_drain=step.fio)


def test_no_percentile_is_said_of_requests_that_last_longer_than_half_the_part() -> None:
    """At 100 ms the demo's reads take 3.4 s by Little's law; those seen in 1.5 s said p50 2.3 s and p99 2.9 s."""
    assert not [key for key in figures(short()) if key.startswith("read_p")]
    assert figures(short())["read_mb_per_s"] > 0
    why = {one.key: one.why for one in metrics.told_and_untold(short().steps[0]) if isinstance(one, metrics.Untold)}
    assert "2.3 s in a part of 1.5 s" in why["read_p50_ms"] and "longer ones" in why["read_p50_ms"]
    # What was seen is no percentile of anything, and stays known.
    assert measured.oldest_s(short().steps[0], "read") == pytest.approx(2.3)


def test_no_percentile_is_said_that_rests_on_the_slowest_request_alone() -> None:
    """p99, p99.9 and the most of 13 requests were one figure, and judged."""
    found = figures(short(ms=600))
    assert [key for key in found if key.startswith("read_p")] == ["read_p50_ms", "read_p90_ms"]
    found = figures(short(requests=100, ms=600))
    assert [key for key in found if key.startswith("read_p")] == ["read_p50_ms", "read_p90_ms", "read_p99_ms"]
    why = {
        one.key: one.why for one in metrics.told_and_untold(short(ms=600).steps[0]) if isinstance(one, metrics.Untold)
    }
    assert set(why) == {"read_p99_ms", "read_p999_ms"} and "13 requests" in why["read_p99_ms"]


def test_of_runs_together_the_shortest_part_says_what_is_known() -> None:
    parts = [measured.Latencies({2 * 10**9: 5}, part_s=part_s) for part_s in (10.0, 3.0)]
    assert [one.quantile_ns(0.5) for one in parts] == [2 * 10**9, None]
    assert measured.together(parts).quantile_ns(0.5) is None


def test_a_load_that_ends_with_its_data_saw_every_request_end() -> None:
    record = short()
    whole = with_step(record, job=record.steps[0].job.replace("time_based=1\nruntime=1500ms\n", ""))
    assert figures(whole)["read_p50_ms"] == pytest.approx(2300, rel=0.01)
