# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune tune at the initiator alone: what only the target would lift is not called nothing."""

import json
import time
from pathlib import Path

import attrs
import hosttree
import pytest
from kept_looks import kept

from fabtune.autotune import view
from fabtune.autotune.at_target import AtTarget, left_at_target
from fabtune.autotune.climb import NOT_TRIED_HERE, NOTHING_HERE, NOTHING_LEFT, Climb
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.goal import Aim, Goal
from fabtune.autotune.learnt import KnownLine, Learnt
from fabtune.autotune.view import View
from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.host import systemd
from fabtune.why.judging import Share, judged
from fabtune.why.limiters.windows import WINDOW_OR_LINE

_ASKED = ClimbAsked((), None, None, 4.0, 8)
_AGAIN = "tune again with --target-host HOST (--target-netns NAME where it is in a namespace of this host)"


def _look(name: str) -> View:
    observed = kept(name)
    return View((observed,), tuple(judged(observed)), tuple(1e6 * (1 + 0.01 * (turn % 2)) for turn in range(7)))


@pytest.fixture
def sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    hosttree.enter(hosttree.make(tmp_path / "root", 1), monkeypatch)
    monkeypatch.setattr(systemd, "manages_host", lambda: True)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return monkeypatch


def _tuned(sees: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str) -> tuple[int, dict[str, object]]:
    sees.setattr(view, "see", lambda *_, **__: _look(name))
    code = main(["tune", "--yes", "--for", "4s", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_what_only_the_target_lifts_is_left_there_and_it_has_failed(
    sees: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reads that losses limit want bbr at the target, and tune said that no setting lifts them, exit 0."""
    code, told = _tuned(sees, capsys, "loss-read")
    assert (code, told["ended"], told["steps"]) == (ExitCode.FAILED, NOTHING_HERE, [])
    assert told["remarks"] == [f"at the target, what lifts loss is among route.congctl, tcp.mtu_probing: {_AGAIN}"]


def test_where_the_target_may_limit_nothing_is_known_of_its_settings(
    sees: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = _tuned(sees, capsys, "qdepth3")
    assert (code, told["ended"]) == (ExitCode.CANNOT_TELL, NOTHING_HERE)
    assert told["remarks"] == [f"what limits may be at the target, which was not looked at: {_AGAIN}"]


def test_what_nothing_at_the_target_lifts_leaves_nothing_there(
    sees: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = _tuned(sees, capsys, "depth1")
    assert (code, told["ended"], told["remarks"]) == (ExitCode.DONE, NOTHING_LEFT, [])


def test_a_target_that_was_named_has_been_tuned() -> None:
    for asked in (attrs.evolve(_ASKED, target_netns=""), attrs.evolve(_ASKED, target_host="target.example")):
        assert left_at_target(asked, _look("loss-read"), Learnt()) == AtTarget()
    assert left_at_target(_ASKED, _look("loss-read"), Learnt()).tunables == ("route.congctl", "tcp.mtu_probing")


def test_what_tune_would_not_write_beside_others_is_not_left_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KnownLine, "others", True)
    assert left_at_target(_ASKED, _look("loss-read"), Learnt()) == AtTarget()
    assert left_at_target(_ASKED, _look("loss-read"), Learnt(friendly=False)).tunables


def test_a_window_of_the_target_that_may_be_the_line_is_left_there_to_be_tried() -> None:
    """A named target's would have been written: `why` names no setting against what it cannot tell from the line."""
    look = _look("loss-write")
    perhaps = Share(WINDOW_OR_LINE.name, 1.0, "", among=("receive-window", "line"))
    look = attrs.evolve(look, ways=tuple(attrs.evolve(one, shares=(perhaps,)) for one in look.ways))
    assert "tcp.rmem_max" in left_at_target(_ASKED, look, Learnt()).tunables


def test_where_nothing_can_be_felt_here_either_both_are_said() -> None:
    look = _look("loss-read")
    found = Climb(look, look, Aim(Goal.THROUGHPUT), not_tried=["not tried against loss"])
    found.at_target = left_at_target(_ASKED, look, Learnt())
    found.ended = found.why_no_more
    assert (found.ended, found.exit_code) == (NOT_TRIED_HERE, ExitCode.FAILED)
