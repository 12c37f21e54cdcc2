# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune: a host that changes between a step's plan and its write is looked at, and the step planned, anew."""

import shlex

import pytest
from test_far_end import HOST, Ssh, ssh  # noqa: F401
from tuned_looks import ASKED, Climber, Make, climber, no_path, seen  # noqa: F401

from fabtune.autotune.climb import Climb, climb
from fabtune.autotune.step import TuningStep
from fabtune.errors import ExitCode, FabtuneError
from fabtune.tune.far_end import FarEnd
from fabtune.tune.saved_plan import HostChangedError, SavedPlan

LOW, HIGH, FULL = seen(10, "receive-window"), seen(20, "command-window"), seen(30, "line")
CHANGED = ("new: session iqn.b",)


def tuned(monkeypatch: pytest.MonkeyPatch, made: Climber, changes: list[bool]) -> tuple[Climb, list[str]]:
    """Tune a host on which a session logs in between plan and write of the steps that `changes` says, in turn."""
    said, left = list[str](), iter(changes)

    def write(self: TuningStep) -> None:
        made.acts.append("write")
        if next(left, False):
            raise HostChangedError("the host has changed since the plan was made; make a new plan", CHANGED)

    monkeypatch.setattr(TuningStep, "_write", write)
    monkeypatch.setattr(TuningStep, "_check_in_force", lambda self: None)
    return climb(ASKED, said.append), said


def test_the_step_is_planned_anew_upon_another_look(climber: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of another disk that logged in just then ended it with exit code 3."""
    made = climber([LOW, LOW, FULL])
    found, said = tuned(monkeypatch, made, [True])
    assert [one.kept for one in found.steps] == [True] and found.exit_code == ExitCode.DONE
    assert made.acts == ["write", "take back", "write", "confirm"] and len(made.looks_s) == 3
    assert any("new: session iqn.b" in one and "planning anew" in one for one in said)


def test_each_step_may_be_planned_anew_once(climber: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = climber([LOW, LOW, HIGH, HIGH, FULL])
    found, _ = tuned(monkeypatch, made, [True, False, True, False])
    assert [one.kept for one in found.steps] == [True, True]


def test_a_host_that_goes_on_changing_ends_it(climber: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostChangedError, match=r"^the host changed twice .*: new: session iqn.b; tune again") as caught:
        tuned(monkeypatch, climber([LOW, LOW]), [True, True])
    assert caught.value.exit_code == ExitCode.DRIFT


def test_nothing_is_planned_anew_on_what_is_left_of_the_step(climber: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's part was written before the initiator's was refused."""
    made = climber([LOW, LOW, FULL])
    made.left = "target.example: a is not taken back"
    with pytest.raises(FabtuneError, match="a is not taken back") as caught:
        tuned(monkeypatch, made, [True])
    assert caught.value.exit_code == ExitCode.FAILED and made.acts == ["write", "take back"]


def test_a_target_s_host_that_has_changed_is_told_from_one_that_refuses(ssh: Ssh) -> None:
    plan = SavedPlan("", "", "", "", "", "wan", ("target",), (), "", None, {}, ())
    document = shlex.quote('{"error": {"kind": "drift", "exit_code": 3}}')
    ssh(f"*) echo {document}; echo 'fabtune: the host has changed: new: acl iqn.c' >&2; exit 3;;")
    with pytest.raises(HostChangedError, match=f"^{HOST}: the host has changed: new: acl iqn.c$"):
        FarEnd(HOST).apply(plan, 60)
