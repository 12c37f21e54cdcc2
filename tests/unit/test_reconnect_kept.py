# SPDX-License-Identifier: GPL-2.0-or-later
"""What a new connection in place must not lose or assume: values set by hand, whose connection it is, CHAP."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fabtune.backends import attribute, conf
from fabtune.errors import FabtuneError, InputError
from fabtune.host import iscsiadm, iscsid, mounts, tree
from fabtune.host.iscsid import Daemon
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.tune import armed, carry, confirm, journal, lines, login_identity, owed, reconnect, relogin, successor
from fabtune.tune.carry import Difference
from fabtune.tune.lines import KeptLine
from fabtune.tune.transaction import Transaction, parse

SESSION = Session(1, "iqn.a", "10.0.0.1:3260", "default", "LOGGED_IN", "10.0.0.1", 3260, 0, ("sda",), 32, {})
KEPT = {"session": {"recovery_tmo": "300"}}
LINE = KeptLine("1", SESSION.identity, SESSION.target, SESSION.portal, "default", "boot", KEPT, "777", 1000.0)


def a_transaction(*more: lines.Line, name: str = "20260101T000000Z-000") -> Transaction:
    begin = json.dumps({"kind": "begin", "version": 1, "roles": [], "netns": ""})
    text = "\n".join([begin, *(lines.text(one) for one in more), ""])
    return parse(Path(f"{name}.jsonl"), text.encode())


def test_what_was_set_by_hand_stands_in_the_journal_until_it_is_back() -> None:
    given = lines.GivenBackLine(*LINE.session)
    assert journal.owed_values([a_transaction(LINE)], "boot") == [(LINE, "1")]
    assert journal.owed_values([a_transaction(LINE)], "another boot") == []
    assert journal.owed_values([a_transaction(LINE, given)], "boot") == []
    assert journal.owed_values([a_transaction(LINE), a_transaction(given, name="20260101T000000Z-001")], "boot") == []
    assert journal.owed_values([a_transaction(LINE, given, LINE)], "boot") == [(LINE, "1")]
    # Nobody logged it out.
    assert journal.owed_logins([a_transaction(LINE)], "boot") == []


def test_it_is_journalled_before_iscsid_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[lines.Line] = []

    def start_anew(daemon: Daemon) -> None:
        assert [one.kept for one in told if isinstance(one, KeptLine)] == [KEPT]
        raise FabtuneError("ended")

    monkeypatch.setattr(iscsid, "running", lambda: Daemon(42, "7", 42))
    monkeypatch.setattr(iscsid, "start_anew", start_anew)
    monkeypatch.setattr(carry, "of", lambda session: KEPT)
    with pytest.raises(FabtuneError, match="ended"):
        reconnect.connect_anew([SESSION], 1.0, lambda text: None, told.append)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is given back of LINE, which stands in the journal; recovery_tmo is not as it was."""
    told: list[str] = []

    def give_back(*_: object) -> list[tuple[str, str]]:
        told.append("given")
        return []

    monkeypatch.setattr(journal, "transactions", lambda: [a_transaction(LINE)])
    monkeypatch.setattr(owed, "live_sessions", lambda: [SESSION])
    monkeypatch.setattr(relogin, "journalled", _NoJournal)
    monkeypatch.setattr(carry, "differing", lambda kept, session: [Difference("s", "recovery_tmo", "300", "120")])
    monkeypatch.setattr(carry, "give_back", give_back)
    monkeypatch.setattr(successor, "note_given", lambda one, log: told.append("noted"))
    monkeypatch.setattr(iscsid, "looks_at_disks", lambda daemon: False)
    monkeypatch.setattr(owed, "now_s", lambda: 1001.0)
    monkeypatch.setattr(iscsid, "running", lambda: Daemon(43, "888", 43))
    yield told


class _NoJournal:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def test_the_next_run_gives_it_back(given: list[str]) -> None:
    owed.give_values_back("boot", lambda text: None)
    assert given == ["given", "noted"]


def test_while_the_session_is_down_nothing_is_written(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owed, "live_sessions", lambda: [replace(SESSION, state="FAILED")])
    owed.give_values_back("boot", lambda text: None)
    assert given == []


def test_it_is_owed_as_long_as_an_iscsid_may_take_it_again(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iscsid, "running", lambda: Daemon(42, "777", 42))
    owed.give_values_back("boot", lambda text: None)
    assert given == ["given"]
    monkeypatch.setattr(owed, "now_s", lambda: 2000.0)
    owed.give_values_back("boot", lambda text: None)
    assert given == ["given", "given", "noted"]


