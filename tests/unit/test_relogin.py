# SPDX-License-Identifier: GPL-2.0-or-later
"""Which session may be logged out, as far as a copied tree can show it; the rest is tests/vm/harm_*.bats."""

import json
import threading
from pathlib import Path

import attrs
import hosttree
import pytest

from fabtune.backends import record
from fabtune.errors import FabtuneError
from fabtune.facts import devices
from fabtune.facts.collect import this_host
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import blocks, luns
from fabtune.host.sessions import live_sessions
from fabtune.model.address import canonical
from fabtune.tune import carry, journal, lines, logout, map_paths, owed, relogin
from fabtune.tune.journal import Logout
from fabtune.tune.lines import (
    BeginLine,
    ClosedLine,
    DeviceField,
    DueLine,
    LoginLine,
    RefusedLine,
    RestoredLine,
    WriteLine,
)
from fabtune.tune.map_paths import MapPath
from fabtune.tune.pending import Pending, merge, of_session
from fabtune.tune.successor import is_away, is_back
from fabtune.tune.verify import verify

CONNECTIONS = "sys/class/iscsi_connection"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hosttree.enter(hosttree.make(tmp_path, 2, 1), monkeypatch)
    for number in (1, 2):
        hosttree.put(tmp_path / f"sys/class/scsi_host/host{number}/proc_name", "iscsi_tcp")
        # Without a number the disk's node of this machine would be opened.
        lun = tmp_path / f"sys/class/iscsi_session/session{number}/device/target{number}:0:0/{number}:0:0:0"
        (lun / f"block/sd{number}").rmdir()
        (lun / "block").rmdir()
        hosttree.put(lun / "scsi_tape/st0/dev", f"9:{number}")
    # A copied tree has nobody who answers SCSI commands.
    monkeypatch.setattr(luns, "luns_gone", lambda _: [])
    monkeypatch.setattr(luns, "beyond", lambda _: [])
    monkeypatch.setattr(luns, "has_registrations", lambda _: False)
    return tmp_path


def test_a_session_that_would_log_in_otherwise_than_it_did_is_not_logged_out(host: Path) -> None:
    session = live_sessions()[0]
    directory = host / "sys/class/iscsi_session/session1"
    record = host / "records" / hosttree.iqn(1)
    kept = record.read_text()
    hosttree.put(host / "etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.2026-01.test:me")
    hosttree.put(directory / "initiatorname", "iqn.2026-01.test:me")
    for name, value in {
        "username": "bob",
        "password": "do-not-tell",
        "username_in": "(null)",
        "password_in": "",
    }.items():
        hosttree.put(directory / name, value)
    record.write_text(kept + "node.session.auth.username = bob\nnode.session.auth.username_in = <empty>\n")
    assert logout.why_not(session) == ""
    hosttree.put(directory / "password", "of-last-month")
    reason = logout.why_not(session)
    assert "node.session.auth.password is not what it logged in with" in reason and "do-not-tell" not in reason
    hosttree.put(directory / "password", "do-not-tell")
    hosttree.put(directory / "password_in", "mutual")
    assert "node.session.auth.password_in is not" in logout.why_not(session)
    hosttree.put(directory / "password_in", "(null)")
    record.write_text(record.read_text() + "iface.initiatorname = iqn.2026-01.test:renamed\n")
    assert "as iqn.2026-01.test:me and would log in again as iqn.2026-01.test:renamed" in logout.why_not(session)
    record.write_text(kept + "node.session.auth.username = bob\niface.initiatorname = <empty>\n")
    assert logout.why_not(session) == ""
    hosttree.put(host / "etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.2026-01.test:upgraded")
    assert "would log in again as iqn.2026-01.test:upgraded" in logout.why_not(session)


def second_session_of_the_first(host: Path) -> None:
    for name in ("targetname", "ifacename"):
        one = host / f"sys/class/iscsi_session/session1/{name}"
        (host / f"sys/class/iscsi_session/session2/{name}").write_text(one.read_text())
    hosttree.put(host / f"{CONNECTIONS}/connection2:0/persistent_address", "10.2.0.1")


def test_sessions_of_one_record_have_names_of_their_own_that_outlive_a_login(host: Path) -> None:
    second_session_of_the_first(host)
    first, second = live_sessions()
    assert first.identity == second.identity == first.own_identity
    assert second.own_identity == f"{first.identity}#2"
    # The first logs in again: a higher id, the same SCSI host.
    (host / "sys/class/iscsi_session/session1").rename(host / "sys/class/iscsi_session/session7")
    (host / f"{CONNECTIONS}/connection1:0").rename(host / f"{CONNECTIONS}/connection7:0")
    assert [(one.sid, one.place) for one in live_sessions()] == [(7, 1), (2, 2)]
    assert [one.identity for one in devices.find("session", HostSnapshot())] == [first.identity, second.own_identity]


