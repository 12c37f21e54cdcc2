# SPDX-License-Identifier: GPL-2.0-or-later
"""How few requests are let through while a connection is made anew, and that the depth comes back however that ends."""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import hosttree
import pytest

from fabtune.backends import attribute, record
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.facts import devices
from fabtune.facts.collect import collect
from fabtune.host import iscsid, tree
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import Session, live_sessions
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune import carry, depth_held, journal, lines, owed, reconnect, relogin, short_queue, successor
from fabtune.tune.apply import apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import make_plan, tunables_of
from fabtune.tune.undo import undo

SESSION = Session(1, "iqn.a", "10.0.0.1:3260", "default", "LOGGED_IN", "10.0.0.1", 3260, 0, ("sda",), 128, {})
PLACE = "LUN 0"
_LET_LOOK = iscsid.let_look


class Disk:
    """A disk in sysfs whose requests come back while somebody waits."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory, self.writes, self.bytes = directory, 0, 0
        self.in_flight, self.rate, self.request_bytes = 32, 0, 256 << 10
        self.end = SimpleNamespace(path_rtt_ms=100.0)
        self.device = Device("block", "the disk", "sda", {"directory": str(directory)})
        (directory / "device").mkdir(parents=True)
        self.set(depth=32)
        self._tell()
        monkeypatch.setattr(time, "sleep", self.passes)

    @property
    def depth(self) -> int:
        return int((self._directory / "device/queue_depth").read_text())

    def set(self, depth: int) -> None:
        (self._directory / "device/queue_depth").write_text(f"{depth}\n")

    def moves(self, bytes_per_s: float, request_bytes: int = 256 << 10) -> None:
        self.rate, self.request_bytes = int(bytes_per_s), request_bytes

    def passes(self, seconds: float) -> None:
        self.writes += round(self.rate * seconds / self.request_bytes)
        self.bytes = self.writes * self.request_bytes
        self._tell()

    def _tell(self) -> None:
        (self._directory / "stat").write_text(f"0 0 0 0 {self.writes} 0 {self.bytes // 512} 0 {self.in_flight} 0 0\n")
        (self._directory / "inflight").write_text(f"0 {self.in_flight}\n")

    def has(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self._tell()


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(tree, "SYS", tmp_path)
    found = Disk(tmp_path / "block/sda", monkeypatch)
    now_s = [0.0]

    def clock() -> float:
        now_s[0] += short_queue._LOOK_S
        return now_s[0]

    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(carry, "disks_by_place", lambda session: {PLACE: found.device})
    monkeypatch.setattr(short_queue, "established", list)
    monkeypatch.setattr(
        short_queue, "Connections", lambda *_: SimpleNamespace(rtt_ms=lambda session: found.end.path_rtt_ms)
    )
    return found


@pytest.mark.parametrize(
    ("bytes_per_s", "request_bytes", "rtt_ms", "few"),
    [
        # A quarter of 60 Mb/s: 0.37 MB in two round trips.
        (1.8e6, 256 << 10, 100.0, [4]),
        # Nothing came back: as little as there can be.
        (0.0, 256 << 10, 100.0, [2]),
        # They are all needed to fill the path, or are soon sent again.
        (50e6, 256 << 10, 100.0, []),
        (2e6, 4 << 10, 100.0, []),
        # Of 32 spindles each has one, for 8 ms.
        (16e6, 4 << 10, 0.2, []),
    ],
)
def test_no_more_are_let_through_than_fill_the_path(
    disk: Disk, bytes_per_s: float, request_bytes: int, rtt_ms: float, few: list[int]
) -> None:
    disk.end.path_rtt_ms = rtt_ms
    disk.moves(bytes_per_s, request_bytes)
    assert [one.few for one in short_queue.of([SESSION], {})] == few


def test_of_a_session_that_is_down_nothing_comes_back(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_queue, "Connections", lambda *_: SimpleNamespace(rtt_ms=lambda session: 0.0))
    assert [one.few for one in short_queue.of([replace(SESSION, state="FAILED")], {})] == [2]


def test_a_disk_of_few_requests_or_of_a_depth_that_nobody_knows_is_left_alone(disk: Disk) -> None:
    disk.has(4)
    assert short_queue.of([SESSION], {}) == []
    # Of fewer than twice what is let through.
    disk.has(32)
    disk.set(depth=4)
    assert short_queue.of([SESSION], {}) == []
    # The kernel may have made it so for a target whose queue was full, and would take what is written for the most.
    disk.set(depth=20)
    assert short_queue.of([SESSION], {1: {PLACE: {"device/queue_depth": "20"}}}) == []
    ours = {"device/queue_depth": "20", "step device/queue_depth": "20260101T000000Z-000 1"}
    assert len(short_queue.of([SESSION], {1: {PLACE: ours}})) == 1


def test_a_disk_in_the_place_of_another_tells_nothing(disk: Disk) -> None:
    later, earlier = short_queue._Moved(10, 10 << 18), short_queue._Moved(100_000, 100_000 << 18)
    assert short_queue._filling(later.since(earlier), 1.0, 0.1) is None


def test_the_depth_comes_back_unless_somebody_has_written_another(disk: Disk) -> None:
    disk.moves(1.8e6)
    queues, told = short_queue.of([SESSION], {}), list[str]()
    let_go: list[set[int]] = []
    with pytest.raises(FabtuneError), short_queue.held(queues, told.append, let_go.append):
        assert disk.depth == 4
        # The kernel, where a target says that its queue is full.
        disk.set(depth=3)
        raise FabtuneError("not back")
    expected = "requests at once until they are there, so that not all are sent again together: sda 4 (of 32)"
    assert disk.depth == 32 and told == [expected]
    with short_queue.held(queues, told.append, let_go.append):
        # The new iscsid, by its record.
        disk.set(depth=64)
    assert disk.depth == 64 and let_go == [{1}, {1}]


def test_what_iscsid_lets_go_is_held_again(disk: Disk) -> None:
    """Each child of its that has looked at a disk writes the record's depth; the next one's looks wait the longer."""
    disk.moves(1.8e6)
    with short_queue.held(short_queue.of([SESSION], {}), lambda text: None, lambda sids: None) as hold_again:
        disk.set(depth=32)
        hold_again()
        assert disk.depth == 4
        # The kernel's, and somebody else's.
        for depth in (3, 64):
            disk.set(depth)
            hold_again()
            assert disk.depth == depth
        disk.set(depth=32)
    assert disk.depth == 32


def test_a_depth_that_does_not_come_back_is_told(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.moves(1.8e6)
    queues, told = short_queue.of([SESSION], {}), list[str]()

    def refuse(device: Device, key: str, value: str) -> None:
        raise FabtuneError("no")

    let_go: list[set[int]] = []
    with short_queue.held(queues, told.append, let_go.append):
        monkeypatch.setattr(attribute.BACKEND, "write", refuse)
    assert told[1:] == ["device/queue_depth of sda was 32 and is not given back yet: no"]
    assert let_go == [set()]


def test_what_could_not_be_held_as_wanted_is_let_go_for_certain(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel took another depth, and the old one only at the second try."""
    disk.moves(1.8e6)
    queues, told, let_go, writes = short_queue.of([SESSION], {}), list[str](), list[set[int]](), list[str]()

    def write(device: Device, key: str, value: str) -> None:
        writes.append(value)
        disk.set(depth={"4": 3, "32": 3 if writes.count("32") == 1 else 32}[value])

    monkeypatch.setattr(attribute.BACKEND, "write", write)
    with short_queue.held(queues, told.append, let_go.append):
        assert disk.depth == 3
    assert disk.depth == 32 and let_go == [{1}]


