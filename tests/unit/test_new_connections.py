# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune where no new connection can be made in place: what counts at once is tried, and the rest is said."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import attrs
import hosttree
import pytest
from tuned_looks import ASKED, Make, climber, no_path, nobody, seen  # noqa: F401

from fabtune.autotune import new_connections
from fabtune.autotune import step as stepping
from fabtune.autotune.climb import AT_THE_BOUND, NOT_TRIED, Climb, climb
from fabtune.autotune.tuned_ends import Lifting
from fabtune.autotune.view import View
from fabtune.autotune.wanted import Wanted
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli import autotune as cli
from fabtune.errors import ExitCode
from fabtune.host import iscsid
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import live_sessions
from fabtune.model.device import Device
from fabtune.tune import logout, reconnect
from fabtune.tune.lift import Reason
from fabtune.tune.plan import CHANGE, REFUSED, Row
from fabtune.tune.saved_plan import SavedPlan
from fabtune.why.judging import Judged, Share

_WINDOW = Share("receive-window", 0.6, "w", lifts=("iscsi.tcp_window",), ends=("initiator",))
_DEPTH = Share("queue-depth", 0.4, "q", lifts=("block.queue_depth",), ends=("initiator",))
_WHY = "session disk: its requests fail after 5 s without a connection (recovery_tmo)"


def _held_by(mb_per_s: float, *shares: Share) -> View:
    return attrs.evolve(
        seen(mb_per_s, "receive-window"), ways=(Judged("sda", "read", mb_per_s * 1e6, True, None, shares),)
    )


def _row(name: str) -> Row:
    tunable = shipped_catalog().tunables[name]
    return Row(tunable, "initiator", Device(tunable.scope, "iqn.a", "sda"), "2", "1", CHANGE, "")


@pytest.fixture
def refusing(climber: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Climb, list[str], list[str]]]:
    """Return what climbs where `why_not` says no; each share's row is written unless it was, and none that waits."""

    def run(looks: list[View | BaseException], why: str = _WHY) -> tuple[Climb, list[str], list[str]]:
        made, done, told = climber(looks), set[str](), list[str]()

        def rows(self: stepping.TuningStep, end: object) -> list[Row]:
            names = [name for one in self.wanted.reason.shares for name in one.lifts]
            return [_row(name) for name in names if name not in done]

        def write(self: stepping.TuningStep) -> None:
            names = [row.tunable.name for row in self._rows(None)]  # type: ignore[arg-type]
            done.update(names)
            made.acts.append(f"write {', '.join(names)}")

        monkeypatch.setattr(stepping.TuningStep, "_rows", rows)
        monkeypatch.setattr(stepping.TuningStep, "_write", write)
        monkeypatch.setattr(stepping.TuningStep, "_ends", lambda self: [SimpleNamespace(role="initiator")])
        monkeypatch.setattr(reconnect, "why_not_for", lambda rows, sessions: why)
        return climb(ASKED, told.append), made.acts, told

    return run


