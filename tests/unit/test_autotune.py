# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: what is a rate of the load, and which steps stay."""

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
from test_stat import histogram

from fabtune.autotune import climb as climbing
from fabtune.autotune import step as stepping
from fabtune.autotune import told, view, wanted
from fabtune.autotune.climb import AT_THE_BOUND, INTERRUPTED, NO_MORE_STEPS, NOTHING_LEFT, UNDECIDED, climb
from fabtune.autotune.goal import Aim, Goal, JudgedStep
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.path_found import PathFound
from fabtune.autotune.step import ClimbAsked
from fabtune.autotune.view import View
from fabtune.cli import autotune as cli
from fabtune.cli import table
from fabtune.errors import CannotTellError, ExitCode, FabtuneError
from fabtune.host import systemd
from fabtune.measure.request_times import DiskTimes
from fabtune.model import typed
from fabtune.model.judgement import Judgement, Verdict
from fabtune.model.observation import Observation
from fabtune.tune import journal
from fabtune.tune.lift import TO_PROFILE
from fabtune.tune.transaction import IN_FORCE
from fabtune.why.judging import Judged, Share, judged
from fabtune.why.limiters.line import LINE_OR_BUFFER
from fabtune.why.summing_up import with_rate

# As it is, without what tests put in its place.
_FILLED = View.__dict__["filled_bit_per_s"]
_PACED = View.__dict__["paced"]
ASKED = ClimbAsked((), None, None, 4.0, 8)


def seen(mb_per_s: float, limiter: str, share: float = 1.0, lifts: tuple[str, ...] = ("a.tunable",)) -> View:
    """What a look sees of a load of that rate, which varies by 1 %."""
    found = Share(limiter, share, limiter, lifts=lifts, ends=("initiator",))
    way = Judged("sda", "read", mb_per_s * 1e6, True, None, (found,))
    return View((), (way,), tuple(mb_per_s * 1e6 * (1 + 0.01 * (turn % 2)) for turn in range(8)))


class Climber:
    """Looks that were prepared in the place of a session's, and steps that are only counted."""

    def __init__(self, looks: list[View | BaseException]) -> None:
        self.looks: Iterator[View | BaseException] = iter(looks)
        self.acts: list[str] = []
        # What stays of a step on a host that does not answer.
        self.left = ""
        self.looks_s: list[object] = []

    def look(self, *words: object, **_: object) -> View:
        self.looks_s.append(words[3])
        found = next(self.looks)
        if isinstance(found, BaseException):
            raise found
        return found

    def take_back(self) -> str:
        self.acts.append("take back")
        return self.left


@pytest.fixture
def climber(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[View | BaseException]], Climber]:
    def make(looks: list[View | BaseException]) -> Climber:
        found = Climber(looks)
        monkeypatch.setattr(view, "see", found.look)
        monkeypatch.setattr(wanted, "_rate_to_plan_for", lambda *_: None)
        monkeypatch.setattr(wanted, "profile_for", lambda *_: "wan")
        monkeypatch.setattr(wanted, "_disks", lambda *_: ())
        monkeypatch.setattr(View, "one_way", lambda *_: None)
        monkeypatch.setattr(View, "lossy", property(lambda self: self.main.first.limiter == "loss"))
        monkeypatch.setattr(wanted, "_beside", lambda *_: [])
        monkeypatch.setattr(View, "seen", property(lambda self: [None], lambda self, _: None), raising=False)
        monkeypatch.setattr(View, "missing", [])
        monkeypatch.setattr(View, "rate_doubts", [])
        monkeypatch.setattr(View, "pace_doubts", [])
        monkeypatch.setattr(View, "rates_above", lambda *_: [])
        monkeypatch.setattr(climbing, "rtt_doubts", lambda: [])
        step = stepping.TuningStep
        monkeypatch.setattr(step, "_rows", lambda self, end: [SimpleNamespace(tunable=SimpleNamespace(effect="live"))])
        monkeypatch.setattr(step, "_write", lambda self: found.acts.append("write"))
        monkeypatch.setattr(step, "_take_back", lambda self: found.take_back())
        monkeypatch.setattr(time, "sleep", lambda _: None)
        monkeypatch.setattr(step, "_keep", lambda self: found.acts.append("confirm"))
        monkeypatch.setattr(systemd, "manages_host", lambda: True)
        monkeypatch.setattr(cli, "path_found", lambda seen: PathFound(seen.main.device))
        return found

    return make


