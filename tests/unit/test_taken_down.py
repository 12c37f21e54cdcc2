# SPDX-License-Identifier: GPL-2.0-or-later
"""When a session is back after a reconnect, and how one that a reconnect took down comes back to its old values."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import attrs
import hosttree
import pytest

from fabtune.backends import record
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode, FabtuneError
from fabtune.facts.collect import collect
from fabtune.host import iscsid, tree
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.model.path import NetworkPath
from fabtune.tune import (
    apply,
    carry,
    journal,
    lines,
    login_identity,
    logout,
    pending,
    reconnect,
    relogin,
    taken_down,
    undo,
)
from fabtune.tune.lines import KeptLine
from fabtune.tune.pending import RECONNECT, Leave, Pending
from fabtune.tune.plan import make_plan, tunables_of
from fabtune.tune.reconnect import NotReconnectedError, Reconnected
from fabtune.tune.signals import Stop
from fabtune.tune.taken_down import BroughtUp

SESSION = Session(1, "iqn.a", "10.0.0.1:3260", "default", "LOGGED_IN", "10.0.0.1", 3260, 50001, ("sda",), 32, {})
DOWN = replace(SESSION, state="FAILED")
OTHER = replace(SESSION, sid=2, target="iqn.b", local_port=50002)
OLD, NEW = Daemon(42, "700", 42), Daemon(43, "100100", 43)
# A second before the new one's start.
AT_S = int(NEW.since) / os.sysconf("SC_CLK_TCK") - 1
LINE = KeptLine("1", SESSION.identity, SESSION.target, SESSION.portal, "default", "boot", {}, OLD.since, AT_S)
DUE = Pending(RECONNECT, SESSION.identity, SESSION.label, "1", "boot", iscsid=NEW.since)


def an_end(port: int, inode: int) -> TcpSocket:
    return TcpSocket(
        "10.0.0.9", SESSION.address, port, SESSION.port, 1.0, 1.0, 0, 10, 1448, 0, "cubic", 1, 1, inode=inode
    )


def quiet(_: object) -> None:
    pass


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose iscsid, process 43, has the socket 4712, and another program 4711."""
    monkeypatch.setattr(tree, "PROC", tmp_path)
    (tmp_path / "43/fd").mkdir(parents=True)
    for fd, target in (("0", "/dev/null"), ("7", "socket:[4712]")):
        (tmp_path / "43/fd" / fd).symlink_to(target)
    monkeypatch.setattr(iscsid, "running", lambda: NEW)
    return tmp_path