def test_each_session_of_a_record_is_to_be_done() -> None:
    both = [Pending("relogin", "a", "a", sid, "boot") for sid in ("1", "2")]
    assert merge(both, both) == both


def test_only_a_session_that_comes_back_is_logged_out(host: Path) -> None:
    session = live_sessions()[0]
    assert logout.why_not(session) == ""
    hosttree.put(host / f"{CONNECTIONS}/connection1:1/port", "3260")
    assert "2 connections" in logout.why_not(session)
    (host / f"{CONNECTIONS}/connection1:1/port").unlink()
    (host / f"{CONNECTIONS}/connection1:1").rmdir()
    hosttree.put(host / "sys/class/scsi_host/host1/proc_name", "qla4xxx")
    assert "qla4xxx" in logout.why_not(live_sessions()[0])
    hosttree.put(host / "sys/class/scsi_host/host1/proc_name", "iscsi_tcp")
    hosttree.put(host / "proc/cmdline", f"root=/dev/sda1 ISCSI_TARGET_NAME={hosttree.iqn(1)}")
    assert "booted" in logout.why_not(session)
    (host / "proc/cmdline").unlink()
    hosttree.put(host / "sys/firmware/ibft/target0/target-name", hosttree.iqn(1))
    assert "booted" in logout.why_not(session)
    (host / "sys/firmware/ibft/target0/target-name").unlink()
    record = host / "records" / hosttree.iqn(1)
    kept = record.read_text()
    record.write_text(kept + "node.startup = onboot\n")
    assert "onboot" in logout.why_not(session)
    record.unlink()
    assert "no node record" in logout.why_not(session)
    record.write_text(kept + "node.session.scan = manual\n")
    assert "no scan" in logout.why_not(session)
    record.write_text(kept)
    second_session_of_the_first(host)
    assert "asks for 1 sessions and 2 are there" in logout.why_not(session)
    record.write_text(kept + "node.session.nr_sessions = 2\n")
    assert logout.why_not(session) == ""
    record.write_text(kept + "node.session.nr_sessions = 3\n")
    assert "asks for 3 sessions and 2 are there" in logout.why_not(session)


def test_a_session_of_two_records_is_left_alone_and_the_stale_one_named(host: Path) -> None:
    session = live_sessions()[0]
    record = host / "records" / hosttree.iqn(1)
    text = record.read_text()
    record.write_text(f"{text}node.tpgt = 1\n# BEGIN RECORD 2.1.11\n{text}node.tpgt = 2\n")
    hosttree.put(host / "sys/class/iscsi_session/session1/tpgt", "1")
    stale = host / f"etc/iscsi/nodes/{session.target}/10.2.0.1,3260,2"
    for place in (stale, stale.with_name("10.2.0.1,3260,1")):
        hosttree.put(place / "default", text)
    assert (
        f"2 node records (TPGT 1 and 2), and a login would try each; remove the stale one, {stale}"
        in logout.why_not(session)
    )


def test_two_records_of_one_identity_have_only_the_values_that_they_share(host: Path) -> None:
    file = host / "records" / hosttree.iqn(1)
    text = file.read_text()
    stale = text.replace("queue_depth = 32", "queue_depth = 16")
    file.write_text(f"{text}node.tpgt = 1\n# BEGIN RECORD 2.1.11\n{stale}node.tpgt = 2\n")
    device = next(one for one in devices.find("record", HostSnapshot()) if hosttree.iqn(1) in one.identity)
    assert record.BACKEND.read(device, "node.session.cmds_max") == "128"
    with pytest.raises(FabtuneError, match=r"is 16 in that of TPGT 2, 32 in that of TPGT 1"):
        record.BACKEND.read(device, "node.session.queue_depth")


def test_what_a_session_carries_is_journalled_with_its_logout(host: Path) -> None:
    away = owe(host, "1")
    kept = {"session": {"recovery_tmo": "7"}, "LUN 0 naa.1": {"device/timeout": "180"}}
    with journal.locked(), relogin.journalled() as log:
        log(attrs.evolve(away, sid="5", kept=kept))
    assert [one.kept for one in owed_now()] == [{}, kept]
    with (host / "state/journal/20260101T000000Z-000.jsonl").open("a") as stream:
        stream.write(json.dumps({**json.loads(lines.text(away)), "kept": {"session": {"recovery_tmo": 7}}}) + "\n")
    assert "recovery_tmo" in journal.transactions()[0].damage


