# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune: what a load is before any step is seen over the connections that it has when all is well."""

import itertools
import time
from dataclasses import replace
from types import SimpleNamespace

import attrs
import pytest
from kept_looks import kept
from test_short_queue import SESSION
from tuned_looks import ASKED, Make, climber, lost_after, no_path, paced_line, seen  # noqa: F401

from fabtune.autotune import climb as climbing
from fabtune.autotune import first_look as looking
from fabtune.autotune import view
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.first_look import first_look, of_several_sawteeth
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.view import View
from fabtune.errors import FabtuneError
from fabtune.host import iscsid
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import Session
from fabtune.model.observation import Observation
from fabtune.tune import reconnect


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the session is at each look at it, the last one for good; each look at the clock takes a second."""
    found, clock = ["LOGGED_IN"], itertools.count()

    def sessions() -> list[Session]:
        return [replace(SESSION, state=found.pop(0) if len(found) > 1 else found[0])]

    monkeypatch.setattr(reconnect, "live_sessions", sessions)
    monkeypatch.setattr(looking, "live_sessions", sessions)
    monkeypatch.setattr(looking, "established", list)
    monkeypatch.setattr(looking, "Connections", lambda *_: SimpleNamespace(of=lambda session: True))
    monkeypatch.setattr(iscsid, "running", lambda: Daemon(42, "7", 42))
    monkeypatch.setattr(iscsid, "why_not_anew", lambda daemon: "")
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    return found


def first(asked: ClimbAsked = ASKED) -> tuple[View, list[str]]:
    told: list[str] = []
    return first_look(asked, Learnt(), told.append), told


def test_a_session_that_has_lost_its_connection_is_waited_for(climber: Make, states: list[str]) -> None:
    """A target ended it for a write's data that came late, and all of the only look fell into its absence."""
    states[:] = ["FAILED", "FAILED", "FAILED", "LOGGED_IN"]
    made = climber([seen(10, "line", lifts=())])
    _, told = first()
    assert told[0].startswith("without a connection now, waiting for it: iqn.a") and len(made.looks_s) == 1
    assert not states[1:]


def test_one_that_does_not_come_back_is_looked_at_as_it_is(climber: Make, states: list[str]) -> None:
    states[:] = ["FAILED"]
    made = climber([seen(10, "line", lifts=())])
    first()
    assert time.monotonic() == pytest.approx(reconnect._BACK_WAIT_S, abs=2) and len(made.looks_s) == 1


@pytest.mark.parametrize(("disks", "waits"), [((), True), (("sda",), True), (("sdb",), False)])
def test_nobody_waits_for_other_disks(climber: Make, states: list[str], disks: tuple[str, ...], waits: bool) -> None:
    states[:] = ["FAILED"]
    climber([seen(10, "line", lifts=())])
    first(attrs.evolve(ASKED, disks=disks))
    assert (time.monotonic() > 0) == waits


@pytest.mark.parametrize(("lost", "looks"), [(0, 1), (1, 2), (2, 3), (3, 3)])
def test_a_look_without_a_connection_is_another_load_s(
    climber: Make, states: list[str], monkeypatch: pytest.MonkeyPatch, lost: int, looks: int
) -> None:
    made = climber([seen(10 + turn, "line", lifts=()) for turn in range(looks)])
    monkeypatch.setattr(View, "unconnected", property(lambda self: ["sda"] * (len(made.looks_s) <= lost)))
    found, told = first()
    assert found.bytes_per_s == pytest.approx((10 + looks - 1) * 1e6) and len(made.looks_s) == looks
    assert len([text for text in told if text.startswith("the connection of sda was lost")]) == min(lost, 2)


