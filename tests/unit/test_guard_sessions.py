# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune guard beside several sessions: each connection is judged alone."""

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import test_guard
from test_guard import connection, kinds, most

from fabtune.errors import FabtuneError
from fabtune.guard import rounds
from fabtune.guard.news import Told
from fabtune.guard.rounds import Guard
from fabtune.guard.seen_path import SeenPath
from fabtune.host.sockets import TcpSocket
from fabtune.tune import journal

host = test_guard.host


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Told]]:
    """Return what looks at sessions, once a second for so long.

    Each is given by its port, its round trip, every how many seconds something of it is acknowledged, and how many
    bytes that is a second.
    """
    now_s, acked = itertools.count(1), Counter[int]()
    monkeypatch.setattr(rounds, "_REST_S", 0.0)

    def look(guard: Guard, seconds: int, *there: tuple[int, float, int, int]) -> list[Told]:
        told = []
        for _ in range(seconds):
            at_s = next(now_s)
            monkeypatch.setattr(time, "monotonic", lambda at_s=at_s: float(at_s))
            for port, _, every_s, size in there:
                acked[port] += size * every_s if at_s % every_s == 0 else 0
            found = [connection(rtt_ms, acked[port], port=port) for port, rtt_ms, _, _ in there]
            monkeypatch.setattr(rounds, "_connections", lambda *_, found=found: found)
            told += guard.look(lambda _: None)
        return told

    return look


# Port, seconds between two acknowledgements, bytes a second.
_FAR, _NEAR = 40001, 40002
_PINGS, _BUSY, _SILENT = (5, 10), (1, 10_000_000), (10**9, 0)


def test_a_far_session_that_only_pings_beside_a_busy_near_one_has_not_moved(
    host: Path, sessions: Callable[..., list[Told]]
) -> None:
    guard = Guard(heal=True)
    assert sessions(guard, 60, (_FAR, 40, *_PINGS), (_NEAR, 5, *_BUSY)) == []
    # A burst of the far one, and rest again.
    assert sessions(guard, 10, (_FAR, 40, *_BUSY), (_NEAR, 5, *_BUSY)) == []
    assert sessions(guard, 60, (_FAR, 40, *_PINGS), (_NEAR, 5, *_BUSY)) == []
    assert most(host) == 10_000_000 and len(journal.transactions()) == 1 and not guard.uneasy


@pytest.mark.parametrize("far", [_PINGS, _BUSY, _SILENT])
@pytest.mark.parametrize("known_s", [0, 30])
def test_values_stay_when_the_far_session_is_logged_out_and_in_again(
    host: Path, sessions: Callable[..., list[Told]], far: tuple[int, int], known_s: int
) -> None:
    """They harm nobody, and the path that they are for has not moved."""
    guard = Guard(heal=True)
    assert sessions(guard, known_s, (_FAR, 40, *far), (_NEAR, 0.3, *_BUSY)) == []
    assert sessions(guard, 30, (_NEAR, 0.3, *_BUSY)) == []
    assert sessions(guard, 30, (40003, 40, *far), (_NEAR, 0.3, *_BUSY)) == []
    assert most(host) == 10_000_000 and len(journal.transactions()) == 1


@pytest.mark.parametrize(
    ("there", "told"),
    [
        # A way round that both were led over, and followed; a neighbour's queue on the way to the near one, as long as
        # the far one's path.
        (((_FAR, 80, 1, 1000), (_NEAR, 80, 1, 1000)), ["path-moved", "followed"]),
        (((_FAR, 40, *_BUSY), (_NEAR, 45, 1, 1000)), []),
    ],
)
@pytest.mark.parametrize("anew", [False, True])
def test_values_stay_at_a_logout_of_the_far_session_whatever_the_near_one_has_had(
    host: Path,
    sessions: Callable[..., list[Told]],
    there: tuple[tuple[int, float, int, int], ...],
    told: list[str],
    anew: bool,
) -> None:
    guard, near = Guard(heal=True), (_NEAR, 5, *_BUSY)
    assert sessions(guard, 20, (_FAR, 40, *_BUSY), near) == []
    assert kinds(sessions(guard, 20, *there)) == told
    # The connection of the near one may be made anew when that is over.
    near = (40003, 5, *_BUSY) if anew else near
    assert kinds(sessions(guard, 20, (_FAR, 40, *_BUSY), near)) == told
    assert sessions(guard, 60, near) == [] and most(host) == 10_000_000
    # What the far one has when it is back is its own.
    assert kinds(sessions(guard, 20, (40004, 20, *_BUSY), near)) == ["path-moved", "followed"]


