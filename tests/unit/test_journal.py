# SPDX-License-Identifier: GPL-2.0-or-later
"""Several profiles on one value, devices that are away, journals that others could have written."""

import json
import math
import shutil
import time
import typing
from pathlib import Path

import attrs
import hosttree
import pytest
from profiles import BOTH, write

from fabtune import backends
from fabtune.backends import record
from fabtune.backends.textfile import HEADER
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode, FabtuneError
from fabtune.facts.collect import collect
from fabtune.model.device import Device
from fabtune.tune import journal, lines, relogin
from fabtune.tune.apply import Result, apply
from fabtune.tune.lines import DeviceField, WriteLine
from fabtune.tune.pending import Leave
from fabtune.tune.plan import make_plan, tunables_of
from fabtune.tune.transaction import as_line, parse
from fabtune.tune.undo import Report, undo
from fabtune.tune.verify import Drift, verify

BACKLOG = "proc/sys/net/core/netdev_max_backlog"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = hosttree.make(tmp_path / "host", 1, 1)
    hosttree.enter(root, monkeypatch)
    return root


def backlog(host: Path, name: str, value: int) -> Result:
    return write(host, name, {"net.netdev_max_backlog": value})


def back(profile: str | None = None, force: bool = False) -> Report:
    record.BACKEND.forget()
    return undo(profile, None, None, "", force, Leave(), lambda _: None)


def states(report: Report) -> list[str]:
    return [str(outcome.state) for outcome in report.outcomes]


def drifted() -> list[Drift]:
    return [drift for drift in verify(None, BOTH, "") if drift.drifted]


def read(path: Path) -> str:
    return path.read_text().strip()


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c"), ("a", "c", "b"), ("b", "c", "a")])
@pytest.mark.parametrize("wishes", [(2000, 2000, 2000), (2000, 3000, 3000), (2000, 3000, 2000), (2000, 2000, 3000)])
def test_profiles_go_in_any_order_and_the_last_one_gives_the_old_value_back(
    host: Path, order: tuple[str, ...], wishes: tuple[int, ...]
) -> None:
    value = host / BACKLOG
    left = dict(zip("abc", wishes, strict=True))
    for name, wish in left.items():
        backlog(host, name, wish)
    for name in order:
        assert read(value) == str(list(left.values())[-1])
        assert drifted() == []
        report = back(name)
        assert report.exit_code == ExitCode.DONE, report.outcomes
        del left[name]
    assert read(value) == "1000"
    assert {one.state for one in journal.transactions()} == {"taken back"}


def test_reverting_all_gives_the_first_old_value_back(host: Path) -> None:
    for name, wish in (("a", 2000), ("b", 2000), ("c", 3000), ("d", 3000)):
        backlog(host, name, wish)
    assert back().exit_code == ExitCode.DONE
    assert read(host / BACKLOG) == "1000"


def test_what_a_stranger_changed_between_two_profiles_is_not_ours(host: Path) -> None:
    value = host / BACKLOG
    backlog(host, "a", 2000)
    value.write_text("7000\n")
    backlog(host, "b", 3000)
    report = back("a")
    assert states(report) == ["foreign"] and "before profile b" in report.outcomes[0].note
    assert back("b").exit_code == ExitCode.DONE
    assert read(value) == "7000"


def test_a_second_apply_of_a_profile_needs_no_claim(host: Path) -> None:
    backlog(host, "a", 2000)
    backlog(host, "a", 2000)
    assert len(journal.transactions()) == 1
    backlog(host, "b", 2000)
    backlog(host, "b", 2000)
    assert len(journal.transactions()) == 2


