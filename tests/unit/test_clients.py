# SPDX-License-Identifier: GPL-2.0-or-later
"""Many clients at once: what counts as the measured part, and what is said of the clients."""

import attrs
import pytest
from run_records import make_record, with_step
from test_stat import reading

from fabtune.errors import FabtuneError
from fabtune.experiment import clients, expect
from fabtune.experiment.expect import Expectation
from fabtune.experiment.summary import summarise
from fabtune.measure import measured
from fabtune.measure.beat import off_beat
from fabtune.model.results import Point
from fabtune.model.runrecord import RunRecord, Stuck

SECOND = 1_000_000_000
# One request of 4 KiB at a time.
QUEUE = 4096


def two_disks(first: int, second: int, time_ns: int, took_ns: int = 1_000_000) -> str:
    """A reading of sda and sdb after so many requests of 4 KiB, in 1 ms each."""
    texts = [
        reading([took_ns] * count, time_ns=time_ns, number=number, identity=f"disk={disk} dev=8:{number} diskseq=9 "
                "hctl=2:0:0:1 driver=iscsi_tcp parent=session3")
        for number, disk, count in ((4, "sda", first), (5, "sdb", second))
    ]  # fmt: skip
    return texts[0] + texts[1][texts[1].index("device id=") :]


def record(oldest_s: float = 0.5) -> RunRecord:
    return with_step(make_record(100), stuck=Stuck(clients.STUCK_S, oldest_s))


READINGS = [
    (100.0, two_disks(10, 10, 10 * SECOND)),
    (102.0, two_disks(100, 100, 12 * SECOND)),
    (103.0, two_disks(400, 150, 13 * SECOND)),
    (104.0, two_disks(700, 200, 14 * SECOND)),
    (106.0, two_disks(9000, 9000, 16 * SECOND)),
]


def test_ramp_and_drain_are_left_out_and_the_slowest_client_is_held_against_the_mean() -> None:
    seen = clients.measured_part(READINGS, 101.5, 3.0, ["sda", "sdb"], QUEUE)
    found = clients.figures(record(), "read", seen)
    assert found["mb_per_s"] == pytest.approx((600 + 100) * 4096 / 2 / 1e6, abs=0.01)
    assert found["slowest_mb_per_s"] == pytest.approx(100 * 4096 / 2 / 1e6, abs=0.001)
    assert found["fastest_mb_per_s"] == pytest.approx(600 * 4096 / 2 / 1e6, abs=0.001)
    assert found["slowest_share"] == pytest.approx(100 / 350, abs=0.001)
    assert found["p50_ms"] == pytest.approx(1, rel=0.1) and found["oldest_s"] == 0.5


def test_what_is_slow_is_known_to_more_than_a_hundredth_of_a_megabyte() -> None:
    """Over a long path a request of 4 KiB at a time is 0.08 MB/s, and 1 % more was 12.5 %."""
    seen = clients.measured_part(READINGS, 101.5, 3.0, ["sda", "sdb"], QUEUE)
    slow = [attrs.evolve(one, bytes_per_s=one.bytes_per_s / 25) for one in seen]
    found = clients.figures(record(), "read", slow)
    assert found["mb_per_s"] == pytest.approx((600 + 100) * 4096 / 50 / 1e6, rel=1e-4)
    assert found["slowest_mb_per_s"] == pytest.approx(100 * 4096 / 50 / 1e6, rel=1e-4)


def test_of_clients_in_step_a_request_more_or_less_of_each_does_not_count() -> None:
    # Two a second of each, first read right before one, last right after one.
    at = [100 + 0.40 + 0.31 * number for number in range(16)]
    done = [int((one - 100) / 0.5) + 1 for one in at]
    readings = [(one, two_disks(n, n, round(one * SECOND))) for one, n in zip(at, done, strict=True)]
    assert (done[-1] - done[0]) / (at[-1] - at[0]) / 2 > 1.07
    part = clients.measured_part(readings, 100.0, 6.0, ["sda", "sdb"], QUEUE)
    assert [one.bytes_per_s for one in part] == [pytest.approx(2 * 4096, rel=0.02)] * 2


def test_a_client_that_got_nothing_done_has_no_share() -> None:
    still = [(at, text) for at, text in ((102.0, two_disks(1, 7, 12 * SECOND)), (104.0, two_disks(50, 7, 14 * SECOND)))]
    found = clients.figures(record(), "read", clients.measured_part(still, 101.0, 4.0, ["sda", "sdb"], QUEUE))
    assert found["slowest_mb_per_s"] == 0 and found["slowest_share"] == 0


def test_a_client_that_was_never_seen_and_too_short_a_run_are_errors() -> None:
    with pytest.raises(FabtuneError, match="sdc.*one client got nothing through"):
        clients.measured_part(READINGS, 101.5, 3.0, ["sda", "sdb", "sdc"], QUEUE)
    with pytest.raises(FabtuneError, match="1 readings in the measured part"):
        clients.measured_part(READINGS, 103.5, 1.0, ["sda", "sdb"], QUEUE)


