# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune guard beside a line whose rate moves: it tells, enlarges nothing for a queue, and writes no rate."""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import hosttree
import pytest
import test_guard
from test_guard import connection, kinds, most

from fabtune.cli.main import main
from fabtune.export import kept
from fabtune.export.guarded import Guarded
from fabtune.guard import rounds
from fabtune.guard.least import Least, kept_s
from fabtune.guard.news import Told
from fabtune.guard.rate import AtPace
from fabtune.guard.rounds import Guard
from fabtune.tune import journal

path_ms = test_guard.path_ms
seconds = test_guard.seconds
# What 100 Mb/s carry, and a quarter of it.
_LINE, _QUARTER = 11_900_000, 2_970_000


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a host whose profile was told the line of 40 ms and 100 Mb/s, and whose TCP keeps its least for 300 s."""
    root = test_guard.host.__wrapped__(tmp_path, monkeypatch)  # type: ignore[attr-defined]
    assert main(["revert"]) == 0
    assert main([*test_guard.APPLY[:-1], "100mbit"]) in (0, 4)
    hosttree.put(root / "proc/sys/net/ipv4/tcp_min_rtt_wlen", "300")
    assert most(root) == 1_000_000
    yield root


def test_what_a_queue_grows_to_in_the_buffers_that_were_enlarged_for_it_is_not_followed_again(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    """The line fell to a quarter; that cannot be told from a longer path until the queue grows and no more arrives."""
    guard = Guard(heal=True)
    assert seconds(guard, 40, _LINE) == []
    moved, followed = seconds(guard, 160, _QUARTER)
    assert (moved.kind, followed.kind) == ("path-moved", "followed") and "cannot be told apart yet" in moved.text
    told = seconds(guard, 480, _QUARTER, times=60)
    assert kinds(told) == ["rate-moved"] and told[0].grade == "warning" and guard.uneasy
    assert "carried 11.9 MB/s, now 3.0 MB/s arrive" in told[0].text and "cannot be told apart" in told[0].text
    assert most(host) == 4_000_000


def test_buffers_that_were_enlarged_for_a_queue_are_as_before_once_tcp_has_seen_the_path_as_it_was(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    guard = Guard(heal=True)
    seconds(guard, 40, _LINE)
    seconds(guard, 160, _QUARTER)
    assert most(host) == 4_000_000
    told = seconds(guard, 160, _QUARTER, times=310)
    assert sorted(kinds(told)) == ["followed", "path-moved", "rate-moved"] and most(host) == 1_000_000
    assert "TCP has seen 40.0 ms meanwhile" in next(one.text for one in told if one.kind == "rate-moved")
    # That is all, however long it goes on.
    assert seconds(guard, 160, _QUARTER, times=400) == [] and most(host) == 1_000_000
    assert guard.uneasy and len(journal.transactions()) == 4
    assert kinds(seconds(guard, 40, _LINE)) == ["rate-back"] and not guard.uneasy


@pytest.mark.parametrize("heal", [False, True])
def test_a_queue_beside_which_tcp_sees_a_lesser_round_trip_than_ever_is_no_longer_path(
    host: Path, seconds: Callable[..., list[Told]], heal: bool
) -> None:
    guard = Guard(heal=heal)
    seconds(guard, 40, _LINE, least_ms=39.9)
    seconds(guard, 160, _QUARTER, least_ms=39.9, times=2)
    told = seconds(guard, 160, _QUARTER, least_ms=39.8, times=30)
    assert kinds(told) == ["rate-moved"] and most(host) == 1_000_000 and len(journal.transactions()) == 2
    assert "TCP has seen 39.8 ms meanwhile: a slower line, or others' traffic" in told[0].text
    found = kept.saved(Guarded)
    # The path itself is as planned.
    assert found is not None and [(one.rate_moved, one.moved) for one in found.paths] == [(True, False)]


def test_a_path_that_is_longer_for_good_keeps_what_was_written_for_it(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    guard = Guard(heal=True)
    seconds(guard, 40, _LINE)
    assert kinds(seconds(guard, 160, _QUARTER)) == ["path-moved", "followed"]
    assert seconds(guard, 160, _LINE, times=280) == []
    assert seconds(guard, 160, _LINE, least_ms=160, times=400) == [] and most(host) == 4_000_000
    # What is a queue is told from what the path is by now.
    assert seconds(guard, 640, _QUARTER, least_ms=160, times=2) == []
    assert kinds(seconds(guard, 640, _QUARTER, least_ms=159.9)) == ["rate-moved"] and most(host) == 4_000_000


def test_a_load_that_asks_for_less_is_no_slower_line(host: Path, seconds: Callable[..., list[Told]]) -> None:
    """Behind a shallow queue a slower line shows no other counters than that."""
    guard = Guard(heal=True)
    seconds(guard, 40, _LINE)
    assert seconds(guard, 42, _QUARTER, times=400) == [] and not guard.uneasy


def test_a_load_that_asks_for_less_beside_others_queue_or_jitter_is_no_slower_line(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    guard = Guard(heal=False)
    seconds(guard, 40, _LINE, least_ms=39.9)
    seconds(guard, 60, _QUARTER, least_ms=39.9, times=2)
    assert seconds(guard, 60, _QUARTER, least_ms=39.8, times=400) == [] and not guard.uneasy


def test_a_line_that_comes_and_goes_is_told_of_once_in_ten_minutes(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    guard, told = Guard(heal=False), seconds(Guard(heal=False), 40, _LINE)
    least_ms = itertools.count(40_000, -1)
    for _ in range(20):
        told += seconds(guard, 40, _LINE, least_ms=next(least_ms) / 1e3)
        told += seconds(guard, 160, _QUARTER, least_ms=next(least_ms) / 1e3, times=1)
        told += seconds(guard, 160, _QUARTER, least_ms=next(least_ms) / 1e3)
    assert kinds(told) == ["rate-moved", "rate-back"]


@pytest.mark.parametrize(
    ("looks", "anew"),
    [
        # Least, smoothed, second, whether whole segments were acknowledged.
        ([(40, 160, 0, True), (40, 160, 299, True)], False),
        ([(40, 160, 0, True), (40, 160, 300, True)], True),
        ([(40, 160, 0, True), (39, 160, 1, True)], True),
        # A lone runt renews no least.
        ([(40, 160, 0, True), (40, 160, 200, False), (40, 160, 300, True)], False),
        # The path may have grown after the queue.
        ([(40, 160, 0, True), (39, 160, 1, True), (39, 300, 2, True)], False),
        ([(40, 160, 0, True), (39, 160, 1, True), (39, 45, 2, True), (39, 160, 3, True)], False),
        # It may have been back meanwhile; a queue may come and go by half.
        ([(5, 150, 0, True), (5, 10, 200, True), (5, 150, 201, True), (5, 150, 300, True)], False),
        ([(40, 160, 0, True), (40, 100, 200, True), (40, 160, 201, True), (40, 160, 300, True)], True),
        ([(0, 160, 0, True), (0, 160, 400, True)], False),
    ],
)  # fmt: skip
def test_the_least_round_trip_is_the_paths_own_where_tcp_has_seen_it_since_the_smoothed_one_is_longer(
    looks: list[tuple[float, float, float, bool]], anew: bool
) -> None:
    found = Least()
    for least_ms, rtt_ms, now_s, full in looks:
        found.look(least_ms, rtt_ms, now_s, 300.0, full=full)
    assert found.anew == anew


def test_how_long_tcp_keeps_its_least_is_asked_and_not_known_means_for_ever(host: Path) -> None:
    assert kept_s("") == 300
    (host / "proc/sys/net/ipv4/tcp_min_rtt_wlen").unlink()
    assert kept_s("") == math.inf and kept_s("gone") == math.inf


def test_a_load_at_its_own_pace_for_minutes_is_told_once(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Yesterday's pace would hold for good on a line that has become faster."""
    guard, pace, told, acked = Guard(heal=True), 12_500_000, list[Told](), 0
    for at_s in range(1, 1000):
        acked += int(0.99 * pace)
        one = replace(connection(40, acked), max_pacing_bytes_per_s=pace)
        monkeypatch.setattr(time, "monotonic", lambda at_s=at_s: float(at_s))
        monkeypatch.setattr(rounds, "_connections", lambda *_, one=one: [one])
        told += guard.look(lambda _: None)
    assert kinds(told) == ["at-pace"] and told[0].grade == "notice" and not guard.uneasy
    assert "at its pace of 12.5 MB/s for 3 minutes" in told[0].text and len(journal.transactions()) == 2
    found = kept.saved(Guarded)
    assert found is not None and [one.at_pace for one in found.paths] == [True]


@pytest.mark.parametrize(
    ("share", "rtt_ms", "resent"),
    [
        # A line of the pace's rate holds it: headers take their part, its queue stands, or it loses.
        (0.949, 40, 0),
        (0.99, 60, 0),
        (0.99, 40, 1),
    ],
)
def test_a_load_that_the_line_holds_is_not_at_its_pace(share: float, rtt_ms: float, resent: int) -> None:
    found = AtPace()
    for at_s in range(400):
        one = replace(
            connection(rtt_ms, 0, least_ms=40), max_pacing_bytes_per_s=10**7, retransmitted_segments=resent * at_s
        )
        found.look([("ends", one, share * 1e7)], at_s)
    assert found.longest(400) is None


def test_what_another_apply_carries_is_not_held_against_the_one_before(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    guard = Guard(heal=False)
    seconds(guard, 40, _LINE, least_ms=39.9)
    assert main([*test_guard.APPLY[:-1], "25mbit"]) in (0, 4)
    seconds(guard, 160, _QUARTER, least_ms=39.9, times=2)
    assert seconds(guard, 160, _QUARTER, least_ms=39.8, times=30) == []