def paced_line(told_mbit: float | None) -> View:
    """What a look saw of reads that are paced to a line of 200 Mb/s, which somebody said is of `told_mbit`."""
    kept = json.loads(gzip.decompress((Path(__file__).parent / "data/observations.json.gz").read_bytes()))
    observed = typed.STRICT.read(Observation, kept["wan-read"], "wan-read")
    told = with_rate(observed, None if told_mbit is None else told_mbit * 1e6 / 8)
    return View((told,), tuple(judged(told)), (20e6,) * 8)


def limited_by(found: View, limiter: str) -> View:
    """Return `found` with all of its time taken by `limiter`."""
    return attrs.evolve(
        found, ways=tuple(attrs.evolve(one, shares=(Share(limiter, 1.0, limiter),)) for one in found.ways)
    )


def nobody(_: str) -> None:
    """Hear nothing."""


Make = Callable[[list[View | BaseException]], Climber]


@pytest.fixture(autouse=True)
def no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views without observations know neither round trip nor rate."""
    for name in (
        "rtt_ms",
        "rate_bit_per_s",
        "filled_bit_per_s",
        "overflowing_bit_per_s",
        "shown",
        "shown_bit_per_s",
    ):
        monkeypatch.setattr(View, name, None)
    for name in ("sawtooth", "nearly_full", "overfills", "lossy_line"):
        monkeypatch.setattr(View, name, False)
    monkeypatch.setattr(View, "paced", ())
    monkeypatch.setattr(View, "loses_little", lambda self, way: False)


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
    connects = SimpleNamespace(tunable=SimpleNamespace(effect="new-connections"))
    monkeypatch.setattr(stepping.TuningStep, "_rows", lambda self, end: [connects])
    (step,) = climb(attrs.evolve(ASKED, seconds=10.0, most_steps=1), nobody).steps
    assert (step.kept, made.looks_s) == (kept, looks_s)


def test_a_window_that_kept_losses_small_gives_way_to_what_minds_them_less(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it cubic loses more and is slower: that says nothing against larger windows with bbr."""
    monkeypatch.setattr(wanted, "_lost", lambda way: [Share("loss", 1.0, "loss", lifts=("route.congctl",))])
    first = seen(10, "receive-window")
    # What may be a buffer for a small part of the time is not tried before that.
    other = Share(LINE_OR_BUFFER.name, 0.1, "bursts")
    first = attrs.evolve(first, ways=(attrs.evolve(first.ways[0], shares=(*first.ways[0].shares, other)),))
    made = climber([first, seen(5, "loss"), seen(20, "line")])
    found = climb(ASKED, nobody)
    assert made.acts == ["write", "take back", "write", "confirm"]
    assert [one.limiters for one in found.steps] == [("receive-window",), ("loss",)]


