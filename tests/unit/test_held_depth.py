# SPDX-License-Identifier: GPL-2.0-or-later
"""A depth that a reconnect held short when it was killed, or failed: it comes back, once, and is nobody's wish."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import hosttree
import pytest

from fabtune.autotune.climb import climb
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.backends import record
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.facts.collect import collect, this_host
from fabtune.host import iscsid
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import Session, live_sessions
from fabtune.model.path import NetworkPath
from fabtune.tune import (
    again,
    carry,
    depth_held,
    journal,
    owed,
    pending,
    reconnect,
    relogin,
    short_queue,
    signals,
    successor,
)
from fabtune.tune.apply import apply
from fabtune.tune.lines import UnconfirmedLine
from fabtune.tune.pending import RECONNECT, Leave
from fabtune.tune.plan import make_plan, tunables_of
from fabtune.tune.undo import undo
from fabtune.tune.watcher import _Watch


@attrs.frozen
class Initiator:
    """A host of one session with one disk, which has the record's depth, 32."""

    session: Session
    place: str
    _depth: Path
    _state: Path

    @property
    def depth(self) -> str:
        return self._depth.read_text().strip()

    def set(self, depth: int) -> None:
        hosttree.put(self._depth, str(depth))

    def becomes(self, state: str) -> None:
        hosttree.put(self._state, state)

    def killed_while_held(self, few: int, was: int) -> None:
        """Leave journal and disk as a run does that is killed while its requests wait for the new connection."""
        kept = carry.of(self.session)
        depth_held.hold_short(kept[self.place], few, str(was))
        with journal.locked(), relogin.journalled() as log:
            log(successor.connecting(self.session, kept, "6"))
        self.set(few)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Initiator:
    root = hosttree.make(tmp_path / "host", 1, 0)
    hosttree.put(root / "sys/class/scsi_host/host1/can_queue", "128")
    hosttree.enter(root, monkeypatch)
    record.BACKEND.forget()
    (session,) = live_sessions()
    ((place, disk),) = carry.disks_by_place(session).items()
    found = Initiator(
        session, place, Path(disk.where["directory"]) / "device/queue_depth",
        root / "sys/class/iscsi_session/session1/state",
    )  # fmt: skip
    found.set(32)
    daemons = [Daemon(43, "7", 43)]
    monkeypatch.setattr(carry, "run", lambda *_, **__: "")
    monkeypatch.setattr(carry, "require", lambda *_: "udevadm")
    monkeypatch.setattr(iscsid, "running", lambda: daemons[-1])
    monkeypatch.setattr(iscsid, "why_not_anew", lambda daemon: "")
    monkeypatch.setattr(iscsid, "let_look", lambda daemon, wait_s, meanwhile: None)
    monkeypatch.setattr(iscsid, "looks_at_disks", lambda daemon: False)
    monkeypatch.setattr(iscsid, "start_anew", lambda daemon: daemons.append(Daemon(44, "8", 44)))
    monkeypatch.setattr(reconnect, "why_not", lambda *_: "")
    monkeypatch.setattr(reconnect, "_watch", lambda *_: [])
    monkeypatch.setattr(reconnect, "established", list)
    monkeypatch.setattr(short_queue, "established", list)
    return found


def reconnected(host: Initiator) -> list[str]:
    """Make the connection anew; return what was told."""
    told: list[str] = []
    asked = [pending.of_session(host.session, this_host().boot_id, RECONNECT)]
    with journal.locked(), relogin.journalled() as log, signals.noted() as stop:
        reconnect.in_place(asked, told.append, log, stop)
    return told


def apply_short_queue() -> None:
    profile = load_profile("short-queue", shipped_catalog())
    with journal.locked():
        plan = make_plan(profile, ("initiator",), collect(tunables_of(profile)), NetworkPath(0.01, 125e6), {})
        apply(plan, collect([]).host, Leave(), lambda text: None)