def test_a_look_during_which_a_disk_went_away_is_taken_again(
    climber: Make, states: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rate was that of two disks, and a step's that of the one which was left."""
    made = climber([seen(20, "line", lifts=()), seen(10, "line", lifts=())])
    monkeypatch.setattr(View, "gone_bytes_per_s", property(lambda self: {} if len(made.looks_s) > 1 else {"sdb": 1e7}))
    found, told = first()
    assert found.bytes_per_s == pytest.approx(10e6) and len(made.looks_s) == 2
    assert "sdb went away meanwhile; looking again ..." in told


@pytest.mark.parametrize(("state", "visible", "looks"), [
    ("LOGGED_IN", True, 3), ("FAILED", False, 3), ("LOGGED_IN", False, 1),
])  # fmt: skip
def test_a_connection_that_is_never_seen_was_not_lost(
    climber: Make, states: list[str], monkeypatch: pytest.MonkeyPatch, state: str, visible: bool, looks: int
) -> None:
    """It is another network namespace's, or an adapter's that does TCP by itself: three looks tell no more than one."""
    states[:] = [state]
    made = climber([seen(10, "line", lifts=()) for _ in range(looks)])
    monkeypatch.setattr(View, "unconnected", ["sda"])
    monkeypatch.setattr(looking, "Connections", lambda *_: SimpleNamespace(of=lambda session: visible or None))
    first()
    assert len(made.looks_s) == looks


def test_only_tcp_has_a_connection_to_lose() -> None:
    found = paced_line(None)
    (one,) = found.seen
    away = attrs.evolve(one, initiator=attrs.evolve(one.initiator, socket=None))
    rdma = attrs.evolve(away, session=attrs.evolve(away.session, rdma=True))
    told = [attrs.evolve(found, seen=(each,)).unconnected for each in (one, away, rdma)]
    assert told == [[], [one.device], []]


def test_a_connection_that_ends_in_the_middle_of_a_look_is_lost_too() -> None:
    found = paced_line(None)
    assert attrs.evolve(found, seen=(lost_after(found.seen[0], 2.0),)).unconnected == [found.seen[0].device]


@pytest.mark.parametrize(
    ("limiters", "rises_s", "looks"),
    [(("loss",), 1.0, 1), (("loss", "loss"), 2.0, 2), (("loss", "line"), 2.0, 2), (("line",), 2.0, 1)],
)
def test_a_lucky_stretch_between_two_losses_is_not_what_the_next_step_is_to_be_better_than(
    climber: Make, monkeypatch: pytest.MonkeyPatch, limiters: tuple[str, ...], rises_s: float, looks: int
) -> None:
    """A step that stays was looked at once, and the rise after a loss takes half of that."""
    monkeypatch.setattr(View, "sawtooth", property(lambda self: self.main.first.limiter == "loss"))
    monkeypatch.setattr(View, "shown", SimpleNamespace(recovery_s=rises_s))
    monkeypatch.setattr(Learnt, "saw", lambda self, look: None)
    first, *others = (seen(mb_per_s, limiter) for mb_per_s, limiter in zip((7, 9), limiters, strict=False))
    climber(list(others))
    found = of_several_sawteeth(ASKED, Learnt(), first, lambda text: None)
    # A line that is full in the second look is not full.
    assert (found.looks, found.main.first.limiter) == (looks, limiters[0])
    assert found.bytes_per_s == pytest.approx(8e6 if looks == 2 else 7e6)
    assert found.blocks_bytes_per_s == sum((one.blocks_bytes_per_s for one in (first, *others)), ())


def test_a_load_that_something_else_holds_meanwhile_is_the_load_of_now(
    climber: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One slow look between two of 20 MB/s made a step that brought nothing 1.4 times as fast."""
    monkeypatch.setattr(View, "sawtooth", property(lambda self: self.main.first.limiter == "loss"))
    monkeypatch.setattr(View, "shown", SimpleNamespace(recovery_s=2.0))
    monkeypatch.setattr(Learnt, "saw", lambda self, look: None)
    slow = seen(10, "load")
    climber([slow])
    assert of_several_sawteeth(ASKED, Learnt(), seen(20, "loss"), lambda text: None) is slow


@pytest.mark.parametrize("error", [KeyboardInterrupt(), FabtuneError("nothing moves")])
def test_a_step_that_stays_is_in_what_is_said_of_a_climb_that_ends_in_the_longer_look(
    climber: Make, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def ends(*_: object) -> View:
        raise error

    monkeypatch.setattr(climbing, "of_several_sawteeth", ends)
    climber([seen(10, "receive-window"), seen(20, "loss")])
    found: list[climbing.Climb] = []
    with pytest.raises(type(error)):
        climbing.climb(ASKED, lambda text: None, found.append)
    assert found[0].last.bytes_per_s == pytest.approx(20e6) and [one.kept for one in found[0].steps] == [True]


def test_what_stays_is_looked_at_for_so_long(climber: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = seen(19, "load", lifts=())
    monkeypatch.setattr(climbing, "of_several_sawteeth", lambda asked, learnt, now, progress: longer)
    climber([seen(10, "receive-window"), seen(20, "load", lifts=())])
    found = climbing.climb(ASKED, lambda text: None)
    assert [one.kept for one in found.steps] == [True] and found.last is longer


def test_where_nothing_moves_it_says_how_to_have_a_load_with_the_disk_s_own_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """tune has a load of its own, and whoever began without any was not told."""
    idle = kept("wan-read", 7)
    idle = attrs.evolve(idle, disk=attrs.evolve(idle.disk, samples=(), ways={}))

    class Looked:
        def __init__(self, *_: object) -> None:
            pass

        def over(self, *_: object) -> list[Observation]:
            return [idle]

    monkeypatch.setattr(view, "Look", Looked)
    monkeypatch.setattr(view, "with_known_rate", lambda found, _: found)
    with pytest.raises(FabtuneError, match=r"under their load, .*; or .* --with xdd --set op=read --on sd7$"):
        view.see((), None, "", 4.0, None)