def test_an_iscsid_that_nobody_has_waited_for_counts_as_ended(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    while ") Z " not in Path(f"/proc/{ended.pid}/stat").read_text():
        time.sleep(0.01)
    words = ["sh", "-c", iscsid._ANEW, "sh", str(ended.pid), "touch", str(tmp_path / "started")]
    subprocess.run(words, check=True, timeout=60)
    assert (tmp_path / "started").exists()
    ended.wait()


def an_end(port: int, bound: int) -> TcpSocket:
    return TcpSocket("10.0.0.9", SESSION.address, port, SESSION.port, 1.0, 1.0, 0, 10, 1448, 0, "cubic", 1, 1, bound)


def test_the_portal_is_asked_over_the_session_s_own_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    class Probe:
        def __init__(self, family: int) -> None:
            asked.append(family)

        def __enter__(self) -> "Probe":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def settimeout(self, limit_s: float) -> None:
            pass

        def setsockopt(self, level: int, option: int, value: bytes) -> None:
            asked.append((option, value))

        def connect(self, where: tuple[str, int]) -> None:
            asked.append(where)

    monkeypatch.setattr(socket, "socket", Probe)
    monkeypatch.setattr(reconnect, "_why_not_by", lambda daemon: "")
    monkeypatch.setattr(reconnect, "_why_not_all", lambda *_: "")
    number = socket.if_nametoindex("lo")
    monkeypatch.setattr(reconnect, "established", lambda: [an_end(50001, number)])
    assert reconnect.why_not([SESSION], 1.0, 1.0) == ""
    assert asked == [socket.AF_INET, (socket.SO_BINDTODEVICE, b"lo"), (SESSION.address, SESSION.port)]


@pytest.fixture
def chap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session that logged in as somebody, and an iscsid.conf that says nothing."""
    monkeypatch.setattr(tree, "SYS", tmp_path / "sys")
    monkeypatch.setattr(tree, "ETC", tmp_path / "etc")
    SESSION.directory.mkdir(parents=True)
    for name, text in (("username", "me"), ("username_in", "(null)")):
        (SESSION.directory / name).write_text(text)
    conf.path().parent.mkdir(parents=True)
    conf.path().write_text("# nothing\n")
    return conf.path()


def why_another(monkeypatch: pytest.MonkeyPatch, algorithms: str = "") -> str:
    """Return what an iscsid that starts would do otherwise where the record says `algorithms`."""
    monkeypatch.setattr(iscsiadm, "credentials", lambda *_: {"node.session.auth.chap_algs": algorithms})
    return login_identity.why_another_by_conf(SESSION)


def test_chap_as_the_session_had_it_is_no_obstacle(chap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_another(monkeypatch, "MD5") == ""
    chap.write_text("node.session.auth.chap_algs = SHA3-256,SHA256\n")
    assert why_another(monkeypatch, "SHA3-256, SHA256") == ""
    chap.unlink()
    assert why_another(monkeypatch) == ""


def test_chap_algorithms_that_only_the_record_has_keep_iscsid_from_being_started_anew(
    chap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = why_another(monkeypatch, "SHA256")
    assert "is SHA256, and an iscsid that starts takes MD5 from iscsid.conf" in said
    (SESSION.directory / "username").write_text("(null)")
    assert why_another(monkeypatch, "SHA256") == ""


def test_a_name_that_only_iscsid_conf_has_keeps_it_too(chap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chap.write_text("node.session.auth.username_in = target\n")
    assert "without node.session.auth.username_in" in why_another(monkeypatch)


def test_nothing_is_applied_over_what_waits_to_be_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = lines.UnconfirmedLine(10.0, 10.0, "boot", False, False)
    monkeypatch.setattr(journal, "transactions", lambda: [a_transaction(limit)])
    monkeypatch.setattr(armed, "is_watched", lambda: True)
    with pytest.raises(InputError, match="waits to be confirmed"):
        confirm.require_nobody_waits()
    confirm.require_nobody_waits(["20260101T000000Z-000"])


@pytest.mark.parametrize(
    ("kind", "lasting", "said"),
    [
        ("nfs4", [], "lies on nfs4"),
        ("fuse.sshfs", ["iscsi.queue_depth"], "lies on fuse.sshfs"),
        ("tmpfs", ["iscsi.queue_depth"], "after a power cut nothing would take iscsi.queue_depth back"),
        ("tmpfs", [], ""),
        ("ext4", ["iscsi.queue_depth"], ""),
    ],
)
def test_a_journal_that_may_be_away_is_refused(
    kind: str, lasting: Sequence[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = "8:1" if kind == "ext4" else "0:50"
    mount = mounts._mount(f"30 1 {number} / / rw - {kind} server:/export rw")
    assert mount is not None
    monkeypatch.setattr(mounts, "seen_by", lambda process: [mount])
    if said:
        with pytest.raises(FabtuneError, match=said):
            confirm._require_all_stays(lasting)
    else:
        confirm._require_all_stays(lasting)


class _Disk:
    def __init__(self, depth: str) -> None:
        self.depth = depth

    def read(self, device: object, key: str) -> str:
        return self.depth

    def write(self, device: object, key: str, value: str) -> None:
        self.depth = value


@pytest.mark.parametrize(("by_hand", "after"), [(None, "64"), ("7", "32")])
def test_an_old_iscsid_s_disks_follow_the_record_unless_set_by_hand(
    by_hand: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = _Disk("32")
    monkeypatch.setattr(attribute, "BACKEND", disk)
    monkeypatch.setattr(carry, "_record", lambda session: {"node.session.queue_depth": "128"})
    monkeypatch.setattr(carry, "_transactions", list)
    monkeypatch.setattr(carry, "disks_by_place", lambda session: {"LUN 0": carry._session(session)})
    kept = {"session": {"can_queue": "64"}, "LUN 0": {"device/queue_depth": by_hand} if by_hand else {}}
    assert carry.follow_record(kept, replace(SESSION, can_queue=64)) == []
    assert disk.depth == after