def test_a_session_that_is_not_logged_in_is_left_alone(host: Path) -> None:
    hosttree.put(host / "sys/class/iscsi_session/session1/state", "FAILED")
    assert logout.why_not(live_sessions()[0]) == "it is FAILED, not LOGGED_IN"


def test_a_session_is_away_until_its_record_has_all_of_them(host: Path) -> None:
    session = live_sessions()[0]
    words = (session.identity, session.target, session.portal, session.interface, "boot")
    assert not is_away(Logout("1", *words))
    # Another session has come in its place.
    assert not is_away(Logout("9", *words))
    record = host / "records" / hosttree.iqn(1)
    record.write_text(record.read_text() + "node.session.nr_sessions = 2\n")
    assert is_away(Logout("9", *words))
    assert is_away(Logout("9", "elsewhere", *words[1:]))


def owe(host: Path, sid: str, transaction: str = "20260101T000000Z-000") -> Logout:
    """Journal that the first session was logged out as `sid`, and not that it came back."""
    session = live_sessions()[0]
    away = Logout(sid, session.identity, session.target, session.portal, session.interface, "boot")
    directory = host / "state/journal"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.parent.chmod(0o700)
    writer = journal.Writer(directory / f"{transaction}.jsonl")
    writer.append(BeginLine(1, ("initiator",), "", "p", "boot", transaction))
    writer.append(away)
    writer.close()
    return away


def owed_now() -> list[Logout]:
    return journal.owed_logins(journal.transactions(), "boot")


def test_a_session_seen_back_once_is_owed_no_longer(host: Path) -> None:
    # As a process leaves it that was killed before its logout, and after its login.
    for sid, transaction in (("1", "20260101T000000Z-000"), ("0", "20260102T000000Z-000")):
        owe(host, sid, transaction)
    state = host / "sys/class/iscsi_session/session1/state"
    state.write_text("FAILED\n")
    owed.settle("boot")
    assert len(owed_now()) == 2
    state.write_text("LOGGED_IN\n")
    owed.settle("boot")
    assert owed_now() == []


def test_a_session_whose_record_was_deleted_is_owed_no_longer_and_said_so(host: Path) -> None:
    away = owe(host, "0")
    (host / "sys/class/iscsi_session/session1/targetname").unlink()
    file = host / f"etc/iscsi/nodes/{away.target}/10.2.0.1,3260,1/default"
    hosttree.put(file, "damaged")
    (host / "records" / away.target).unlink()
    said: list[str] = []
    with journal.locked():
        assert [one.sid for one in owed.bring_all_back("boot", said.append)[1]] == ["0"]
        file.unlink()
        owed.settle("boot")
        assert len(owed_now()) == 1
        assert owed.bring_all_back("boot", said.append) == ([], [])
    assert owed_now() == [] and "its node record was deleted" in said[-1]


def test_verify_says_that_a_login_failed_where_that_is_known(host: Path) -> None:
    away = owe(host, "0")
    (host / "sys/class/iscsi_session/session1/targetname").unlink()
    hosttree.put(host / "proc/sys/kernel/random/boot_id", "boot")
    for refused_in, expected in (
        ("", "was stopped before"),
        ("earlier", "was stopped before"),
        ("boot", "failed (no such)"),
    ):
        if refused_in:
            with journal.locked(), relogin.journalled() as log:
                log(RefusedLine(*away.session, refused_in, "no such"))
        found = verify(None, ("initiator",), "")
        assert [one.tunable for one in found] == ["session"] and expected in found[0].note