def test_a_session_that_is_still_logged_in_is_not_back_for_that(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The new iscsid has not got to it: its connection is the old one's.
    monkeypatch.setattr(reconnect, "established", lambda: [an_end(50001, 4711)])
    assert reconnect._logged_in_anew([SESSION], OLD) == set()
    monkeypatch.setattr(reconnect, "established", lambda: [an_end(50001, 4711), an_end(50003, 4712)])
    assert reconnect._logged_in_anew([SESSION], OLD) == set()
    again = replace(SESSION, local_port=50003)
    assert reconnect._logged_in_anew([again], OLD) == {1}
    assert reconnect._logged_in_anew([replace(again, state="FAILED")], OLD) == set()


def test_nothing_is_back_before_there_is_another_iscsid(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "established", lambda: [an_end(50001, 4712)])
    assert reconnect._logged_in_anew([SESSION], OLD) == {1}
    assert reconnect._logged_in_anew([SESSION], NEW) == set()
    monkeypatch.setattr(iscsid, "running", lambda: None)
    assert reconnect._logged_in_anew([SESSION], OLD) == set()


def test_a_kernel_that_does_not_tell_the_port_needs_a_connection_for_each_session(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [replace(one, local_port=0) for one in (SESSION, OTHER)]
    monkeypatch.setattr(reconnect, "established", lambda: [an_end(50001, 4711), an_end(50002, 4712)])
    assert reconnect._logged_in_anew(both, OLD) == set()
    (host / "43/fd/8").symlink_to("socket:[4711]")
    assert reconnect._logged_in_anew(both, OLD) == {1, 2}


def test_a_session_that_is_not_back_is_named_with_its_state(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "established", list)
    monkeypatch.setattr(reconnect, "live_sessions", lambda: [DOWN])
    with pytest.raises(NotReconnectedError, match=r"iqn\.a at 10\.0\.0\.1:3260 \(FAILED\), iqn\.b at .* \(gone\)"):
        reconnect._watch([SESSION, OTHER], OLD, 0.0, -1.0, lambda: None)


def test_what_the_journal_has_of_a_session_is_not_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[lines.Line] = []

    def start_anew(daemon: Daemon) -> None:
        raise FabtuneError("ended")

    monkeypatch.setattr(iscsid, "running", lambda: NEW)
    monkeypatch.setattr(iscsid, "start_anew", start_anew)
    monkeypatch.setattr(carry, "of", lambda session: {"session": {"recovery_tmo": "300"}})
    with pytest.raises(FabtuneError, match="ended"):
        reconnect.connect_anew([DOWN, OTHER], 1.0, quiet, told.append, [DOWN])
    assert [one.sid for one in told if isinstance(one, KeptLine)] == ["2"]


Records = Callable[..., None]


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Records:
    """What the record of SESSION says, by its keys."""

    def say(**settings: str) -> None:
        found = {f"node.{key.replace('__', '.')}": value for key, value in settings.items()}
        monkeypatch.setattr(record.BACKEND, "all", lambda: {SESSION.identity: found})

    return say


@pytest.mark.parametrize(
    ("name", "agreed", "said"),
    [
        ("MaxBurstLength", "1048576", "MaxBurstLength is 1048576, and its record says 262144"),
        ("MaxBurstLength", "131072", ""),
        ("InitialR2T", "No", "InitialR2T is No"),
        ("InitialR2T", "Yes", ""),
        ("HeaderDigest", "CRC32C", "HeaderDigest is CRC32C, and its record says None"),
        ("HeaderDigest", "None", ""),
    ],
)
def test_values_that_the_record_cannot_have_led_to_are_told(
    records: Records, name: str, agreed: str, said: str
) -> None:
    records(
        session__iscsi__MaxBurstLength="262144",
        session__iscsi__InitialR2T="Yes",
        **{"conn[0]__iscsi__HeaderDigest": "None"},
    )
    told = "; ".join(taken_down.unlike_records([replace(SESSION, negotiated={name: agreed})]))
    assert said in told and bool(said) is bool(told)


def test_a_record_that_is_gone_or_cannot_be_read_is_told(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    records()
    assert taken_down.unlike_records([OTHER]) == [f"session {OTHER.label} is back, but its node record is gone"]

    def fail() -> None:
        raise FabtuneError("no iscsiadm")

    monkeypatch.setattr(record.BACKEND, "all", fail)
    assert "cannot be told: no iscsiadm" in taken_down.unlike_records([SESSION])[0]


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> None:
    """SESSION is down since the iscsid NEW was started by a reconnect, whose line is in the journal."""
    monkeypatch.setattr(iscsid, "running", lambda: NEW)
    monkeypatch.setattr(taken_down, "live_sessions", lambda: [DOWN, OTHER])
    monkeypatch.setattr(journal, "transactions", list)
    monkeypatch.setattr(journal, "owed_values", lambda known, boot_id: [(LINE, "1")])
    monkeypatch.setattr(reconnect, "longest_pause_s", lambda sessions, waits_s: 1.0)


def waiting(*tasks: Pending) -> list[int]:
    return [one.sid for one in taken_down.waiting(tasks, Stop(), patient=False)]


def test_a_session_that_a_reconnect_took_down_is_known(down: None) -> None:
    assert taken_down.waiting([DUE], Stop(), patient=False) == {DOWN: AT_S}


def test_nobody_s_session_is_brought_up_without_a_reason(down: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # No value that iscsid has not read.
    assert waiting() == []
    assert waiting(replace(DUE, iscsid=OLD.since)) == []
    # It is up, or went down by itself.
    monkeypatch.setattr(taken_down, "live_sessions", lambda: [SESSION, replace(OTHER, state="FAILED")])
    assert waiting(DUE, replace(DUE, identity=OTHER.identity, sid="2")) == []


@pytest.mark.parametrize(
    "line",
    [
        # iscsid was started by somebody else, long after that, or before.
        attrs.evolve(LINE, at_s=AT_S - 1000.0),
        attrs.evolve(LINE, at_s=AT_S + 1000.0),
        attrs.evolve(LINE, iscsid=NEW.since),
    ],
)
def test_an_iscsid_that_no_reconnect_started_is_left_alone(
    down: None, line: KeptLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "owed_values", lambda known, boot_id: [(line, "1")])
    assert waiting(DUE) == []


def test_a_session_that_may_still_come_by_itself_is_waited_for(down: None, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[DOWN], [DOWN], [SESSION]]
    monkeypatch.setattr(taken_down, "live_sessions", lambda: looks.pop(0) if len(looks) > 1 else looks[0])
    monkeypatch.setattr(taken_down, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(taken_down, "now_s", lambda: AT_S + 2)
    assert taken_down.waiting([DUE], Stop(), patient=True) == {}
    looks[:] = [[DOWN]]
    monkeypatch.setattr(taken_down, "now_s", lambda: AT_S + 60)
    assert taken_down.waiting([DUE], Stop(), patient=True) == {DOWN: AT_S}


@pytest.mark.parametrize(("daemon", "age_s", "may"), [
    (None, 1.0, True), (None, 100.0, False), (OLD, 1.0, True), (OLD, 100.0, False), (NEW, 1.0, False),
])  # fmt: skip
def test_an_iscsid_that_is_being_started_is_waited_for(
    daemon: Daemon | None, age_s: float, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken_down, "now_s", lambda: AT_S + age_s)
    assert taken_down._may_start(LINE, daemon) is may


@pytest.fixture
def safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the portal of SESSION speaks against an iscsid that is started anew: it does not answer."""
    monkeypatch.setattr(iscsid, "running", lambda: NEW)
    monkeypatch.setattr(iscsid, "why_not_anew", lambda daemon: "")
    monkeypatch.setattr(reconnect, "established", list)
    monkeypatch.setattr(reconnect, "why_not_waited_for", lambda session, present: "")
    monkeypatch.setattr(reconnect, "_why_fails_first", lambda session, pause_s, back_s: f"{session.label} fails first")
    monkeypatch.setattr(reconnect, "_why_no_answer", lambda session, bound: f"{session.label} does not answer")
    monkeypatch.setattr(
        logout, "_by_record", lambda one: ("" if one.state == "LOGGED_IN" else f"it is {one.state}", {})
    )
    monkeypatch.setattr(login_identity, "why_another_by_conf", lambda session: "")


def test_a_path_that_is_down_is_waited_for_where_others_would_pause(
    safe: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reconnect.why_not([DOWN], 1.0, 0.0) == f"session {DOWN.label}: it is FAILED"
    # Nothing is lost, and nobody pauses.
    assert reconnect.why_not([DOWN], 1.0, 0.0, [DOWN]) == ""
    assert "fails first" in reconnect.why_not([DOWN, OTHER], 1.0, 0.0, [DOWN])
    monkeypatch.setattr(reconnect, "_why_fails_first", lambda session, pause_s, back_s: "")
    assert "does not answer" in reconnect.why_not([DOWN, OTHER], 1.0, 0.0, [DOWN])
    # Somebody else's session that is down, too.
    failed = replace(OTHER, state="FAILED")
    assert reconnect.why_not([DOWN, failed], 1.0, 0.0, [DOWN]) == f"session {OTHER.label}: it is FAILED"


class _NoJournal:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def brought_up(monkeypatch: pytest.MonkeyPatch, done: BroughtUp | FabtuneError, now: Daemon) -> undo.Report:
    """Return the report of an undo for which SESSION was down, when `now` is the iscsid that runs."""

    def bring_up(*_: object) -> BroughtUp:
        if isinstance(done, FabtuneError):
            raise done
        return done

    monkeypatch.setattr(relogin, "journalled", _NoJournal)
    monkeypatch.setattr(taken_down, "waiting", lambda tasks, stop, patient: {DOWN: AT_S})
    monkeypatch.setattr(taken_down, "bring_up", bring_up)
    monkeypatch.setattr(undo, "live_sessions", list)
    monkeypatch.setattr(iscsid, "running", lambda: now)
    report = undo.Report(pending=[DUE])
    undo._bring_up(report, quiet, Stop(), True)
    return report


def test_a_revert_tells_what_became_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    later = Daemon(44, "100200", 44)
    found = brought_up(monkeypatch, BroughtUp([Reconnected(SESSION.label, 9.0)]), later)
    assert (found.brought_up, found.pending, found.exit_code) == ([SESSION.label], [], ExitCode.DONE)

    found = brought_up(monkeypatch, BroughtUp([Reconnected(SESSION.label, 9.0)], ["not as before"]), later)
    assert (found.brought_up, found.problems, found.exit_code) == ([], ["not as before"], ExitCode.FAILED)

    found = brought_up(monkeypatch, BroughtUp(why_not="its portal does not answer"), NEW)
    assert [one.reason for one in found.pending] == ["its portal does not answer"]
    assert (found.brought_up, found.exit_code) == ([], ExitCode.NEEDS_ACTION)

    found = brought_up(monkeypatch, NotReconnectedError("not back"), later)
    assert (found.brought_up, found.pending, found.exit_code) == ([], [], ExitCode.FAILED)
    assert found.problems == ["iscsid was started once more, with the records as they are now: not back"]

    found = brought_up(monkeypatch, FabtuneError("iscsid looks at a disk"), NEW)
    assert (found.pending, found.problems) == ([DUE], ["iscsid looks at a disk"])


@pytest.mark.parametrize("problem", ["", "not back 9 s after iscsid was started anew: x (FAILED)"])
def test_once_more_says_back_only_when_all_was_read(
    down: None, records: Records, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Sequence[Session]] = []

    def connect_anew(sessions: Sequence[Session], pause_s: float, tell: object, log: object, known: Sequence[Session]):  # type: ignore[no-untyped-def]
        seen.append(known)
        if problem:
            raise NotReconnectedError(problem)
        return []

    records(session__iscsi__MaxBurstLength="262144")
    monkeypatch.setattr(reconnect, "connect_anew", connect_anew)
    monkeypatch.setattr(
        taken_down, "live_sessions", lambda: [replace(SESSION, negotiated={"MaxBurstLength": "1048576"})]
    )
    said = taken_down.once_more(quiet, quiet)
    assert (problem if problem else "MaxBurstLength is 1048576") in said
    # What it lost the journal has.
    assert [one.sid for one in seen[0]] == [1]
    assert pending.RECONNECT not in said


@pytest.fixture
def wan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Return a function that applies wan with --reconnect on a copied host, and returns why that failed."""
    hosttree.enter(hosttree.make(tmp_path / "host", 1, 1), monkeypatch)

    def run() -> str:
        record.BACKEND.forget()
        profile = load_profile("wan", shipped_catalog())
        path = NetworkPath(0.05, 125e6)
        plan = make_plan(profile, ("initiator",), collect(tunables_of(profile)), path, {})
        with journal.locked(), pytest.raises(FabtuneError) as told:
            apply.apply(plan, collect([]).host, Leave(reconnect=True), quiet)
        return str(told.value)

    return run


@pytest.mark.parametrize("left", ["", "not back: x (FAILED)"])
@pytest.mark.parametrize("refused", [True, False])
def test_an_apply_that_went_back_does_not_contradict_itself(
    wan: Callable[[], str], left: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_place(*_: object) -> tuple[list[Reconnected], list[Pending]]:
        if refused:
            raise NotReconnectedError("the target refuses")
        return [Reconnected("x", 1.0)], []

    def fail(_: object) -> None:
        raise FabtuneError("a late row")

    def once_more(*_: object) -> str:
        # Whoever is killed here has told the next revert what is due.
        assert [one.action for known in journal.transactions() for one in known.due] == [RECONNECT]
        return left

    monkeypatch.setattr(reconnect, "in_place", in_place)
    monkeypatch.setattr(apply.Applying, "_late_rows", fail)
    monkeypatch.setattr(taken_down, "once_more", once_more)
    said = wan()
    assert said.endswith(f"everything written was taken back; {left or 'all sessions are back with their old values'}")
    assert said.startswith("the target refuses" if refused else "a late row")


def test_an_iscsid_that_comes_up_late_is_started_once_more(
    wan: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given up, came up while the records went back, and nobody was told that it had read half of them."""
    now: list[Daemon | None] = [OLD]
    monkeypatch.setattr(iscsid, "running", lambda: now[0])
    monkeypatch.setattr(iscsid, "why_not_anew", lambda daemon: "")
    monkeypatch.setattr(reconnect, "why_not", lambda *_: "")
    called: list[Daemon] = []

    def start_anew(daemon: Daemon) -> None:
        called.append(daemon)
        now[0] = None
        raise iscsid.EndedError("iscsid was ended and has not come up again")

    give = record.BACKEND.write

    def write(*words: object) -> None:
        now[0] = now[0] or NEW
        give(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(iscsid, "start_anew", start_anew)
    monkeypatch.setattr(record.BACKEND, "write", write)
    assert wan().count("has not come up again") == 2
    assert called == [OLD, NEW]
