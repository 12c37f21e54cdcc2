# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: a step is kept for what it did itself, not for what other loads, or other programs, did meanwhile."""

from pathlib import Path

import attrs
import hosttree
import pytest
from kept_looks import kept
from test_trial import host, step
from tuned_looks import ASKED, Climber, Make, climber, gone_after, no_path, nobody, seen

from fabtune.autotune import climb as climbing
from fabtune.autotune import step as stepping
from fabtune.autotune.climb import climb
from fabtune.autotune.disturbed import Witness, other_disks
from fabtune.autotune.trend import explains
from fabtune.autotune.view import View
from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.model.judgement import Verdict
from fabtune.model.observation import Observation
from fabtune.tune import journal
from fabtune.why.judging import judged

__all__ = ["climber", "host", "no_path", "step"]
ONE_STEP = attrs.evolve(ASKED, most_steps=1)


def moving(**mb_per_s: float) -> View:
    """What a look sees of disks of which each moves so much."""
    found = seen(sum(mb_per_s.values()), "receive-window")
    ways = tuple(attrs.evolve(found.main, device=name, bytes_per_s=rate * 1e6) for name, rate in mb_per_s.items())
    return attrs.evolve(found, ways=ways)


def test_a_load_that_begins_on_another_disk_keeps_no_step(climber: Make) -> None:
    made = climber([moving(sda=10), moving(sda=10, sdb=10), moving(sda=10, sdb=10)])
    found = climb(ONE_STEP, nobody)
    (only,) = found.steps
    assert made.acts == ["write", "take back"] and not only.kept
    assert only.outcome.throughput.verdict is Verdict.CANNOT_TELL
    assert any("step 1 could not be judged, and went back: sdb began to move" in one for one in found.remarks)


def test_a_step_beside_which_another_load_began_is_tried_once_more_against_that_load(climber: Make) -> None:
    both = moving(sda=10, sdb=10)
    made = climber([moving(sda=10), both, both, moving(sda=20, sdb=20)])
    assert [one.kept for one in climb(attrs.evolve(ASKED, most_steps=2), nobody).steps] == [False, True]
    assert made.acts == ["write", "take back", "write", "confirm"]


def test_a_disk_that_stops_may_be_the_steps_own_doing_which_is_not_tried_again(climber: Make) -> None:
    climber([moving(sda=10, sdb=10), moving(sda=30), moving(sda=10)])
    found = climb(ASKED, nobody)
    assert [one.kept for one in found.steps] == [False]
    assert any("sdb stopped moving" in one for one in found.remarks)


def test_what_hardly_moves_and_what_is_stuck_are_no_other_load() -> None:
    assert other_disks(moving(sda=100), moving(sda=200, sdb=1)) is None
    # Requests wait and nothing moves: that is what a step may have done.
    assert other_disks(moving(sda=10, sdb=10), moving(sda=10, sdb=0)) is None


def of_disks(*observed: Observation) -> View:
    """What a look shows of these, each way that moves."""
    return View(observed, tuple(way for one in observed for way in judged(one)), (1e6,) * 8)


