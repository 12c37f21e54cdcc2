# SPDX-License-Identifier: GPL-2.0-or-later
"""When connections are made anew in place, and when not; what is promised of it, and what of a confirmation."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fabtune.backends import record
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError, InputError
from fabtune.host import iscsid, systemd, tree
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import Session
from fabtune.model.device import Device
from fabtune.tune import armed, carry, confirm, journal, owed, pending, reconnect, signals, successor
from fabtune.tune.pending import RECONNECT, Leave, Pending
from fabtune.tune.plan import CHANGE, Plan, Row, narrowed

SESSION = Session(1, "iqn.a", "10.0.0.1:3260", "default", "LOGGED_IN", "10.0.0.1", 3260, 0, ("sda",), 32, {})


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that systemd runs, with an iscsid of process 42 in its unit."""
    for name in ("ROOT", "PROC", "SYS"):
        monkeypatch.setattr(tree, name, {"ROOT": tmp_path, "PROC": tmp_path / "proc", "SYS": tmp_path / "sys"}[name])
    for directory in ("run/systemd/system", "proc/42/ns", "proc/self/ns", "sys"):
        (tmp_path / directory).mkdir(parents=True)
    for kind in ("mnt", "net", "pid"):
        for process in ("42", "self"):
            (tmp_path / "proc" / process / "ns" / kind).symlink_to("the-same")
    (tmp_path / "proc/net").mkdir()
    (tmp_path / "proc/net/netlink").write_text("sk Eth Pid\n0 8 42 0\n")
    (tmp_path / "proc/42/stat").write_text("42 (iscsid) S 1 42 42 " + "0 " * 15 + "777 0\n")
    (tmp_path / "proc/42/cgroup").write_text("0::/system.slice/iscsid.service\n")
    monkeypatch.setattr(systemd, "depend_on", lambda unit: [])
    return tmp_path


def why_not() -> str:
    daemon = iscsid.running()
    assert daemon is not None
    return iscsid.why_not_anew(daemon)


def test_iscsid_in_its_own_unit_may_be_started_anew(host: Path) -> None:
    assert why_not() == ""


@pytest.mark.parametrize("unit", ["backup-agent.service", "open-iscsi.service", "kubelet.service", "ssh.service"])
def test_a_unit_that_is_not_iscsid_s_own_is_left_alone(host: Path, unit: str) -> None:
    (host / "proc/42/cgroup").write_text(f"0::/system.slice/{unit}\n")
    assert f"runs in {unit}" in why_not()


def test_units_that_would_be_stopped_with_iscsid_s_are_named(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "depend_on", lambda unit: ["srv-db.mount"])
    assert why_not() == "srv-db.mount would be stopped with iscsid.service"


def test_what_cannot_be_told_of_the_unit_is_a_reason(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> list[str]:
        raise FabtuneError("no bus")

    monkeypatch.setattr(systemd, "depend_on", refuse)
    assert "cannot be told: no bus" in why_not()


def test_a_program_that_is_gone_is_not_ended(host: Path) -> None:
    (host / "run/systemd/system").rmdir()
    (host / "proc/42/exe").symlink_to("/usr/sbin/iscsid (deleted)")
    assert "no longer where it was started from" in why_not()


def test_without_an_iscsid_nothing_counts_as_connected_anew(host: Path) -> None:
    waiting = Pending(RECONNECT, "i", "l", "1", "b", iscsid="776")
    assert waiting.reconnected and not replace(waiting, iscsid="777").reconnected
    (host / "proc/net/netlink").write_text("sk Eth Pid\n")
    assert not waiting.reconnected


def test_sessions_are_foretold_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record.BACKEND, "all", dict)
    monkeypatch.setattr(reconnect, "established", list)
    one = reconnect.longest_pause_s([SESSION], {})
    many = reconnect.longest_pause_s([replace(SESSION, sid=number) for number in range(12)], {})
    assert one == pytest.approx(3.2) and many == pytest.approx(1.2 + 12 * 2)
    assert reconnect.longest_pause_s([SESSION], {SESSION.identity: "0"}) == pytest.approx(1.2)


