# SPDX-License-Identifier: GPL-2.0-or-later
"""An apply that was killed half way, or is under way: what verify says of it, and how it is completed."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import hosttree
import pytest
from processes import in_child
from profiles import BOTH, write

from fabtune.backends import record
from fabtune.cli.main import main
from fabtune.errors import FabtuneError
from fabtune.host import tree
from fabtune.tune import journal
from fabtune.tune.pending import Leave
from fabtune.tune.undo import undo
from fabtune.tune.verify import Drift, verify

TWO: dict[str, object] = {"net.netdev_max_backlog": 4321, "tcp.slow_start_after_idle": False}
DEPTH = "node.session.queue_depth = 64"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = hosttree.make(tmp_path / "host", 1, 1)
    hosttree.enter(root, monkeypatch)
    return root


def killed(host: Path, rows: dict[str, object], step: int) -> bool:
    """Apply `rows` in a process that is killed at checkpoint `step`; tell whether it was."""
    return in_child(lambda: write(host, "some", rows), f"kill:{step}") == -signal.SIGKILL


def kills(host: Path, rows: dict[str, object]) -> Iterator[int]:
    """Yield each checkpoint of an apply of `rows` after it was killed there; what it wrote goes back after that."""
    step = 1
    while killed(host, rows, step):
        yield step
        undo(None, None, None, "", False, Leave(), lambda _: None)
        # What this revert left to do must not answer for the next kill.
        shutil.rmtree(journal.state_dir())
        step += 1
    assert step > 4


def said(host: Path) -> list[Drift]:
    record.BACKEND.forget()
    return [one for one in verify(None, BOTH, "") if one.due or one.drifted]


def test_an_apply_killed_at_any_step_is_said_and_a_second_one_completes_it(host: Path) -> None:
    done = 0
    for step in kills(host, TWO):
        newest = journal.transactions()[-1:]
        if not any(one.open_steps for one in newest) or newest[0].applied:
            assert said(host) == [], step
            continue
        back = f"`fabtune revert --transaction {newest[0].name}`"
        assert any(one.tunable == "apply" and back in one.note for one in said(host)), step
        write(host, "some", TWO)
        assert said(host) == [], step
        done += 1
    assert done > 3


def test_another_profile_does_not_complete_what_was_interrupted(host: Path) -> None:
    assert killed(host, TWO, 6)
    write(host, "another", TWO)
    assert [one.device.split()[0] for one in said(host)] == ["some"]


_IDLE, _PROBING = "net/ipv4/tcp_slow_start_after_idle", "net/ipv4/tcp_mtu_probing"
_ONE = 'summary = "a test"\n[initiator."tcp.slow_start_after_idle"]\nvalue = false\nwhy = "a test"\n'
_MORE = _ONE + '[initiator."tcp.mtu_probing"]\nvalue = 1\nwhy = "a test"\n'
_PATH = ["--role", "initiator", "--rtt", "1ms", "--rate", "1gbit"]


def test_what_writes_a_part_of_it_again_or_only_a_part_of_it_completes_no_apply(host: Path) -> None:
    """A boot, or guard, wrote the earlier apply's value again, and from then on nobody was told of the later one."""
    file = host.parent / "mine.toml"
    apply = ["apply", str(file), *_PATH]
    file.write_text(_ONE)
    assert main(apply) in (0, 4)
    file.write_text(_MORE)
    assert in_child(lambda: main(apply), "kill:5") == -signal.SIGKILL
    interrupted = journal.transactions()[-1].name
    part = str(host.parent / "part")
    for words in (["apply", "--again"], ["apply", "--plan", part]):
        hosttree.put(host / "proc/sys" / _IDLE, "1")
        assert main(["plan", *apply[1:], "--only", "tcp.slow_start_after_idle", "--out", part]) == 0
        assert main(words) in (0, 4) and len(journal.transactions()) > 2
        assert tree.read_text(host / "proc/sys" / _PROBING) == "0"
        assert any(interrupted in one.device for one in said(host)), words
    assert main(apply) in (0, 4) and tree.read_text(host / "proc/sys" / _PROBING) == "1"
    assert not any(interrupted in one.device for one in said(host))


def test_what_a_boot_writes_again_is_completed_by_the_next_boot(host: Path) -> None:
    """After a power cut within a boot's apply --again, verify named that one for ever, with every value in force."""
    file = host.parent / "mine.toml"
    file.write_text(_MORE)
    assert main(["apply", str(file), *_PATH]) in (0, 4)
    named = 0
    for step in range(2, 8):
        for again in ("killed", "whole"):
            hosttree.put(
                host / "proc/sys/kernel/random/boot_id", f"{step}{len(again)}111111-2222-3333-4444-555555555555"
            )
            hosttree.put(host / "proc/sys" / _IDLE, "1")
            hosttree.put(host / "proc/sys" / _PROBING, "0")
            if again == "killed":
                assert in_child(lambda: main(["apply", "--again"]), f"kill:{step}") in (0, -signal.SIGKILL)
                named += any(one.tunable == "apply" for one in said(host))
        assert main(["apply", "--again"]) == 0
        assert [one for one in said(host) if one.tunable == "apply" or one.drifted] == [], step
    assert named > 1


def test_an_apply_that_wants_less_by_now_does_not_complete_what_was_interrupted(host: Path) -> None:
    assert killed(host, TWO, 6)
    write(host, "some", {"tcp.sack": False})
    assert [one.device.split()[0] for one in said(host) if one.tunable == "apply"] == ["some"]


def test_a_session_that_does_not_use_a_value_yet_is_said_at_whatever_step_apply_was_killed(host: Path) -> None:
    written = 0
    for step in kills(host, {"iscsi.queue_depth": 64}):
        if any(DEPTH in file.read_text() for file in (host / "records").rglob("*") if file.is_file()):
            written += 1
            told = [one.note for one in said(host) if one.tunable == "session" and one.due]
            assert any("does not run with all that was written" in note for note in told), step
    assert written > 1


def test_an_apply_under_way_is_not_called_stopped(host: Path) -> None:
    assert killed(host, TWO, 6)
    with journal.locked():
        assert f"(process {os.getpid()}) is changing this host; wait for it" in said(host)[0].note
    assert journal.at_work() == ""


def test_a_stopped_process_that_holds_the_lock_is_told_with_what_wakes_it(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_LOCK_WAIT_S", 0)
    (journal.state_dir() / "journal").mkdir(mode=0o700, parents=True)
    with subprocess.Popen(["flock", str(journal.state_dir() / "lock"), "sh", "-c", "echo; kill -STOP $$"],
                          stdout=subprocess.PIPE) as holder:  # fmt: skip
        assert holder.stdout is not None
        holder.stdout.readline()
        child = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().strip()
        (journal.state_dir() / "lock").write_text(child)
        while Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        assert f"is stopped; `fg` in its shell or `kill -CONT {child}`" in journal.at_work()
        with pytest.raises(FabtuneError, match=f"kill -CONT {child}"), journal.locked():
            pass
        os.kill(int(child), signal.SIGCONT)
