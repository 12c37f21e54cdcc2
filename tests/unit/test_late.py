# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions that were down when an unconfirmed apply went back: what connects them anew once they are up."""

import contextlib
from types import SimpleNamespace

import pytest

from fabtune.tune import journal, pending, reconnect, relogin, taken_down, watcher
from fabtune.tune.pending import RECONNECT, Pending


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> list[str]:
    """What is connected anew; the journal holds a transaction that went back and one that was applied since."""
    done: list[str] = []
    monkeypatch.setenv("FABTUNE_STATE_DIR", f"{tmp_path}/state")
    monkeypatch.setattr(watcher, "live_sessions", list)
    monkeypatch.setattr(watcher, "_LATE_S", 0.5)
    monkeypatch.setattr(watcher, "_TRY_EVERY_S", 0.1)
    monkeypatch.setattr(watcher, "this_host", lambda: SimpleNamespace(boot_id="boot"))
    monkeypatch.setattr(journal, "transactions", lambda: [SimpleNamespace(name=one) for one in ("back", "since")])

    def in_place(asked: list[Pending], *_: object, **__: object) -> tuple[list[str], list[Pending]]:
        done.extend(one.label for one in asked)
        return ["one"], []

    monkeypatch.setattr(reconnect, "in_place", in_place)
    monkeypatch.setattr(relogin, "journalled", lambda: contextlib.nullcontext(lambda _: None))
    return done


def due(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let a session have to connect anew for these transactions."""

    def still_pending(found: list[SimpleNamespace], _: str) -> list[Pending]:
        return [Pending(RECONNECT, "iqn", one.name, "1", "boot") for one in found if one.name in names]

    monkeypatch.setattr(pending, "still_pending", still_pending)


def test_a_session_that_came_up_is_given_its_old_values(connected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    due(monkeypatch, "back")
    watcher._connect_late({"back"}, lambda _: None)
    assert connected == ["back"]


@pytest.mark.parametrize("names", [("since",), ("back", "since")])
def test_values_that_somebody_applied_since_and_left_for_later_are_not_brought_into_force(
    connected: list[str], monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    due(monkeypatch, *names)
    said: list[str] = []
    watcher._connect_late({"back"}, said.append)
    assert connected == []
    assert ("since" in " ".join(said)) is ("back" in names)


def test_a_session_that_the_reconnect_took_down_is_brought_up(
    connected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    due(monkeypatch, "back")
    states = ["FAILED"]
    monkeypatch.setattr(watcher, "live_sessions", lambda: [SimpleNamespace(state=one) for one in states])
    monkeypatch.setattr(taken_down, "waiting", lambda tasks, *_, **__: {one.label: 0.0 for one in tasks})

    def bring_up(down: dict[str, float], *_: object) -> taken_down.BroughtUp:
        assert list(down) == ["back"]
        states.clear()
        return taken_down.BroughtUp(problems=["said"])

    monkeypatch.setattr(taken_down, "bring_up", bring_up)
    said: list[str] = []
    watcher._connect_late({"back"}, said.append)
    assert said == ["said"] and states == [] and connected == ["back"]
