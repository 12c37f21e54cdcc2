# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune of a target that another host tunes, too: no step is planned on, or judged against, what is on trial."""

import time
from collections.abc import Callable

import attrs
import pytest
from tuned_looks import ASKED, Climber, Make, climber, no_path, seen  # noqa: F401

from fabtune.autotune import climb as climbing
from fabtune.autotune import view
from fabtune.autotune.climb import Climb, climb
from fabtune.autotune.disturbed import Witness
from fabtune.autotune.step import TuningStep
from fabtune.autotune.view import View
from fabtune.errors import FabtuneError
from fabtune.tune.far_end import RefusedThereError

THERE = attrs.evolve(ASKED, target_host="target.example")
LOW, HIGH, FULL = seen(10, "receive-window"), seen(20, "receive-window"), seen(20, "line")
FAR = "target.example: transaction a"


class Far:
    """The target's host, where another one tries steps: what is in its journal, and what waiting comes to."""

    host = "target.example"

    def __init__(self, acts: list[str]) -> None:
        self.acts, self.journal = acts, {"old": "in force"}
        # After how many acts its history was asked for.
        self.histories: list[int] = []

    def check(self) -> None:
        self.acts.append("check")

    def wait_for_others(self, progress: Callable[[str], None]) -> dict[str, str]:
        self.acts.append("wait")
        # Whoever is waited for keeps his step, or takes it back.
        self.journal = {name: state.replace("unconfirmed", "taken back") for name, state in self.journal.items()}
        return self.others()

    def others(self) -> dict[str, str]:
        self.histories.append(len(self.acts))
        return dict(self.journal)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Far:
    found = Far([])
    monkeypatch.setattr(climbing, "FarEnd", lambda _: found)
    monkeypatch.setattr(climbing, "bring_owed", lambda *_: [])
    return found


def tuned(
    monkeypatch: pytest.MonkeyPatch, far: Far, made: Climber, during: dict[int, Callable[[], None]]
) -> tuple[Climb, list[str]]:
    """Tune; `during` the looks of these numbers something happens at the target's host."""
    said: list[str] = []

    def look(*words: object, **more: object) -> View:
        far.acts.append("look")
        during.get(len(made.looks_s), lambda: None)()
        return made.look(*words, **more)

    monkeypatch.setattr(view, "see", look)
    monkeypatch.setattr(TuningStep, "_write", lambda self: far.acts.append("write"))
    monkeypatch.setattr(TuningStep, "_keep", lambda self: far.acts.append("keep"))
    monkeypatch.setattr(TuningStep, "_check_in_force", lambda self: None)
    return climb(THERE, said.append), said


def test_others_are_waited_for_before_the_first_look_and_before_each_step(
    far: Far, climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned(monkeypatch, far, climber([LOW, FULL]), {})
    assert far.acts[:7] == ["check", "wait", "look", "wait", "write", "look", "keep"]


def test_before_a_step_on_quiet_ground_its_history_is_asked_for_once(
    far: Far, climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What says that nobody is waited for says what they have changed, too: a second answer took another ssh."""
    tuned(monkeypatch, far, climber([LOW, FULL]), {})
    look, write = far.acts.index("look") + 1, far.acts.index("write")
    assert len([acts for acts in far.histories if look < acts <= write]) == 1


def test_a_step_is_not_judged_against_a_look_at_what_another_host_tried(
    far: Far, climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gain was this one's ground, and went back with it."""
    found, said = tuned(monkeypatch, far, climber([HIGH, LOW, FULL]), {0: lambda: far.journal.update(a="unconfirmed")})
    assert far.acts[:7] == ["check", "wait", "look", "wait", "look", "wait", "write"]
    assert any(one.startswith(FAR) for one in said)
    assert found.first == LOW and found.steps[0].before_bytes_per_s == LOW.bytes_per_s


def test_a_step_during_which_another_host_changed_the_target_is_not_judged(
    far: Far, climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = tuned(monkeypatch, far, climber([LOW, FULL, LOW, FULL]), {1: lambda: far.journal.update(a="in force")})
    first, again = found.steps
    assert first.disturbance and first.disturbance.others and not first.kept
    assert first.disturbance.why.startswith(FAR) and again.kept


def test_who_comes_first_there_is_waited_for_and_ends_no_tune(
    far: Far, climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with the advice to confirm the other host's step, or to take it back."""
    writes = iter([True, False])

    def write(self: TuningStep) -> None:
        far.acts.append("write")
        if next(writes):
            far.journal["a"] = "unconfirmed"
            raise RefusedThereError("target.example: transaction a waits to be confirmed")

    made = climber([LOW, LOW, FULL])
    monkeypatch.setattr(TuningStep, "_write", write)
    monkeypatch.setattr(TuningStep, "_check_in_force", lambda self: None)
    found = climb(THERE, lambda _: None)
    assert [one.kept for one in found.steps] == [True] and len(made.looks_s) == 3


def test_what_another_host_tries_while_a_step_is_planned_is_not_why_nothing_is_left(
    far: Far, climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan read as wanted what goes back a moment later."""
    made, plans = climber([LOW, LOW, FULL]), [0]

    def next_step(*words: object) -> TuningStep | None:
        plans[0] += 1
        if plans[0] == 1:
            far.journal["a"] = "unconfirmed"
            return None
        return really(*words)  # type: ignore[arg-type]

    really = TuningStep.next
    monkeypatch.setattr(TuningStep, "next", next_step)
    monkeypatch.setattr(TuningStep, "_check_in_force", lambda self: None)
    assert [one.kept for one in climb(THERE, lambda _: None).steps] == [True] and len(made.looks_s) == 3


def test_what_the_host_refuses_for_no_doing_of_others_ends_it(
    far: Far, climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(self: TuningStep) -> None:
        raise RefusedThereError("target.example: no space left")

    climber([LOW, LOW])
    monkeypatch.setattr(TuningStep, "_write", write)
    with pytest.raises(FabtuneError, match="no space left"):
        climb(THERE, lambda _: None)


def test_others_who_go_on_and_on_are_not_waited_for_for_ever(
    far: Far, climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = iter(range(0, 100_000, 100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now_s)))
    made = climber([LOW] * 50)

    def look(*words: object, **more: object) -> View:
        far.journal[f"a{len(made.looks_s)}"] = "in force"
        return made.look(*words, **more)

    monkeypatch.setattr(view, "see", look)
    with pytest.raises(FabtuneError, match=r"others go on tuning that host"):
        climb(THERE, lambda _: None)
    assert 2 < len(made.looks_s) < 12


def test_a_witness_names_what_others_changed_and_takes_it_for_known_once_it_is_renewed(far: Far) -> None:
    witness = Witness(far)  # type: ignore[arg-type]
    assert witness.changed_there() == ""
    far.journal["old"] = "taken back"
    assert witness.changed_there() == "target.example: transaction old"
    witness.renew()
    assert witness.changed_there() == "" and Witness().changed_there() == ""
