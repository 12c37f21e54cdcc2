# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune: what is a rate of the load, and which steps stay."""

import errno
import json
import re
from types import SimpleNamespace

import attrs
import pytest
from test_stat import histogram
from tuned_looks import ASKED, Make, climber, lost_after, no_path, nobody, paced_line, seen, uneven  # noqa: F401

from fabtune.autotune import climb as climbing
from fabtune.autotune import moved, wanted
from fabtune.autotune import step as stepping
from fabtune.autotune.climb import AT_THE_BOUND, INTERRUPTED, NO_MORE_STEPS, NOT_PLANNED, NOTHING_LEFT, UNDECIDED, climb
from fabtune.autotune.goal import Aim, Goal, JudgedStep
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.tuned_ends import NoStepError
from fabtune.autotune.view import View
from fabtune.cli import autotune as cli
from fabtune.cli import table
from fabtune.errors import CannotTellError, ExitCode, FabtuneError
from fabtune.measure.request_times import DiskTimes
from fabtune.model.judgement import Judgement, Verdict
from fabtune.why.judging import Share
from fabtune.why.limiters.line import LINE_OR_BUFFER


def test_what_is_better_stays_and_the_next_limiter_is_lifted(climber: Make) -> None:
    made = climber([seen(10, "receive-window"), seen(20, "send-buffer"), seen(30, "line")])
    found = climb(ASKED, nobody)
    assert made.acts == ["write", "confirm", "write", "confirm"]
    assert [one.limiters for one in found.steps] == [("receive-window",), ("send-buffer",)]
    assert found.ended == AT_THE_BOUND and found.last.bytes_per_s == 30e6 and found.exit_code == ExitCode.DONE


@pytest.fixture
def histograms(monkeypatch: pytest.MonkeyPatch) -> None:
    """fabstat is there, and no queue to be shortened."""
    monkeypatch.setattr(climbing, "check_histograms", lambda: None)
    monkeypatch.setattr(View, "under_way_bytes", {"sda": 1e6})
    monkeypatch.setattr(View, "queue_on_path", False)
    monkeypatch.setattr(wanted, "_fewer_under_way", lambda *_: ())


def timed(p99_ms: float, mb_per_s: float = 10) -> View:
    """What a look sees of a disk whose requests all take about so long, under a load that a window limits."""
    blocks = [{"sda": DiskTimes(histogram([round(p99_ms * 1e6 * (1 + 0.1 * (turn % 2)))] * 30))} for turn in range(10)]
    return attrs.evolve(seen(mb_per_s, "receive-window"), times=tuple(blocks))


@pytest.mark.usefixtures("histograms")
@pytest.mark.parametrize(("after", "kept"), [(timed(100), True), (timed(700, 30), False), (timed(100, 5), False)])
def test_for_latency_a_step_stays_that_shortens_requests_and_costs_no_throughput(
    climber: Make, after: View, kept: bool
) -> None:
    climber([timed(700), after, timed(100)])
    found = climb(attrs.evolve(ASKED, goal=Goal.LATENCY, most_steps=1), nobody)
    assert [one.kept for one in found.steps] == [kept]
    shown = found.steps[0].as_json()
    assert shown["p99_verdict"] and shown["p50_verdict"] and shown["before_p99_ms"] == pytest.approx(770, rel=0.05)
    assert found.remarks[0] == "p99 and median are those of the requests of sda"


@pytest.mark.usefixtures("histograms")
def test_for_latency_a_look_that_sees_too_few_requests_ends_it_before_anything_is_written(climber: Make) -> None:
    made = climber([seen(10, "receive-window")])
    with pytest.raises(CannotTellError, match="p99 of 0 requests"):
        climb(attrs.evolve(ASKED, goal=Goal.BOTH), nobody)
    assert made.acts == []