def test_names_keep_the_order_of_writes_when_the_clock_goes_back(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backlog(host, "a", 2000)
    monkeypatch.setattr(time, "strftime", lambda *_: "19700101T000000Z")
    backlog(host, "b", 3000)
    assert [one.profile for one in journal.transactions()] == ["a", "b"]


def test_an_absent_record_is_waited_for_until_it_is_back(host: Path) -> None:
    write(host, "a", {"iscsi.cmds_max": 256})
    kept = host / f"records/{hosttree.iqn(1)}"
    away = host / "away"
    kept.rename(away)
    for _ in range(2):
        report = back()
        assert states(report) == ["waiting"] and report.exit_code == ExitCode.NEEDS_ACTION
        assert [one.state for one in journal.transactions()] == ["waiting"]
    record.BACKEND.forget()
    assert "was away" in drifted()[0].note
    away.rename(kept)
    record.BACKEND.forget()
    assert "there again" in drifted()[0].note
    assert states(back()) == ["restored"]
    assert "node.session.cmds_max = 128" in kept.read_text()
    assert [one.state for one in journal.transactions()] == ["taken back"]


def test_an_absent_device_is_given_up_on_request(host: Path) -> None:
    write(host, "a", {"iscsi.cmds_max": 256})
    (host / f"records/{hosttree.iqn(1)}").unlink()
    assert back(force=True).exit_code == ExitCode.DONE
    assert [one.state for one in journal.transactions()] == ["taken back"]


def test_a_look_that_fails_is_not_taken_for_absence(host: Path) -> None:
    write(host, "a", {"iscsi.cmds_max": 256})
    tool = host / "bin/iscsiadm"
    script = tool.read_text()
    tool.write_text(script.replace("cd ", "echo damaged >&2; exit 7; cd ", 1))
    report = back()
    assert states(report) == ["failed"] and report.exit_code == ExitCode.FAILED
    assert "cannot tell whether it is there" in report.outcomes[0].note
    record.BACKEND.forget()
    assert "damaged" in drifted()[0].note
    tool.write_text(script)
    assert states(back()) == ["restored"]


def test_a_disk_that_went_needs_nothing_back(host: Path) -> None:
    write(host, "a", {"block.rq_affinity": 2})
    (host / "sys/class/iscsi_session/session1").rename(host / "gone")
    (host / "sys/block/sd1").rename(host / "gone-disk")
    report = back()
    assert states(report) == ["gone"] and report.exit_code == ExitCode.DONE
    assert "the value is gone with it" in report.outcomes[0].note


def test_a_disk_made_anew_has_its_own_value(host: Path) -> None:
    write(host, "a", {"block.rq_affinity": 2})
    disk = host / "sys/block/sd1"
    shutil.copytree(disk, host / "new")
    shutil.rmtree(disk)
    # The number of the old directory must not be given to the new one.
    (host / "filler").mkdir()
    (host / "new").rename(disk)
    (disk / "queue/rq_affinity").write_text("0\n")
    assert "created again" in drifted()[0].note
    assert states(back()) == ["already"]
    assert read(disk / "queue/rq_affinity") == "0"


def test_after_a_reboot_values_are_lost_and_nobody_is_blamed(host: Path) -> None:
    backlog(host, "a", 2000)
    (host / BACKLOG).write_text("1500\n")
    hosttree.put(host / "proc/sys/kernel/random/boot_id", "99999999-2222-3333-4444-555555555555")
    assert drifted()[0].note == "lost at a reboot; apply again, with --persist to keep it"
    hosttree.put(host / "etc/sysctl.d/99-admin.conf", "net.core.netdev_max_backlog = 1000")
    assert drifted()[0].note.startswith("lost at a reboot; /etc/sysctl.d/99-admin.conf sets 1000 at boot")
    report = back()
    assert states(report) == ["already"] and report.exit_code == ExitCode.DONE
    assert read(host / BACKLOG) == "1500"


def test_what_came_with_a_boot_is_left_alone_although_it_is_what_was_written(host: Path) -> None:
    """The administrator's own file sets it by now; only --force takes it away."""
    for force, left in ((False, "2000"), (True, "1000")):
        (host / BACKLOG).write_text("1000\n")
        hosttree.put(host / "proc/sys/kernel/random/boot_id", f"{left}9999-2222-3333-4444-555555555555")
        backlog(host, "a", 2000)
        hosttree.put(host / "proc/sys/kernel/random/boot_id", f"{left}8888-2222-3333-4444-555555555555")
        report = back(force=force)
        assert states(report) == ["restored" if force else "already"] and report.exit_code == ExitCode.DONE
        assert read(host / BACKLOG) == left
        assert force or "came with a boot" in report.outcomes[0].note


# What makes a value at boot, by the tunable: the file, and a line of ours in it.
_AT_BOOT = {
    "net.netdev_max_backlog": (2000, "etc/sysctl.d/90-fabtune.conf", "net.core.netdev_max_backlog = 2000"),
    "iscsi.recv_from_iscsi_q": (True, "etc/modprobe.d/fabtune.conf", "options iscsi_tcp recv_from_iscsi_q=Y"),
    "block.rq_affinity": (2, "etc/udev/rules.d/99-fabtune.rules", 'ACTION=="add", ATTR{queue/rq_affinity}="2"'),
}


@pytest.mark.parametrize("written", _AT_BOOT)
@pytest.mark.parametrize("kept", _AT_BOOT)
def test_what_our_own_file_set_at_boot_goes_back(host: Path, written: str, kept: str) -> None:
    hosttree.put(host / "sys/module/iscsi_tcp/parameters/recv_from_iscsi_q", "N")
    write(host, "a", {written: _AT_BOOT[written][0]})
    _, file, text = _AT_BOOT[kept]
    with journal.locked():
        known = journal.transactions()[0]
        line = attrs.evolve(
            as_line(known.steps[0], WriteLine, ""), step=len(known.steps) + 1, tunable="persist.file",
            backend="textfile", key=file, old="", device=DeviceField("host", "host", "host"),
            wrote=f"{HEADER}\n{text}\n",
        )  # fmt: skip
        writer = journal.Writer(known.path)
        writer.append(line)
        writer.close()
    hosttree.put(host / "proc/sys/kernel/random/boot_id", "99999999-2222-3333-4444-555555555555")
    told = [(one.step.tunable, str(one.state)) for one in back().outcomes if one.step.tunable == written]
    assert set(told) == {(written, "restored" if written == kept else "already")}


@pytest.mark.parametrize("carried", [True, False])
def test_a_disk_made_anew_gives_back_only_what_a_re_login_of_ours_brought_along(host: Path, carried: bool) -> None:
    write(host, "a", {"block.rq_affinity": 2})
    known = journal.transactions()[0]
    if carried:
        mark = {"LUN 0": {"step queue/rq_affinity": f"{known.name} 1"}}
        writer = journal.Writer(known.path)
        writer.append(
            journal.Logout("9", "iqn.x,10.2.0.9:3260,default", "iqn.x", "10.2.0.9:3260", "default", "b", mark)
        )
        writer.append(lines.LoginLine("9", "iqn.x,10.2.0.9:3260,default", "10"))
        writer.close()
    disk = host / "sys/block/sd1"
    shutil.copytree(disk, host / "new")
    shutil.rmtree(disk)
    (host / "filler").mkdir()
    (host / "new").rename(disk)
    assert states(back()) == ["restored" if carried else "already"]
    assert read(disk / "queue/rq_affinity") == ("1" if carried else "2")


def test_a_session_that_was_logged_out_and_never_came_back_is_drift(host: Path) -> None:
    backlog(host, "a", 2000)
    lost = journal.Logout("9", "iqn.lost,10.2.0.9:3260,default", "iqn.lost", "10.2.0.9:3260", "default",
                          hosttree.SYSCTLS["kernel/random/boot_id"])  # fmt: skip
    writer = journal.Writer(journal.transactions()[0].path)
    writer.append(lost)
    writer.close()
    assert [(one.tunable, one.found) for one in drifted()] == [("session", "logged out")]


def test_values_go_back_although_the_journal_cannot_be_written(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backlog(host, "a", 2000)
    backlog(host, "b", 3000)

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system", "journal")

    with monkeypatch.context() as patched:
        patched.setattr(journal.Writer, "append", refuse)
        patched.setattr(journal.Writer, "__init__", refuse)
        report = back()
    assert read(host / BACKLOG) == "1000"
    assert report.exit_code == ExitCode.FAILED and "Read-only file system" in report.problems[0]
    assert back().exit_code == ExitCode.DONE


@pytest.mark.parametrize("kind", [TypeError, MemoryError, RecursionError, SystemExit, KeyboardInterrupt])
def test_any_exception_takes_everything_back(
    host: Path, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    plain = journal.Writer.append

    def failing(self: journal.Writer, *args: object, **values: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise kind("out of the blue")
        plain(self, *args, **values)  # type: ignore[arg-type]

    monkeypatch.setattr(journal.Writer, "append", failing)
    with pytest.raises(FabtuneError, match="everything written was taken back"):
        write(host, "a", {"net.netdev_max_backlog": 2000, "net.rmem_max": 4194304})
    assert calls > 4 and read(host / BACKLOG) == "1000" and read(host / "proc/sys/net/core/rmem_max") == "212992"


def test_a_backend_that_raises_keeps_no_other_value_from_going_back(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fabtune import backends

    write(host, "a", {"net.netdev_max_backlog": 2000, "block.rq_affinity": 2})
    with monkeypatch.context() as patched:
        patched.setattr(backends.get("attribute"), "read", lambda *_: 1 / 0)
        report = back()
    assert sorted(states(report)) == ["failed", "restored"]
    assert read(host / BACKLOG) == "1000"
    assert states(back()) == ["restored"]


def test_a_stderr_that_fails_stops_nothing(host: Path) -> None:
    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    profile = host / "a.toml"
    profile.write_text('summary = "x"\n[initiator."net.netdev_max_backlog"]\nvalue = 2000\nwhy = "x"\n')
    with journal.locked():
        loaded = load_profile(str(profile), shipped_catalog())
        plan = make_plan(loaded, BOTH, collect(tunables_of(loaded)), None, {})
        assert len(apply(plan, collect([]).host, Leave(), full).written) == 1
    undo(None, None, None, "", False, Leave(), full)
    assert read(host / BACKLOG) == "1000"


@pytest.mark.parametrize("spoil", ["directory", "journal", "file", "link", "lock"])
def test_a_journal_that_others_could_have_written_is_refused(host: Path, spoil: str) -> None:
    backlog(host, "a", 2000)
    state = host / "state"
    path = next((state / "journal").iterdir())
    victim = host / "victim"
    victim.write_text("precious")
    if spoil in ("directory", "journal"):
        (state if spoil == "directory" else state / "journal").chmod(0o777)
    elif spoil == "file":
        path.chmod(0o666)
    elif spoil == "link":
        path.rename(host / "elsewhere")
        path.symlink_to(host / "elsewhere")
    else:
        (state / "lock").unlink()
        (state / "lock").symlink_to(victim)
    if spoil in ("file", "link"):
        report = back()
        assert report.exit_code == ExitCode.FAILED and str(path) in report.problems[0]
    else:
        with pytest.raises(FabtuneError, match="state directory"):
            back()
    assert victim.read_text() == "precious"
    assert read(host / BACKLOG) == "2000"


@pytest.mark.parametrize(
    ("field", "forged"),
    [("key", "../../../../victim"), ("key", "net.ipv4.ip_forward"), ("backend", "attribute"), ("backend", "conf")],
)
def test_a_forged_step_writes_nothing(host: Path, field: str, forged: str) -> None:
    backlog(host, "a", 2000)
    victim = host / "victim"
    victim.write_text("2000\n")
    hosttree.put(host / "proc/sys/net/ipv4/ip_forward", "2000")
    path = next((host / "state/journal").iterdir())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "write":
            line[field] = forged
            if field == "key" and "victim" in forged:
                line |= {"backend": "attribute", "device": {"scope": "block", "label": "x", "identity": _disk()}}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert states(back()) == ["failed"]
    assert read(victim) == "2000" and read(host / "proc/sys/net/ipv4/ip_forward") == "2000"


def _disk() -> str:
    return f"naa.6001405{1:09},{hosttree.iqn(1)},10.2.0.1:3260,default"


def test_an_attribute_never_leads_out_of_its_device(host: Path) -> None:
    from fabtune import backends
    from fabtune.model.device import Device

    disk = host / "sys/block/sd1"
    (disk / "out").symlink_to(host / "proc/sys")
    device = Device("block", "x", "sd1", {"directory": str(disk)})
    for key in ("../../../proc/sys/net/core/netdev_max_backlog", "/etc/passwd", "out/net/core/netdev_max_backlog"):
        with pytest.raises(FabtuneError, match="left alone"):
            backends.get("attribute").write(device, key, "1")
    # A file's own link counts as much as one on the way, as do dots in what a journal calls the device's directory.
    (disk / "queue/away").symlink_to(host / BACKLOG)
    outside = Device("block", "x", "sd1", {"directory": f"{disk}/../../../proc/sys/net/core"})
    for where, key in ((device, "queue/away"), (outside, "netdev_max_backlog"), (device, "out/net/core/wmem_max")):
        with pytest.raises(FabtuneError, match="left alone"):
            backends.get("attribute").read(where, key)
    assert (host / BACKLOG).exists() and read(host / BACKLOG) == "1000"


@pytest.mark.parametrize("newest", ["damaged", "link", "closed", "in force"])
def test_a_logout_is_read_back_whatever_the_newest_transaction_is(host: Path, newest: str) -> None:
    backlog(host, "a", 2000)
    (path,) = (host / "state/journal").iterdir()
    if newest == "damaged":
        path.write_text(path.read_text() + '{"kind": "wri\n')
    elif newest == "link":
        path.rename(host / "elsewhere")
        path.symlink_to(host / "elsewhere")
    elif newest == "closed":
        back()
    away = journal.Logout("3", "iqn.t,10.2.0.1:3260,default", "iqn.t", "10.2.0.1:3260", "default", "boot")
    with journal.locked(), relogin.journalled() as log:
        log(away)
        assert journal.owed_logins(journal.transactions(), "boot") == [away]
    assert journal.owed_logins(journal.transactions(), "boot") == [away]
    assert all(one.closed for one in journal.transactions() if one.profile == "relogin")


def test_a_value_that_another_write_moved_is_read_again_and_given_back(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog(host, "a", 2000)
    write(host, "b", {"net.netdev_max_backlog": 3000, "tcp.no_metrics_save": True})
    sysctl = backends.get("sysctl")
    real = sysctl.write
    moved: list[str] = []

    def moving(device: Device, key: str, value: str) -> None:
        real(device, key, value)
        # The kernel resets the one when the other is written, once.
        if "no_metrics" in key or "backlog" in key:
            other = host / ("proc/sys/net/ipv4/tcp_no_metrics_save" if "backlog" in key else BACKLOG)
            if not moved:
                moved.append(key)
            elif len(moved) == 1:
                moved.append(key)
                other.write_text("7\n")

    monkeypatch.setattr(sysctl, "write", moving)
    report = back("b")
    assert len(moved) == 2 and states(report) == ["restored", "restored"]
    assert read(host / BACKLOG) == "2000"
    assert read(host / "proc/sys/net/ipv4/tcp_no_metrics_save") == "0"


def test_transactions_stay_in_their_order_when_a_clock_that_was_set_back_brings_more_than_a_thousand_under_one_second(
    host: Path,
) -> None:
    old = read(host / BACKLOG)
    backlog(host, "a", 2000)
    (path,) = (host / "state/journal").iterdir()
    path.rename(path.with_name("29991231T235959Z-998.jsonl"))
    for number, name in enumerate("bcd"):
        backlog(host, name, 3000 + number)
    assert [one.profile for one in journal.transactions()] == list("abcd")
    assert [one.name[17:] for one in journal.transactions()] == ["998", "999", "999000", "999001"]
    for name, value in (("b", "3002"), ("d", "3001"), ("c", "2000"), ("a", old)):
        assert back(name).exit_code == ExitCode.DONE
        assert read(host / BACKLOG) == value


def test_an_srp_port_or_a_session_that_goes_while_it_is_looked_at_stops_nothing(host: Path) -> None:
    gone = host / "sys/class/srp_remote_ports/port-1:1"
    gone.parent.mkdir(parents=True)
    gone.symlink_to("../../devices/gone")
    backlog(host, "a", 2000)
    assert drifted() == []
    assert states(back()) == ["restored"]


AWAY = {
    "kind": "logout", "sid": "1", "identity": "t,10.2.0.1:3260,default", "target": "t", "portal": "10.2.0.1:3260",
    "interface": "default", "boot_id": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ({"roles": ["initiator", 3]}, {"kind": "applied"}, "roles"),
        ({"roles": [{}]}, {"kind": "applied"}, "roles"),
        ({}, {**AWAY, "sid": "x"}, "session id: found 'x'"),
        ({}, {"kind": "login", "sid": "1", "identity": "t,10.2.0.1:3260,default", "successor": "x"}, "session id"),
        *(
            ({}, {**AWAY, "kind": kind, "why": "x", "sid": sid}, "session id: found")
            for kind in ("logout", "login", "given-back", "path", "refused")
            for sid in ("x", "²", "-1", "", "9" * 5000)
        ),
    ],
    ids=range(29),
)
def test_a_line_that_nobody_could_act_on_is_damage(
    first: dict[str, object], second: dict[str, object], what: str, tmp_path: Path
) -> None:
    begin = {"kind": "begin", "version": 1, "roles": ["initiator"], "netns": "", "profile": "x", "boot_id": ""}
    data = "".join(json.dumps(line) + "\n" for line in ({**begin, **first}, second)).encode()
    assert what in parse(tmp_path / "x.jsonl", data).damage


OLD_FILES = {
    "etc/sysctl.d/90-fabtune.conf": ("net.core.netdev_max_backlog = 2000", "net.ipv4.tcp_rmem = 4096 131072 12000000"),
    "etc/udev/rules.d/99-fabtune.rules": (
        'ACTION=="add", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTR{device/wwid}=="naa.6001405000000001", '
        'ATTR{queue/rq_affinity}="2"',
    ),
}


def old_journal(host: Path) -> None:
    """Put the journal of two profiles in place, one taken back, as fabtune wrote it before its lines had classes."""
    (disk,) = (one for one in collect([]).sessions[0].luns)
    directory = host / "state/journal"
    directory.mkdir(mode=0o700, parents=True)
    directory.parent.chmod(0o700)
    for number in ("000", "001"):
        text = (Path(__file__).parent / f"data/journal-2-{number}.jsonl").read_text()
        text = text.replace("INSTANCE", str((host / "sys/block" / disk).stat().st_ino))
        hosttree.put(directory / f"20261122T080000Z-{number}.jsonl", text.rstrip("\n"))


def test_a_journal_of_the_earlier_lines_is_verified_and_taken_back(host: Path) -> None:
    rmem = host / "proc/sys/net/ipv4/tcp_rmem"
    before = read(rmem)
    old_journal(host)
    first, second = journal.transactions()
    assert (first.state, second.state) == ("taken back", "in force") and not second.damage
    (host / BACKLOG).write_text("2000\n")
    rmem.write_text("4096\t131072\t12000000\n")
    (host / "sys/block/sd1/queue/rq_affinity").write_text("2\n")
    for name, text in OLD_FILES.items():
        hosttree.put(host / name, "\n".join((HEADER, *text)))
    assert drifted() == []
    (host / BACKLOG).write_text("7\n")
    assert [one.tunable for one in drifted()] == ["net.netdev_max_backlog"]
    (host / BACKLOG).write_text("2000\n")
    report = back()
    assert report.exit_code == ExitCode.DONE and set(states(report)) == {"restored"}
    assert [one.state for one in journal.transactions()] == ["taken back"] * 2
    assert (read(host / BACKLOG), read(rmem)) == ("1000", before)
    assert read(host / "sys/block/sd1/queue/rq_affinity") == "1"
    assert not any((host / name).exists() for name in OLD_FILES)


@pytest.mark.parametrize(
    ("key", "odd", "blocks"),
    [
        ("rtt_ms", math.nan, False), ("rtt_ms", "far", False), ("rate_bit_per_s", {}, False), ("boot_id", None, False),
        ("transaction", 5, False), ("time", [], False), ("kernel", False, False), ("fabtune", 0.1, False),
        ("version", 2, True), ("roles", None, True), ("netns", None, True), ("profile", None, True),
    ],
)  # fmt: skip
def test_only_what_revert_needs_of_the_first_line_keeps_values_from_going_back(
    host: Path, key: str, odd: object, blocks: bool
) -> None:
    backlog(host, "a", 2000)
    (path,) = (host / "state/journal").iterdir()
    first, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps(json.loads(first) | {key: odd}) + "\n" + rest)
    (transaction,) = journal.transactions()
    assert bool(transaction.damage) == blocks and (not blocks or key in transaction.damage)
    assert blocks or not getattr(transaction.header, key)
    back()
    assert read(host / BACKLOG) == ("2000" if blocks else "1000")


def test_a_command_reads_each_line_once_and_what_was_added_since_is_seen(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year of transactions was read a dozen times by each command: seconds each."""
    for name, value in (("first", 2000), ("second", 3000)):
        backlog(host, name, value)
    asked: list[str] = []
    as_before = lines.read

    def read(raw: bytes, where: str) -> lines.Line:
        asked.append(where)
        return as_before(raw, where)

    monkeypatch.setattr(lines, "read", read)
    one, other = journal.transactions()
    journal.transactions()
    assert len(asked) == len(set(asked)) <= sum(len(path.path.read_text().splitlines()) for path in (one, other))
    # What is made of one answer is not in the next.
    other.steps.clear()
    other.closed = True
    assert [one.closed for one in journal.transactions()] == [False, False] and journal.transactions()[1].steps
    assert not back("second").problems
    assert [one.closed for one in journal.transactions()] == [False, True]
    # An editor that replaces a file leaves another one, of the same length perhaps.
    text = one.path.read_text()
    one.path.unlink()
    one.path.write_text(text.replace('"first"', '"third"'))
    one.path.chmod(0o600)
    assert [one.profile for one in journal.transactions()] == ["third", "second"]
    other.path.unlink()
    assert len(journal.transactions()) == 1


def test_each_kind_of_line_is_read_as_it_was_written() -> None:
    device = DeviceField("netns", "netns:init", "host")
    for kind in typing.get_args(lines.Line):
        words = {
            "device": device,
            "backend": "sysctl",
            "sid": "1",
            "successor": "2",
            "version": 1,
            "step": 1,
            "rounds": True,
            "until_s": 60.5,
            "within_s": 60.0,
            "reconnect": True,
            "relogin": False,
        }
        wanted = {one.name: words.get(one.name, "x") for one in attrs.fields(kind) if one.default is attrs.NOTHING}
        line = kind(**wanted | ({"roles": ("target",)} if kind is lines.BeginLine else {}))
        assert lines.read(lines.text(line).encode(), "here") == line
