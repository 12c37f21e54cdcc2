# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune --goal: whose requests count, what a look says of them, and which steps serve which goal."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import attrs
import hosttree
import pytest
from kept_looks import kept
from test_stat import histogram, reading
from test_tune_planned import with_rtt

from fabtune.autotune import view
from fabtune.autotune.goal import Aim, Figures, Goal, JudgedStep, beside_a_stream, joined_blocks
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.tuned_ends import Lifting, changes_of
from fabtune.autotune.view import View
from fabtune.autotune.wanted import PATH_QUEUE, QUEUED_REQUESTS, wanted_steps
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import CannotTellError, ExitCode, FabtuneError
from fabtune.facts.collect import Reading, collect
from fabtune.measure import request_times
from fabtune.measure.request_times import DiskTimes, RequestTimes, TimesReading, check_histograms, times_between
from fabtune.model import typed
from fabtune.model.device import Device
from fabtune.model.judgement import Judgement, Verdict
from fabtune.model.observation import Observation
from fabtune.model.path import NetworkPath
from fabtune.stat import parse
from fabtune.tune import saved_plan
from fabtune.tune.lift import Reason
from fabtune.tune.plan import CHANGE, Row, make_plan
from fabtune.why.judging import Share, judged

MS = 1_000_000
SLOW = NetworkPath(0.02, 12.5e6)
LATENCY, BOTH, THROUGHPUT = Goal.LATENCY, Goal.BOTH, Goal.THROUGHPUT


def times(*ms: float, waited_ms: float = 0.0) -> DiskTimes:
    return DiskTimes(histogram([round(one * MS) for one in ms]), waited_ms * len(ms))


def steady(value: float) -> tuple[float, ...]:
    """Ten blocks that vary by 2 %."""
    return tuple(value * (1 + 0.02 * (turn % 2)) for turn in range(10))


def outcome(goal: Goal, *, speed: float = 1.0, tail: float = 1.0, middle: float = 1.0) -> JudgedStep:
    """Return what came of a step after which the figures are so many times what they were."""
    before = Figures(steady(12e6), steady(50.0), steady(700.0))
    after = Figures(steady(12e6 * speed), steady(50.0 * middle), steady(700.0 * tail))
    return Aim(goal, frozenset({"sda"})).outcome(before, after)


@pytest.mark.parametrize(
    ("goal", "figures", "kept"),
    [
        (LATENCY, {"tail": 0.3}, True),
        (LATENCY, {"tail": 0.3, "middle": 0.5, "speed": 0.95}, True),
        (LATENCY, {"tail": 0.3, "speed": 0.85}, False),
        (LATENCY, {"tail": 0.3, "middle": 1.3}, False),
        (LATENCY, {"speed": 2.0}, False),
        (LATENCY, {"tail": 1.5, "speed": 2.0}, False),
        (BOTH, {"tail": 0.3}, True),
        (BOTH, {"speed": 1.5}, True),
        (BOTH, {"tail": 0.3, "speed": 0.95}, False),
        (BOTH, {"tail": 1.2, "speed": 1.5}, False),
        (BOTH, {"tail": 0.3, "middle": 1.3}, False),
        (BOTH, {}, False),
        (THROUGHPUT, {"speed": 1.5, "tail": 3.0}, True),
        (THROUGHPUT, {"tail": 0.3}, False),
    ],
)
def test_a_step_stays_if_it_serves_the_goal(goal: Goal, figures: dict[str, float], kept: bool) -> None:
    assert outcome(goal, **figures).serves(goal) is kept


def test_a_gain_that_chance_explains_serves_no_goal() -> None:
    wild = (100.0, 900.0, 300.0, 500.0)
    before, after = Figures(steady(12e6), wild, wild), Figures(steady(12e6), wild, wild[::-1])
    found = Aim(LATENCY).outcome(before, attrs.evolve(after, p99_ms=(90.0, 850.0, 290.0, 480.0)))
    assert found.p99 and found.p99.verdict is Verdict.CANNOT_TELL
    assert not found.serves(LATENCY) and not found.serves(BOTH)