@pytest.fixture
def journalled(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What a new connection of SESSION does, and the disk's depth at that time."""
    done: list[tuple[str, int]] = []
    disk.moves(1.8e6)
    monkeypatch.setattr(iscsid, "running", lambda: Daemon(42, "7", 42))
    monkeypatch.setattr(iscsid, "let_look", lambda daemon, wait_s, meanwhile: done.append(("look", disk.depth)))
    monkeypatch.setattr(iscsid, "start_anew", lambda daemon: done.append(("anew", disk.depth)))
    monkeypatch.setattr(reconnect, "_watch", lambda *_: [])
    monkeypatch.setattr(reconnect, "_wait_for_disks", lambda *_: done.append(("disks", disk.depth)))
    monkeypatch.setattr(reconnect, "live_sessions", lambda: [SESSION])
    monkeypatch.setattr(owed, "give_values_back", lambda boot_id, progress: done.append(("given", disk.depth)))
    monkeypatch.setattr(carry, "of", lambda session: {PLACE: {}})
    monkeypatch.setattr(carry, "follow_record", lambda kept, session: [])
    return done


@pytest.mark.parametrize(("again", "sessions"), [(False, 1), (True, 1), (False, 2)])
def test_few_are_let_through_from_before_iscsid_ends(
    disk: Disk, again: bool, sessions: int, journalled: list[tuple[str, int]]
) -> None:
    """Until the connection is there, whose window grows with what it carries; of several until they share the line."""

    kept: list[carry.Values] = []

    def log(line: lines.Line) -> None:
        journalled.append((line.kind, disk.depth))
        if isinstance(line, lines.KeptLine):
            kept.append(dict(line.kept))

    all_of_them = [replace(SESSION, sid=1 + number) for number in range(sessions)]
    reconnect.connect_anew(all_of_them, 1.0, lambda text: None, log, all_of_them * again)
    logged, let_go = [("kept", 32)] * sessions, [("let-go", 32)] * sessions
    shared = [("disks", 4)] * (sessions > 1)
    assert journalled == [*logged, ("look", 4), ("anew", 4), *shared, *let_go, ("disks", 32), ("given", 32)]
    assert kept == [{PLACE: {"held device/queue_depth": "4 32"}}] * sessions


@pytest.mark.parametrize("sessions", [1, 2])
def test_they_stay_few_when_iscsid_has_looked_at_a_disk(
    disk: Disk, journalled: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, sessions: int
) -> None:
    """The last that each child of its does is to write the record's depth; the new iscsid's does, too."""
    looks = [True, True, False]

    def child_ends(seconds: float) -> None:
        if seconds == 0.1:
            disk.set(depth=32)
        else:
            disk.passes(seconds)

    def back(*words: object) -> list[reconnect.Reconnected]:
        disk.set(depth=32)
        meanwhile = words[-1]
        assert callable(meanwhile)
        meanwhile()
        return []

    monkeypatch.setattr(iscsid, "let_look", _LET_LOOK)
    monkeypatch.setattr(iscsid, "looks_at_disks", lambda daemon: looks.pop(0))
    monkeypatch.setattr(time, "sleep", child_ends)
    monkeypatch.setattr(reconnect, "_watch", back)
    every = [replace(SESSION, sid=1 + number) for number in range(sessions)]
    reconnect.connect_anew(every, 1.0, lambda text: None, lambda line: None)
    shared = [("disks", 4)] * (sessions > 1)
    assert journalled == [("anew", 4), *shared, ("disks", 32), ("given", 32)]


def test_another_disk_that_has_the_name_now_is_left_alone(disk: Disk, tmp_path: Path) -> None:
    disk.moves(1.8e6)
    with short_queue.held(short_queue.of([SESSION], {}), lambda text: None, lambda sids: None) as hold_again:
        device = tmp_path / "block/sda/device"
        device.rename(tmp_path / "0:0:0:0")
        shutil.copytree(tmp_path / "0:0:0:0", tmp_path / "1:0:0:0")
        device.symlink_to(tmp_path / "1:0:0:0")
        for depth in (32, 3):
            disk.set(depth)
            hold_again()
            assert disk.depth == depth
    assert disk.depth == 3


def held_four() -> carry.Values:
    kept: carry.Values = {PLACE: {}}
    depth_held.hold_short(kept[PLACE], 4, "32")
    return kept


def test_who_was_killed_leaves_the_depth_to_the_next_run(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = held_four()
    monkeypatch.setattr(carry, "run", lambda *_, **__: "")
    monkeypatch.setattr(carry, "require", lambda *_: "udevadm")
    monkeypatch.setattr(carry, "_transactions", list)
    monkeypatch.setattr(depth_held, "HostSnapshot", lambda: None)
    monkeypatch.setattr(devices, "find", lambda *_: [disk.device])
    assert carry.differing(kept, SESSION) == []
    for depth in (4, 3):
        disk.set(depth)
        expected = [carry.Difference("sda", "device/queue_depth", "32", str(depth))]
        assert carry.differing(kept, SESSION) == expected
        # Set by hand as well, it is one value all the same.
        kept[PLACE]["device/queue_depth"] = "32"
        assert carry.differing(kept, SESSION) == expected
        del kept[PLACE]["device/queue_depth"]
        assert carry.give_back(kept, SESSION, lambda text: None) == [] and disk.depth == 32
    # Somebody else's.
    disk.set(depth=8)
    assert carry.differing(kept, SESSION) == []
    assert carry.give_back(kept, SESSION, lambda text: None) == [] and disk.depth == 8


def test_a_depth_that_a_profile_wrote_since_stays(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    step = SimpleNamespace(
        backend="attribute", key="device/queue_depth", device=disk.device, wrote="4", holds="", disturbed=False
    )
    monkeypatch.setattr(carry, "_transactions", lambda: [SimpleNamespace(open_steps=[step])])
    monkeypatch.setattr(depth_held, "HostSnapshot", lambda: None)
    monkeypatch.setattr(devices, "find", lambda *_: [disk.device])
    disk.set(depth=4)
    assert carry.give_depths_back(held_four(), SESSION) == [] and disk.depth == 4
    step.wrote = "11"
    assert carry.give_depths_back(held_four(), SESSION) == [] and disk.depth == 32


def test_revert_after_a_kill_takes_the_profile_s_depth_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It found a foreign value, and gave the profile's depth back afterwards."""
    hosttree.enter(hosttree.make(tmp_path / "host", 1, 1), monkeypatch)
    record.BACKEND.forget()
    (session,) = live_sessions()
    ((place, disk),) = carry.disks_by_place(session).items()
    depth = Path(disk.where["directory"]) / "device/queue_depth"
    hosttree.put(depth, "32")
    profile = load_profile("short-queue", shipped_catalog())
    with journal.locked():
        plan = make_plan(profile, ("initiator",), collect(tunables_of(profile)), NetworkPath(0.01, 125e6), {})
        apply(plan, collect([]).host, Leave(), lambda text: None)
    was = depth.read_text().strip()
    assert was not in ("32", "3")
    monkeypatch.setattr(iscsid, "running", lambda: Daemon(42, "7", 42))
    kept = carry.of(session)
    depth_held.hold_short(kept[place], 3, was)
    with journal.locked(), relogin.journalled() as log:
        log(successor.connecting(session, kept, "6"))
    hosttree.put(depth, "3")
    report = undo(None, None, None, "", False, Leave(), lambda text: None)
    assert report.exit_code == 0 and depth.read_text().strip() == "32"
