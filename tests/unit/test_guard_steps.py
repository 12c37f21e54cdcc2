# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune guard, lint and tune beside steps that a tune kept: they are of the sessions that they lift, and no more."""

import json
from pathlib import Path

import pytest
from test_guard import kinds, looked, most
from test_guard_portals import Connect, connect, host  # noqa: F401
from test_lint_planned_rate import asked as linted

from fabtune.autotune.told import rtt_doubts
from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.guard.rounds import Guard
from fabtune.tune import armed, confirm, journal, saved_plan
from fabtune.tune.carry_out import carry_out
from fabtune.tune.pending import Leave
from fabtune.tune.request import plan_for, request

_RMEM, _PROBING = "tcp.rmem_max", "tcp.mtu_probing"
# A portal of its own at each distance.
FAR, NEAR = (1, 40.0), (2, 5.0)
_PROFILE = """
summary = "two sysctls"
[parameters.room]
summary = "how many times the path"
default = 2
[initiator."tcp.rmem_max"]
value = "room * bdp"
why = "a test"
[initiator."tcp.mtu_probing"]
value = 1
why = "a test"
"""


@pytest.fixture
def there(host: Path, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with both portals and nothing applied."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "mine.toml").write_text(_PROFILE)
    monkeypatch.setenv("FABTUNE_PROFILES", str(profiles))
    connect(FAR, NEAR)
    return host


@pytest.fixture
def applied(there: Path) -> Path:
    """The same, on which the profile was applied as told, for the farther portal."""
    applying("mine")
    assert most(there) == 10_000_000
    return there


def applying(profile: str) -> None:
    assert main(["apply", profile, "--role", "initiator", "--rtt", "40ms", "--rate", "1gbit"]) in (0, 4)
    record.BACKEND.forget()


def step(rtt_ms: float, rate: str, *only: str) -> None:
    """Keep a step of these tunables, as tune plans it: for its own sessions, by a rate that nobody vouches for."""
    plan = request("mine", "initiator", "", f"{rtt_ms}ms", rate, [], only=frozenset(only), estimated=True)
    _, done = carry_out(plan, persist=False, leave=Leave(), on_trial=True, progress=lambda _: None)
    assert [row.tunable.name for row in done.written] == list(only)
    confirm.accept(lambda _: None, [done.transaction])


def without_probing() -> None:
    """Take back what the apply wrote beside the buffer, so that a step has it to write."""
    (one,) = journal.transactions()
    Path(one.path).write_text("".join(line for line in one.path.open() if _PROBING not in line))


def told(*, heal: bool = True) -> list[str]:
    return [f"{one.kind}: {one.text}" for one in looked(Guard(heal=heal), 6) if one.kind != "drift"]


@pytest.mark.parametrize("heal", [True, False])
def test_a_step_for_the_near_session_alone_makes_no_moved_path_of_the_far_one(there: Path, heal: bool) -> None:
    """The far one was said to have moved from 5 to 40 ms, and every connection's buffer made for that."""
    step(5, "10gbit", _RMEM)
    assert most(there) == 12_500_000
    assert told(heal=heal) == [] and most(there) == 12_500_000


def test_nor_one_beside_an_apply_that_is_for_the_far_one(applied: Path) -> None:
    step(5, "20gbit", _RMEM)
    assert told() == [] and most(applied) == 25_000_000


def test_the_path_of_the_session_that_a_step_lifts_is_followed(there: Path, connect: Connect) -> None:
    """As it was before, with a guard that has not seen where it was: the journal knows whose it is."""
    step(5, "10gbit", _RMEM)
    connect(FAR, (2, 25.0))
    moved, followed = told()
    assert moved.startswith("path-moved") and "25.0 ms" in moved and "5.0 ms" in moved
    assert followed.startswith("followed") and most(there) == 62_500_000
    # What was written for the step is of the same session, and of no other.
    assert told() == []
    connect((1, 90.0), (2, 25.0))
    assert told() == []


def test_nothing_is_told_of_a_step_whose_session_is_gone(there: Path, connect: Connect) -> None:
    step(5, "10gbit", _RMEM)
    connect(FAR)
    assert told() == []


def test_of_several_steps_the_one_for_the_farthest_session_is_followed(there: Path, connect: Connect) -> None:
    step(40, "1gbit", _RMEM)
    step(5, "1gbit", _PROBING)
    connect((1, 80.0), NEAR)
    found = [one.partition(":")[0] for one in told()]
    # What it was followed to is what is watched by then.
    assert found == ["watched", "path-moved", "followed", "watched"] and most(there) == 20_000_000


def test_of_several_steps_it_is_told_once_whose_path_is_watched_and_whose_is_not(there: Path, connect: Connect) -> None:
    """Of the near one, which moved to 90 ms, nothing was told, nor that nothing would be."""
    step(40, "1gbit", _RMEM)
    step(5, "1gbit", _PROBING)
    connect(FAR, (2, 90.0))
    (one,) = (one for one in looked(Guard(heal=True), 6) if one.kind != "drift")
    assert (one.kind, one.grade) == ("watched", "notice")
    assert "40.0 ms (10.2.0.101 to 10.2.0.1)" in one.text and "not 5.0 ms (10.2.0.101 to 10.2.0.2)" in one.text
    line = json.loads(json.dumps(one.as_json()))
    paths = [(path["planned_rtt_ms"], path["ends"]) for path in [line, *line["not_watched"]]]
    ends = [[{"local": "10.2.0.101", "remote": f"10.2.0.{number}"}] for number in (1, 2)]
    assert paths == [(40, ends[0]), (5, ends[1])]


@pytest.mark.parametrize(("alone", "becomes"), [(True, 2_500_000), (False, 10_000_000)])
def test_a_value_is_not_lowered_where_a_step_for_another_session_may_need_it(
    there: Path, connect: Connect, alone: bool, becomes: int
) -> None:
    """All sessions have the buffer: the other one's of 30 ms needed three times of what was left of it."""
    connect(FAR, (2, 30.0))
    step(40, "1gbit", _RMEM)
    if not alone:
        step(30, "1gbit", _PROBING)
    guard = Guard(heal=True)
    looked(guard, 6)
    connect((1, 10.0), (2, 30.0))
    assert "path-moved" in kinds(looked(guard, 6)) and most(there) == becomes


def test_a_newer_step_for_the_same_session_stands_for_the_older_one(there: Path, connect: Connect) -> None:
    step(40, "1gbit", _RMEM)
    connect((1, 20.0), NEAR)
    step(20, "1gbit", _PROBING)
    assert told() == [] and most(there) == 10_000_000


def test_what_was_applied_is_followed_when_a_step_was_kept_since(there: Path, connect: Connect) -> None:
    """Guard judged by the step, to which the buffer does not belong, and said that there was nothing to be changed."""
    applying("mine")
    without_probing()
    (there / "proc/sys/net/ipv4/tcp_mtu_probing").write_text("0\n")
    step(40.3, "940mbit", _PROBING)
    connect((1, 80.0), NEAR)
    moved, followed = told()
    assert "its values were planned for 40.0 ms" in moved
    assert followed.startswith("followed") and most(there) == 20_000_000


@pytest.mark.parametrize(
    ("rtt_ms", "rate", "was", "becomes"),
    [
        # What a step wrote for a path, too, and less than the moved one asks for.
        (40, "1200mbit", 12_000_000, 20_000_000),
        (5, "20gbit", 25_000_000, 25_000_000),
        # What it needs itself is not taken from it.
        (40, "4gbit", 40_000_000, 40_000_000),
    ],
)
def test_a_value_that_a_step_raised_is_raised_further_and_never_lowered(
    applied: Path, connect: Connect, rtt_ms: float, rate: str, was: int, becomes: int
) -> None:
    step(rtt_ms, rate, _RMEM)
    assert most(applied) == was
    connect((1, 80.0), NEAR)
    assert kinds(looked(Guard(heal=True), 6))[0] == "path-moved" and most(applied) == becomes


def test_what_a_step_wrote_by_a_parameter_of_its_own_is_not_changed(applied: Path, connect: Connect) -> None:
    plan = request("mine", "initiator", "", "40ms", "1gbit", ["room=3"], only=frozenset({_RMEM}), estimated=True)
    _, done = carry_out(plan, persist=False, leave=Leave(), on_trial=True, progress=lambda _: None)
    confirm.accept(lambda _: None, [done.transaction])
    assert most(applied) == 15_000_000
    connect((1, 80.0), NEAR)
    assert "followed" not in kinds(looked(Guard(heal=True), 6)) and most(applied) == 15_000_000


def test_lint_and_tune_say_nothing_of_a_step_by_other_sessions(
    there: Path, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    step(5, "10gbit", _RMEM)

    def rules() -> list[str]:
        return [one["hazard"] for one in linted(capsys)[0]["findings"] if one["hazard"].startswith("path-")]

    assert rules() == [] and rtt_doubts() == []
    connect(FAR, (2, 25.0))
    assert rules() == ["path-longer-than-told"] and len(rtt_doubts()) == 1


def test_lint_knows_the_rate_that_an_apply_was_told_when_a_step_was_kept_since(
    applied: Path, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(FAR)
    step(40, "4gbit", _RMEM)
    capsys.readouterr()
    main(["lint", "--json"])
    assert json.loads(capsys.readouterr().out)["rate"] == {"bit_per_s": 1e9, "of": "profile 'mine' in force"}


def test_a_step_of_another_host_is_one_in_the_journal_of_this_one(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target's guard took what its initiator's tune had tried for an apply for all of its initiators."""
    monkeypatch.setattr(armed, "arm", lambda name: None)
    monkeypatch.setattr(armed, "is_watched", lambda: False)
    asked = request("mine", "initiator", "", "5ms", "10gbit", [], only=frozenset({_RMEM}), estimated=True)
    made = saved_plan.of(*plan_for(asked), shipped_catalog())
    text = json.loads(saved_plan.plan_text(made))
    assert "on_trial" not in text
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({**text, "on_trial": True}))
    assert main(["apply", "--plan", str(file), "--yes", "--confirm-within", "60s"]) in (0, 4)
    (one,) = journal.transactions()
    assert one.state == "unconfirmed" and one.header.on_trial
    assert main(["confirm", "--transaction", one.name]) == 0
    assert told() == [] and most(there) == 12_500_000


def test_a_plan_is_no_step_where_nothing_would_take_it_back(there: Path, tmp_path: Path) -> None:
    asked = request("mine", "initiator", "", "5ms", "10gbit", [], only=frozenset({_RMEM}), estimated=True)
    text = json.loads(saved_plan.plan_text(saved_plan.of(*plan_for(asked), shipped_catalog())))
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({**text, "on_trial": True}))
    assert main(["apply", "--plan", str(file), "--yes"]) in (0, 4)
    assert journal.transactions()[0].state == "in force"
