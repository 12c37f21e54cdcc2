# SPDX-License-Identifier: GPL-2.0-or-later
"""What `fabtune revert --dry-run` says is what the revert after it does, and it writes nothing."""

import hashlib
import json
import os
import shlex
from pathlib import Path
from typing import Any

import hosttree
import pytest
import test_came_by_itself as came_by_itself
import test_moved_beside as moved_beside
import test_other_identity as other_identity
from profiles import write
from revert_scenarios import (
    BACKLOG,
    DISK,
    ONE,
    SCENARIOS,
    TWO,
    Scenario,
    beside_a_scheduler_by_hand,
    held,
    profiles,
    shared_files,
)  # fmt: skip
from test_held_depth import Initiator, apply_short_queue
from test_held_depth import host as initiator

from fabtune import backends
from fabtune.backends import record
from fabtune.cli.main import main
from fabtune.errors import ExitCode
from fabtune.host import tree
from fabtune.tune import journal
from fabtune.tune.lines import LoginLine
from fabtune.tune.would_revert import UNTOLD

__all__ = ["initiator"]
Said = dict[str, Any]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the tree of a host with two sessions and a target; what a disk may be written is as it was written."""
    root = hosttree.make(tmp_path / "root", 2, 1)
    hosttree.enter(root, monkeypatch)
    hosttree.put(root / "sys/block/sd1/queue/scheduler", "[none] mq-deadline")
    (root / "etc").mkdir()
    profiles(tmp_path)
    return root


def everything(root: Path) -> str:
    """Return a digest of every file and directory below `root`: names, modes, times of writing, contents."""
    found = hashlib.sha256()
    for path in sorted([root, *root.rglob("*")]):
        there = path.lstat()
        found.update(f"{path} {there.st_mode} {there.st_mtime_ns} {there.st_ino}".encode())
        found.update(str(path.readlink()).encode() if path.is_symlink() else b"")
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


def asked(host: Path, capsys: Capture, *words: str) -> Said:
    """Return what a dry run says in JSON, which leaves each byte of the host and of the journal as it was."""
    capsys.readouterr()
    record.BACKEND.forget()
    before = everything(host)
    assert main(["revert", *words, "--dry-run", "--json"]) == ExitCode.DONE
    assert everything(host) == before
    said: Said = json.loads(capsys.readouterr().out)
    return said


def done(capsys: Capture, *words: str) -> Said:
    """Revert, and return what that says in JSON."""
    capsys.readouterr()
    main(["revert", *words, "--json"])
    said: Said = json.loads(capsys.readouterr().out)
    return said


def shown(capsys: Capture, *words: str) -> str:
    capsys.readouterr()
    assert main(["revert", *words, "--dry-run"]) == ExitCode.DONE
    return capsys.readouterr().out


def states(said: Said) -> list[tuple[str, str]]:
    return [(one["tunable"], one["state"]) for one in said["steps"]]


def test_a_value_that_would_go_back_is_shown_with_what_it_is_and_was(host: Path, capsys: Capture) -> None:
    write(host, "one", ONE)
    (one,) = asked(host, capsys)["steps"]
    assert (one["tunable"], one["device"], one["found"], one["old"], one["state"]) == (
        "net.netdev_max_backlog", "host", "2000", "1000", "restored",
    )  # fmt: skip
    (transaction,) = journal.transactions()
    assert one["transaction"] == transaction.name and transaction.state == "in force"
    text = shown(capsys)
    assert f"transaction {transaction.name} (one)" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("net.netdev_max_backlog")]
    assert row == ["net.netdev_max_backlog", "host", "2000", "1000", "to", "go", "back"]
    assert "1 to go back" in text and "nothing was written" in text
    assert tree.read_text(host / BACKLOG) == "2000"


def test_of_two_transactions_the_older_finds_what_the_newer_gives_back(host: Path, capsys: Capture) -> None:
    write(host, "one", ONE)
    write(host, "two", TWO)
    said = asked(host, capsys)["steps"]
    assert [(one["found"], one["old"], one["state"]) for one in said] == [
        ("3000", "2000", "restored"), ("2000", "1000", "restored"),
    ]  # fmt: skip
    names = [one.name for one in journal.transactions()]
    assert [one["transaction"] for one in said] == names[::-1]
    text = shown(capsys)
    assert text.index(names[1]) < text.index(names[0]) and "2 to go back" in text


def test_a_value_that_another_profile_still_wants_is_passed_on(host: Path, capsys: Capture) -> None:
    write(host, "one", ONE)
    write(host, "two", TWO)
    (one,) = asked(host, capsys, "one")["steps"]
    assert (one["state"], one["found"]) == ("passed-on", "3000")
    assert one["note"].startswith("stays: profile two (")
    assert "1 passed on" in shown(capsys, "one")
    (newest,) = asked(host, capsys, "--transaction", journal.transactions()[1].name)["steps"]
    assert (newest["state"], newest["old"]) == ("restored", "2000")


@pytest.mark.parametrize(("words", "state"), [((), "foreign"), (("--force",), "restored")])
def test_what_somebody_else_has_changed_would_stay_but_with_force(
    host: Path, capsys: Capture, words: tuple[str, ...], state: str
) -> None:
    write(host, "one", ONE)
    hosttree.put(host / BACKLOG, "7")
    (one,) = asked(host, capsys, *words)["steps"]
    assert (one["found"], one["state"]) == ("7", state)
    text = shown(capsys, *words)
    assert ("exit code 3" in text) == (state == "foreign")
    assert ("--force overrides" in text) == (state == "foreign")
    assert tree.read_text(host / BACKLOG) == "7"


@pytest.mark.parametrize(("words", "state"), [((), "held"), (("--end-sessions",), "restored")])
def test_what_would_end_sessions_waits_for_leave(
    host: Path, capsys: Capture, words: tuple[str, ...], state: str
) -> None:
    depth = held(host)
    (one,) = asked(host, capsys, *words)["steps"]
    assert one["state"] == state and ("--end-sessions" in one["note"]) == (state == "held")
    assert tree.read_text(depth) == "128"
    assert ("exit code 4" in shown(capsys, *words)) == (state == "held")


def test_with_nothing_applied_that_is_said_and_nothing_made(host: Path, capsys: Capture) -> None:
    said = asked(host, capsys)
    assert said["steps"] == [] and said["pending"] == [] and said["problems"] == []
    assert shown(capsys).splitlines() == ["nothing to take back"]
    assert not (host / "state").exists()


def test_json_has_the_keys_of_a_revert_and_says_what_it_is(host: Path, capsys: Capture) -> None:
    write(host, "one", ONE)
    said = asked(host, capsys)
    real = done(capsys)
    assert said["dry_run"] is True and "dry_run" not in real
    assert {"steps", "pending", "problems"} <= said.keys() & real.keys()
    (one,), (other,) = said["steps"], real["steps"]
    assert one.keys() - {"transaction"} == other.keys()
    assert {key: one[key] for key in other} == other


def test_sessions_that_would_be_due_are_named_with_what_a_reconnect_would_do(host: Path, capsys: Capture) -> None:
    write(host, "one", {"iscsi.queue_depth": 64, "iscsi.cmds_max": 256, "tcp.mtu_probing": 1})
    # They have logged in with it since.
    for kind in ("iscsi_session/session{}", "iscsi_connection/connection{}:0"):
        for number in (1, 2):
            (host / "sys/class" / kind.format(number)).rename(host / "sys/class" / kind.format(number + 6))
    said = asked(host, capsys)
    assert {one["action"] for one in said["pending"]} == {"reconnect", "relogin"}
    # No iscsid runs in this tree.
    why_not = "no iscsid runs that could make connections anew"
    assert said["reconnect"] == {"sessions": 2, "pause_s": 5.2, "why_not": why_not}
    text = shown(capsys)
    assert "due afterwards: " in text and f"--reconnect is not possible here: {why_not}" in text
    assert done(capsys)["pending"] == said["pending"]


def test_a_session_that_an_earlier_run_left_logged_out_is_said_to_be_logged_in(host: Path, capsys: Capture) -> None:
    write(host, "one", ONE)
    identity = f"{hosttree.iqn(2)},10.2.0.2:3260,default"
    boot = hosttree.SYSCTLS["kernel/random/boot_id"]
    other_identity.log_out(host, 2)
    writer = journal.Writer(journal.transactions()[0].path)
    writer.append(journal.Logout("2", identity, hosttree.iqn(2), "10.2.0.2:3260", "default", boot))
    (text,) = asked(host, capsys)["beside"]
    assert hosttree.iqn(2) in text and UNTOLD in text
    assert UNTOLD in shown(capsys) and "exit code" not in shown(capsys)
    writer.append(LoginLine("2", identity))
    writer.close()
    assert asked(host, capsys)["beside"] == []


def test_a_journal_with_a_damaged_line_is_named_and_its_first_lines_are_shown(host: Path, capsys: Capture) -> None:
    write(host, "one", ONE | {"tcp.mtu_probing": 1})
    (path,) = (host / "state/journal").iterdir()
    path.write_text(path.read_text().replace('"step": 2', '"step": 3', 1))
    said = asked(host, capsys)
    assert str(path) in said["problems"][0] and len(said["steps"]) == 1
    assert said["problems"] == done(capsys)["problems"]


def test_another_fabtune_at_work_is_said_and_not_waited_for(host: Path, capsys: Capture) -> None:
    write(host, "one", ONE)
    with journal.locked():
        assert main(["revert", "--dry-run"]) == ExitCode.DONE
    captured = capsys.readouterr()
    assert "1 to go back" in captured.out
    assert f"another fabtune (process {os.getpid()}) is changing this host" in captured.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--dry-run --unconfirmed", "it cannot be combined with --dry-run"),
        ("--dry-run --unconfirmed=once", "it cannot be combined with --dry-run"),
        ("--dry-run --reconnect", "it cannot be combined with --reconnect"),
        ("--dry-run --allow-relogin", "it cannot be combined with --allow-relogin"),
    ],
)
def test_what_makes_no_sense_with_it_is_refused(host: Path, capsys: Capture, line: str, says: str) -> None:
    write(host, "one", ONE)
    before = everything(host)
    assert main(["revert", *shlex.split(line)]) == ExitCode.USAGE
    assert says in capsys.readouterr().err and everything(host) == before


@pytest.mark.parametrize("words", [["nosuch"], ["--transaction", "nosuch"], ["--netns", "nosuch"]])
def test_what_is_not_known_is_refused_as_by_a_revert(host: Path, capsys: Capture, words: list[str]) -> None:
    write(host, "one", ONE)
    capsys.readouterr()
    found = []
    for more in ((), ("--dry-run",)):
        assert main(["revert", *words, *more]) == ExitCode.USAGE
        found.append(capsys.readouterr().err)
    assert found[0] == found[1]


def test_a_file_that_goes_back_and_an_initramfs_that_holds_it_are_told(host: Path, capsys: Capture) -> None:
    (host / "etc/sysctl.d").mkdir()
    came_by_itself.apply(host, "one", "--persist")
    hosttree.put(host / "boot/initramfs-6.12.0-55.el10.x86_64.img", "cpio")
    said = asked(host, capsys)
    assert [one["action"] for one in said["pending"]] == ["initramfs"]
    assert done(capsys)["pending"] == said["pending"]
    assert not list((host / "etc/sysctl.d").iterdir())


def test_what_the_kernel_may_move_beside_a_write_is_not_foretold(
    host: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved_beside.resets_requests(host, monkeypatch, none="64", mq_deadline="256")
    assert moved_beside.apply(host) == 0
    notes = {one["tunable"]: one["note"] for one in asked(host, capsys)["steps"]}
    assert UNTOLD in notes["block.nr_requests"] and "block.scheduler" in notes["block.nr_requests"]
    assert notes["block.scheduler"] == ""


@pytest.mark.parametrize("state", ["LOGGED_IN", "FAILED"])
def test_a_depth_that_a_killed_reconnect_holds_short_is_nobody_elses(
    initiator: Initiator, capsys: Capture, state: str
) -> None:
    apply_short_queue()
    initiator.killed_while_held(3, was=11)
    initiator.becomes(state)
    said = asked(tree.ROOT, capsys)
    (one,) = said["steps"]
    assert (one["found"], one["state"]) == ("11", "restored" if state == "LOGGED_IN" else "waiting")
    assert len(said["beside"]) == 1 and "was 11 before a new connection, and is 3" in said["beside"][0]
    assert initiator.depth == "3"
    assert [one["state"] for one in done(capsys)["steps"]] == [one["state"]]


def told(said: Said, known: list[bool]) -> list[tuple[str, ...]]:
    """Return what a run said of each value that is `known` before; of one that is passed on a revert reads nothing."""
    keys = ("tunable", "identity", "old", "wrote", "state", "note")
    return [
        (*(one[key] for key in keys), "" if one["state"] in ("passed-on", "already") else one["found"])
        for one, tells in zip(said["steps"], known, strict=True)
        if tells
    ]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: str(one.__name__).strip("_"))
def test_the_revert_that_follows_does_what_was_said(
    scenario: Scenario, host: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = scenario(host, monkeypatch)
    said = asked(host, capsys, *words)
    assert said["steps"] and asked(host, capsys, *words) == said
    real = done(capsys, *words)
    known = [UNTOLD not in one["note"] for one in said["steps"]]
    assert any(known) and told(said, known) == told(real, known)
    assert (said["pending"], said["problems"]) == (real["pending"], real["problems"])


def test_nothing_that_a_dry_run_does_reaches_a_backend(
    host: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the same bytes are written once more, nor what somebody has moved meanwhile."""
    shared_files(host, monkeypatch)
    beside_a_scheduler_by_hand(host, monkeypatch)
    write(host, "one", {"iscsi.cmds_max": 256, **ONE, **DISK})

    def refuse(*words: object) -> None:
        raise AssertionError(words)

    with monkeypatch.context() as patched:
        for name in backends.NAMES:
            patched.setattr(backends.get(name), "write", refuse)
        for words in ((), ("one",), ("a",), ("--force", "--end-sessions")):
            asked(host, capsys, *words)
    assert {one["state"] for one in asked(host, capsys)["steps"]} >= {"restored"}
