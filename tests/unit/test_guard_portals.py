# SPDX-License-Identifier: GPL-2.0-or-later
"""fabtune guard on a host whose portals lie at several distances: what an apply left alone stays alone."""

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import hosttree
import pytest
from test_guard import kinds, looked

from fabtune.autotune.told import rtt_doubts
from fabtune.backends import record
from fabtune.cli.main import main
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.guard import rounds
from fabtune.guard.news import Told
from fabtune.guard.rounds import Guard
from fabtune.host import portal_options
from fabtune.host.portal_options import Options, Portal
from fabtune.host.sockets import TcpSocket

Connect = Callable[..., None]
_APPLY = ["apply", "wan", "--role", "initiator", "--rtt", "20ms", "--rate", "100mbit"]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A host with one session, and what gives its connections options."""
    root = hosttree.make(tmp_path / "root", 1)
    hosttree.enter(root, monkeypatch)
    over_tcp(root, 1)
    monkeypatch.setattr(portal_options, "no_means", lambda: "")
    monkeypatch.setattr(portal_options, "options_held", lambda _: [])
    monkeypatch.setattr(portal_options, "tidy", lambda: None)
    monkeypatch.setattr(HostSnapshot, "elsewhere", {})
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(rounds, "_REST_S", 0.0)
    record.BACKEND.forget()
    yield root
    record.BACKEND.forget()


@pytest.fixture
def paces(host: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the pace that each portal's connections are given, by address."""
    held = defaultdict[str, Options](Options)
    found: dict[str, int] = {}

    def give(portal: Portal, name: str, value: int | str) -> None:
        held[portal.address] = replace(held[portal.address], **{name: value})
        found[portal.address] = held[portal.address].pacing

    monkeypatch.setattr(portal_options, "given", lambda portal: held[portal.address])
    monkeypatch.setattr(portal_options, "give", give)
    return found


