# SPDX-License-Identifier: GPL-2.0-or-later
"""Apply, journal and revert on a copied host tree; the same against real kernels is in tests/vm."""

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import hosttree
import pytest
from length import FULL
from processes import in_child

from fabtune import backends
from fabtune.backends import record
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError, UnsupportedError
from fabtune.facts.collect import collect
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune import journal
from fabtune.tune.apply import Result, apply
from fabtune.tune.lines import LoginLine
from fabtune.tune.pending import Leave
from fabtune.tune.plan import Plan, make_plan, tunables_of
from fabtune.tune.undo import Report, undo
from fabtune.tune.verify import verify

BOTH = ("initiator", "target")
# Every step of an apply is one to be killed at; the short run takes each fourth, which come to be of every kind.
STRIDE = 1 if FULL else 4


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = hosttree.make(tmp_path / "host", 1, 1)
    hosttree.enter(root, monkeypatch)
    return root


def plan_wan() -> Plan:
    record.BACKEND.forget()
    profile = load_profile("wan", shipped_catalog())
    return make_plan(profile, BOTH, collect(tunables_of(profile)), NetworkPath(0.05, 125e6), {})


def run_apply() -> Result:
    with journal.locked():
        plan = plan_wan()
        return apply(plan, collect([]).host, Leave(), lambda _: None)


def _actions(done: Result | Report) -> list[str]:
    return sorted(one.action for one in done.pending)


def run_revert(force: bool = False) -> Report:
    record.BACKEND.forget()
    return undo(None, None, None, "", force, Leave(), lambda _: None)


def values(root: Path) -> dict[str, str]:
    """Return every file of the host but fabtune's own state, fields of vectors without their spacing."""
    files = [path for top in ("proc", "sys", "records") for path in (root / top).rglob("*") if path.is_file()]
    return {str(path): path.read_text().replace("\t", " ").strip() for path in files}


def test_revert_gives_every_value_back(host: Path) -> None:
    before = values(host)
    result = run_apply()
    changed = {name for name, value in values(host).items() if before[name] != value}
    assert len(result.written) > 14 and len(changed) > 8
    assert {outcome.state for outcome in run_revert().outcomes} == {"restored"}
    assert values(host) == before


def test_a_second_apply_changes_nothing(host: Path) -> None:
    run_apply()
    between = values(host)
    assert run_apply().written == []
    assert values(host) == between
    assert len(journal.transactions()) == 1


@pytest.mark.parametrize("words", [["--transaction", ""], [""]])
def test_an_empty_word_takes_nothing_back(host: Path, words: list[str]) -> None:
    """A script's variable that was empty: `fabtune revert --transaction "$id"`."""
    run_apply()
    assert main(["revert", *words]) == ExitCode.USAGE
    assert [one.state for one in journal.transactions()] == ["in force"]


def test_revert_after_a_kill_at_every_step(host: Path) -> None:
    before = values(host)
    step, status = 1 - STRIDE, -signal.SIGKILL
    while status == -signal.SIGKILL:
        step += STRIDE
        status = in_child(run_apply, f"kill:{step}")
        run_revert()
        assert values(host) == before, f"kill at step {step}"
        if step % 3 == 0:
            # Every third step is one that is about to write a line of the journal.
            in_child(run_apply, f"torn:{step}")
            run_revert()
            assert values(host) == before, f"torn at step {step}"
    assert status == 0 and step > 50


def test_revert_after_a_killed_revert(host: Path) -> None:
    before = values(host)
    for step in range(1, 60, 7):
        run_apply()
        in_child(run_revert, f"kill:{step}")
        run_revert()
        assert values(host) == before, f"revert killed at step {step}"


@pytest.mark.parametrize(("kind", "status"), [("interrupt", ExitCode.INTERRUPTED), ("full", ExitCode.FAILED)])
def test_ctrl_c_and_a_full_disk_take_everything_back(host: Path, kind: str, status: int) -> None:
    before = values(host)
    for step in range(3, 50, 9):
        assert in_child(run_apply, f"{kind}:{step}") == status, f"{kind} at step {step}"
        assert values(host) == before, f"{kind} at step {step}"


