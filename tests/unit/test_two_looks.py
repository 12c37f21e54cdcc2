# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune: what is learnt and told of two looks, of two disks, and of a pace that goes back or stays."""

from types import SimpleNamespace

import attrs
import pytest
from test_pace_first import _OWN as _PACED_FIRST
from test_pace_first import losing, paced_first
from test_shown_line import delivering, lines  # noqa: F401
from tuned_looks import ASKED, Make, climber, limited_by, no_path, nobody, paced_line, seen, uneven  # noqa: F401

from fabtune.autotune import first_look as looking
from fabtune.autotune import step as stepping
from fabtune.autotune import wanted
from fabtune.autotune.climb import NOTHING_LEFT, climb
from fabtune.autotune.disturbed import Disturbance, Witness
from fabtune.autotune.goal import Aim, Figures, Goal, JudgedStep
from fabtune.autotune.learnt import KnownLine, Learnt
from fabtune.autotune.shown_line import ShownLine
from fabtune.autotune.step import TuningStep
from fabtune.autotune.view import View
from fabtune.autotune.wanted import Wanted
from fabtune.errors import ExitCode
from fabtune.model.judgement import Verdict
from fabtune.tune.lift import Reason
from fabtune.why.judging import Share

# Shares of the mean, by which hardly anything can be told.
_WILD = (0.2, 2.1, 0.3, 2.0, 1.2, 0.4, 0.8)
# As it is, without what tests put in its place.
_SAWTOOTH = View.__dict__["sawtooth"]