@pytest.mark.parametrize("waits", [True, False])
def test_a_disk_that_went_away_in_the_look_before_was_another_load(waits: bool) -> None:
    """A step that did nothing was judged half as fast, and not tried again."""
    one, other = kept("wan-read", 1), kept("wan-read", 2)
    gone = gone_after(other, 0.6 * other.elapsed_s)
    if not waits:
        # Its last request was over.
        samples = (*gone.disk.samples[:-1], attrs.evolve(gone.disk.samples[-1], in_flight=0))
        gone = attrs.evolve(gone, disk=attrs.evolve(gone.disk, samples=samples))
    before = other_disks(of_disks(one, gone), of_disks(one))
    assert before and (before.own, before.others) == (False, True)
    assert before.why == "sd2 went away during the look before it"
    # It may have been the step.
    after = other_disks(of_disks(one, other), of_disks(one, gone))
    assert after and (after.own, after.others) == (True, False) and "sd2 stopped moving" in after.why
    # Another one, that moves next to nothing, is no other load.
    few = [attrs.evolve(each, read_bytes=each.read_bytes // 100) for each in gone.disk.samples]
    idle = attrs.evolve(gone, disk=attrs.evolve(gone.disk, samples=tuple(few)))
    assert other_disks(of_disks(one, idle), of_disks(one)) is None


def test_what_another_transaction_wrote_since_the_look_before_is_said(host: Path) -> None:
    words = [str(host.parent / "mine.toml"), "--role", "initiator", "--rtt", "40ms", "--rate", "1gbit"]
    witness = Witness()
    assert witness.disturbance(()) is None
    assert main(["apply", *words]) == ExitCode.DONE
    (name,) = (one.name for one in journal.transactions())
    found = witness.disturbance(())
    assert found and found.why == f"transaction {name} (mine) was written or taken back meanwhile"
    # From the next look on it is a part of what is there, and so is its end.
    witness.renew()
    assert witness.disturbance(()) is None
    assert main(["revert"]) == ExitCode.DONE
    assert witness.disturbance(()) is not None


def test_a_steps_own_values_must_stand_when_it_is_kept(host: Path, step: str) -> None:
    witness = Witness()
    witness.note([step])
    assert witness.disturbance([step]) is None
    hosttree.put(host / "proc/sys/net/ipv4/tcp_mtu_probing", "2")
    found = witness.disturbance([step])
    assert found and found.why.startswith("tcp.mtu_probing of host is 2, and the step wrote 1")
    hosttree.put(host / "proc/sys/net/ipv4/tcp_mtu_probing", "1")
    assert main(["revert"]) == ExitCode.DONE
    found = witness.disturbance([step])
    assert found and "written or taken back" in found.why


def test_a_step_is_not_kept_for_what_somebody_else_wrote(
    climber: Make, monkeypatch: pytest.MonkeyPatch, host: Path
) -> None:
    def meanwhile(self: stepping.TuningStep) -> None:
        words = [str(host.parent / "mine.toml"), "--role", "initiator", "--rtt", "40ms", "--rate", "1gbit"]
        assert main(["apply", *words]) == ExitCode.DONE

    made: Climber = climber([seen(10, "receive-window"), seen(20, "receive-window"), seen(20, "receive-window")])
    monkeypatch.setattr(stepping.TuningStep, "_write", meanwhile)
    monkeypatch.setattr(climbing, "rtt_doubts", lambda: [])
    monkeypatch.setattr(climbing, "other_rates", lambda: ())
    found = climb(ONE_STEP, nobody)
    assert made.acts == ["take back"] and [one.kept for one in found.steps] == [False]
    assert found.steps[0].as_json()["disturbed_by"]


def growing(from_mb_per_s: float) -> View:
    """What a look sees of a load that grows by 1 % a block by itself."""
    found = seen(from_mb_per_s, "receive-window")
    rates = tuple(from_mb_per_s * 1e6 * 1.01**turn for turn in range(7))
    way = attrs.evolve(found.main, bytes_per_s=sum(rates) / 7)
    return attrs.evolve(found, ways=(way,), blocks_bytes_per_s=rates)


def test_a_load_that_grows_by_itself_is_looked_at_for_longer_and_keeps_no_step_that_this_explains(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = growing(12).behind(growing(11))
    made = climber([growing(10), growing(11), growing(12), growing(13)])
    monkeypatch.setattr(View, "behind", lambda *_: joined)
    found = climb(ONE_STEP, nobody)
    assert made.acts == ["write", "take back"] and not found.steps[0].kept
    assert any("grew by itself" in one for one in found.remarks)


def test_a_gain_beyond_what_a_load_grows_by_itself_stays_at_once(climber: Make) -> None:
    made = climber([growing(10), growing(20)])
    assert climb(ONE_STEP, nobody).steps[0].kept and made.looks_s == [4.0, 4.0]


def test_what_a_longer_look_shows_to_be_no_trend_stays(climber: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = moving(sda=11.3).behind(growing(11))
    made = climber([growing(10), growing(11), moving(sda=11.3)])
    monkeypatch.setattr(View, "behind", lambda *_: joined)
    found = climb(ONE_STEP, nobody)
    assert made.looks_s == [4.0, 4.0, 4.0] and found.steps[0].kept


def test_a_connection_that_finds_its_window_is_no_load_that_grows_by_itself() -> None:
    steady, grows = (10.0, 10.1, 9.9, 10.0, 10.1, 10.0), (10.5, 10.9, 11.3, 11.7, 12.0, 12.3)
    assert not explains(steady, grows, 1.01)
    assert explains(grows, tuple(rate * 1.2 for rate in grows), 1.01)
    assert not explains(grows[:2], grows, 1.01)