def test_it_is_not_taken_for_one_set_by_hand(host: Initiator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run came while the session was FAILED, waited for it, and kept the few as the administrator's."""
    host.killed_while_held(4, was=32)
    host.becomes("FAILED")
    monkeypatch.setattr(time, "sleep", lambda seconds: host.becomes("LOGGED_IN"))
    reconnected(host)
    assert host.depth == "32" and owed.values(journal.transactions(), this_host().boot_id) == []


@pytest.mark.parametrize("depth", [11, 3])
def test_while_the_session_has_no_connection_it_is_waited_for(host: Initiator, depth: int) -> None:
    """It was said to be somebody else's."""
    apply_short_queue()
    assert host.depth == "11"
    host.killed_while_held(3, was=11)
    host.set(depth)
    host.becomes("FAILED")
    report = undo(None, None, None, "", False, Leave(), lambda text: None)
    assert [str(one.state) for one in report.outcomes] == ["waiting"] and host.depth == "11"
    host.becomes("LOGGED_IN")
    assert undo(None, None, None, "", False, Leave(), lambda text: None).exit_code == 0 and host.depth == "32"


def test_the_dead_mans_switch_waits_as_well(host: Initiator) -> None:
    """It gave up after three tries, as with what is somebody else's."""
    apply_short_queue()
    with journal.locked(), relogin.journalled() as log:
        log(UnconfirmedLine(0.0, 1.0, this_host().boot_id, False, False))
    host.killed_while_held(3, was=11)
    host.becomes("FAILED")
    watch = _Watch(os.open("/dev/null", os.O_RDONLY), lambda text: None)
    for _ in range(4):
        watch.look()
    assert watch._is_left()
    host.becomes("LOGGED_IN")
    watch.look()
    assert host.depth == "32"


def test_once_it_is_back_a_smaller_one_is_meant(host: Initiator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal had the few for good where a reconnect had failed."""
    held = [short_queue.ShortQueue(1, host.place, carry.disks_by_place(host.session)[host.place], "32", 4)]
    monkeypatch.setattr(short_queue, "of", lambda sessions, kept: held)

    def refuse(daemon: Daemon, wait_s: float, meanwhile: Callable[[], None]) -> None:
        assert host.depth == "4"
        raise FabtuneError("a disk does not answer")

    monkeypatch.setattr(iscsid, "let_look", refuse)
    with pytest.raises(FabtuneError):
        reconnected(host)
    assert host.depth == "32"
    host.set(2)
    assert owed.values(journal.transactions(), this_host().boot_id) == []
    with journal.locked():
        owed.let_disks_go(this_host().boot_id)
        owed.give_values_back(this_host().boot_id, lambda text: None)
    assert host.depth == "2"


def test_after_a_kill_too(host: Initiator) -> None:
    host.killed_while_held(4, was=32)
    # A later transaction tells that it is back.
    apply_short_queue()
    host.set(4)
    with journal.locked():
        owed.let_disks_go(this_host().boot_id)
    assert host.depth == "32"
    host.set(2)
    with journal.locked():
        owed.let_disks_go(this_host().boot_id)
    assert host.depth == "2"


def test_tune_looks_at_a_load_that_is_not_held(host: Initiator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first step was judged to be better for what was given back meanwhile."""
    host.killed_while_held(4, was=32)

    def look(*_: object) -> None:
        raise FabtuneError(f"a depth of {host.depth}")

    monkeypatch.setattr(ClimbAsked, "look", look)
    with pytest.raises(FabtuneError, match="a depth of 32"):
        climb(ClimbAsked((), None, None, 4.0, 8), lambda text: None)


def test_apply_again_and_guard_find_it_back(host: Initiator) -> None:
    """It was taken for somebody else's, and left."""
    apply_short_queue()
    host.killed_while_held(3, was=11)
    found = again.write_again(lambda text: None)
    assert host.depth == "11" and (found.left_alone, found.results) == ([], [])


def test_what_cannot_be_read_stays_owed(host: Initiator, monkeypatch: pytest.MonkeyPatch) -> None:
    host.killed_while_held(4, was=32)
    with monkeypatch.context() as patch, journal.locked():
        patch.setattr(carry, "_read", lambda device, keys: {})
        owed.let_disks_go(this_host().boot_id)
    assert host.depth == "4"
    with journal.locked():
        owed.let_disks_go(this_host().boot_id)
    assert host.depth == "32"


def test_on_the_way_back_what_the_kernel_made_of_a_depth_is_left_alone(
    host: Initiator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[carry.Values] = []

    def none(sessions: list[Session], kept: dict[int, carry.Values]) -> list[short_queue.ShortQueue]:
        seen.append(kept[1])
        return []

    monkeypatch.setattr(short_queue, "of", none)
    # Of 32, for a target whose queue was full.
    host.set(20)
    with journal.locked(), relogin.journalled() as log:
        reconnect.connect_anew([host.session], 1.0, lambda text: None, log, known=[host.session])
    assert seen[0][host.place]["device/queue_depth"] == "20"
    assert owed.values(journal.transactions(), this_host().boot_id) == []


def test_that_iscsid_may_still_set_the_record_s_is_said(host: Initiator, monkeypatch: pytest.MonkeyPatch) -> None:
    host.set(64)
    monkeypatch.setattr(iscsid, "looks_at_disks", lambda daemon: True)
    monkeypatch.setattr(reconnect, "_DISKS_WAIT_S", 0.0)
    assert "iscsid still looks at disks" in "".join(reconnected(host))
    # A child of iscsid's, later.
    host.set(32)
    assert [found.was for _, found in owed.values(journal.transactions(), this_host().boot_id)] == ["64"]