def test_a_queue_of_the_near_session_alone_makes_no_far_one_of_it(
    host: Path, sessions: Callable[..., list[Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TCP has seen its own, shorter round trip meanwhile: when the far one is logged out, none has become shorter."""
    guard, far, near = Guard(heal=True), (_FAR, 40, *_BUSY), (_NEAR, 5, *_BUSY)
    assert sessions(guard, 20, far, near) == []
    real = rounds._connections
    for at_s in range(10):
        acked = 10**9 + 500_000 * at_s
        queue = connection(90, acked, least_ms=5 - at_s / 100, port=_NEAR)
        there = [connection(40, acked, port=_FAR), queue]
        monkeypatch.setattr(rounds, "_connections", lambda *_, there=there: there)
        monkeypatch.setattr(time, "monotonic", lambda at_s=at_s: 20 + at_s / 20)
        assert [one for one in guard.look(lambda _: None) if one.kind != "path-moved"] == []
    monkeypatch.setattr(rounds, "_connections", real)
    assert sessions(guard, 60, near) == [] and most(host) == 10_000_000


def test_of_connections_that_are_gone_no_round_trip_is_told(
    host: Path, sessions: Callable[..., list[Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sessions logged out, it went on with what they had: the metric, and that something is not as applied."""
    guard, far = Guard(heal=False), (_FAR, 90, *_BUSY[:1], 1000)
    assert kinds(sessions(guard, 10, far)) == ["path-moved"] and guard.uneasy
    assert [one.moved for one in guard._watched()] == [True]
    (gone,) = sessions(guard, 5)
    assert gone.kind == "path-back" and "none of its connections" in gone.text
    assert not guard.uneasy and guard._watched() == []
    # As it was when they are back.
    assert kinds(sessions(guard, 10, far)) == ["path-moved"] and guard.uneasy

    def vanished(*_: object) -> list[TcpSocket]:
        raise FabtuneError("network namespace 'storage' is gone")

    monkeypatch.setattr(rounds, "_connections", vanished)
    assert kinds(guard.look(lambda _: None)) == ["not-seen", "path-back"] and guard._watched() == []


def test_what_a_connection_had_under_another_plan_is_not_handed_on() -> None:
    """It was made anew twice: while a way round was followed, and when the far one was away."""
    path, far = SeenPath(80.0), connection(40, 0)

    def look(port: int, near_ms: float, *others: TcpSocket) -> None:
        for acked in range(1, 5):
            near = replace(connection(near_ms, acked, port=port), remote="10.3.0.1")
            path.look([near, *(replace(one, acked_bytes=acked) for one in others)], None)

    look(_NEAR, 80)
    look(40003, 5, far)
    path.plan_for(40.0)
    look(40003, 5)
    look(40004, 5)
    assert path.now_ms == 5 and path.moved_to_ms is None


@pytest.mark.parametrize("after", [_BUSY, _PINGS])
def test_a_path_that_became_shorter_is_followed_beside_a_nearer_session(
    host: Path, sessions: Callable[..., list[Told]], after: tuple[int, int]
) -> None:
    guard = Guard(heal=True)
    assert sessions(guard, 20, (_FAR, 40, *_PINGS), (_NEAR, 5, *_BUSY)) == []
    told = sessions(guard, 20, (_FAR, 20, *after), (_NEAR, 5, *_BUSY))
    assert kinds(told) == ["path-moved", "followed"] and most(host) == 5_000_000


def test_a_path_that_became_shorter_while_its_connection_was_made_anew_is_followed(
    host: Path, sessions: Callable[..., list[Told]]
) -> None:
    guard = Guard(heal=True)
    assert sessions(guard, 10, (_FAR, 40, *_BUSY)) == []
    assert sessions(guard, 3) == []
    assert kinds(sessions(guard, 10, (40003, 20, *_BUSY))) == ["path-moved", "followed"]
    assert most(host) == 5_000_000


def test_one_path_that_moved_says_so_until_it_is_back_or_gone_whatever_others_do(
    host: Path, sessions: Callable[..., list[Told]]
) -> None:
    guard, near = Guard(heal=False), (_NEAR, 5, *_BUSY)
    assert kinds(sessions(guard, 20, (_FAR, 150, 1, 1000), near)) == ["path-moved"]
    # What TCP knew last stands while nothing is acknowledged; pings bring it on.
    assert sessions(guard, 20, (_FAR, 150, *_SILENT), near) == [] and guard.uneasy
    assert kinds(sessions(guard, 30, (_FAR, 40, *_PINGS), near)) == ["path-back"] and not guard.uneasy
    near = (_NEAR, 5, 1, 1000)
    assert kinds(sessions(guard, 20, (_FAR, 150, 1, 1000), near)) == ["path-moved"]
    (gone,) = sessions(guard, 20, near)
    assert gone.kind == "path-back" and "gone" in gone.text and "5.0 ms" in gone.text and not guard.uneasy