@pytest.fixture
def shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views show a line that carries what moves, of which losses hold back what is `loss`."""
    monkeypatch.setattr(View, "shown_bit_per_s", property(lambda self: 8 * self.ways[0].bytes_per_s))
    monkeypatch.setattr(View, "sawtooth", property(lambda self: self.main.first.limiter == "loss"))
    monkeypatch.setattr(looking, "other_disks", lambda *_: None)


@pytest.mark.parametrize("first_mb_per_s", [10, 20])
@pytest.mark.usefixtures("shows")
def test_both_looks_before_the_first_step_teach_what_the_line_carries(
    climber: Make,
    first_mb_per_s: int,
) -> None:
    """A neighbour that came in the second look made a pace of half the line."""
    climber([seen(first_mb_per_s, "loss"), seen(30 - first_mb_per_s, "loss"), seen(10, "loss", lifts=())])
    found = climb(attrs.evolve(ASKED, most_steps=1), nobody)
    assert found.learnt.line_bit_per_s == 160e6


@pytest.mark.usefixtures("shows")
def test_both_looks_at_a_step_teach_what_the_line_carries(climber: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    paced_first(monkeypatch, 100e6)
    monkeypatch.setattr(View, "sawtooth", False)
    climber([seen(10, "loss"), uneven(13), seen(14, "line", lifts=())])
    found = climb(attrs.evolve(ASKED, most_steps=1), nobody)
    assert found.steps[0].looks == (1, 2) and found.learnt.line_bit_per_s == 112e6


@pytest.mark.parametrize("unfair_look", [2, 3])
@pytest.mark.usefixtures("shows")
def test_what_one_of_two_looks_shows_to_be_unfair_goes_back(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
    unfair_look: int,
) -> None:
    made = climber([seen(10, "receive-window"), uneven(13), seen(13, "line", lifts=())])
    monkeypatch.setattr(Learnt, "unfair", lambda *_: len(made.looks_s) == unfair_look)
    (step,) = climb(attrs.evolve(ASKED, most_steps=1), nobody).steps
    assert step.looks == (1, 2) and step.unfair and not step.kept


@pytest.mark.usefixtures("shows")
def test_what_another_disk_disturbed_is_not_looked_at_for_longer(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stepping, "other_disks", lambda *_: Disturbance("sdb began to move"))
    climber([seen(10, "receive-window"), uneven(13), seen(10, "line", lifts=())])
    (step,) = climb(attrs.evolve(ASKED, most_steps=1), nobody).steps
    assert step.looks == (1, 1) and not step.kept


@pytest.mark.usefixtures("shows")
def test_two_first_looks_between_which_another_disk_began_are_not_put_together(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(looking, "other_disks", lambda *_: Disturbance("sdb began to move"))
    climber([seen(20, "loss"), seen(10, "loss"), seen(14, "line", lifts=())])
    (step,) = climb(attrs.evolve(ASKED, most_steps=1), nobody).steps
    assert step.looks == (1, 1) and step.kept


@pytest.mark.parametrize(("lossy", "lossy_line"), [(True, False), (False, True)])
def test_what_loses_goes_up_and_down_whether_its_line_is_full_on_average_or_not(
    monkeypatch: pytest.MonkeyPatch, lossy: bool, lossy_line: bool
) -> None:
    monkeypatch.setattr(View, "lossy", [None] * lossy, raising=False)
    monkeypatch.setattr(View, "lossy_line", lossy_line)
    monkeypatch.setattr(View, "sawtooth", _SAWTOOTH)
    assert paced_line(None).sawtooth


@pytest.mark.usefixtures("shows")
def test_figures_of_two_looks_are_of_both(climber: Make) -> None:
    """It said 10.0 -> 14.0 MB/s, 0.99 times, of looks that had 20, 10 and 14."""
    climber([seen(20, "loss"), seen(10, "loss"), seen(14, "line", lifts=())])
    (step,) = climb(attrs.evolve(ASKED, most_steps=1), nobody).steps
    assert step.before_bytes_per_s == 15e6
    assert step.as_json()["looks"] == [2, 1]


def two_disks(first: View, second: View) -> View:
    """Return the look at two disks, each of a session of its own."""
    (one,), (two,) = first.seen, second.seen
    assert two.target is not None and two.target.socket is not None
    socket = attrs.evolve(two.target.socket, remote="192.0.2.9:1")
    two = attrs.evolve(two, device="sdb", target=attrs.evolve(two.target, socket=socket))
    return View((one, two), (first.ways[0], attrs.evolve(second.ways[0], device="sdb")), ())


def holding(limiter: str) -> View:
    share = Share(limiter, 1.0, limiter, lifts=("tcp.rmem_max",), ends=("initiator",))
    found = limited_by(paced_line(None), limiter)
    return attrs.evolve(found, ways=tuple(attrs.evolve(one, shares=(share,)) for one in found.ways))


def tried_of(view: View, learnt: Learnt) -> list[Wanted]:
    learnt.saw(view)
    return list(wanted.wanted_steps(view, Aim(Goal.THROUGHPUT), learnt))


def by_disk(one: Wanted) -> dict[str, list[str]]:
    return {disk.seen.device: [share.limiter for share in disk.shares] for disk in one.reason.disks}


@pytest.fixture
def as_shown(monkeypatch: pytest.MonkeyPatch, lines: None) -> None:  # noqa: ARG001, F811
    """Views judge a line by what their observations show of it."""
    for name, own in _PACED_FIRST.items():
        monkeypatch.setattr(View, name, own)
    monkeypatch.setattr(wanted, "_beside", lambda *_: [])


@pytest.fixture
def fast_and_lossy() -> View:
    """A disk of 100 MB/s without a loss that a window limits, and one of 5 to 10 MB/s that losses do."""
    fast = delivering(holding("receive-window"), 5.0, 5.0, sent_again=0)
    return two_disks(fast, delivering(losing(), 0.25, 0.5, 0.25, 0.5, sent_again=1448))


@pytest.mark.usefixtures("as_shown")
def test_a_sum_in_which_one_disk_loses_is_not_paced_first(fast_and_lossy: View) -> None:
    """It is full for the disk beside it, and was paced to fifteen times what it had."""
    first = tried_of(fast_and_lossy, Learnt())[0]
    assert by_disk(first)["sda"] == ["receive-window"]


@pytest.mark.usefixtures("as_shown")
def test_of_two_disks_of_a_connection_both_must_lose_to_be_paced_first() -> None:
    fast, lossy = (
        delivering(one, 0.95, 1.0, 0.95, 1.0, sent_again=1448) for one in (holding("receive-window"), losing())
    )
    (one,), (two,) = fast.seen, lossy.seen
    both = View((one, attrs.evolve(two, device="sdb")), (fast.ways[0], attrs.evolve(lossy.ways[0], device="sdb")), ())
    assert lossy.overfills and both.shown is not None and both.shown.senders == 1 and not both.overfills


@pytest.mark.usefixtures("as_shown")
def test_whoever_leaves_others_their_part_gets_neither_a_pace_of_the_line_nor_what_minds_no_losses() -> None:
    lossy = delivering(losing(), 0.5, 1.0, sent_again=1448)
    alone, beside_others = (Learnt(behind_losses=lossy.losing) for _ in range(2))
    beside_others.lines[lossy.main.way] = KnownLine(bytes_per_s=80e6, queued_bytes_per_s=5e6)
    assert {one.reason.shares[0].limiter for one in tried_of(lossy, alone)} == {"loss", "queue-overflow"}
    assert beside_others.yields(lossy)
    assert {one.reason.shares[0].limiter for one in tried_of(lossy, beside_others)} == {"competing-traffic"}


@pytest.mark.usefixtures("as_shown")
def test_several_connections_are_not_paced_first_to_what_they_have_together() -> None:
    one = delivering(losing(), 0.95, 1.0, 0.95, 1.0, sent_again=1448)
    assert one.overfills and not two_disks(one, one).overfills


@pytest.mark.usefixtures("as_shown")
def test_only_what_losses_held_behind_a_larger_window_is_given_what_minds_them_less(fast_and_lossy: View) -> None:
    learnt = Learnt({"receive-window"}, behind_losses=fast_and_lossy.losing)
    assert by_disk(tried_of(fast_and_lossy, learnt)[0]) == {"sda": [], "sdb": ["loss"]}


@pytest.mark.parametrize(("limiter", "held"), [("loss", False), ("receive-window", True)])
def test_a_pace_that_goes_back_has_shown_no_losses_behind_a_window(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
    limiter: str,
    held: bool,
) -> None:
    monkeypatch.setattr(View, "losing", frozenset({("sda", "read")}))
    paced_first(monkeypatch, 100e6)
    climber([seen(10, limiter), seen(10, "line", lifts=())])
    found = climb(attrs.evolve(ASKED, most_steps=1), nobody)
    assert not found.steps[0].kept and bool(found.learnt.behind_losses) == held


def row_of_bbr() -> SimpleNamespace:
    tunable = SimpleNamespace(effect="live", name="route.congctl")
    return SimpleNamespace(tunable=tunable, role="target", device=None, wanted="bbr")


def test_what_went_back_against_one_limiter_is_not_written_once_more_against_the_next(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bbr took a small window's place, was no better, and was tried again against the losses that it had itself."""
    monkeypatch.setattr(View, "losing", frozenset({("sda", "read")}))
    after = [seen(10, "congestion-window") for _ in range(3)]
    climber(list(after))
    tried = [one.limiters for one in climb(ASKED, nobody).steps]
    assert tried == [("congestion-window",), ("loss",)]
    climber(list(after))
    monkeypatch.setattr(TuningStep, "_rows", lambda *_: [row_of_bbr()])
    assert [one.limiters for one in climb(ASKED, nobody).steps] == tried[:1]


