# SPDX-License-Identifier: GPL-2.0-or-later
"""CPU time per GB: what is busy, what the host does anyway, and when nothing can be said."""

from typing import Any

import attrs
import pytest
from run_records import make_record, with_step

from fabtune.measure import metrics
from fabtune.model.runrecord import RunRecord, Sample
from fabtune.report import compare


def figures(record: RunRecord) -> dict[str, metrics.Metric]:
    return {one.key: one for one in metrics.of_step(record.steps[0])}


def ten_seconds(**rates: float) -> RunRecord:
    """1 GB in 10 s on two CPUs; `rates` are ms a second of CPU time by kind, the rest is idle."""
    record: Any = make_record(100, seconds=10)
    for sample in record.steps[0].samples:
        _spend(sample, sample["time.monotonic"], rates)
    return record  # type: ignore[no-any-return]


def _spend(sample: Sample, seconds: float, rates: dict[str, float]) -> None:
    kinds = {"user": 0.0, "nice": 0.0, "sys": 0.0, "wait.total": 0.0, "irq.hard": 0.0, "irq.soft": 0.0, "steal": 0.0}
    kinds |= rates
    for kind, ms in (kinds | {"idle": 2000 - sum(kinds.values())}).items():
        sample[f"kernel.all.cpu.{kind}"] = ms * seconds


def idle(**rates: float) -> tuple[Sample, Sample]:
    """Two samples a second apart of a host that only waits."""
    samples: tuple[Sample, Sample] = ({"time.monotonic": 5.0}, {"time.monotonic": 6.0})
    for sample in samples:
        _spend(sample, sample["time.monotonic"], rates)
    return samples


def test_it_is_of_the_measured_part() -> None:
    found = figures(make_record(100, seconds=10))
    # The made-up sampler: 600 ms busy, 200 of it softirq, of 2000 ms a second, at 0.1 GB/s.
    assert found["cpu_s_per_gb"].value == pytest.approx(6)
    assert found["cpu_s_per_gb"].error == pytest.approx(0.02)
    assert found["softirq_s_per_gb"].value == pytest.approx(2)
    assert found["sys_percent_per_mb_per_s"].value == pytest.approx(100 * 500 / 2000 / 100)


def test_what_a_hypervisor_stole_is_not_busy() -> None:
    assert figures(ten_seconds(sys=300, steal=900))["cpu_s_per_gb"].value == pytest.approx(3)


def test_what_the_host_does_anyway_is_left_out() -> None:
    record = with_step(ten_seconds(sys=300, user=100), idle=idle(sys=100, user=80))
    found = figures(record)
    assert found["cpu_s_per_gb"].value == pytest.approx(4 - 1.8)
    # Of ten seconds of load and, ten times as long as it was watched, of the idle host.
    assert found["cpu_s_per_gb"].error == pytest.approx(0.02 + 10 * 0.02)
    assert found["sys_s_per_gb"].value == pytest.approx(2)


@pytest.mark.parametrize(("ticks", "said"), [(9, False), (11, True)])
def test_fewer_than_ten_ticks_are_no_figure(ticks: int, said: bool) -> None:
    found = figures(ten_seconds(sys=ticks))
    assert ("cpu_s_per_gb" in found) is said and ("sys_s_per_gb" in found) is said and "read_mb_per_s" in found


def why_untold(record: RunRecord) -> str | None:
    """Return why the record tells no CPU time."""
    found = {one.key: one for one in metrics.told_and_untold(record.steps[0])}.get("cpu_s_per_gb")
    return found.why if isinstance(found, metrics.Untold) else None


def test_why_nothing_can_be_said_is_said() -> None:
    """It was "no run of untouched tells it", and never why."""
    assert why_untold(ten_seconds(sys=9)) == "it is less than ten of the kernel's ticks; measure longer"
    assert why_untold(ten_seconds(sys=11)) is None
    off = why_untold(with_step(ten_seconds(sys=90), idle=idle(sys=50)))
    assert off == "the host did more before the load than the load added"
    few = why_untold(with_step(ten_seconds(sys=50), idle=idle(sys=15)))
    assert few == "it is less than twice what it may be off by; measure longer"
    # Of a step that nobody watched there is nothing to be said.
    assert why_untold(with_step(ten_seconds(sys=9), samples=())) is None