def test_what_somebody_else_changed_stays_and_is_reported(host: Path) -> None:
    run_apply()
    changed = host / "proc/sys/net/ipv4/tcp_slow_start_after_idle"
    changed.write_text("7\n")
    hosttree.put(host / "etc/sysctl.d/99-mine.conf", "net.ipv4.tcp_slow_start_after_idle = 7")
    drifts = [drift for drift in verify(None, BOTH, "") if drift.drifted]
    assert [drift.tunable for drift in drifts] == ["tcp.slow_start_after_idle"]
    assert "99-mine.conf sets 7" in drifts[0].note
    report = run_revert()
    foreign = [outcome.step.tunable for outcome in report.outcomes if outcome.state == "foreign"]
    assert foreign == ["tcp.slow_start_after_idle"]
    assert changed.read_text() == "7\n"
    assert report.exit_code == ExitCode.DRIFT
    forced = run_revert(force=True)
    assert changed.read_text().strip() == "1"
    # The session is still the one that logged in before.
    assert forced.exit_code == ExitCode.NEEDS_ACTION and _actions(forced) == ["reconnect"]


def test_a_record_of_which_nothing_can_be_told_is_given_up_with_force(host: Path) -> None:
    run_apply()
    hosttree.put(host / f"etc/iscsi/nodes/{hosttree.iqn(1)}/10.2.0.1,3260,1/default", "")
    (host / "records" / hosttree.iqn(1)).unlink()
    report = run_revert()
    assert report.exit_code == ExitCode.FAILED
    assert {one.step.device.scope for one in report.outcomes if one.state == "failed"} == {"record"}
    forced = run_revert(force=True)
    assert {one.state for one in forced.outcomes} == {"gone"} and "cannot tell" in forced.outcomes[0].note
    assert not any(one.open_steps for one in journal.transactions())


def test_a_session_that_never_had_the_new_values_owes_no_login(host: Path) -> None:
    file = host / "queue.toml"

    def log_in_anew(old: int, new: int) -> None:
        for name in ("iscsi_session/session{}", "iscsi_connection/connection{}:0"):
            (host / "sys/class" / name.format(old)).rename(host / "sys/class" / name.format(new))

    def write(depth: int) -> Result:
        file.write_text(f'summary = "x"\n[initiator."iscsi.queue_depth"]\nvalue = {depth}\nwhy = "x"\n')
        profile = load_profile(str(file), shipped_catalog())
        record.BACKEND.forget()
        with journal.locked():
            plan = make_plan(profile, BOTH, collect(tunables_of(profile)), None, {})
            return apply(plan, collect([]).host, Leave(), lambda _: None)

    assert [one.sid for one in write(64).pending] == ["1"]
    assert [drift.due for drift in verify(None, ("initiator",), "") if drift.due] == [True]
    assert not any(drift.due for drift in verify(None, ("target",), ""))
    assert run_revert().exit_code == ExitCode.DONE
    assert verify(None, BOTH, "") == []
    # Logged in anew between the two, it has the first one's value when both are taken back, whichever goes first.
    for newest_first in (True, False):
        write(64)
        log_in_anew(1, 7)
        write(128)
        if not newest_first:
            undo(None, journal.transactions()[-2].name, None, "", False, Leave(), lambda _: None)
        report = run_revert()
        assert report.exit_code == ExitCode.NEEDS_ACTION and [one.sid for one in report.pending] == ["7"]
        log_in_anew(7, 1)


def test_after_a_reboot_there_is_nothing_left_but_records(host: Path) -> None:
    before = values(host)
    run_apply()
    for name, value in before.items():
        if "/records/" not in name:
            Path(name).write_text(value + "\n")
    states = {outcome.step.device.scope: outcome.state for outcome in run_revert().outcomes}
    assert states["netns"] == "already"
    assert states["record"] == "restored"
    assert values(host) == before


def test_a_session_that_kept_its_old_values_is_listed_until_it_is_new(host: Path) -> None:
    assert _actions(run_apply()) == ["reconnect", "relogin"]
    assert run_apply().exit_code == ExitCode.NEEDS_ACTION
    (host / "sys/class/iscsi_session/session1").rename(host / "sys/class/iscsi_session/session7")
    assert run_apply().exit_code == ExitCode.DONE


def test_a_session_that_kept_the_new_values_is_listed_until_it_is_new(host: Path) -> None:
    run_apply()
    assert run_revert().exit_code == ExitCode.NEEDS_ACTION
    again = run_revert()
    assert not again.outcomes
    assert _actions(again) == ["reconnect"]
    (host / "sys/class/iscsi_session/session1").rename(host / "sys/class/iscsi_session/session7")
    assert run_revert().exit_code == ExitCode.DONE