def test_what_was_a_fifth_faster_but_perhaps_by_chance_is_tried_again_once_more_of_the_load_is_known(
    climber: Make,
) -> None:
    """A load that loss held went back to 0.70 of its line from 0.97, as its own ups and downs hid that."""
    made = climber(
        [uneven(10), seen(13.5, "line"), seen(13.5, "line"), uneven(10), seen(13.5, "line"), seen(13.5, "line")]
    )
    found = climb(ASKED, nobody)
    assert [(one.limiters, one.kept, one.looks) for one in found.steps[:2]] == [
        (("receive-window",), False, (1, 2)), (("receive-window",), True, (2, 1))
    ]  # fmt: skip
    assert made.acts[:4] == ["write", "take back", "write", "confirm"]


def test_what_was_hardly_faster_or_a_pace_or_was_tried_twice_is_not_tried_once_more(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    climber([uneven(10), uneven(10.3)])
    assert [one.kept for one in climb(ASKED, nobody).steps] == [False]
    climber([uneven(10), *(uneven(12) for _ in range(2)), uneven(10), *(uneven(11) for _ in range(2))])
    assert [one.kept for one in climb(ASKED, nobody).steps] == [False, False]
    # A pace of what arrived was kept at half of the line, when losses happened to leave more at its second trial.
    paced_first(monkeypatch, 100e6)
    lossy = attrs.evolve(uneven(10), ways=seen(10, "loss").ways)
    climber([lossy, seen(13.5, "line"), seen(13.5, "line"), *(lossy for _ in range(6))])
    assert [one.limiters for one in climb(ASKED, nobody).steps].count(("queue-overflow",)) == 1


def test_a_second_trial_is_the_only_one_of_what_it_writes_and_its_verdict_is_the_steps(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load whose limiter changes from look to look had bbr written for each of them."""
    looks = [uneven(10)]
    for limiter, faster in (("loss", 12.0), ("congestion-window", 12.0), ("send-buffer", 12.0)):
        again = attrs.evolve(seen(10, limiter), blocks_bytes_per_s=tuple(1e7 * one for one in _WILD))
        looks += [uneven(faster), uneven(faster), again]
    climber(list(looks))
    monkeypatch.setattr(TuningStep, "_rows", lambda *_: [row_of_bbr()])
    assert len(climb(ASKED, nobody).steps) == 2
    # What was judged at last is no "could not be judged", whatever it was tried against.
    other = [attrs.evolve(uneven(10), ways=seen(10, "loss").ways), *(seen(5, "nothing", lifts=()) for _ in range(4))]
    climber([uneven(10), uneven(12), uneven(12), *other])
    monkeypatch.setattr(TuningStep, "_rows", lambda *_: [row_of_bbr()])
    found = climb(ASKED, nobody)
    assert [one.limiters for one in found.steps] == [("receive-window",), ("loss",)] and found.ended == NOTHING_LEFT
    worse = [seen(5, "nothing", lifts=()) for _ in range(4)]
    climber([uneven(10), uneven(12), uneven(12), uneven(10), *worse])
    found = climb(ASKED, nobody)
    assert [one.outcome.throughput.verdict for one in found.steps] == [Verdict.CANNOT_TELL, Verdict.WORSE]
    assert found.exit_code == ExitCode.DONE and found.ended == NOTHING_LEFT
    # Where no step is left the load is not looked at for another one.
    made = climber([uneven(10), uneven(12), uneven(12), uneven(10)])
    climb(attrs.evolve(ASKED, most_steps=1), nobody)
    assert len(made.looks_s) == 3


def test_a_second_trial_is_there_again_once_a_step_has_stayed(climber: Make) -> None:
    held = seen(13.5, "receive-window")
    faster = attrs.evolve(held, blocks_bytes_per_s=tuple(2.05e7 * one for one in _WILD))
    climber([uneven(10), held, held, uneven(10), held, faster, faster, held, faster, faster, *[held] * 3])
    kept = [one.kept for one in climb(ASKED, nobody).steps]
    assert kept[:4] == [False, True, False, False]


@pytest.mark.parametrize("others", [True, False])
def test_what_others_disturbed_twice_may_help_against_another_limiter_but_not_what_the_step_may_have_done(
    climber: Make, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    """What stopped the disks each time was written against every limiter."""
    disturbed = [Disturbance("somebody else wrote", others=others)] * 2
    monkeypatch.setattr(Witness, "disturbance", lambda *_: disturbed.pop() if disturbed else None)
    climber([*(seen(10, "receive-window") for _ in range(4)), seen(10, "loss"), *(seen(20, "line") for _ in range(3))])
    monkeypatch.setattr(TuningStep, "_rows", lambda *_: [row_of_bbr()])
    steps = climb(ASKED, nobody).steps
    assert [(one.limiters, one.kept) for one in steps] == [
        (("receive-window",), False), (("receive-window",), False), *[(("loss",), True)] * others
    ]  # fmt: skip


def test_the_mean_of_three_looks_counts_each_once() -> None:
    ten, twenty, thirty = (seen(rate, "loss") for rate in (10, 20, 30))
    found = thirty.behind(twenty.behind(ten))
    assert (found.looks, found.bytes_per_s) == (3, 20e6)


@pytest.mark.parametrize(("later_mb_per_s", "told"), [(10, True), (100, False)])
def test_what_the_line_has_carried_since_is_no_longer_told_as_its_rate(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
    later_mb_per_s: float,
    told: bool,
) -> None:
    """A line that had carried 800 Mb/s was said to lose what does not fit at 79.6."""
    paced_first(monkeypatch, 80e6)
    made = climber([seen(10, "loss"), seen(10, "loss"), seen(later_mb_per_s, "line", lifts=())])
    monkeypatch.setattr(View, "shown_bit_per_s", property(lambda self: 8 * self.ways[0].bytes_per_s))
    monkeypatch.setattr(View, "rates_above", lambda *_: ["overflowed"])
    found = climb(ASKED, nobody)
    assert [one.limiters[0] for one in found.steps] == ["queue-overflow", "loss"] and made.acts.count("write") == 2
    assert ("overflowed" in found.remarks) == told


def test_a_pace_that_stays_is_not_tried_again_for_another_step_that_does(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each one would let the load go a little slower."""
    paced_first(monkeypatch, 100e6)
    climber([seen(10, "loss"), seen(12, "loss"), seen(14, "loss"), seen(14, "loss"), seen(14, "loss")])
    steps = climb(ASKED, nobody).steps
    assert [one.kept for one in steps] == [True, True, False]
    assert [one.limiters[0] for one in steps] == ["queue-overflow", "loss", "loss"]


def test_a_pace_that_this_climb_has_set_is_tried_without_once_a_window_is_larger(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was the best of a small window held 111 Mb/s at 74, and was called full."""
    paced_first(monkeypatch, 100e6)
    monkeypatch.setattr(View, "paced", property(lambda self: self.ways if self.bytes_per_s == 13e6 else ()))
    looks = [seen(10, "loss"), seen(12, "send-buffer"), seen(13, "line", lifts=()), seen(20, "line", lifts=())]
    climber([*looks])
    steps = [(one.limiters, one.kept) for one in climb(ASKED, nobody).steps]
    assert steps == [(("queue-overflow",), True), (("send-buffer",), True), (("told-pace",), True)]


def test_a_pace_is_not_tried_again_for_steps_that_go_back(
    climber: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paced_first(monkeypatch, 100e6)
    climber([seen(10, "loss"), seen(10, "loss"), seen(10, "loss"), seen(10, "loss")])
    assert [one.limiters[0] for one in climb(ASKED, nobody).steps] == ["queue-overflow", "loss"]


def outcome_of_a_pace(share: float, *, sent_again: float) -> JudgedStep:
    """Return what comes of a pace with which so much of an uneven load's throughput is seen."""
    swings = (1.3, 0.7, 1.1, 0.6, 1.4, 0.8, 1.2, 0.9, 1.3, 0.7, 1.2, 0.6, 1.1, 1.3)
    mean = sum(swings) / len(swings)
    before = Figures(tuple(1e7 * one for one in swings), sent_again_shares=(0.06, 0.07) * 20)
    paced = (1.1, 0.75, 1.2, 0.8, 1.15, 0.9, 1.1)
    after = Figures(tuple(1e7 * mean * share * one for one in paced), sent_again_shares=(sent_again,) * 20)
    return Aim(Goal.THROUGHPUT).outcome(before, after)


def is_looked_at_for_longer(outcome: JudgedStep) -> bool:
    pace = Wanted(Reason("wan", 1e6, (), ()), spares=True)
    return TuningStep(ASKED, Aim(Goal.THROUGHPUT), paced_line(None), Learnt(), pace, nobody)._promises(outcome)


@pytest.mark.parametrize(("share", "longer"), [(0.97, True), (0.85, False)])
def test_what_sends_less_again_but_costs_throughput_is_not_looked_at_for_longer(share: float, longer: bool) -> None:
    """A pace that is too low always sends less again: ten seconds more of it decide nothing."""
    outcome = outcome_of_a_pace(share, sent_again=0.05)
    assert outcome.sends_less and is_looked_at_for_longer(outcome) == longer


def test_a_little_more_with_a_pace_is_looked_at_for_longer() -> None:
    outcome = outcome_of_a_pace(1.03, sent_again=0.07)
    assert not outcome.sends_less and 1.01 < (outcome.throughput.ratio or 0) < 1.05
    assert is_looked_at_for_longer(outcome)


def shown(most: float = 20e6, *, rtt_s: float = 0.05, senders: int = 1, sampled: float = 20e6) -> ShownLine:
    return ShownLine(0.95 * most, most, 0.0, True, False, 1448, rtt_s, senders, False, None, sampled, 5 * most)


def test_best_moments_are_confirmed_by_single_round_trips_that_are_known() -> None:
    """The kernel tells none of what waits for its application."""
    assert shown().best(but_for=0.03) and not shown(sampled=0.0).best(but_for=0.03)
    # What comes back within a moment has an average there.
    assert not shown(rtt_s=0.006).best(but_for=0.03)


def test_each_connection_has_its_own_window_which_comes_back_as_one_of_renos_would() -> None:
    """Four of 20 MB/s each swing as one does, and an unknown round trip tells nothing of that."""
    alone, four = shown(20e6, rtt_s=0.006), shown(80e6, rtt_s=0.006, senders=4)
    assert alone.averaged and four.averaged and alone.recovery_s == pytest.approx(four.recovery_s)
    assert not shown(rtt_s=0.0).averaged
    # 83 segments: 4.9 s by cubic's own curve, but Reno's is steeper.
    assert alone.recovery_s < 0.5