def test_a_comparison_says_why_no_cpu_time_is_told() -> None:
    a, b = ([attrs.evolve(ten_seconds(sys=ms), label=label, started_unix_s=float(at)) for at in range(4)]
            for ms, label in ((9, "untouched"), (90, "wan")))  # fmt: skip
    (row,) = [one for one in compare.compare(a, b).rows if one.metric.key == "cpu_s_per_gb"]
    assert (
        row.judgement.why == "no run of untouched tells it: it is less than ten of the kernel's ticks; measure longer"
    )


def test_a_figure_that_may_be_all_error_is_none() -> None:
    assert "cpu_s_per_gb" in figures(with_step(ten_seconds(sys=90), idle=idle(sys=40)))
    assert "cpu_s_per_gb" not in figures(with_step(ten_seconds(sys=90), idle=idle(sys=50)))


@pytest.mark.parametrize(("before_ms", "under_load_ms", "said"), [(0, 250, True), (100, 250, True), (170, 250, False),
                                                                  (1000, 1000, False), (0, 1000, True)])  # fmt: skip
def test_what_other_work_leaves_when_it_makes_way_is_no_cost_of_the_load(
    before_ms: float, under_load_ms: float, said: bool
) -> None:
    """Beside other hosts' flows a read "cost" 3.9 s/GB, 20.7 without them; a target that polls made all free."""
    record: Any = ten_seconds()
    before = idle()
    for sample in (*record.steps[0].samples, *before):
        busy_ms = before_ms if sample in before else under_load_ms
        sample["exact.cpu.idle"] = sample["time.monotonic"] * (1000 - busy_ms) * 1e6
    found = figures(with_step(record, idle=before))
    assert ("cpu_s_per_gb" in found) is said
    if said:
        assert found["cpu_s_per_gb"].value == pytest.approx((under_load_ms - before_ms) / 100)


def test_with_one_cpu_whose_idle_time_is_known_to_the_ns_there_is_no_error() -> None:
    record: Any = ten_seconds(sys=11)
    before = idle()
    for sample in (*record.steps[0].samples, *before):
        # 1 ms busy in each second beside what ticks saw of it, which was none; 1 CPU.
        sample["exact.cpu.idle"] = sample["time.monotonic"] * (999e6 if sample in before else 988e6)
    found = figures(with_step(record, idle=before))["cpu_s_per_gb"]
    assert found.value == pytest.approx(0.11)
    assert found.error == 0


@pytest.mark.parametrize(
    ("initiator_ms", "target_ms", "path_ms", "shares"),
    [
        (20, 50, 20, {"initiator": 0.2, "target": 0.5, "path": 0.2}),
        # A fifth, and more, was for nobody in particular.
        (20, 40, 10, {}),
        # Not ten ticks in ten seconds.
        (2, 5, 2, {}),
    ],
)
def test_whose_the_time_is_comes_as_shares_or_not_at_all(
    initiator_ms: float, target_ms: float, path_ms: float, shares: dict[str, float]
) -> None:
    busy_ms = 100 if initiator_ms > 10 else 9
    record: Any = ten_seconds()
    before = idle()
    for sample in (*record.steps[0].samples, *before):
        # What the host does anyway is 10 ms a second of the target's end.
        quiet = sample in before
        seconds = sample["time.monotonic"]
        sample["exact.cpu.idle"] = seconds * (1e9 - 10e6 - (0 if quiet else busy_ms * 1e6))
        each = {"initiator": initiator_ms, "target": target_ms, "path": path_ms}
        for name, ms in each.items():
            sample[f"exact.cpu.{name}"] = seconds * 1e6 * ((0 if quiet else ms) + (10 if name == "target" else 0))
    assert metrics.cpu_by_end(with_step(record, idle=before).steps[0]) == pytest.approx(shares)


def test_a_second_in_which_nothing_completed_has_no_percentiles_and_no_effect() -> None:
    record: Any = make_record(100, seconds=10)
    del record.steps[0].samples[0]["fabstat.p50_ms"]
    assert figures(record)["cpu_s_per_gb"].value == pytest.approx(6)