def test_two_at_once_are_refused(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_LOCK_WAIT_S", 0.1)
    with journal.locked(), pytest.raises(FabtuneError, match=f"process {os.getpid()}"), journal.locked():
        pass


def test_a_tool_left_behind_by_a_kill_is_waited_for(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """iscsiadm still writes its record when fabtune is killed; revert must not read it before."""
    tool = host / "bin/iscsiadm"
    tool.write_text(tool.read_text().replace("= update ]; then", "= update ]; then sleep 0.5"))
    before = values(host)
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(backends.get("record"), "write", _killed_while_writing(backends.get("record").write))
        run_apply()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    run_revert()
    assert values(host) == before
    time.sleep(0.6)
    assert values(host) == before


def _killed_while_writing(write: Callable[[Device, str, str], None]) -> Callable[[Device, str, str], None]:
    """Start the write, and kill this process while the tool is at it."""

    def killed(device: Device, key: str, value: str) -> None:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        write(device, key, value)

    return killed


def test_the_journal_outlives_a_renamed_tunable(host: Path) -> None:
    before = values(host)
    run_apply()
    for path in (host / "state/journal").iterdir():
        path.write_text(path.read_text().replace('"tcp.rmem_max"', '"tcp.gone"'))
    run_revert()
    assert values(host) == before


def test_secrets_reach_no_journal(host: Path) -> None:
    run_apply()
    text = "".join(path.read_text() for path in (host / "state").rglob("*") if path.is_file())
    assert "do-not-tell" not in text and "window_size" in text


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"kind": "write"', '"kind": "wrote"', "unknown kind 'wrote'"),
        ('"step": 3', '"step": 4', "step 4, expected 3"),
        ('"backend": "sysctl"', '"backend": "shell"', "unknown backend 'shell'"),
        ('"scope": "netns"', '"scope": "everything"', "device needs a known scope"),
        ('"version": 1', '"version": 2', "version 2, this fabtune reads 1"),
        ('"old": "', '"old": 5, "x": "', "key 'old': found 5"),
        ('{"kind": "begin"', '{"kind": "applied"', "the first line"),
        ("{", "", "damaged"),
    ],
)
def test_a_damaged_line_sets_its_own_transaction_apart_and_no_other(
    host: Path, old: str, new: str, problem: str
) -> None:
    before = values(host)
    run_apply()
    path = next((host / "state/journal").iterdir())
    text = path.read_text().replace(old, new, 1)
    path.write_text(text)
    other = host / "proc/sys/net/core/netdev_max_backlog"
    apply_text(host, '[target."net.netdev_max_backlog"]\nvalue = 5000\nwhy = "x"\n')
    assert other.read_text().strip() == "5000"
    report = run_revert()
    assert report.exit_code == ExitCode.FAILED
    assert any(problem in one and str(path) in one for one in report.problems)
    assert any(problem in drift.note for drift in verify(None, BOTH, ""))
    # The other transaction is back, the damaged one as far as it can be read, and its file is as it was.
    assert other.read_text().strip() == before[str(other)]
    assert path.read_text() == text
    path.unlink()
    assert run_revert().outcomes == []