@pytest.mark.parametrize(("limit", "refused"), [("120", False), ("-1", False), ("5", True), ("0", True), ("52", True)])
def test_requests_must_outlast_a_target_that_refuses(host: Path, limit: str, refused: bool) -> None:
    SESSION.directory.mkdir(parents=True)
    (SESSION.directory / "recovery_tmo").write_text(limit)
    assert bool(reconnect._why_fails_first(SESSION, 1.2, 1.2)) is refused


def test_where_the_apply_may_go_its_revert_may_too(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record.BACKEND, "all", dict)
    monkeypatch.setattr(reconnect, "established", list)
    SESSION.directory.mkdir(parents=True)
    # time2wait goes from 2 to 0, and comes back.
    new_s = reconnect.longest_pause_s([SESSION], {SESSION.identity: "0"})
    old_s = reconnect.longest_pause_s([SESSION], {SESSION.identity: "2"})
    for limit in range(40, 70):
        (SESSION.directory / "recovery_tmo").write_text(str(limit))
        if not reconnect._why_fails_first(SESSION, new_s, old_s):
            assert reconnect._why_fails_first(SESSION, old_s, 0.0) == ""


class _Users:
    def __init__(self, system: str) -> None:
        self.system = system

    def system_on(self, disk: str, place: Path) -> str:
        return self.system


def test_a_journal_on_the_session_s_own_disk_is_refused(host: Path) -> None:
    users = _Users("the state directory of fabtune")
    assert "sda carries the state directory" in reconnect.why_not_waited_for(SESSION, users)  # type: ignore[arg-type]
    assert reconnect.why_not_waited_for(SESSION, _Users("")) == ""  # type: ignore[arg-type]


def test_whatever_fails_after_iscsid_s_start_is_no_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise FabtuneError("no sockets")

    monkeypatch.setattr(iscsid, "running", lambda: Daemon(42, "7", 42))
    monkeypatch.setattr(iscsid, "start_anew", lambda daemon: None)
    monkeypatch.setattr(carry, "of", lambda session: {})
    monkeypatch.setattr(reconnect, "_watch", fail)
    with pytest.raises(reconnect.NotReconnectedError, match="no sockets"):
        reconnect.connect_anew([SESSION], 1.0, lambda text: None, lambda line: None)


def a_row(name: str, now: str, wanted: str) -> Row:
    tunable = shipped_catalog().tunables[name]
    return Row(tunable, "initiator", Device("host", "host", "host"), now, wanted, CHANGE, "a test")


def test_time_in_which_iscsid_still_looks_at_disks_is_no_pause_and_uses_up_no_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    back_s: list[float] = []

    def spend(seconds: float) -> None:
        now_s[0] += seconds

    def start_anew(daemon: Daemon) -> None:
        # Its end alone takes longer than all sessions may take afterwards.
        spend(reconnect.GRACE_S + 5)
        back_s.append(now_s[0] + 2)

    monkeypatch.setattr(iscsid, "running", lambda: Daemon(42, "7", 42))
    monkeypatch.setattr(iscsid, "let_look", lambda daemon, wait_s, meanwhile: spend(60))
    monkeypatch.setattr(iscsid, "start_anew", start_anew)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", spend)
    monkeypatch.setattr(reconnect, "live_sessions", lambda: [SESSION])
    monkeypatch.setattr(reconnect, "_logged_in_anew", lambda now, ended: {1} if now_s[0] >= back_s[0] else set())
    monkeypatch.setattr(reconnect, "_wait_for_disks", lambda: None)
    monkeypatch.setattr(owed, "give_values_back", lambda boot_id, progress: None)
    monkeypatch.setattr(carry, "of", lambda session: {})
    monkeypatch.setattr(carry, "follow_record", lambda kept, session: [])
    monkeypatch.setattr(successor, "connecting", lambda session, kept, since: None)
    found = reconnect.connect_anew([SESSION], 1.0, lambda text: None, lambda line: None)
    assert [one.label for one in found] == [SESSION.label]
    assert found[0].pause_s == pytest.approx(reconnect.GRACE_S + 5 + 2, abs=0.2)