FASTER = tuple(120e6 * (1 + 0.01 * (turn % 2)) for turn in range(7))
_RATES, _MEDIANS, _TAILS = (100e6, 101e6) * 3 + (100e6,), (30.0,) * 7, (50.0, 51.0) * 3 + (50.0,)


@pytest.mark.parametrize(
    "after",
    [
        # 0.55 to 1.2 of the throughput; 0.7 to 3.7 of the p99; and not one request of the disk that counts.
        Figures((40e6, 101e6, 100e6, 55e6, 101e6, 100e6, 99e6), (20.0,) * 7, (25.0, 26.0) * 3 + (25.0,)),
        Figures(FASTER, _MEDIANS, (45.0, 160.0, 50.0, 190.0, 48.0, 170.0, 47.0)),
        Figures(FASTER),
    ],
)
def test_both_keeps_nothing_that_may_have_cost_much_of_the_other(after: Figures) -> None:
    found = Aim(BOTH, frozenset({"sda"})).outcome(Figures(_RATES, _MEDIANS, _TAILS), after)
    assert Verdict.CANNOT_TELL in (found.throughput.verdict, found.p99 and found.p99.verdict)
    assert not found.serves(BOTH) and found.undecided(BOTH)


def test_what_stops_now_and_then_is_slower_however_long_it_was_looked_at() -> None:
    steady, stopping = (10e6, 10.1e6) * 7, ((10e6, 10.1e6) * 3 + (3e6,)) * 2
    outcome = Aim(Goal.THROUGHPUT).outcome(Figures(steady), Figures(stopping))
    assert outcome.throughput.verdict is not Verdict.SAME and not outcome.serves(Goal.THROUGHPUT)
    gain = Aim(Goal.THROUGHPUT).outcome(Figures(stopping), Figures(tuple(1.3 * one for one in steady)))
    assert gain.throughput.verdict is Verdict.BETTER


def test_throughput_alone_is_judged_as_ever_and_times_only_where_they_are_asked_for() -> None:
    assert outcome(THROUGHPUT, speed=1.5).p99 is None
    assert isinstance(outcome(BOTH).p99, Judgement)


def test_what_requests_wait_for_in_the_block_queue_is_added_to_what_fabstat_saw() -> None:
    found = times(*[10.0] * 99, 50.0).percentile_ms(99)
    assert found == pytest.approx(10.0, rel=0.07)
    assert times(*[10.0] * 100, waited_ms=600.0).percentile_ms(50) == pytest.approx(610.0, rel=0.07)
    assert times().percentile_ms(99) is None


def test_a_block_is_the_difference_of_two_readings_by_disk() -> None:
    first = TimesReading(parse(reading([10 * MS])), {"sda": (100, 1000.0)})
    # Two more of 20 ms by fabstat, of 50 ms each by the block layer: they waited for 30 ms before.
    last = TimesReading(parse(reading([10 * MS, 20 * MS, 20 * MS], time_ns=3_000_000_000)), {"sda": (102, 1100.0)})
    found = times_between(first, last)["sda"]
    assert found.requests == 2 and found.waited_ms == pytest.approx(60.0)
    # A disk that nobody asked of is none of theirs.
    assert times_between(first, attrs.evolve(last, spent={})) == {}


def test_readings_are_taken_each_second_of_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def snapshot() -> object:
        taken.append(1)
        return parse(reading([10 * MS] * len(taken), time_ns=2_000_000_000 + len(taken)))

    monkeypatch.setattr(request_times, "snapshot", snapshot)
    found = RequestTimes(1.0)
    for turn in range(16):
        found.sample(["sda"], 0.2 * turn)
    assert len(taken) == 4 and [block["sda"].requests for block in found.blocks()] == [1, 1, 1]


def test_without_fabstat_nothing_can_be_told_and_the_exit_code_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot() -> object:
        raise FabtuneError("fabstat is not loaded")

    monkeypatch.setattr(request_times, "snapshot", snapshot)
    with pytest.raises(CannotTellError, match="without fabstat's histograms: fabstat is not loaded") as told:
        check_histograms()
    assert told.value.exit_code == ExitCode.CANNOT_TELL