def test_each_write_is_in_the_journal_before_it_happens(host: Path) -> None:
    in_child(run_apply, "kill:4")
    lines = [json.loads(line) for line in next((host / "state/journal").iterdir()).read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["begin", "write"]
    assert lines[1]["old"] != lines[1]["wrote"]
    assert lines[1]["boot_id"] == hosttree.SYSCTLS["kernel/random/boot_id"]


SCHEDULER = """summary = "x"
[initiator."block.scheduler"]
value = "none"
why = "x"
"""


def test_what_a_write_moves_besides_itself_comes_back_too(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changing the scheduler resets nr_requests, as the block layer does; an own value of it must return."""
    queue = host / "sys/block/sd1/queue"
    backend = backends.get("attribute")
    plain = backend.write

    def like_the_kernel(device: Device, key: str, value: str) -> None:
        plain(device, key, value)
        if key == "queue/scheduler":
            (queue / "nr_requests").write_text({"none": "113\n"}.get(value, "226\n"))

    monkeypatch.setattr(backend, "write", like_the_kernel)
    before = values(host)
    profile = tmp_path / "mine.toml"
    profile.write_text(SCHEDULER)
    with journal.locked():
        loaded = load_profile(str(profile), shipped_catalog())
        plan = make_plan(loaded, BOTH, collect(tunables_of(loaded)), None, {})
        apply(plan, collect([]).host, Leave(), lambda _: None)
    assert [(queue / one).read_text() for one in ("scheduler", "nr_requests")] == ["none", "128"]
    assert run_revert().exit_code == ExitCode.DONE
    (queue / "scheduler").write_text("none [mq-deadline]\n")
    assert values(host) == before


def test_what_a_driver_refuses_is_said_and_not_watched(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backends.get("attribute")

    def refusing(device: Device, key: str, value: str) -> None:
        raise UnsupportedError(f"{device.label}: refuses {key}={value}")

    monkeypatch.setattr(backend, "write", refusing)
    profile = tmp_path / "mine.toml"
    profile.write_text(SCHEDULER)
    with journal.locked():
        loaded = load_profile(str(profile), shipped_catalog())
        plan = make_plan(loaded, BOTH, collect(tunables_of(loaded)), None, {})
        result = apply(plan, collect([]).host, Leave(), lambda _: None)
    assert [why for _, why in result.refused] == ["sd1: refuses queue/scheduler=none"]
    assert verify(None, BOTH, "") == []
    assert run_revert().outcomes == []


def test_a_write_that_ends_sessions_waits_for_leave_both_ways(host: Path) -> None:
    acl = host / f"sys/kernel/config/target/iscsi/{hosttree.iqn(1)}/tpgt_1/acls/iqn.i"
    hosttree.put(acl / "cmdsn_depth", "64")
    hosttree.put(acl / "info", "InitiatorName: iqn.i\nLIO Session ID: 1   SessionType: Normal")
    profile = host / "depth.toml"
    profile.write_text('summary = "x"\n[target."lio.cmdsn_depth"]\nvalue = 128\nwhy = "x"\n')

    def run(allow: bool) -> Result:
        with journal.locked():
            loaded = load_profile(str(profile), shipped_catalog())
            made = make_plan(loaded, BOTH, collect(tunables_of(loaded)), None, {})
            return apply(made, collect([]).host, Leave(relogin=True, end_sessions=allow), lambda _: None)

    waiting = run(False)
    assert (acl / "cmdsn_depth").read_text().strip() == "64"
    assert waiting.exit_code == ExitCode.NEEDS_ACTION and waiting.pending[0].action == "leave"
    assert run(True).exit_code == ExitCode.DONE
    assert (acl / "cmdsn_depth").read_text().strip() == "128"
    held = run_revert()
    assert held.exit_code == ExitCode.NEEDS_ACTION and [str(one.state) for one in held.outcomes] == ["held"]
    assert (acl / "cmdsn_depth").read_text().strip() == "128"
    hosttree.put(acl / "info", "No active iSCSI Session for Initiator Endpoint: iqn.i")
    assert run_revert().exit_code == ExitCode.DONE
    assert (acl / "cmdsn_depth").read_text().strip() == "64"


def test_a_dead_writers_draft_does_not_stay(host: Path) -> None:
    draft = host / "etc/iscsi/.iscsid.conf.fabtune-draft"
    hosttree.put(draft, "node.session.auth.password = do-not-tell")
    with journal.locked():
        assert not draft.exists()


def apply_text(host: Path, rows: str) -> Result:
    """Apply a profile made of `rows`."""
    profile = host / "mine.toml"
    profile.write_text(f'summary = "x"\n{rows}')
    with journal.locked():
        loaded = load_profile(str(profile), shipped_catalog())
        plan = make_plan(loaded, BOTH, collect(tunables_of(loaded)), None, {})
        return apply(plan, collect([]).host, Leave(), lambda _: None)


DATA = Path(__file__).parent / "data"


def test_a_journal_of_an_earlier_version_is_read(host: Path) -> None:
    before = values(host)
    run_apply()
    (path,) = (host / "state/journal").iterdir()
    shutil.copy(DATA / "journal-1.jsonl", path)
    assert {outcome.state for outcome in run_revert().outcomes} == {"restored"}
    assert values(host) == before


def test_a_logout_without_its_login_is_owed(host: Path) -> None:
    run_apply()
    first, second = (
        journal.Logout(sid, f"iqn.t,10.2.0.1:3260,default#{sid}", "iqn.t", "10.2.0.1:3260", "default", "boot")
        for sid in ("1", "2")
    )
    writer = journal.Writer(journal.transactions()[0].path)
    writer.append(first)
    writer.append(second)
    writer.append(LoginLine("1", first.identity))
    writer.close()
    assert journal.owed_logins(journal.transactions(), "boot") == [second]
    assert journal.owed_logins(journal.transactions(), "another boot") == []
