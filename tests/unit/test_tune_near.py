# SPDX-License-Identifier: GPL-2.0-or-later
# ruff: noqa: F811 - tests take fixtures that they import
"""fabtune tune and why within a site: what profile `lan` has no word for is lifted all the same."""

import pytest
from kept_looks import kept
from test_guard_portals import Connect, connect, host  # noqa: F401

from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.disturbed import Witness
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.new_connections import NewConnections
from fabtune.autotune.step import TuningStep
from fabtune.autotune.view import View
from fabtune.host import portal_options
from fabtune.host.portal_options import Options
from fabtune.model.observation import Observation
from fabtune.tune import reconnect
from fabtune.tune.lift import Limited, advised, profile_for
from fabtune.why.judging import Judged, Share
from fabtune.why.limiters.requests import R2T
from fabtune.why.limiters.windows import BUFFER, WINDOW
from fabtune.why.summing_up import with_rate

_WINDOW = Share(WINDOW.name, 1.0, "the initiator's locked receive window", lifts=WINDOW.lifts, ends=("initiator",))
_R2T = Share(R2T.name, 0.4, "round trips for R2Ts", lifts=R2T.lifts, ends=("initiator", "target"))


@pytest.fixture
def near(host: object, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Observation:
    """A session of half a millisecond, as a look sees it."""
    monkeypatch.setattr(portal_options, "given", lambda _: Options())
    monkeypatch.setattr(reconnect, "why_not_for", lambda *_: "")
    connect((1, 0.5))
    return kept("untouched-read", 1, 0.5)


def test_a_locked_window_is_lifted_on_a_short_path_too(near: Observation) -> None:
    """tune ended with nothing left that settings lift, where `lint` names what does."""
    way = Judged("sd1", "read", 400e6, True, None, (_WINDOW,))
    view = View((near,), (way,), (400e6,) * 8)
    asked, aim = ClimbAsked((), None, None, 4.0, 8), Aim(Goal.THROUGHPUT)
    anew = NewConnections(lambda _: None)
    step = TuningStep.next(asked, aim, view, Learnt(), lambda _: None, Witness(), anew)
    assert step and "iscsi.tcp_window" in {name for _, name, *_ in step.changes}


def test_why_has_the_row_that_lifts_a_locked_window_on_a_short_path(near: Observation) -> None:
    (advice,) = advised([Limited(with_rate(near, 25e9 / 8), (_WINDOW,))], None)
    assert "iscsi.tcp_window" in [one.row.tunable.name for one in advice.rows] and not advice.unlifted


@pytest.mark.parametrize(
    ("shares", "profile"),
    [
        ((_R2T,), "lan"),
        # What includes the other one speaks of both.
        ((_R2T, _WINDOW), "wan"),
        ((Share(BUFFER.name, 1.0, "", lifts=BUFFER.lifts, ends=("target",)),), "wan"),
        # What nothing has a word for at that end, and what has a profile of its own.
        ((Share("x", 1.0, "", lifts=("srp.can_queue",), ends=("initiator",)),), "lan"),
        ((Share("x", 1.0, "", lifts=WINDOW.lifts, ends=("initiator",), profile="unpaced"),), "unpaced"),
        ((), "lan"),
    ],
)
def test_within_a_site_the_profile_is_the_one_that_speaks_of_what_limits(
    shares: tuple[Share, ...], profile: str
) -> None:
    assert profile_for(kept("untouched-read", 1, 0.5), shares) == profile
    assert shares != (_R2T,) or profile_for(kept("untouched-read", 1, 5.0), shares) == "wan"