def test_where_no_queue_was_seen_pacing_is_tried_when_nothing_else_is_left(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(View, "shown_bit_per_s", 100e6)
    climber([seen(10, "loss"), seen(10, "loss"), seen(12, "line")])
    assert [one.limiters for one in climb(ASKED, nobody).steps] == [("loss",), ("queue-overflow",)]


def test_it_ends_after_as_many_steps_as_were_asked_for(climber: Make) -> None:
    climber([seen(10.0 * 2**turn, f"limiter-{turn}") for turn in range(4)])
    found = climb(attrs.evolve(ASKED, most_steps=2), nobody)
    assert len(found.steps) == 2 and found.ended == NO_MORE_STEPS


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
    assert view._blocks(disks, 1.0) == pytest.approx([10_000.0] * 3)
    assert view._blocks([], 1.0) == []


def test_a_rate_is_its_connections_where_they_carry_nothing_else_and_the_disks_else() -> None:
    """A disk counts whole requests: a gain of some percent hides behind one more or less in a second."""
    (one,) = paced_line(None).seen
    (connection,) = view._moving([one])
    assert one.initiator.socket is not None
    first, last = one.initiator.socket.samples[0], one.initiator.socket.samples[-1]
    assert connection[-1] == (last.at_s, last.sent_bytes + last.received_bytes) and connection[0][0] == first.at_s
    disk = [(sample.at_s, sample.read_bytes + sample.write_bytes) for sample in one.disk.samples]
    for other in (
        attrs.evolve(one, session=attrs.evolve(one.session, disks=("sda", "sdz"))),
        attrs.evolve(one, session=attrs.evolve(one.session, connections=2)),
        attrs.evolve(one, initiator=attrs.evolve(one.initiator, socket=None)),
    ):
        assert view._moving([other]) == [disk]
    # Two disks of one session have one connection.
    both = attrs.evolve(one, session=attrs.evolve(one.session, disks=(one.device, "sdb")))
    assert view._moving([both, attrs.evolve(both, device="sdb")]) == [connection]


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


def test_what_is_paced_is_tried_without_at_the_end_that_sends() -> None:
    found = paced_line(200)
    assert _PACED.fget(found) == found.ways
    below = limited_by(paced_line(2000), "pacing")
    assert _PACED.fget(below) and _PACED.fget(paced_line(None))
    # A part of the line for each session (busy_sessions) is what was asked for.
    part = tuple(attrs.evolve(one, rate_by=TO_PROFILE) for one in below.seen)
    assert not _PACED.fget(attrs.evolve(below, seen=part))
    assert not _PACED.fget(limited_by(paced_line(2000), "receive-window"))
    (step,) = wanted._without_pace(found, found.ways)
    (share,) = step.reason.shares
    assert share.ends == ("target",) and step.estimated and step.reason.profile == "unpaced"


def said_of_path(found: View) -> list[str]:
    return climbing._of_path(climbing.Climb(found, found, Aim(Goal.THROUGHPUT)))


def in_force(rtt_ms: float, netns: str = "") -> SimpleNamespace:
    """A transaction of `wan`, planned for such a round trip."""
    return SimpleNamespace(
        profile="wan", state=IN_FORCE, header=SimpleNamespace(rtt_ms=rtt_ms, netns=netns, roles=("initiator",))
    )


@pytest.mark.parametrize(("told_ms", "said"), [(50.0, False), (45.0, False), (5.0, True), (500.0, True)])
def test_a_round_trip_that_was_told_and_that_no_connection_has_is_said(
    told_ms: float, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "transactions", lambda: [in_force(told_ms), in_force(1000.0, "target")])
    sockets = [SimpleNamespace(min_rtt_ms=one) for one in (5.0, 50.0)]
    monkeypatch.setattr(told, "HostSnapshot", lambda: SimpleNamespace(sockets=sockets))
    expected = f"profile 'wan' was planned for a round trip of {told_ms:g} ms, and the connections have 50.0 ms"
    assert told.rtt_doubts() == [expected] * said
    # One that is not known may be any.
    sockets[0].min_rtt_ms = 0.0
    assert told.rtt_doubts() == []


def test_who_may_not_read_the_journal_tunes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[object]:
        raise FabtuneError("no")

    monkeypatch.setattr(journal, "transactions", refuse)
    assert told.rtt_doubts() == []


def test_a_rate_below_what_passes_is_said() -> None:
    (told,) = said_of_path(paced_line(20))
    assert "a line of 20 Mb/s, as --rate says: 188 Mb/s passed" in told


def test_a_queue_on_a_line_that_is_not_full_as_told_may_be_others_or_the_wrong_rate() -> None:
    (told,) = said_of_path(limited_by(paced_line(2000), "competing-traffic"))
    assert "a line of 2000 Mb/s (--rate) has a queue while sda moves 188" in told and "not the line's rate" in told


def test_a_line_whose_queue_overflowed_far_below_the_rate_that_was_told_is_none_of_that_rate() -> None:
    first, last = paced_line(2000), paced_line(None)
    found = climbing.Climb(first, last, Aim(Goal.THROUGHPUT), shown_bit_per_s=200e6)
    (said,) = climbing._of_path(found)
    assert said.startswith("a line of 2000 Mb/s (--rate) lost") and "at 200.0 Mb/s" in said
    assert climbing._of_path(attrs.evolve(found, shown_bit_per_s=1900e6)) == []


def test_a_line_that_pacing_fills_may_carry_more_than_was_told() -> None:
    """`apply wan --rate 200mbit` on a line of 1 Gb/s: it is full as told, and nobody would ever know."""
    found = paced_line(200)
    (told,) = said_of_path(found)
    assert found.at_the_bound and told.startswith("a line of 200 Mb/s (--rate) is full because")
    assert said_of_path(attrs.evolve(found, ways=())) == []


def test_a_line_that_is_full_may_be_shared_where_nobody_told_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    found = limited_by(paced_line(None), "line")
    monkeypatch.setattr(View, "rate_bit_per_s", None)
    monkeypatch.setattr(View, "filled_bit_per_s", _FILLED.fget(found))
    (told,) = said_of_path(found)
    assert found.at_the_bound and "Mb/s of these sessions; what others send" in told


def uneven(mb_per_s: float) -> View:
    """What a look sees of a load of that rate on average, which goes up and down by half of it."""
    found = seen(mb_per_s, "receive-window")
    rates = (6, 20, 7, 21, 14, 9, 19)
    return attrs.evolve(found, blocks_bytes_per_s=tuple(mb_per_s * 1e6 * one / 13.7 for one in rates))


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