def test_blocks_of_few_requests_are_joined_and_a_look_with_too_few_tells_nothing() -> None:
    disks = frozenset({"sda"})
    blocks = [{"sda": times(*[5.0] * 8), "sdb": times(*[900.0] * 50)}] * 7
    assert [one.requests for one in joined_blocks(blocks, disks)] == [24, 24]
    with pytest.raises(CannotTellError, match=r"the p99 of 56 requests: at least 60 .*--for"):
        Aim(LATENCY, disks).check(blocks)
    Aim(LATENCY, disks).check([*blocks, *blocks])
    Aim(THROUGHPUT).check([])


def test_the_requests_that_stand_beside_a_stream_count_and_those_of_a_stream_where_there_are_no_others() -> None:
    assert beside_a_stream({"sda": 8e6, "sdb": 1e5}) == {"sdb"}
    assert beside_a_stream({"sda": 8e6, "sdb": 7e6}) == {"sda", "sdb"}
    assert beside_a_stream({"sda": 1e5}) == {"sda"}


def full_line(device: str = "sda") -> Observation:
    """A line of 100 Mb/s that 32 reads of 256 KiB keep full, with a queue before it."""
    kept = json.loads(gzip.decompress((Path(__file__).parent / "data/observations-100mbit.json.gz").read_bytes()))
    found = typed.STRICT.read(Observation, kept["line-unpaced-read"], "line-unpaced-read")
    return attrs.evolve(found, device=device, rate_bytes_per_s=12.5e6)


def look_at(*seen: Observation) -> View:
    return View(seen, tuple(way for one in seen for way in judged(one)), ())


def against(aim: Aim, now: View, *tried: str) -> list[str]:
    return [share.limiter for one in wanted_steps(now, aim, Learnt(set(tried))) for share in one.reason.shares]


def test_at_the_bound_queues_are_shortened_where_the_goal_is_latency() -> None:
    now = look_at(full_line())
    assert now.at_the_bound
    for goal in (LATENCY, BOTH):
        assert against(Aim(goal, frozenset({"sda"})), now) == [QUEUED_REQUESTS, PATH_QUEUE]
    assert against(Aim(LATENCY, frozenset({"sda"})), now, QUEUED_REQUESTS) == [PATH_QUEUE]
    assert against(Aim(THROUGHPUT), now) == []


def test_only_the_stream_is_left_fewer_requests_and_as_many_as_fill_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = full_line("sdb")
    few = attrs.evolve(stream.disk.ways["read"], completed=10, moved_bytes=10 * 4096, total_ms=300.0)
    small = attrs.evolve(stream, device="sda", disk=attrs.evolve(stream.disk, ways={"read": few}))
    found = next(wanted_steps(look_at(small, stream), Aim(LATENCY, frozenset({"sda"})), Learnt()))
    assert found.disks == {"sdb"} and found.settings == ("io_size=262144", "streams=1")
    assert found.reason.rate_bit_per_s == pytest.approx(100e6) and not found.estimated
    # What a load has that does not fill the line is not the line's rate.
    slow = attrs.evolve(stream, rate_bytes_per_s=None, disk=attrs.evolve(stream.disk, elapsed_s=10.0))
    monkeypatch.setattr(View, "filled_bit_per_s", None)
    assert next(wanted_steps(look_at(slow), Aim(LATENCY), Learnt())).estimated


@pytest.mark.parametrize(("nearer_ms", "settings"), [(None, ()), (18.0, ()), (1.0, ("share_path=1",))])
def test_streams_of_several_paths_have_the_farthest_one_s_depth_and_those_of_one_path_that_path_s(
    nearer_ms: float | None, settings: tuple[str, ...]
) -> None:
    """A plan leaves alone the disks of other paths than its own: of several this step's is for all of them."""
    far, near = full_line("sda"), full_line("sdb")
    if nearer_ms is not None:
        near = with_rtt(near, nearer_ms)
    found = next(wanted_steps(look_at(far, near), Aim(LATENCY), Learnt()))
    assert found.disks == {"sda", "sdb"} and found.reason.rtt_ms == far.rtt_ms
    assert found.settings == ("io_size=262144", "streams=2", *settings)


