# SPDX-License-Identifier: GPL-2.0-or-later
"""What fabtune guard tells again, and what it does not: each condition once, and anew when it had passed."""

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from fabtune.errors import FabtuneError
from fabtune.export import kept
from fabtune.facts import devices
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.guard import rounds
from fabtune.guard.news import Told
from fabtune.guard.rounds import Guard
from fabtune.host.sessions import called
from fabtune.tune import again, journal
from fabtune.tune.verify import Drift

_GONE, _ANEW = (None, "the device is gone"), ("128", "the device was created again since")
_RIGHT = ("2440", "")


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Told]]:
    """Return what compares values at a second since the start: sessions that are there, and what a disk has then."""
    monkeypatch.setattr(rounds, "planned_for", lambda _: [])
    guard = Guard(heal=False)

    def compare(at_s: float, sids: Sequence[int], found: tuple[str | None, str]) -> list[Told]:
        drift = Drift("block.read_ahead_kb", "sdb", "2440", found[0], found[0] != "2440", found[1])
        monkeypatch.setattr(time, "monotonic", lambda: at_s)
        monkeypatch.setattr(rounds, "verify", lambda *_: [drift])
        monkeypatch.setattr(rounds, "HostSnapshot", lambda: SimpleNamespace(sessions=[_session(sid) for sid in sids]))
        return guard.look(lambda _: None)

    compare(0.0, (1, 2), _RIGHT)
    return compare


def _session(sid: int) -> SimpleNamespace:
    return SimpleNamespace(sid=sid)


def kinds(told: Sequence[Told]) -> list[str]:
    return [one.kind for one in told]


def test_a_session_that_was_seen_to_leave_and_came_back_without_its_values_is_told(
    values: Callable[..., list[Told]],
) -> None:
    week_s = 7 * 86400
    for begins_s in (0, week_s):
        assert kinds(values(begins_s + 100, (1,), _GONE)) == ["drift"]
        (back,) = values(begins_s + 104, (1, 3 + begins_s), _ANEW)
        assert back.kind == "session-returned" and "is 128, applied was 2440" in back.text
        assert [values(begins_s + at_s, (1, 3 + begins_s), _ANEW) for at_s in (105, 170, 900)] == [[], [], []]


def test_a_disk_that_comes_some_seconds_after_its_session_is_looked_at_again(
    values: Callable[..., list[Told]],
) -> None:
    assert kinds(values(100, (1,), _GONE)) == ["drift"]
    assert values(104, (1, 3), _GONE) == []
    told = [one for at_s in range(105, 115) for one in values(at_s, (1, 3), _ANEW)]
    assert kinds(told) == ["session-returned"]


def test_a_session_that_comes_and_goes_each_second_makes_no_line_each_second(
    values: Callable[..., list[Told]],
) -> None:
    lines = [values(at_s, (1,), _GONE) if at_s % 2 else values(at_s, (1, at_s), _ANEW) for at_s in range(100, 700)]
    assert sum(map(len, lines)) <= 2 * 11
    lines = [values(at_s, (1,), _GONE) if at_s % 2 else values(at_s, (1, at_s), _RIGHT) for at_s in range(700, 1300)]
    assert sum(map(len, lines)) <= 2 * 11
    # What it is in the end is told.
    assert kinds([one for at_s in range(1300, 1500) for one in values(at_s, (1,), _GONE)])[-1:] == ["drift"]


def test_what_could_not_be_published_is_told_once_and_again_when_it_had_passed(
    values: Callable[..., list[Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    def lines(first_s: int, last_s: int, fails: Callable[[int], bool]) -> list[Told]:
        told = []
        for at_s in range(first_s, last_s):
            monkeypatch.setattr(kept, "save", full if fails(at_s) else lambda _: None)
            told += values(at_s, (1, 2), _RIGHT)
        return told

    assert kinds(lines(1, 1800, lambda _: True)) == ["not-published"]
    assert lines(1800, 3600, lambda at_s: at_s % 2 == 0) == []
    assert lines(3600, 7200, lambda _: False) == []
    assert kinds(lines(7200, 7300, lambda _: True)) == ["not-published"]


def test_values_that_cannot_be_healed_are_told_once_while_it_lasts(
    values: Callable[..., list[Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(heal=True)

    def refused(*_: object, **__: object) -> None:
        raise FabtuneError("no")

    monkeypatch.setattr(again, "write_again", refused)
    monkeypatch.setattr(journal, "at_work", lambda: "")
    told = []
    for at_s in range(0, 7200, 30):
        monkeypatch.setattr(time, "monotonic", lambda at_s=at_s: float(at_s))
        drift = Drift("x", "sda", "1", "2" if at_s < 3600 or at_s > 5400 else "1", at_s < 3600 or at_s > 5400)
        monkeypatch.setattr(rounds, "verify", lambda *_, drift=drift: [drift])
        told += guard.look(lambda _: None)
    assert kinds(told).count("cannot-heal") == 2


def test_two_records_of_one_portal_over_two_interfaces_are_two_values(monkeypatch: pytest.MonkeyPatch) -> None:
    around = SimpleNamespace(records={f"iqn.t:disk,10.0.0.1:3260,{name}": {} for name in ("default", "eth1")})
    found = devices.records(cast(HostSnapshot, around))
    assert [one.label for one in found] == ["disk at 10.0.0.1:3260", "disk at 10.0.0.1:3260 over eth1"]
    # What an older fabtune journalled calls them the same.
    for labels in ([one.label for one in found], ["disk at 10.0.0.1:3260"] * 2):
        guard, told = Guard(heal=False), list[tuple[str, str]]()
        monkeypatch.setattr(rounds, "planned_for", lambda _: [])
        for look, values in enumerate((("0", "0"), ("9", "0"), ("9", "9"), ("0", "9"), ("0", "0"))):
            drifts = [
                Drift("x", label, "0", value, value != "0", identity=one.identity)
                for one, label, value in zip(found, labels, values, strict=True)
            ]
            monkeypatch.setattr(time, "monotonic", lambda look=look: 120.0 * (look + 1))
            monkeypatch.setattr(rounds, "verify", lambda *_, drifts=drifts: drifts)
            told += [(one.kind, one.text.partition(" is ")[0]) for one in guard.look(lambda _: None)]
        names = [f"x of {label}" for label in labels]
        assert told == [(kind, name) for kind in ("drift", "as-applied") for name in names] and not guard.uneasy


def test_sessions_of_one_target_and_portal_are_not_called_the_same() -> None:
    assert called("iqn.t", "p", "default") == "iqn.t at p"
    assert called("iqn.t", "p", "eth1") == "iqn.t at p over eth1"
    assert called("iqn.t", "p", "eth1", 2) == "iqn.t at p over eth1 (session 2)"