def test_a_ceiling_that_is_lowered_concerns_the_whole_host() -> None:
    plan = Plan("x", ("initiator",), "", None, {})
    plan.rows = [a_row("tcp.rmem_max", "65536", "33554432"), a_row("tcp.rmem_max", "33554432", "65536")]
    assert plan.rows[0].touches == "nobody else" and plan.rows[1].touches != "nobody else"
    narrowed(plan)
    assert [row.state for row in plan.rows][0] == CHANGE and plan.rows[1].state != CHANGE


Make = Callable[[Sequence[object]], None]


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Make:
    monkeypatch.setattr(confirm, "live_sessions", list)
    monkeypatch.setattr(journal, "transactions", list)
    monkeypatch.setattr(armed, "is_watched", lambda: False)

    def make(found: Sequence[object]) -> None:
        monkeypatch.setattr(pending, "still_pending", lambda transactions, boot_id: found)

    return make


def test_a_limit_holds_for_all_that_comes_into_force(carried: Make) -> None:
    plan = Plan("x", ("initiator",), "", None, {})
    carried([Pending(RECONNECT, "i", "iqn.a at 10.0.0.1:3260", "1", "b")])
    confirm.require_way_back(plan, Leave())
    with pytest.raises(InputError, match=r"iqn\.a at 10\.0\.0\.1:3260 would also take values of an earlier apply"):
        confirm.require_way_back(plan, Leave(reconnect=True))
    carried([])
    confirm.require_way_back(plan, Leave(reconnect=True))


def test_what_ends_sessions_cannot_have_a_limit(carried: Make) -> None:
    with pytest.raises(InputError, match="--end-sessions"):
        confirm.require_way_back(Plan("x", ("target",), "", None, {}), Leave(end_sessions=True))


@pytest.mark.parametrize(
    ("state", "back_s", "waited_s"), [("FAILED", 5.0, 5.0), ("FAILED", 1e9, 20.0), ("FREE", 1e9, 0.0)]
)
def test_a_session_that_lost_its_connection_by_itself_is_waited_for(
    state: str, back_s: float, waited_s: float, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that was to go back was left half back: of four busy sessions one had just lost its connection."""
    now_s, told, reached = [0.0], list[str](), list[list[str]]()

    def spend(seconds: float) -> None:
        now_s[0] += seconds

    def sessions() -> list[Session]:
        return [SESSION, replace(SESSION, sid=2, state="LOGGED_IN" if now_s[0] >= back_s else state)]

    def why_not(found: Sequence[Session], *_: object) -> str:
        reached.append([one.state for one in found])
        return "so"

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", spend)
    monkeypatch.setattr(reconnect, "live_sessions", sessions)
    monkeypatch.setattr(reconnect, "longest_pause_s", lambda *_: 1.0)
    monkeypatch.setattr(reconnect, "_waits_before", dict)
    monkeypatch.setattr(reconnect, "why_not", why_not)
    asked = [Pending(RECONNECT, "i", "iqn.a at 10.0.0.1:3260", "1", "b")]
    done, left = reconnect.in_place(asked, told.append, lambda line: None, signals.Stop())
    assert not done and [one.reason for one in left] == ["so"]
    assert now_s[0] == pytest.approx(waited_s, abs=0.2)
    assert reached == [["LOGGED_IN", "LOGGED_IN" if back_s < 20 else state]]
    assert told == [f"without a connection now, waiting for it: {SESSION.label}"] * bool(waited_s)
    # Who presses Ctrl-C does not wait.
    stop = signals.Stop()
    stop.wanted = True
    now_s[0] = 0.0
    if state == "FAILED":
        with pytest.raises(KeyboardInterrupt):
            reconnect.in_place(asked, told.append, lambda line: None, stop)
    # Nor does anybody where nothing can be done then.
    monkeypatch.setattr(reconnect, "_why_not_by", lambda daemon: "in another namespace")
    reconnect.in_place(asked, told.append, lambda line: None, signals.Stop())
    assert now_s[0] == 0.0 if state == "FAILED" else now_s[0] < 0.2
