# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune: a step has the time that it may take before it goes back by itself."""

import time
from collections.abc import Callable
from types import SimpleNamespace

import attrs
import pytest
from tuned_looks import ASKED, no_path, nobody, paced_line, seen  # noqa: F401

from fabtune.autotune import step as stepping
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.step import TuningStep
from fabtune.autotune.tuned_ends import Wrote
from fabtune.autotune.view import View
from fabtune.autotune.wanted import Wanted
from fabtune.tune import journal, reconnect
from fabtune.tune.lift import Reason
from fabtune.tune.reconnect import Reconnected

# What 64 sessions of 100 ms pause for: iscsid's start, DefaultTime2Wait and eight round trips each.
PAUSE_S = 1.2 + 64 * (2 + 0.8)
_WINDOW = SimpleNamespace(name="iscsi.tcp_window", effect="reconnect")
ROW = SimpleNamespace(tunable=_WINDOW, role="initiator", device=None, wanted="0")


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class End:
    """An end whose write takes so long, and notes when it goes back unless it is confirmed."""

    host = ""

    def __init__(self, role: str, clock: Clock, takes_s: float, reconnected: bool = False) -> None:
        self.role, self.clock, self.takes_s, self.reconnected = role, clock, takes_s, reconnected
        self.until_s = 0.0

    def write(self, plan: object, limit_s: float, made: list[str], progress: Callable[[str], None]) -> Wrote:
        self.clock.sleep(self.takes_s)
        self.until_s = self.clock.now_s + limit_s
        anew = [Reconnected("sda", PAUSE_S, self.clock.now_s)] * self.reconnected
        return Wrote(self.role, [ROW], anew)  # type: ignore[list-item]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: found.now_s)
    monkeypatch.setattr(time, "sleep", found.sleep)
    return found


def test_the_time_of_a_step_covers_new_connections_of_64_sessions_and_the_look(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """The target's end is armed first: its time runs through everything that the initiator's takes."""
    longest_s = 5 + reconnect._BUSY_DISKS_WAIT_S + PAUSE_S + reconnect.GRACE_S + reconnect._DISKS_WAIT_S
    ends = [End("target", clock, 1.0), End("initiator", clock, longest_s, reconnected=True)]
    monkeypatch.setattr(reconnect, "longest_pause_s", lambda sessions, _: PAUSE_S if len(sessions) == 64 else 0.0)
    monkeypatch.setattr(stepping, "live_sessions", lambda: [object()] * 64)
    monkeypatch.setattr(TuningStep, "_ends", lambda self: ends)
    monkeypatch.setattr(TuningStep, "_rows", lambda self, end: [ROW])
    monkeypatch.setattr(TuningStep, "_plan", lambda self, end: None)
    monkeypatch.setattr(View, "rtt_ms", 100.0)
    monkeypatch.setattr(journal, "transactions", list)

    def look(self: ClimbAsked, seconds: float = 0.0) -> View:
        clock.sleep(seconds or self.seconds)
        return seen(20, "line")

    monkeypatch.setattr(ClimbAsked, "look", look)
    left_s: list[float] = []
    monkeypatch.setattr(TuningStep, "_keep", lambda self: left_s.extend(one.until_s - clock.now_s for one in ends))
    wanted = Wanted(Reason("wan", None, (), ()), estimated=True)
    asked = attrs.evolve(ASKED, seconds=60.0)
    step = TuningStep(asked, Aim(Goal.THROUGHPUT), seen(10, "receive-window"), Learnt(), wanted, nobody)
    step._connects = True
    climbed, _ = step.take()
    assert climbed.kept and len(left_s) == 2
    assert min(left_s) > 0, f"the target's end was back for {-min(left_s):.0f} s"


def test_the_time_of_a_step_covers_how_long_cubic_needs_to_have_its_window_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(View, "rtt_ms", 100.0)
    monkeypatch.setattr(View, "shown", SimpleNamespace(recovery_s=98.0))
    wanted = Wanted(Reason("wan", None, (), ()), spares=True)
    step = TuningStep(ASKED, Aim(Goal.THROUGHPUT), paced_line(None), Learnt(), wanted, nobody)
    assert step._longest_s() >= 98.0 + ASKED.seconds
    # What counts at once waits for no connection.
    assert step._longest_s() < 98.0 + ASKED.seconds + 100.0
