# SPDX-License-Identifier: GPL-2.0-or-later
"""How few requests are let through while a connection is made anew, and that the depth comes back however that ends."""

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fabtune.errors import FabtuneError
from fabtune.host import iscsid, tree
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import Session
from fabtune.model.device import Device
from fabtune.tune import carry, lines, owed, reconnect, short_queue

SESSION = Session(1, "iqn.a", "10.0.0.1:3260", "default", "LOGGED_IN", "10.0.0.1", 3260, 0, ("sda",), 128, {})
PLACE = "LUN 0"


class Disk:
    """A disk in sysfs whose requests come back while somebody waits."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory, self.writes, self.bytes = directory, 0, 0
        self.in_flight, self.rate, self.request_bytes = 32, 0, 256 << 10
        self.device = Device("block", "the disk", "sda", {"directory": str(directory)})
        (directory / "device").mkdir(parents=True)
        self.set(depth=32)
        self._tell()
        monkeypatch.setattr(time, "sleep", self._pass)

    @property
    def depth(self) -> int:
        return int((self._directory / "device/queue_depth").read_text())

    def set(self, depth: int) -> None:
        (self._directory / "device/queue_depth").write_text(f"{depth}\n")

    def moves(self, bytes_per_s: float, request_bytes: int = 256 << 10) -> None:
        self.rate, self.request_bytes = int(bytes_per_s), request_bytes

    def _pass(self, seconds: float) -> None:
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
    end = SimpleNamespace(path_rtt_ms=100.0)
    monkeypatch.setattr(short_queue, "established", list)
    monkeypatch.setattr(short_queue, "Connections", lambda _: SimpleNamespace(of=lambda session: end))
    return found


@pytest.mark.parametrize(
    ("bytes_per_s", "request_bytes", "few"),
    [
        # A quarter of 60 Mb/s: 0.37 MB in two round trips.
        (1.8e6, 256 << 10, [4]),
        # Nothing came back: as little as there can be.
        (0.0, 256 << 10, [2]),
        # They are all needed to fill the path.
        (50e6, 256 << 10, []),
        (2e6, 4 << 10, []),
    ],
)
def test_no_more_are_let_through_than_fill_the_path(
    disk: Disk, bytes_per_s: float, request_bytes: int, few: list[int]
) -> None:
    disk.moves(bytes_per_s, request_bytes)
    assert [one.few for one in short_queue.of([SESSION])] == few


def test_a_disk_of_few_requests_or_of_a_session_that_is_down_is_left_alone(disk: Disk) -> None:
    assert short_queue.of([replace(SESSION, state="FAILED")]) == []
    disk.has(4)
    assert short_queue.of([SESSION]) == []
    # Of fewer than twice what is let through.
    disk.has(32)
    disk.set(depth=4)
    assert short_queue.of([SESSION]) == []


def test_the_depth_comes_back_unless_somebody_has_written_another(disk: Disk) -> None:
    disk.moves(1.8e6)
    queues, told = short_queue.of([SESSION]), list[str]()
    with pytest.raises(FabtuneError), short_queue.held(queues, told.append):
        assert disk.depth == 4
        raise FabtuneError("not back")
    assert disk.depth == 32 and told == ["requests at once until they are there, as more only wait: sda 4 (of 32)"]
    with short_queue.held(queues, told.append):
        # The new iscsid, by its record.
        disk.set(depth=64)
    assert disk.depth == 64


@pytest.fixture
def journalled(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What a new connection of SESSION does, and the disk's depth at that time."""
    done: list[tuple[str, int]] = []
    disk.moves(1.8e6)
    monkeypatch.setattr(iscsid, "running", lambda: Daemon(42, "7", 42))
    monkeypatch.setattr(iscsid, "let_look", lambda daemon, wait_s: done.append(("look", disk.depth)))
    monkeypatch.setattr(iscsid, "start_anew", lambda daemon: done.append(("anew", disk.depth)))
    monkeypatch.setattr(reconnect, "_watch", lambda *_: [])
    monkeypatch.setattr(reconnect, "_wait_for_disks", lambda: done.append(("disks", disk.depth)))
    monkeypatch.setattr(reconnect, "live_sessions", lambda: [SESSION])
    monkeypatch.setattr(owed, "give_values_back", lambda boot_id, progress: done.append(("given", disk.depth)))
    monkeypatch.setattr(carry, "of", lambda session: {PLACE: {}})
    monkeypatch.setattr(carry, "follow_record", lambda kept, session: [])
    return done


def test_few_are_let_through_from_before_iscsid_ends_until_it_has_looked_at_the_disks(
    disk: Disk, journalled: list[tuple[str, int]]
) -> None:
    kept: list[carry.Values] = []

    def log(line: lines.Line) -> None:
        assert isinstance(line, lines.KeptLine)
        journalled.append(("log", disk.depth))
        kept.append(dict(line.kept))

    reconnect.connect_anew([SESSION], 1.0, lambda text: None, log)
    assert journalled == [("log", 32), ("look", 4), ("anew", 4), ("disks", 4), ("given", 32)]
    assert kept == [{PLACE: {"held device/queue_depth": "4 32"}}]


def test_who_was_killed_leaves_the_depth_to_the_next_run(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: carry.Values = {PLACE: {}}
    carry.hold(kept, PLACE, 4, "32")
    monkeypatch.setattr(carry, "run", lambda *_, **__: "")
    monkeypatch.setattr(carry, "require", lambda *_: "udevadm")
    monkeypatch.setattr(carry, "_transactions", list)
    assert carry.differing(kept, SESSION) == []
    disk.set(depth=4)
    assert carry.differing(kept, SESSION) == [carry.Difference("sda", "device/queue_depth", "32", "4")]
    assert carry.give_back(kept, SESSION, lambda text: None) == [] and disk.depth == 32
    # Somebody else's.
    disk.set(depth=8)
    assert carry.differing(kept, SESSION) == []
    assert carry.give_back(kept, SESSION, lambda text: None) == [] and disk.depth == 8
