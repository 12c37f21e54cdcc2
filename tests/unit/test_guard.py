# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune guard: a path that moves, values that drift, and what of that is healed."""

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import hosttree
import pytest

from fabtune.backends import sysctl
from fabtune.cli.main import main
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.guard import follow, rounds
from fabtune.guard.news import Told
from fabtune.guard.round_trip import RoundTrip, has_moved
from fabtune.guard.rounds import Guard
from fabtune.guard.seen_path import SeenPath
from fabtune.host import tree
from fabtune.host.sockets import TcpSocket
from fabtune.model.device import Device
from fabtune.tune import armed, journal
from fabtune.tune.journal import Transaction

_RMEM = "proc/sys/net/ipv4/tcp_rmem"
_IDLE = "proc/sys/net/ipv4/tcp_slow_start_after_idle"
_PROBING = "proc/sys/net/ipv4/tcp_mtu_probing"


@pytest.mark.parametrize(
    ("planned_ms", "looks_ms", "moved_ms"),
    [
        (5, (150, 150, 150), 150),
        (150, (20, 20.5, 20), 20),
        # Not yet three, not yet at rest, or one that was outside for a moment.
        (5, (150, 150), None),
        (5, (40, 90, 140), None),
        (5, (5, 150, 5), None),
        # As planned, within what a profile has room for or a host's own delays.
        (20, (20, 20, 20), None),
        (20, (24, 24, 24), None),
        (0.1, (0.4, 0.5, 0.3), None),
        # The last three count.
        (5, (150, 150, 150, 5, 5, 5), None),
    ],
)  # fmt: skip
def test_a_path_has_moved_when_three_looks_agree_on_another_round_trip(
    planned_ms: float, looks_ms: tuple[float, ...], moved_ms: float | None
) -> None:
    found = RoundTrip()
    for one in looks_ms:
        found.look(one)
    now_ms = found.now_ms
    assert (now_ms if now_ms is not None and has_moved(planned_ms, now_ms) else None) == moved_ms


APPLY = ["apply", "mine", "--role", "initiator", "--rtt", "40ms", "--rate", "1gbit"]
_PROFILE = """
summary = "three sysctls"
[parameters.room]
summary = "how many times the path"
default = 2
[initiator."tcp.rmem_max"]
value = "room * bdp"
why = "a test"
[initiator."tcp.slow_start_after_idle"]
value = false
why = "a test"
[initiator."tcp.mtu_probing"]
value = 1
why = "a test"
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host without a session on which the profile was applied for 40 ms and 1 Gb/s."""
    root = hosttree.make(tmp_path / "root")
    hosttree.enter(root, monkeypatch)
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "mine.toml").write_text(_PROFILE)
    monkeypatch.setenv("FABTUNE_PROFILES", str(profiles))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert main(APPLY) in (0, 4)
    assert most(root) == 10_000_000
    return root


def most(root: Path) -> int:
    """Return the most that a receive buffer may be."""
    return int((root / _RMEM).read_text().split()[2])


def connection(
    rtt_ms: float, acked_bytes: int, received_bytes: int = 0, *, least_ms: float | None = None, port: int = 40000
) -> TcpSocket:
    """Return a connection that TCP tells such a round trip of, and for minutes no less, or no less than `least_ms`."""
    return TcpSocket(
        "10.1.0.1", "10.2.0.1", port, 3260, rtt_ms, least_ms or rtt_ms, 0, 10, 1448, 0, "cubic", 0, 0,
        acked_bytes=acked_bytes, received_bytes=received_bytes,
    )  # fmt: skip