def test_what_counts_at_once_is_tried_and_why_the_rest_is_not_is_said(
    refusing: Callable[..., tuple[Climb, list[str], list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    """multipathd has requests fail after 5 s by default: tune wrote a window, found that out, and ended."""
    both = (_WINDOW, _DEPTH)
    found, acts, told = refusing([_held_by(10, *both), _held_by(20, *both), _held_by(20, *both)])
    assert acts == ["write block.queue_depth", "confirm"]
    assert [one.limiters for one in found.steps] == [("queue-depth",)]
    assert (found.ended, found.exit_code) == (NOT_TRIED, ExitCode.DONE)
    (said,) = [text for text in told if "not tried" in text]
    assert said.startswith("not tried against receive-window: iscsi.tcp_window; ") and said.endswith(_WHY)
    assert found.remarks == [said] and json.loads(json.dumps(cli._as_json(found)))["ended"] == NOT_TRIED
    cli._show(found)
    assert "recovery_tmo" in " ".join(capsys.readouterr().out.split())


def test_where_nothing_else_is_left_nothing_is_written_and_it_has_failed(
    refusing: Callable[..., tuple[Climb, list[str], list[str]]],
) -> None:
    found, acts, _ = refusing([_held_by(10, _WINDOW)])
    assert (acts, found.ended, found.exit_code) == ([], NOT_TRIED, ExitCode.FAILED)


def test_a_step_that_makes_no_sense_without_them_is_none(
    refusing: Callable[..., tuple[Climb, list[str], list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cubic in bbr's place was a pace for bbr, below the one that bbr is given, and called what helped."""
    share = Share("probing", 1.0, "bbr", lifts=("connection.pacing", "route.congctl"), ends=("initiator",))
    wanted = Wanted(Reason("wan-clean", 1e8, (), (share,)), needs="route.congctl")
    monkeypatch.setattr(stepping, "wanted_steps", lambda *_: iter([wanted]))
    found, acts, (*_, said) = refusing([_held_by(10, _WINDOW)])
    assert (acts, found.steps) == ([], []) and said.startswith("not tried against probing: route.congctl; ")
    # Nor where they can be made, if it has nothing to do there.
    share = attrs.evolve(share, lifts=("connection.pacing",))
    wanted = attrs.evolve(wanted, reason=Reason("wan-clean", 1e8, (), (share,)))
    found, acts, _ = refusing([_held_by(10, _WINDOW)], why="")
    assert (acts, found.steps) == ([], [])


def test_where_they_can_be_made_everything_is_written_in_one_step(
    refusing: Callable[..., tuple[Climb, list[str], list[str]]],
) -> None:
    both = (_WINDOW, _DEPTH)
    found, acts, told = refusing([_held_by(10, *both), seen(20, "line")], why="")
    assert acts == ["write iscsi.tcp_window, block.queue_depth", "confirm"]
    assert found.ended == AT_THE_BOUND and not [text for text in told if "not tried" in text]


def test_of_an_end_nothing_is_planned_that_waits_for_a_connection() -> None:
    rows = tuple(map(_row, ("iscsi.tcp_window", "block.queue_depth")))
    saved = SavedPlan("", "", "", "", "", "wan", ("initiator",), (), "", None, {}, rows)
    wanted = Lifting(Reason("wan", 1e8, (), (_WINDOW, _DEPTH)), 100.0, estimated=True, at_once=True)
    assert [row.tunable.name for row in wanted.in_place(saved).rows] == ["block.queue_depth"]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session that iscsid could connect anew; return its directory."""
    hosttree.enter(hosttree.make(tmp_path, 1), monkeypatch)
    monkeypatch.setattr(iscsid, "running", lambda: Daemon(42, "7", 42))
    monkeypatch.setattr(iscsid, "why_not_anew", lambda daemon: "")
    monkeypatch.setattr(reconnect, "established", list)
    monkeypatch.setattr(logout, "why_not_connected_again", lambda session, may_be_down=False: "")
    monkeypatch.setattr(reconnect, "why_not_waited_for", lambda session, present: "")
    monkeypatch.setattr(reconnect, "_why_no_answer", lambda *_: pytest.fail("a portal was asked"))
    return tmp_path / "sys/class/iscsi_session/session1"


def test_it_is_asked_with_the_wait_that_the_step_would_write_and_no_portal_is(session: Path) -> None:
    """A wait of 2 s and the way back take 6.4 s beside the margins; without the new one it is 4.4."""
    (one,) = live_sessions()
    margins_s = reconnect.GRACE_S + iscsid.START_WAIT_S
    hosttree.put(session / "recovery_tmo", str(round(5.4 + margins_s)))
    device, tunable = Device("record", one.identity, ""), shipped_catalog().tunables["iscsi.time2wait"]
    ours, others = (Row(tunable, "initiator", device, "2", "0", state, "") for state in (CHANGE, REFUSED))
    assert reconnect.why_not_for([ours], [one]) == ""
    assert "recovery_tmo" in reconnect.why_not_for([], [one])
    assert "recovery_tmo" in reconnect.why_not_for([others], [one])
    hosttree.put(session / "recovery_tmo", "5")
    assert "its requests fail after 5 s" in reconnect.why_not_for([ours], [one])


def test_a_dead_path_is_waited_for_once_and_one_that_was_dead_before_never(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []
    monkeypatch.setattr(reconnect, "wait_for_lost", lambda progress, check: waited.append("waited"))
    alive = new_connections.NewConnections(nobody)
    hosttree.put(session / "state", "FAILED")
    dead = new_connections.NewConnections(nobody)
    for _ in range(2):
        dead.ask_again()
        dead.why_not(list)
    assert not waited
    for _ in range(2):
        alive.ask_again()
        alive.why_not(list)
    assert waited == ["waited"]
