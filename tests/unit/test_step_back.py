# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: a step goes back at both ends, whoever is interrupted or fails, and what does not is said."""

import contextlib
import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from fabtune.autotune import new_connections, taken_back
from fabtune.autotune import step as stepping
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.made import Made
from fabtune.autotune.step import TuningStep
from fabtune.autotune.view import View
from fabtune.autotune.wanted import Wanted
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.model.device import Device
from fabtune.tune import journal, reconnect, relogin, signals
from fabtune.tune.far_end import FarEnd
from fabtune.tune.lift import Reason
from fabtune.tune.pending import TARGET_RELOGIN
from fabtune.tune.plan import CHANGE, Row

HOST = "target.example"
SEEN = View((), (), ())
_LOGIN = SimpleNamespace(action=TARGET_RELOGIN)


class Far:
    """The target's host: what happens while a step is taken back there, and what is left to be said."""

    owes_logins = False

    def __init__(self, left: str = "", meanwhile: Callable[[], None] = lambda: None) -> None:
        self.left, self.meanwhile = left, meanwhile
        # Whether what was written there is still in force.
        self.waits_for = True

    def waits(self, _: str) -> bool:
        return self.waits_for

    def given_back(self, *_: object) -> str:
        with signals.noted(second_raises=True) as stop:
            self.meanwhile()
        stop.check()
        return self.left


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The transactions that were taken back here."""
    names: list[str] = []

    def undo(_: None, name: str, *__: object) -> object:
        names.append(name)
        return SimpleNamespace(reconnected=(), problems=[], outcomes=[], pending=[])

    monkeypatch.setattr(taken_back, "undo", undo)
    return names


def written(far: Far) -> TuningStep:
    """A step that was written at both ends."""
    asked = ClimbAsked((), None, None, 4.0, 8, HOST)
    wanted = Wanted(Reason("wan", None, (), ()), estimated=True)
    step = TuningStep(asked, Aim(Goal.THROUGHPUT), SEEN, Learnt(), wanted, lambda _: None)
    step.made, step.made_away = ["here"], "there"
    step._far = cast(FarEnd, far)
    return step


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_target_out_of_reach_leaves_no_step_here(undone: list[str]) -> None:
    step = written(Far("lost"))
    assert step._take_back() == "lost"
    assert undone == ["here"] and step.made == []


def test_ctrl_c_while_the_target_is_asked_leaves_no_step_here(undone: list[str]) -> None:
    step = written(Far(meanwhile=ctrl_c))
    with pytest.raises(KeyboardInterrupt):
        step._take_back()
    assert undone == ["here"]


def test_ctrl_c_while_it_is_said_that_a_step_goes_back_leaves_none(undone: list[str]) -> None:
    """What is said first may wait for a terminal."""
    step = written(Far())
    step.progress = lambda _: ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        step._take_back()
    assert undone == ["here"]


def test_ctrl_c_while_a_step_goes_back_is_not_taken_for_its_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """As undo does, it looks at its own stop between two transactions."""
    back: list[str] = []

    def undo(_: None, name: str, *__: object) -> object:
        with signals.noted() as stop:
            ctrl_c()
            if not stop.wanted:
                back.append(name)
        return SimpleNamespace(reconnected=(), problems=[], outcomes=[], pending=[])

    monkeypatch.setattr(taken_back, "undo", undo)
    monkeypatch.setattr(TuningStep, "_write", lambda self: None)
    monkeypatch.setattr(new_connections, "_SETTLE_S", 0.0)
    monkeypatch.setattr(ClimbAsked, "look", lambda self: SEEN)
    with pytest.raises(KeyboardInterrupt):
        written(Far()).take()
    assert back == ["here"]


def test_a_value_that_does_not_go_back_is_no_step_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(label="eth0")
    outcome = SimpleNamespace(
        step=SimpleNamespace(tunable="nic.rx_ring", device=device),
        state="failed",
        found="512",
        note="the driver refuses",
    )

    def undo(_: None, name: str, *__: object) -> object:
        if name == "busy":
            raise FabtuneError("another fabtune (process 7) is changing this host")
        return SimpleNamespace(reconnected=("sda",), problems=[], outcomes=[outcome], pending=[])

    monkeypatch.setattr(taken_back, "undo", undo)
    back = taken_back.here(["busy", "refused"], lambda _: None)
    left = back.left
    assert back.connected and not back.due and len(left) == 2
    assert "busy is not taken back: another fabtune" in left[0] and "revert --transaction busy" in left[0]
    assert "nic.rx_ring of eth0, which is 512, was not taken back: the driver refuses" in left[1]


@pytest.mark.parametrize("where", ["here", "there", "nowhere"])
def test_who_is_due_for_a_new_connection_since_a_step_went_back_gets_it(
    monkeypatch: pytest.MonkeyPatch, undone: list[str], where: str
) -> None:
    """A step that counted at once may be felt only by new connections when it is gone: fq under BBR."""
    anew: list[str] = []
    due = SimpleNamespace(reconnected=(), problems=[], outcomes=[], pending=[_LOGIN] if where == "here" else [])
    monkeypatch.setattr(taken_back, "undo", lambda *_: due)
    monkeypatch.setattr(TuningStep, "_connect_anew", lambda self: anew.append("anew"))
    far = Far()
    far.owes_logins = where == "there"
    assert written(far)._take_back() == ""
    assert anew == ([] if where == "nowhere" else ["anew"])


def test_what_others_left_due_at_a_target_is_not_brought_by_a_step_there_that_counted_at_once(
    monkeypatch: pytest.MonkeyPatch, undone: list[str]
) -> None:
    """Its revert ends as theirs does: initiators are to log in anew."""
    monkeypatch.setattr(TuningStep, "_connect_anew", lambda self: pytest.fail("connected anew"))
    far = Far()
    far.owes_logins = True
    step, pace = written(far), shipped_catalog().tunables["connection.pacing"]
    row = Row(pace, "target", Device("connection", "portal", "portal"), "0", "1", CHANGE, "why")
    step.ends = [Made("target", HOST, "there", (row,)), Made("initiator", "", "here", (row,))]
    assert step._take_back() == "" and undone == ["here"]


def test_ctrl_c_while_connections_are_made_anew_ends_it_when_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    step, anew = written(Far()), reconnect.Reconnected("sda", 3.2, 1.0)
    monkeypatch.setattr(stepping, "this_host", lambda: SimpleNamespace(boot_id="x"))
    monkeypatch.setattr(stepping, "live_sessions", list)
    monkeypatch.setattr(journal, "locked", contextlib.nullcontext)
    monkeypatch.setattr(relogin, "journalled", lambda: contextlib.nullcontext(lambda _: None))

    def in_place(*_: object) -> tuple[list[reconnect.Reconnected], list[object]]:
        with signals.held_back():
            ctrl_c()
        return [anew], []

    monkeypatch.setattr(reconnect, "in_place", in_place)
    with pytest.raises(KeyboardInterrupt):
        step._connect_anew()
    assert step.pause_s == 3.2, "who goes back connects anew then, too"


def look_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TuningStep, "_write", lambda self: None)
    monkeypatch.setattr(new_connections, "_SETTLE_S", 0.0)
    monkeypatch.setattr(ClimbAsked, "look", lambda self, *_: SEEN)


@pytest.mark.parametrize(
    "back",
    [
        SimpleNamespace(name="here", closed=True, confirmed=False, unconfirmed=None, open_steps=[]),
        SimpleNamespace(
            name="here",
            closed=False,
            confirmed=False,
            unconfirmed=SimpleNamespace(boot_id="x", until_s=0.0),
            open_steps=[],
        ),
    ],
    ids=["taken back", "its time is up"],
)
def test_a_look_during_which_the_step_went_back_judges_nothing(
    monkeypatch: pytest.MonkeyPatch, undone: list[str], back: SimpleNamespace
) -> None:
    look_is(monkeypatch)
    monkeypatch.setattr(journal, "transactions", lambda: [back])
    with pytest.raises(FabtuneError, match=r"here went back .* not judged"):
        written(Far()).take()
    assert undone == ["here"], "what is left of it goes, too"


def test_a_step_that_went_back_on_the_targets_host_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, undone: list[str]
) -> None:
    look_is(monkeypatch)
    monkeypatch.setattr(journal, "transactions", list)
    far = Far()
    far.waits_for = False
    with pytest.raises(FabtuneError, match=r"there \(target.example\) went back"):
        written(far).take()
    assert undone == ["here"]