def test_another_process_at_work_keeps_its_own_logout(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_LOCK_WAIT_S", 0)
    away = owe(host, "1")
    with journal.locked():
        owed.settle("boot")
    assert owed_now() == [away]


def test_a_login_settles_a_logout_of_an_earlier_transaction(host: Path) -> None:
    first = owe(host, "1")
    owe(host, "5", "20260102T000000Z-000")
    with journal.locked(), relogin.journalled() as log:
        log(LoginLine("1", first.identity))
    assert [one.sid for one in owed_now()] == ["5"]


def owed_values() -> list[tuple[str, str]]:
    return [(one.sid, successor) for one, successor in journal.owed_values(journal.transactions(), "boot")]


def owe_values(host: Path, tmo: str) -> None:
    """Journal that session 0 was logged out with a recovery_tmo of `tmo`, and put the first session in its place."""
    hosttree.put(host / "sys/class/iscsi_session/session1/recovery_tmo", "120")
    away = owe(host, "9")
    with journal.locked(), relogin.journalled() as log:
        log(attrs.evolve(away, sid="0", kept={"session": {"recovery_tmo": tmo}}))
        log(LoginLine("9", away.identity))


def test_what_was_set_by_hand_is_owed_until_it_is_given_back_whoever_logged_the_session_in(host: Path) -> None:
    owe_values(host, "7")
    owed.settle("boot")
    assert owed_now() == [] and owed_values() == [("0", "1")]
    assert [(one.what, one.was, one.now) for _, one in owed.values(journal.transactions(), "boot")] == [
        ("recovery_tmo", "7", "120")
    ]
    said: list[str] = []
    with journal.locked():
        assert owed.bring_all_back("boot", said.append) == ([], [])
    assert (host / "sys/class/iscsi_session/session1/recovery_tmo").read_text().strip() == "7"
    assert "recovery_tmo" in said[0] and owed_values() == [] and owed.values(journal.transactions(), "boot") == []


def test_values_that_are_as_they_were_are_owed_no_longer(host: Path) -> None:
    owe_values(host, "120")
    owed.settle("boot")
    assert owed_now() == [] and owed_values() == []


def test_what_was_set_by_hand_is_said_to_be_lost_where_its_session_was_logged_out_since(host: Path) -> None:
    owe_values(host, "7")
    owed.settle("boot")
    (host / "sys/class/iscsi_session/session1").rename(host / "sys/class/iscsi_session/session7")
    (host / f"{CONNECTIONS}/connection1:0").rename(host / f"{CONNECTIONS}/connection7:0")
    said: list[str] = []
    with journal.locked():
        owed.bring_all_back("boot", said.append)
    assert "is lost" in said[0] and owed_values() == []
    assert (host / "sys/class/iscsi_session/session7/recovery_tmo").read_text().strip() == "120"


def test_a_value_that_a_closed_transaction_mentions_is_the_administrators(host: Path) -> None:
    session = live_sessions()[0]
    hosttree.put(host / "sys/class/iscsi_session/session1/recovery_tmo", "7")
    owe(host, "9")
    device = DeviceField("record", session.identity, "x")
    key = "node.session.timeo.replacement_timeout"
    step = WriteLine(1, "boot", "iscsi.recovery_timeout", "record", key, device, "120", "7", "relogin", False)
    with journal.locked(), relogin.journalled() as log:
        log(step)
        assert "recovery_tmo" not in carry.of(session)["session"]
        log(RestoredLine(1))
        log(ClosedLine())
    assert carry.of(session)["session"]["recovery_tmo"] == "7"
    with journal.locked(), relogin.journalled() as log:
        log(of_session(session, this_host().boot_id).line(DueLine))
    assert "recovery_tmo" not in carry.of(session)["session"]


def test_a_profiles_value_is_not_given_back_once_it_was_taken_back(host: Path) -> None:
    session = live_sessions()[0]
    file = host / "sys/class/iscsi_session/session1/recovery_tmo"
    hosttree.put(file, "7")
    owe(host, "9")
    device = DeviceField("session", session.own_identity, "x")
    step = WriteLine(1, "boot", "x", "attribute", "recovery_tmo", device, "120", "7", "now", False)
    with journal.locked(), relogin.journalled() as log:
        log(step)
        kept = carry.of(session)
        file.write_text("120")
        assert [(one.what, one.was) for one in carry.differing(kept, session)] == [("recovery_tmo", "7")]
        log(RestoredLine(1))
    assert carry.differing(kept, session) == [] and carry.give_back(kept, session, print) == []
    assert file.read_text() == "120"


def test_a_partition_that_the_kernel_reads_after_its_disk_shows_is_waited_for(host: Path) -> None:
    session = live_sessions()[0]
    lun = host / "sys/class/iscsi_session/session1/device/target1:0:0/1:0:0:0"
    hosttree.put(lun / "block/sdx/dev", "8:16")
    (place,) = (place for place in carry.of(session) if place.startswith("LUN"))
    kept = {place: {"ro of partition 1": "1"}}

    def read_table() -> None:
        for name, value in (("ro", "1"), ("partition", "1")):
            hosttree.put(host / f"sys/block/sdx/sdx1/{name}", value)

    timer = threading.Timer(0.5, read_table)
    timer.start()
    try:
        assert carry.differing(kept, session) == []
    finally:
        timer.join()


def test_nothing_is_journalled_behind_a_damaged_line(host: Path) -> None:
    away = owe(host, "1")
    with (host / "state/journal/20260101T000000Z-000.jsonl").open("a") as stream:
        stream.write("damaged\n")
    with journal.locked(), relogin.journalled() as log:
        log(attrs.evolve(away, sid="7"))
    assert [one.sid for one in owed_now()] == ["1", "7"]


def test_a_session_is_back_once_its_record_has_all_of_them_logged_in(host: Path) -> None:
    session = live_sessions()[0]
    words = (session.identity, session.target, session.portal, session.interface, "boot")
    assert is_back(Logout("9", *words))
    assert is_back(Logout("1", *words))
    record = host / "records" / hosttree.iqn(1)
    record.write_text(record.read_text() + "node.session.nr_sessions = 2\n")
    assert not is_back(Logout("9", *words))


def test_reported_luns_are_numbered_as_the_kernel_does() -> None:
    entries = ["0000000000000000", "0005000000000000", "4101000000000000", "0001000200000000", "c101000000000000"]
    answer = bytes.fromhex("0000002800000000" + "".join(entries)) + bytes(16)
    assert list(luns.parse_luns(answer)) == [0, 5, 0x4101, 0x20001, 0xC101]


def test_device_mappers_status_is_read_as_the_kernel_writes_it() -> None:
    two_groups = "0 131072 multipath 2 1 0 0 2 1 A 0 1 2 8:16 A 0 0 1 D 0 1 2 8:0 A 0 0 1 \n"
    assert map_paths.parse_status(two_groups) == [[MapPath("8:16", True), MapPath("8:0", False)]]
    failed = "0 131072 multipath 2 0 1 1 alua 1 1 E 0 2 2 8:0 F 1 0 1 8:16 A 0 0 1"
    assert map_paths.parse_status(failed) == [[MapPath("8:0", False), MapPath("8:16", True)]]
    round_robin = "0 8 multipath 2 0 0 0 1 1 E 0 2 0 8:0 A 0 8:16 A 0"
    assert len(map_paths.parse_status(round_robin)[0]) == 2
    for damaged in ("0 8 linear 8:0 0", "0 8 multipath 2 0 0 0 1 1 E 0 2 0 8:0 A", "0 8 multipath x"):
        with pytest.raises(ValueError):
            map_paths.parse_status(damaged)


def test_every_node_of_a_scsi_device_counts(tmp_path: Path) -> None:
    for place, number in (("block/sda", "8:0"), ("block/sda/sda1", "8:1"), ("scsi_generic/sg0", "21:0"),
                          ("bsg/0:0:0:0", "252:0"), ("scsi_tape/nst0", "9:128")):  # fmt: skip
        hosttree.put(tmp_path / place / "dev", number)
    assert {(node.kind, f"{node.major}:{node.minor}") for node in blocks.nodes_of(tmp_path)} == {
        ("b", "8:0"), ("b", "8:1"), ("c", "21:0"), ("c", "252:0"), ("c", "9:128")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fd00:0002:0000:0000:0000:0000:0000:0001", "fd00:2::1"),
        ("[fd00:2::1]", "fd00:2::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:10.2.0.1", "10.2.0.1"),
        ("10.2.0.1", "10.2.0.1"),
        ("storage.example", "storage.example"),
    ],
)
def test_an_address_has_one_text(text: str, expected: str) -> None:
    assert canonical(text) == expected