@pytest.fixture
def path_ms(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what sets the round trip that TCP tells; something is acknowledged between two looks."""
    acked = itertools.count()

    def put(rtt_ms: float) -> None:
        monkeypatch.setattr(rounds, "_connections", lambda *_: [connection(rtt_ms, next(acked))])

    put(40)
    return put


def looked(guard: Guard, times: int) -> list[Told]:
    """Return what so many looks tell."""
    return [one for _ in range(times) for one in guard.look(lambda _: None)]


def kinds(told: list[Told]) -> list[str]:
    return [one.kind for one in told]


def test_a_path_that_moved_is_told_once_and_without_heal_nothing_is_written(
    host: Path, path_ms: Callable[[float], None]
) -> None:
    guard = Guard(heal=False)
    assert looked(guard, 4) == [] and not guard.uneasy
    path_ms(80)
    told = looked(guard, 6)
    assert kinds(told) == ["path-moved"] and "80.0 ms" in told[0].text and "40.0 ms" in told[0].text
    assert guard.uneasy and most(host) == 10_000_000 and len(journal.transactions()) == 1
    path_ms(40)
    assert kinds(looked(guard, 4)) == ["path-back"] and not guard.uneasy


def test_the_queue_of_a_full_line_is_no_longer_path(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1, 1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    guard, received = Guard(heal=False), 0
    for share, told in ((0.95, []), (0.3, ["path-moved"])):
        found = []
        for _ in range(6):
            # At least that much a second, as the clock may go further between two looks.
            received += int(10 * share * 125e6) if share > 0.5 else 1000
            monkeypatch.setattr(rounds, "_connections", lambda *_, at=received: [connection(80, at)])
            found += guard.look(lambda _: None)
        assert kinds(found) == told
    # A shorter round trip is no queue's doing.
    path_ms(20)
    assert kinds(looked(guard, 4)) == ["path-moved"]


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Told]]:
    """Return what looks once a second at one connection, and after each look moves so many bytes over it."""
    now_s = itertools.count(1)
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    moved = [0]

    def look(guard: Guard, rtt_ms: float, bytes_per_s: int, *, least_ms: float = 40, times: int = 6) -> list[Told]:
        told = []
        for _ in range(times):
            at_s = float(next(now_s))
            monkeypatch.setattr(time, "monotonic", lambda at_s=at_s: at_s)
            moved[0] += bytes_per_s
            one = connection(rtt_ms, moved[0], moved[0], least_ms=least_ms)
            monkeypatch.setattr(rounds, "_connections", lambda *_, one=one: [one])
            told += guard.look(lambda _: None)
        return told

    return look


def test_the_queue_of_a_line_that_is_slower_than_told_is_not_followed(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    """Buffers for a queue make it longer: told 1 Gb/s on a line of 100 Mb/s."""
    guard = Guard(heal=True)
    told = seconds(guard, 40, 11_900_000)
    told += [one for rtt_ms in (200, 400, 800) for one in seconds(guard, rtt_ms, 11_900_000)]
    # When it has stood for minutes TCP knows no shorter round trip.
    told += seconds(guard, 800, 11_900_000, least_ms=800)
    assert told == [] and most(host) == 10_000_000 and len(journal.transactions()) == 1


def test_a_queue_that_was_followed_once_is_not_followed_to_what_it_grows_to(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    """The load was there before guard was: nothing tells its queue from a longer path, but the rate that was told."""
    guard = Guard(heal=True)
    told = [one for rtt_ms in (200, 400, 800) for one in seconds(guard, rtt_ms, 11_900_000)]
    assert kinds(told) == ["path-moved", "followed"] and most(host) == 50_000_000


@pytest.mark.parametrize(("least_ms", "moved_ms"), [(40, None), (400, 400)])
def test_where_nobody_told_a_rate_a_queue_is_told_from_a_path_by_the_least_round_trip(
    monkeypatch: pytest.MonkeyPatch, least_ms: float, moved_ms: float | None
) -> None:
    """So it is after `tune`, which plans for the speed of a NIC."""
    path = SeenPath(40)
    for turn in range(6):
        monkeypatch.setattr(time, "monotonic", lambda at_s=turn: float(at_s))
        path.look([connection(400, 11_900_000 * turn, least_ms=least_ms)], None)
    assert path.moved_to_ms == moved_ms


def test_a_longer_path_over_which_a_load_moves_less_is_followed_whatever_queue_stood_before(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    guard = Guard(heal=True)
    assert seconds(guard, 40, 11_900_000) == [] and seconds(guard, 60, 11_900_000) == []
    assert kinds(seconds(guard, 150, 3_000_000)) == ["path-moved", "followed"]
    assert most(host) == 37_500_000


def test_a_queue_that_drains_behind_a_load_that_has_ended_is_no_path(
    host: Path, seconds: Callable[..., list[Told]]
) -> None:
    guard = Guard(heal=True)
    seconds(guard, 40, 11_900_000)
    seconds(guard, 400, 11_900_000)
    assert seconds(guard, 80, 1000) == [] and most(host) == 10_000_000


def test_a_round_trip_that_nothing_was_acknowledged_for_since_is_none_of_three(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(heal=True)
    assert looked(guard, 2) == []
    # On its way from 40 to 150 ms, while what comes in is all that moves.
    received = itertools.count()
    monkeypatch.setattr(rounds, "_connections", lambda *_: [connection(90, 1000, next(received))])
    assert looked(guard, 6) == [] and most(host) == 10_000_000


def test_a_namespace_that_is_gone_is_told_of_once_and_the_watch_goes_on(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> list[TcpSocket]:
        raise FabtuneError("network namespace 'storage' is gone")

    monkeypatch.setattr(rounds, "_connections", gone)
    assert kinds(looked(Guard(heal=True), 5)) == ["not-seen"]


def test_heal_follows_a_path_there_and_back_by_rows_of_its_own_and_revert_takes_all_back(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    guard = Guard(heal=True)
    path_ms(80)
    told = looked(guard, 4)
    assert kinds(told) == ["path-moved", "followed"] and "tcp.rmem_max 10000000 -> 20000000" in told[1].text
    assert most(host) == 20_000_000 and not guard.uneasy
    # No apply that was interrupted is completed by it.
    assert journal.transactions()[-1].header.written_for
    # Nothing more is written for the same path.
    assert looked(guard, 6) == [] and len(journal.transactions()) == 2
    path_ms(20)
    looked(guard, 4)
    assert most(host) == 5_000_000
    assert main(["revert"]) == 0
    assert most(host) == 6291456


def test_what_followed_the_path_goes_with_the_transaction_that_it_followed_for(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    guard = Guard(heal=True)
    for moved_ms in (80, 20):
        path_ms(moved_ms)
        looked(guard, 4)
    first, *followed = journal.transactions()
    assert len(followed) == 2 and {one.root for one in followed} == {first.name}
    assert main(["revert", "--transaction", first.name]) == 0
    assert most(host) == 6291456 and all(one.closed for one in journal.transactions())


def test_lint_names_the_profile_in_force_that_was_told_another_path(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(HostSnapshot, "sockets", [connection(150, 0)])
    capsys.readouterr()
    assert main(["lint", "--json"]) == 3
    found = {one["hazard"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found["path-longer-than-told"]["device"] == "profile 'mine' in force"
    assert "40.0 ms were told, TCP saw none below 150.0 ms" in found["path-longer-than-told"]["evidence"]
    assert main(["revert"]) == 0
    capsys.readouterr()
    main(["lint", "--json"])
    assert "path-longer-than-told" not in capsys.readouterr().out


_NOT_NEEDED_YET = (
    _PROFILE
    + """
[initiator."tcp.wmem_max"]
at_least = "room * bdp"
when = "bdp > 6MiB"
why = "a test"
"""
)
_WMEM = "proc/sys/net/ipv4/tcp_wmem"


def most_sent(root: Path) -> int:
    """Return the most that a send buffer may be."""
    return int((root / _WMEM).read_text().split()[2])


@pytest.mark.parametrize(
    ("words", "by_hand", "after"),
    [
        ([], None, 20_000_000),
        # What somebody has set is his; what was said otherwise than by the profile stays as it is.
        ([], "4096\t16384\t5000000", 5_000_000),
        (["--set", "room=2"], None, 4194304),
    ],
)
def test_what_the_path_did_not_need_and_now_does_is_written_where_it_is_nobodys(
    host: Path,
    path_ms: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    by_hand: str | None,
    after: int,
) -> None:
    """A path of 5 ms needs nothing of TCP; of 150 ms it does, and nothing would be ours to follow it."""
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    assert main(["revert"]) == 0
    (Path(os.environ["FABTUNE_PROFILES"]) / "mine.toml").write_text(_NOT_NEEDED_YET)
    if by_hand:
        hosttree.put(host / _WMEM, by_hand)
    before = most_sent(host)
    assert main([*APPLY, *words]) in (0, 4) and most_sent(host) == before
    path_ms(80)
    assert kinds(looked(Guard(heal=True), 6)) == ["path-moved", "followed"]
    assert most_sent(host) == after
    assert main(["revert"]) == 0 and most_sent(host) == before


@pytest.mark.parametrize("meanwhile", [["revert"], [*APPLY, "--set", "room=3"]])
def test_a_path_whose_profile_is_taken_back_or_applied_anew_while_guard_waits_for_the_lock_is_not_followed(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, meanwhile: list[str]
) -> None:
    """It wrote what nobody wanted any more, as a transaction in force, a moment after the revert had ended."""
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    assert main(["revert"]) == 0
    (Path(os.environ["FABTUNE_PROFILES"]) / "mine.toml").write_text(_NOT_NEEDED_YET)
    assert main(APPLY) in (0, 4)
    path_ms(80)
    real, once = journal.locked, iter([meanwhile])

    @contextlib.contextmanager
    def waits() -> Iterator[None]:
        for words in once:
            assert main(words) in (0, 4)
        with real():
            yield

    monkeypatch.setattr(follow, "journal", SimpleNamespace(locked=waits, transactions=journal.transactions))
    told = looked(Guard(heal=True), 4)
    assert kinds(told) == ["path-moved", "not-followed"] and "meanwhile" in told[1].text
    assert most(host) == (6291456 if meanwhile == ["revert"] else 15_000_000) and most_sent(host) == 4194304


def test_what_a_file_of_the_administrator_sets_to_the_kernels_own_value_is_left_to_it(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a value that was undone nor one that a longer path needs by now is written over what he has pinned."""
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    assert main(["revert"]) == 0
    (Path(os.environ["FABTUNE_PROFILES"]) / "mine.toml").write_text(_NOT_NEEDED_YET)
    assert main(APPLY) in (0, 4)
    pinned = "net.ipv4.tcp_wmem = 4096 16384 4194304\nnet.ipv4.tcp_slow_start_after_idle = 1"
    hosttree.put(host / "etc/sysctl.d/99-admin.conf", pinned)
    hosttree.put(host / _IDLE, "1")
    path_ms(80)
    told = looked(Guard(heal=True), 6)
    assert kinds(told) == ["drift", "path-moved", "followed"] and most(host) == 20_000_000
    assert tree.read_text(host / _IDLE) == "1" and most_sent(host) == 4194304


def test_what_set_made_and_what_somebody_else_has_set_is_not_resized(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    guard = Guard(heal=True)
    hosttree.put(host / _RMEM, "4096\t131072\t7777777")
    path_ms(80)
    told = looked(guard, 6)
    assert kinds(told).count("not-followed") == 1 and "followed" not in kinds(told)
    assert most(host) == 7777777
    assert main(["revert", "--force"]) == 0
    assert main([*APPLY, "--set", "room=3"]) in (0, 4)
    assert most(host) == 15_000_000
    looked(Guard(heal=True), 6)
    assert most(host) == 15_000_000


def test_a_value_that_was_undone_is_written_again_and_one_that_somebody_set_is_told_of(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "VERIFY_EVERY_S", 0.0)
    guard = Guard(heal=True)
    assert looked(guard, 2) == []
    hosttree.put(host / _IDLE, "1")
    told = looked(guard, 2)
    assert kinds(told) == ["healed"] and tree.read_text(host / _IDLE) == "0"
    hosttree.put(host / _PROBING, "2")
    told = looked(guard, 3)
    assert kinds(told) == ["drift"] and "is 2, applied was 1" in told[0].text and guard.uneasy
    assert tree.read_text(host / _PROBING) == "2"
    hosttree.put(host / _PROBING, "1")
    assert kinds(looked(guard, 2)) == ["as-applied"]


def test_a_path_that_never_rests_is_no_longer_followed_after_a_dozen_times_in_an_hour(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    guard = Guard(heal=True)
    told = []
    for turn in range(20):
        path_ms(200 if turn % 2 else 80 + 200 * turn)
        told += looked(guard, 3)
    assert kinds(told).count("followed") <= 12
    assert sum("no longer followed" in one.text for one in told) == 1


def test_the_command_tells_lines_publishes_and_ends_with_3_where_something_is_not_as_applied(
    host: Path, path_ms: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    hosttree.put(host / _PROBING, "2")
    capsys.readouterr()
    run = tree.ROOT / "run/fabtune"
    looked(Guard(heal=False), 1)
    assert json.loads((run / "guard.json").read_text())["heals"] is False
    assert main(["guard", "--for", "1ms", "--json"]) == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["kind"] == "drift" and json.loads(line)["grade"] == "warning"
    assert json.loads((run / "verify.json").read_text())["drifted"] == {"tcp.mtu_probing": 1}
    assert main(["guard", "--every", "1ms"]) == 2


@pytest.mark.parametrize(
    ("ends", "code", "stays"), [(None, 0, False), (KeyboardInterrupt, 0, False), (OSError, 1, True)]
)
def test_a_watch_that_was_ended_leaves_no_metrics_behind_and_one_that_failed_does(
    host: Path, monkeypatch: pytest.MonkeyPatch, ends: type[BaseException] | None, code: int, stays: bool
) -> None:
    """Metrics that grow old are how its failure is seen."""

    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        assert (tree.ROOT / "run/fabtune/guard.json").exists()
        if ends:
            raise ends

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["guard", "--for", "3s", "--every", "1s"]) == code
    assert (tree.ROOT / "run/fabtune/guard.json").exists() == stays


def test_ctrl_c_ends_a_watch_as_the_end_of_its_time_does(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is how one stops watching: nothing is taken back, and what is not as applied is in the exit code."""

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    hosttree.put(host / _PROBING, "2")
    monkeypatch.setattr(time, "sleep", interrupted)
    assert main(["guard"]) == 3
    assert "interrupted" not in capsys.readouterr().err


def test_a_watch_may_begin_before_anything_is_applied(
    tmp_path: Path, host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["revert"]) == 0
    monkeypatch.setenv("FABTUNE_STATE_DIR", str(tmp_path / "nothing yet"))
    guard = Guard(heal=False)
    assert looked(guard, 3) == [] and not guard.uneasy
    assert main(APPLY) in (0, 4)
    assert looked(guard, 4) == []
    path_ms(80)
    assert kinds(looked(guard, 4)) == ["path-moved"]


def test_a_value_that_somebody_undoes_again_and_again_is_left_to_him(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "VERIFY_EVERY_S", 0.0)
    guard, told = Guard(heal=True), []
    for _ in range(20):
        hosttree.put(host / _IDLE, "1")
        told += looked(guard, 1)
    assert kinds(told).count("healed") == 12 and len(journal.transactions()) == 13
    assert [one.kind for one in told if "undone 12 times" in one.text] == ["not-healed"]
    assert tree.read_text(host / _IDLE) == "1" and guard.uneasy


@pytest.mark.parametrize(("every_s", "healed"), [(1800.0, 12), (3600.0, 12), (86400.0, 48)])
def test_a_keeper_that_comes_each_half_hour_is_left_to_it_and_one_that_comes_daily_is_not(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, every_s: float, healed: int
) -> None:
    """Puppet undid a value 48 times a day, each time guard wrote it again: a transaction that nothing takes away."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    guard, told = Guard(heal=True), []
    for _ in range(48):
        clock[0] += every_s
        hosttree.put(host / _IDLE, "1")
        told += looked(guard, 1)
    assert kinds(told).count("healed") == healed and len(journal.transactions()) == 1 + healed
    said = [one.text for one in told if one.kind == "not-healed"]
    assert ["undone 12 times in a day" in text for text in said] == [True] * (healed == 12)


def test_what_a_session_lost_at_each_return_is_written_again_all_day(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    around = SimpleNamespace(sessions=[SimpleNamespace(sid=1)], netns="")
    monkeypatch.setattr(rounds, "HostSnapshot", lambda: around)
    guard, told = Guard(heal=True), []
    told += looked(guard, 1)
    for number in range(2, 22):
        clock[0] += 1800.0
        around.sessions = [SimpleNamespace(sid=number)]
        hosttree.put(host / _IDLE, "1")
        told += looked(guard, 1)
    assert kinds(told).count("healed") == 20 and "not-healed" not in kinds(told)


_RCVBUF = "proc/sys/net/ipv4/tcp_moderate_rcvbuf"
_ONE = '[initiator."tcp.{0}"]\nvalue = false\nwhy = "a test"\n'


@pytest.fixture
def refuses(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., list[str]]:
    """Return what applies profiles of two sysctls, lets writes to one of these fail from then on, and undoes that one.

    What is written to the other one is in what that returns.
    """
    monkeypatch.setattr(rounds, "VERIFY_EVERY_S", 0.0)
    write = sysctl.BACKEND.write

    def begin(error: type[FabtuneError], *profiles: str) -> list[str]:
        assert main(["revert"]) == 0
        for number, names in enumerate(profiles):
            path = tmp_path / f"{number}.toml"
            path.write_text('summary = "a test"\n' + "".join(map(_ONE.format, names.split())))
            assert main(["apply", str(path), *APPLY[2:]]) in (0, 4)
        wrote: list[str] = []

        def refused(device: Device, key: str, text: str) -> None:
            if "moderate" in key:
                raise error("refused")
            wrote.append(text)
            write(device, key, text)

        monkeypatch.setattr(sysctl.BACKEND, "write", refused)
        hosttree.put(host / _RCVBUF, "1")
        return wrote

    return begin


def trials() -> list[Transaction]:
    """Return the transactions that healing began: they are planned for no path."""
    return [one for one in journal.transactions() if one.header.rtt_ms is None]


@pytest.mark.parametrize("error", [FabtuneError, UnsupportedError])
def test_a_value_that_is_refused_keeps_no_other_from_being_healed_and_is_given_up_after_a_dozen_times(
    host: Path, refuses: Callable[..., list[str]], error: type[FabtuneError]
) -> None:
    """It wrote and took back the profile's other values, minute after minute."""
    wrote = refuses(error, "slow_start_after_idle moderate_rcvbuf")
    hosttree.put(host / _IDLE, "1")
    told = looked(Guard(heal=True), 20)
    assert tree.read_text(host / _IDLE) == "0" and wrote == ["0"] and len(trials()) == 12
    assert kinds(told) == ["healed", "cannot-heal", "drift", "not-healed"]
    assert told[1].text == "not written again: tcp.moderate_rcvbuf of host: refused"
    assert "tried 12 times" in told[3].text


def test_what_is_healed_beside_a_profile_that_is_refused_is_told_and_counted(
    host: Path, refuses: Callable[..., list[str]]
) -> None:
    """What one profile had written went with the failure of the next one: untold, and without a limit."""
    wrote = refuses(FabtuneError, "slow_start_after_idle", "moderate_rcvbuf")
    guard, told = Guard(heal=True), []
    for _ in range(20):
        hosttree.put(host / _IDLE, "1")
        told += looked(guard, 1)
    assert kinds(told).count("healed") == len(wrote) == 12 and kinds(told).count("not-healed") == 2


def test_a_path_that_moved_far_takes_no_more_memory_than_an_apply_may(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    hosttree.put(host / "proc/meminfo", "MemTotal: 65536 kB")
    path_ms(160)
    told = looked(Guard(heal=True), 6)
    assert kinds(told) == ["path-moved", "not-followed"] and "too much memory" in told[1].text
    assert most(host) == 10_000_000


def test_what_an_apply_wrote_that_waits_to_be_confirmed_is_not_undone(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It looks as what was there before fabtune came, and something else has drifted."""
    monkeypatch.setattr(rounds, "VERIFY_EVERY_S", 0.0)
    monkeypatch.setattr(armed, "arm", lambda name: None)
    other = tmp_path / "other.toml"
    other.write_text(_PROFILE.replace("value = false", "value = true").replace("three", "other"))
    assert main(["apply", str(other), *APPLY[2:], "--confirm-within", "60s"]) in (0, 4)
    hosttree.put(host / _PROBING, "2")
    assert "healed" not in kinds(looked(Guard(heal=True), 3))
    assert tree.read_text(host / _IDLE) == "1" and len(journal.transactions()) == 2
    assert main(["apply", "--again"]) in (0, 3)
    assert tree.read_text(host / _IDLE) == "1"


@pytest.mark.parametrize("kept", [True, False])
def test_a_path_of_an_estimated_rate_is_followed_where_no_nic_tells_its_speed(
    host: Path, path_ms: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: bool
) -> None:
    """As `fabtune tune` plans on virtio: nobody vouches for the rate, and nothing else tells one."""
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    plan = str(tmp_path / "plan.toml")
    assert main(["revert"]) == 0
    assert main(["plan", *APPLY[1:], "--estimated", "--out", plan]) == 0
    assert main(["apply", "--plan", plan]) in (0, 4)
    (applied,) = (one for one in journal.transactions() if one.open_steps)
    assert applied.header.rate_bit_per_s is None and most(host) == 10_000_000
    if not kept:
        # As an older fabtune wrote it.
        begin, rest = applied.path.read_text().split("\n", 1)
        line = {key: value for key, value in json.loads(begin).items() if key != "estimated_bit_per_s"}
        applied.path.write_text(f"{json.dumps(line)}\n{rest}")
    path_ms(80)
    told = looked(Guard(heal=True), 6)
    assert kinds(told) == ["path-moved", "followed" if kept else "not-followed"]
    assert most(host) == (20_000_000 if kept else 10_000_000)
    assert kept or "the rate that it was planned for was an estimate" in told[1].text