@pytest.mark.usefixtures("histograms")
def test_the_table_of_steps_says_p99_with_its_interval(climber: Make, capsys: pytest.CaptureFixture[str]) -> None:
    for_throughput: list[View | BaseException] = [seen(10, "receive-window"), seen(20, "line")]
    climber([timed(700), timed(100), timed(100)])
    cli._show(climb(attrs.evolve(ASKED, goal=Goal.LATENCY, most_steps=1), nobody))
    heading, _, row, *_, last = capsys.readouterr().out.splitlines()[:4]
    assert [word in heading for word in ("p99 ms", "median")] == [True, True]
    assert re.search(r" 755\.0 -> 111\.1  0\.15 \(0\.1\d\.\.0\.1\d\) .* kept", row), row
    climber(for_throughput)
    cli._show(climb(ASKED, nobody))
    assert "p99" not in capsys.readouterr().out


def test_what_is_no_better_goes_back_and_is_not_tried_again(climber: Make) -> None:
    made = climber([seen(10, "receive-window"), seen(10, "receive-window")])
    found = climb(ASKED, nobody)
    assert made.acts == ["write", "take back"]
    assert [one.kept for one in found.steps] == [False]
    assert found.ended == NOTHING_LEFT and found.last is found.first


def test_where_a_queue_stood_losses_are_its_own_and_pacing_is_tried_before_another_congestion_control(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    overflowing = property(lambda self: 100e6 if self.main.first.limiter == "loss" else None)
    monkeypatch.setattr(View, "overflowing_bit_per_s", overflowing)
    looks: list[View | BaseException] = [seen(10, "loss"), seen(10, "loss"), seen(12, "line")]
    made = climber(looks)
    found = climb(ASKED, nobody)
    assert made.acts == ["write", "take back", "write", "confirm"]
    assert [one.limiters for one in found.steps] == [("queue-overflow",), ("loss",)]


@pytest.mark.parametrize(("after_mb_per_s", "shown_bit_per_s"), [(10, 0.995 * 100e6), (5, None)])
def test_a_line_that_is_as_full_when_paced_to_what_it_showed_has_shown_its_rate_though_the_pace_goes_back(
    climber: Make, monkeypatch: pytest.MonkeyPatch, after_mb_per_s: float, shown_bit_per_s: float | None
) -> None:
    monkeypatch.setattr(View, "overflowing_bit_per_s", 100e6)
    climber([seen(10, "loss"), seen(after_mb_per_s, "loss", lifts=())])
    found = climb(attrs.evolve(ASKED, most_steps=1), nobody)
    assert [one.kept for one in found.steps] == [False]
    assert found.shown_bit_per_s == shown_bit_per_s


def test_what_minds_losses_less_is_tried_again_under_a_pace_that_stays(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one it may have overfilled the queue."""
    monkeypatch.setattr(View, "shown_bit_per_s", 100e6)
    climber([seen(10, "loss"), seen(10, "loss"), seen(12, "loss"), seen(14, "line")])
    steps = [(one.limiters, one.kept) for one in climb(ASKED, nobody).steps]
    assert steps == [(("loss",), False), (("queue-overflow",), True), (("loss",), True)]


@pytest.mark.parametrize(("after_mb_per_s", "kept", "looks_s"), [(2, False, [10, 4]), (20, True, [10, 4, 10])])
def test_what_a_new_connection_makes_far_slower_is_not_looked_at_for_long(
    climber: Make, monkeypatch: pytest.MonkeyPatch, after_mb_per_s: float, kept: bool, looks_s: list[float]
) -> None:
    after = [seen(after_mb_per_s, "loss", lifts=()) for _ in range(2)]
    made = climber([seen(10, "receive-window"), *after])
    tunable = SimpleNamespace(effect="new-connections", name="route.congctl")
    connects = SimpleNamespace(tunable=tunable, role="target", device=None, wanted="bbr")
    monkeypatch.setattr(stepping.TuningStep, "_rows", lambda self, end: [connects])
    (step,) = climb(attrs.evolve(ASKED, seconds=10.0, most_steps=1), nobody).steps
    assert (step.kept, made.looks_s) == (kept, looks_s)


@pytest.mark.parametrize("limiter", ["loss", "congestion-window"])
def test_a_window_that_kept_losses_small_gives_way_to_what_minds_them_less(
    climber: Make, monkeypatch: pytest.MonkeyPatch, limiter: str
) -> None:
    """Without it cubic loses more, in the look or while it began, and is slower: larger windows with bbr may not be."""
    monkeypatch.setattr(wanted, "_lost", lambda way: [Share("loss", 1.0, "loss", lifts=("route.congctl",))])
    monkeypatch.setattr(View, "began_with_losses", lambda self, way: way.first.limiter == "congestion-window")
    first = seen(10, "receive-window")
    # What may be a buffer for a small part of the time is not tried before that.
    other = Share(LINE_OR_BUFFER.name, 0.1, "bursts")
    first = attrs.evolve(first, ways=(attrs.evolve(first.ways[0], shares=(*first.ways[0].shares, other)),))
    made = climber([first, seen(5, limiter), seen(20, "line")])
    found = climb(ASKED, nobody)
    assert made.acts == ["write", "take back", "write", "confirm"]
    assert [one.limiters for one in found.steps] == [("receive-window",), ("loss",)]


def test_where_no_queue_was_seen_pacing_is_tried_when_nothing_else_is_left(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "shown_bit_per_s", 100e6)
    climber([seen(10, "loss"), seen(10, "loss"), seen(12, "line")])
    assert [one.limiters for one in climb(ASKED, nobody).steps] == [("loss",), ("queue-overflow",)]


def test_a_stderr_that_takes_nothing_ends_no_climb(climber: Make) -> None:
    """A step stayed in force, unjudged, for as long as a terminal was stopped (Ctrl-S), or its file system full."""

    def full(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    made = climber([seen(10, "receive-window"), seen(10, "receive-window")])
    assert [one.kept for one in climb(ASKED, full).steps] == [False] and made.acts == ["write", "take back"]


def test_it_ends_after_as_many_steps_as_were_asked_for(climber: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """'No more steps' read as if nothing was left to be lifted."""
    climber([seen(10.0 * 2**turn, f"limiter-{turn}") for turn in range(4)])
    found = climb(attrs.evolve(ASKED, most_steps=2), nobody)
    assert len(found.steps) == 2 and found.ended == NO_MORE_STEPS
    cli._show(found)
    told = " ".join(capsys.readouterr().out.split())
    assert "10.0 -> 40.0 MB/s, as many steps as --steps allows were taken, and more may help: Reads of sda" in told


def test_what_stays_is_said_before_a_later_step_is_interrupted(climber: Make) -> None:
    climber([seen(10, "receive-window"), seen(20, "send-buffer"), KeyboardInterrupt()])
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        climb(ASKED, said.append)
    assert [one for one in said if one.startswith("step ")] == ["step 1 stays"]


@pytest.mark.parametrize("error", [FabtuneError("nothing moves"), KeyboardInterrupt()])
def test_the_steps_so_far_are_shown_where_the_load_ends_in_a_later_one(
    climber: Make, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    first: list[View | BaseException] = [seen(10, "receive-window"), error]
    climber([seen(10, "receive-window"), seen(20, "send-buffer"), error])
    with pytest.raises(type(error)):
        climb(ASKED, nobody, lambda found: cli._tell(found, table.print_json, as_json=True))
    told = json.loads(capsys.readouterr().out)
    assert [one["kept"] for one in told["steps"]] == [True] and told["last_bytes_per_s"] == 20e6
    assert told["ended"] == INTERRUPTED
    # Nothing stays of a first step that could not be judged, and nothing is to be shown.
    climber(first)
    with pytest.raises(type(error)):
        climb(ASKED, nobody, lambda found: cli._tell(found, table.print_json, as_json=True))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("error", [FabtuneError("nothing moves"), KeyboardInterrupt()])
def test_a_step_that_cannot_be_judged_goes_back(climber: Make, error: BaseException) -> None:
    made = climber([seen(10, "receive-window"), error])
    with pytest.raises(type(error)):
        climb(ASKED, nobody)
    assert made.acts == ["write", "take back"]


def test_what_no_setting_lifts_ends_it(climber: Make) -> None:
    made = climber([seen(10, "load", lifts=())])
    found = climb(ASKED, nobody)
    assert (made.acts, found.ended, found.exit_code) == ([], NOTHING_LEFT, ExitCode.DONE)


def test_a_rate_is_taken_over_whole_blocks_of_all_disks() -> None:
    disks = [[(0.2 * turn, 1000 * turn) for turn in range(16)] for _ in range(2)]
    assert moved.in_blocks(disks, 1.0) == pytest.approx([10_000.0] * 3)
    assert moved.in_blocks([], 1.0) == []


def test_a_rate_is_its_connections_where_they_carry_nothing_else_and_the_disks_else() -> None:
    """A disk counts whole requests: a gain of some percent hides behind one more or less in a second."""
    (one,) = paced_line(None).seen
    (connection,) = moved.moving([one])
    assert one.initiator.socket is not None
    first, last = one.initiator.socket.samples[0], one.initiator.socket.samples[-1]
    assert connection[-1] == (last.at_s, last.sent_bytes + last.received_bytes) and connection[0][0] == first.at_s
    disk = [(sample.at_s, sample.read_bytes + sample.write_bytes) for sample in one.disk.samples]
    for other in (
        attrs.evolve(one, session=attrs.evolve(one.session, disks=("sda", "sdz"))),
        attrs.evolve(one, session=attrs.evolve(one.session, connections=2)),
        attrs.evolve(one, initiator=attrs.evolve(one.initiator, socket=None)),
    ):
        assert moved.moving([other]) == [disk]
    # Two disks of one session have one connection.
    both = attrs.evolve(one, session=attrs.evolve(one.session, disks=(one.device, "sdb")))
    assert moved.moving([both, attrs.evolve(both, device="sdb")]) == [connection]


def test_a_rate_is_the_disks_where_a_connection_was_lost() -> None:
    """Its bytes end with it; that nothing moves after it the disk alone shows."""
    (one,) = paced_line(None).seen
    (disk,) = moved.moving([lost_after(one, one.elapsed_s / 2)])
    assert disk == [(sample.at_s, sample.read_bytes + sample.write_bytes) for sample in one.disk.samples]


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads of 10 MB/s are held to a pace."""
    monkeypatch.setattr(View, "paced", property(lambda self: self.ways if self.bytes_per_s == 10e6 else ()))


@pytest.mark.usefixtures("pace")
def test_where_only_a_pace_fills_the_line_it_is_tried_without(climber: Make) -> None:
    """`apply wan --rate 80mbit` on a line of 1 Gb/s: as told it is full, and ten times as much would pass."""
    made = climber([seen(10, "line", lifts=()), seen(100, "line", lifts=())])
    found = climb(ASKED, nobody)
    assert made.acts == ["write", "confirm"] and found.ended == AT_THE_BOUND
    assert [one.limiters for one in found.steps] == [("told-pace",)] and found.last.bytes_per_s == 100e6
    assert any("held to a pace below what the line carries" in one for one in found.remarks)


@pytest.mark.usefixtures("pace")
def test_a_pace_that_is_the_lines_comes_back_and_is_no_longer_doubted(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = climber([seen(10, "line", lifts=()), seen(10, "line", lifts=())])
    monkeypatch.setattr(View, "pace_doubts", ["it may carry more"])
    found = climb(ASKED, nobody)
    assert made.acts == ["write", "take back"] and found.ended == AT_THE_BOUND
    assert [one.kept for one in found.steps] == [False] and "it may carry more" not in found.remarks


@pytest.mark.usefixtures("pace")
def test_a_pace_is_not_taken_away_to_make_requests_short_nor_where_this_climb_has_set_it(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    aim, paced = Aim(Goal.LATENCY), seen(10, "line", lifts=())
    monkeypatch.setattr(wanted, "_shorter_queues", lambda *_: ())
    looks: list[View | BaseException] = [seen(5, "loss"), seen(10, "line", lifts=())]
    climber(looks)
    assert list(wanted.wanted_steps(paced, aim, Learnt())) == []
    monkeypatch.setattr(View, "overflowing_bit_per_s", 100e6)
    assert [one.limiters for one in climb(ASKED, nobody).steps] == [("queue-overflow",)]


def test_a_step_that_could_not_be_judged_is_not_taken_for_one_that_did_not_help(
    climber: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    climber([seen(10, "receive-window"), uneven(11)])
    found = climb(ASKED, nobody)
    assert found.steps[0].outcome.throughput.verdict is Verdict.CANNOT_TELL
    assert found.ended == UNDECIDED and found.exit_code == ExitCode.CANNOT_TELL
    cli._show(found)
    told = " ".join(capsys.readouterr().out.split())
    assert "taken back: could not be judged" in told
    assert "10.0 -> 10.0 MB/s, a step could not be judged (look longer, --for): Reads of sda" in told


def test_what_stays_is_a_result_though_another_step_could_not_be_judged(climber: Make) -> None:
    climber([seen(10, "send-buffer"), seen(20, "receive-window"), uneven(22)])
    found = climb(ASKED, nobody)
    assert [one.kept for one in found.steps] == [True, False]
    assert found.ended == UNDECIDED and found.exit_code == ExitCode.DONE


def test_a_full_line_is_the_bound_whatever_could_not_be_judged(climber: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "paced", property(lambda self: self.ways))
    climber([seen(10, "line", lifts=()), attrs.evolve(uneven(10), ways=seen(10, "line", lifts=()).ways)])
    found = climb(ASKED, nobody)
    assert [one.kept for one in found.steps] == [False]
    assert found.ended == AT_THE_BOUND and found.exit_code == ExitCode.DONE


def test_where_nothing_was_changed_and_what_limits_cannot_be_told_the_exit_code_says_so(climber: Make) -> None:
    climber([seen(10, "cannot-tell", lifts=())])
    found = climb(ASKED, nobody)
    assert found.steps == [] and found.exit_code == ExitCode.CANNOT_TELL


@pytest.mark.parametrize(
    ("speed", "tail", "goal", "undecided"),
    [
        (Verdict.CANNOT_TELL, None, Goal.THROUGHPUT, True),
        (Verdict.SAME, None, Goal.THROUGHPUT, False),
        (Verdict.WORSE, None, Goal.THROUGHPUT, False),
        (Verdict.SAME, Verdict.CANNOT_TELL, Goal.LATENCY, True),
        (Verdict.CANNOT_TELL, Verdict.SAME, Goal.LATENCY, False),
        (Verdict.CANNOT_TELL, Verdict.BETTER, Goal.LATENCY, True),
        (Verdict.WORSE, Verdict.CANNOT_TELL, Goal.BOTH, False),
    ],
)
def test_undecided_is_what_might_have_been_worth_keeping(
    speed: Verdict, tail: Verdict | None, goal: Goal, undecided: bool
) -> None:
    lows = {Verdict.BETTER: 1.1, Verdict.SAME: 0.99}
    first, second = (
        Judgement(verdict=one, why="", n=7, low=lows.get(one, 0.5)) if one else None for one in (speed, tail)
    )
    assert first is not None
    assert JudgedStep(first, second, second).undecided(goal) == undecided


def test_a_tune_that_could_plan_no_step_says_so_and_ends_with_1(climber: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that nothing was left that settings lift, and ended with 0."""

    def plan(*_: object) -> list[object]:
        raise NoStepError("initiator", "left alone at the initiator: a.tunable: the round trip is not seen")

    climber([seen(10, "receive-window")])
    monkeypatch.setattr(stepping.TuningStep, "_rows", plan)
    found = climb(ASKED, nobody)
    assert (found.steps, found.ended, found.exit_code) == ([], NOT_PLANNED, ExitCode.FAILED)
    assert [one for one in found.remarks if one.startswith("left alone at the initiator: a.tunable")]