@pytest.fixture
def connect(host: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Lets these connections be there, each a portal's number and a round trip in ms; they talk from look to look."""
    acked = itertools.count()

    def there(*to: tuple[int, float]) -> None:
        def sockets(*_: object) -> list[TcpSocket]:
            at = next(acked)
            ends = [("10.2.0.101", f"10.2.0.{number}", 40000 + number, 3260, rtt_ms) for number, rtt_ms in to]
            return [TcpSocket(*one, one[-1], 0, 10, 1448, 0, "cubic", 0, 0, acked_bytes=at) for one in ends]

        monkeypatch.setattr(HostSnapshot, "sockets", sockets())
        monkeypatch.setattr(HostSnapshot, "connections", sockets())
        monkeypatch.setattr(rounds, "_connections", sockets)

    return there


def over_tcp(root: Path, number: int) -> None:
    for place in ("sys/devices/platform/host{0}/scsi_host/host{0}", "sys/class/scsi_host/host{0}"):
        hosttree.put(root / place.format(number) / "proc_name", "iscsi_tcp")


@pytest.mark.parametrize("late", [False, True])
def test_the_portal_of_a_farther_site_is_not_paced_by_guard_for_the_rate_that_was_told_of_another(
    host: Path, paces: dict[str, int], connect: Connect, late: bool
) -> None:
    """`apply` refuses it; guard took the farther round trip for a path that moved, and wrote it."""
    for number in [] if late else [2]:
        hosttree.log_in(host, number)
        over_tcp(host, number)
    connect((1, 20.0), *([] if late else [(2, 90.0)]))
    assert main(_APPLY) in (0, 4)
    mine = {"10.2.0.1": 12304942}
    assert paces == mine
    if late:
        hosttree.log_in(host, 2)
        over_tcp(host, 2)
        record.BACKEND.forget()
    connect((1, 20.0), (2, 90.0))
    told = looked(Guard(heal=True), 6)
    assert paces == mine and "connection.pacing" not in " ".join(one.text for one in told)
    # What concerns every connection is for the longest path, as an apply is.
    assert "followed" in kinds(told)


@pytest.fixture
def two(host: Path, paces: dict[str, int], connect: Connect) -> None:
    """A SAN under `lan` and a WAN under `wan`, both as told."""
    hosttree.log_in(host, 2)
    over_tcp(host, 2)
    connect((1, 0.2), (2, 50.0))
    for name, rtt, rate in (("lan", "0.2ms", "10gbit"), ("wan", "50ms", "100mbit")):
        assert main(["apply", name, "--role", "initiator", "--rtt", rtt, "--rate", rate]) in (0, 4)
    # A discovery is no part of this.
    record.BACKEND.forget()


def watched(guard: Guard) -> dict[str, float]:
    """Return the round trip of each profile's path, in ms."""
    return {one.profile: round(1e3 * one.rtt_s, 3) for one in guard._watched()}


def of_paths(told: list[Told]) -> list[str]:
    kinds = "path-moved", "path-back", "followed"
    return [" ".join((one.kind, one.text.split("'")[1])) for one in told if one.kind in kinds]


@pytest.mark.usefixtures("two")
def test_the_path_of_a_nearer_profile_is_not_that_of_another_one(connect: Connect) -> None:
    """The watch was never at ease, and the metric was the WAN's."""
    guard = Guard(heal=True)
    assert of_paths(looked(guard, 6)) == [] and not any(one.told_ms for one in guard._paths.values())
    assert watched(guard) == {"lan": 0.2, "wan": 50.0}
    # Nor when its own sessions are logged out.
    connect((2, 50.0))
    assert of_paths(looked(guard, 6)) == [] and watched(guard) == {"wan": 50.0}
    assert of_paths(looked(Guard(heal=True), 6)) == []


@pytest.mark.usefixtures("two")
def test_a_nearer_path_that_moves_to_where_another_one_is_has_moved(connect: Connect) -> None:
    guard = Guard(heal=False)
    assert of_paths(looked(guard, 6)) == []
    connect((1, 50.0), (2, 50.0))
    assert of_paths(looked(guard, 6)) == ["path-moved lan"]
    connect((1, 0.2), (2, 50.0))
    assert of_paths(looked(guard, 6)) == ["path-back lan"]


@pytest.mark.usefixtures("two")
def test_a_path_that_moves_is_followed_by_its_own_profile_alone(connect: Connect) -> None:
    guard = Guard(heal=True)
    assert of_paths(looked(guard, 6)) == []
    connect((1, 0.2), (2, 90.0))
    assert of_paths(looked(guard, 6)) == ["path-moved wan", "followed wan"]


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("heal", [False, True])
def test_a_guard_that_is_started_later_takes_no_other_path_for_one_whose_connections_are_where_they_were(
    connect: Connect, heal: bool
) -> None:
    """The SAN, at its 0.2 ms, was said to have the 150 ms to which the WAN had moved, and given buffers for that."""
    followed = ["followed wan"] * heal
    connect((1, 0.2), (2, 150.0))
    guard = Guard(heal=heal)
    assert of_paths(looked(guard, 6)) == ["path-moved wan", *followed]
    assert watched(guard)["lan"] == 0.2
    # One that moved nearer is seen to have moved by nobody: the longer one may be away.
    connect((1, 0.2), (2, 20.0))
    guard = Guard(heal=heal)
    assert of_paths(looked(guard, 6)) == [] and watched(guard)["lan"] == 0.2


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("nearer_ms", [10.0, 90.0])
def test_nor_the_nearer_one_for_that_of_the_farther(connect: Connect, nearer_ms: float) -> None:
    connect((1, nearer_ms), (2, 50.0))
    guard = Guard(heal=False)
    assert of_paths(looked(guard, 6)) == ["path-moved lan"]
    assert watched(guard) == {"lan": nearer_ms, "wan": 50.0}


@pytest.mark.usefixtures("two")
def test_a_connection_of_no_path_beside_those_of_all_may_be_of_any(connect: Connect) -> None:
    connect((1, 0.2), (2, 50.0), (3, 90.0))
    assert of_paths(looked(Guard(heal=False), 6)) == ["path-moved lan", "path-moved wan"]


@pytest.mark.usefixtures("two")
def test_what_lint_and_tune_say_of_paths_told_names_the_one_that_moved_alone(
    connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    connect((1, 0.2), (2, 150.0))
    (said,) = rtt_doubts()
    assert said.startswith("profile 'wan' ") and "150.0 ms" in said
    capsys.readouterr()
    main(["lint", "--json"])
    found = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["hazard"] == "path-longer-than-told"]
    assert ["wan" in one["device"] for one in found] == [True]