def test_owner_and_mode_of_a_node_are_given_back_or_said_to_be_lost(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = live_sessions()[0]
    lun = host / "sys/class/iscsi_session/session1/device/target1:0:0/1:0:0:0"
    hosttree.put(lun / "block/sdx/dev", "8:16")
    now = {"sdx": "1000:6 0600"}
    monkeypatch.setattr(blocks, "ownership", lambda name: now.get(name, ""))
    monkeypatch.setattr(blocks, "set_ownership", now.__setitem__)
    kept = carry.of(session)
    assert carry.differing(kept, session) == []
    now["sdx"] = "0:6 0660"
    assert [(one.what, one.was, one.now) for one in carry.differing(kept, session)] == [
        ("ownership", "1000:6 0600", "0:6 0660")
    ]
    said: list[str] = []
    assert carry.give_back(kept, session, said.append) == [] and now["sdx"] == "1000:6 0600"
    assert "belongs to 1000:6 0600 again" in said[0]

    def refuse(name: str, wanted: str) -> None:
        raise FabtuneError("read-only file system")

    monkeypatch.setattr(blocks, "set_ownership", refuse)
    now["sdx"] = "0:6 0660"
    assert carry.give_back(kept, session, said.append) == [
        ("ownership of /dev/sdx", "it was 1000:6 0600 and is 0:6 0660: read-only file system")
    ]