def test_a_load_that_hung_has_no_throughput_but_the_age_of_its_oldest_request() -> None:
    found = clients.figures(record(61.2), "read", [])
    assert found["oldest_s"] == 61.2 and found["mb_per_s"] == 0


def test_a_request_s_time_counts_from_its_first_issue_as_one_client_s_does() -> None:
    """Beside clients = 1 stood a p99 of 17 ms, and beside clients = 2 one of 1 ms: from the last issue on."""

    def retried(done: int, time_ns: int) -> str:
        quick, slow = (two_disks(done, done, time_ns, took_ns).splitlines() for took_ns in (10**6, 17 * 10**6))
        return "".join(f"{b if ' time=total ' in b else a}\n" for a, b in zip(quick, slow, strict=True))

    readings = [(102.0, retried(100, 12 * SECOND)), (104.0, retried(400, 14 * SECOND))]
    found = clients.figures(record(), "read", clients.measured_part(readings, 101.0, 4.0, ["sda", "sdb"], QUEUE))
    assert (found["p50_ms"], found["p99_ms"]) == pytest.approx((17, 17), rel=0.1)


@pytest.mark.parametrize("op", ["read", "mixed"])
def test_no_percentile_is_longer_than_the_longest_wait(op: str) -> None:
    """A longest wait of 3.9 s, which fio told, stood beside a p99 of 6.3 s, which fabstat saw."""
    step = record().steps[0]
    by_fio = max(measured.oldest_s(step, way) or 0.0 for way in ("read", "write"))
    slow = [
        (at, two_disks(done, done, time_ns, 6 * SECOND))
        for at, done, time_ns in ((102.0, 10, 12 * SECOND), (130.0, 500, 40 * SECOND))
    ]
    seen = clients.measured_part(slow, 101.0, 30.0, ["sda", "sdb"], QUEUE)
    longest_s = clients.longest_wait_s(step, op, seen)
    assert by_fio < longest_s == pytest.approx(6, rel=0.1)
    taken = attrs.evolve(record(longest_s), runtime_s=30.0)
    found = clients.figures(taken, "read", seen)
    assert found["p99_ms"] is not None and found["oldest_s"] is not None
    assert found["p99_ms"] <= found["oldest_s"] * 1e3
    # What fio alone saw counts as well.
    assert clients.longest_wait_s(step, op, []) == by_fio


def test_clients_whose_requests_outlast_the_part_have_no_percentile() -> None:
    seen = clients.measured_part(READINGS, 101.5, 3.0, ["sda", "sdb"], QUEUE)
    # Requests of 1 ms in a part of 1 ms.
    found = clients.figures(attrs.evolve(record(), runtime_s=0.001), "read", seen)
    assert found["p50_ms"] is None and found["p99_ms"] is None and found["mb_per_s"]


def test_what_all_writers_and_seeds_are_off_by_alike_is_in_their_interval() -> None:
    """Writers held to 0.5 MB/s were 0.522 to 0.534 of all seeds: readings each half a second see whole requests."""
    period_s, ramp_s = 4096 / 7812.5, 1.0
    worst: list[Point] = []
    for latency_ms in range(20, 600, 20):
        begun = [int((off_beat(turn, 0.5) - latency_ms / 1e3) / period_s) + 1 for turn in range(30)]
        readings = [
            (100.0 + off_beat(turn, 0.5), two_disks(count, count, round((10 + off_beat(turn, 0.5)) * SECOND)))
            for turn, count in enumerate(begun)
        ]
        seen = clients.measured_part(readings, 100.0 + ramp_s, 6.0, ["sda", "sdb"], QUEUE)
        point = Point(clients.figures(record(), "write", seen) | clients.off_by(seen) | {"profile": "untouched"})
        worst = sorted([*worst, point], key=lambda one: one.number("mb_per_s"))
    # Chance moves a seed's phase by a hundredth or so.
    for seeds in (worst[-3:], worst[:3]):
        (row,) = summarise([({"profile": "untouched"}, one | {"seed": seed}) for seed, one in enumerate(seeds, 1)])
        assert abs(row.point["mb_per_s"] - 0.015625) > 0.03 * 0.015625
        assert row.point["mb_per_s_low"] <= 0.015625 <= row.point["mb_per_s_high"]
        at_most = Expectation(says="x", where={}, of={}, to={}, figure="mb_per_s", at_most=0.0155)
        given = [one | {"seed": seed} for seed, one in enumerate(seeds, 1)]
        assert expect.judge(at_most, given, {"profile": ["untouched"]}).holds is None
        bare = [({"profile": "untouched"}, Point({**one, "mb_per_s_off": 0.0})) for one in seeds]
        assert not summarise(bare)[0].point["mb_per_s_low"] <= 0.015625 <= summarise(bare)[0].point["mb_per_s_high"]