def test_rows_of_other_disks_than_the_streams_are_left_alone() -> None:
    tunable = shipped_catalog().tunables["block.queue_depth"]
    share = Share(QUEUED_REQUESTS, 1.0, "", lifts=(tunable.name,), ends=("initiator",))
    rows = tuple(
        Row(tunable, "initiator", Device("block", name, name), "32", "3", CHANGE, "why") for name in ("sda", "sdb")
    )
    made = make_plan(load_profile("short-queue", shipped_catalog()), ("initiator",), collect([]), SLOW, {})
    plan = replace(saved_plan.of(made, collect([]), shipped_catalog()), rows=rows)
    for disks, left in ((frozenset({"sdb"}), ["sdb"]), (frozenset[str](), ["sda", "sdb"])):
        found = Lifting(Reason("short-queue", 1e8, (), (share,)), 20.0, False, disks=disks).in_place(plan).rows
        assert [row.device.label for row in changes_of(found) if row.device] == left
        # A plan that left the other disk out would take it for a new one.
        assert len(found) == 2


def test_other_sessions_than_those_that_are_tuned_are_left_alone() -> None:
    now = look_at(attrs.evolve(kept("untouched-read"), rate_bytes_per_s=25e6))
    reason = next(wanted_steps(now, Aim(THROUGHPUT), Learnt())).reason
    tunable = shipped_catalog().tunables["iscsi.tcp_window"]
    rows = [
        Row(tunable, "initiator", Device("record", f"{hosttree.iqn(one)},10.2.0.{one}:3260,default", f"{one}"),
            "524288", "0", CHANGE, "why")
        for one in (1, 2)
    ]  # fmt: skip
    assert [row.device.label for row in changes_of(reason.lifting(rows)) if row.device] == ["1"]


@pytest.mark.parametrize(
    ("path", "streams", "now", "wanted"),
    [
        (SLOW, 1, "32", "3"),
        (SLOW, 2, "32", "2"),
        (SLOW, 1, "2", None),
        (NetworkPath(0.1, 125e6), 1, "128", "97"),
        (NetworkPath(0.1, 125e6), 1, "32", None),
        (NetworkPath(0.0002, 125e6), 1, "32", "2"),
    ],
)
def test_two_bdp_and_one_request_more_fill_a_path(
    path: NetworkPath, streams: int, now: str, wanted: str | None
) -> None:
    facts = collect([])
    facts.readings = [Reading("block.queue_depth", Device("block", "sda", "sda"), now)]
    plan = make_plan(load_profile("short-queue", shipped_catalog()), ("initiator",), facts, path, {"streams": streams})
    assert [row.wanted for row in plan.changes] == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("rtt_s", "more", "wanted"),
    [(0.0, {}, "6"), (0.0001, {}, "7"), (0.0001, {"service_us": 5000.0}, "26"), (0.0001, {"service_us": 0.0}, "2"),
     (0.002, {}, "21"), (0.002, {"service_us": 0.0}, "21")],
)  # fmt: skip
def test_on_a_short_path_the_target_s_disks_decide_how_many_requests_fill_it(
    rtt_s: float, more: dict[str, float], wanted: str
) -> None:
    """Two were left for a whole disk: at 10 Gb/s they fill the line only if its disks take no time."""
    facts = collect([])
    facts.readings = [Reading("block.queue_depth", Device("block", "sda", "sda"), "32")]
    profile, path = load_profile("short-queue", shipped_catalog()), NetworkPath(rtt_s, 1.25e9)
    assert [row.wanted for row in make_plan(profile, ("initiator",), facts, path, more).changes] == [wanted]


def test_looks_are_told_to_read_times_only_for_a_goal_that_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    class Looked:
        def __init__(self, *_: object) -> None:
            pass

        def over(self, _: float, reader: object) -> Sequence[Observation]:
            asked.append(reader is not None)
            return [full_line()]

    monkeypatch.setattr(view, "Look", Looked)
    monkeypatch.setattr(view, "with_known_rate", lambda seen, _: seen)
    view.see((), None, "", 3.0, None)
    view.see((), None, "", 3.0, None, with_times=True)
    assert asked == [False, True]
