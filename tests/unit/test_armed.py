# SPDX-License-Identifier: GPL-2.0-or-later
"""What takes unconfirmed values back: its unit for a boot, and the program that watches."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hosttree
import pytest
from processes import in_child
from profiles import write

import fabtune
from fabtune.cli.main import main
from fabtune.errors import FabtuneError
from fabtune.host import systemd
from fabtune.tune import armed, journal, watcher
from fabtune.tune.lines import UnconfirmedLine

_UNIT, _LINK = "etc/systemd/system/{}", "etc/systemd/system/multi-user.target.wants/{}"
_NAME = "fabtune-unconfirmed-at-boot.service"
_ROWS: dict[str, object] = {"net.netdev_max_backlog": 4321, "tcp.slow_start_after_idle": False}
_BACKLOG = "proc/sys/net/core/netdev_max_backlog"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with systemd, on which somebody watches."""
    root = hosttree.make(tmp_path / "root")
    hosttree.enter(root, monkeypatch)
    (root / "run/systemd/system").mkdir(parents=True)
    (root / "etc/systemd/system").mkdir(parents=True)
    monkeypatch.setattr(systemd, "systemctl", lambda *_: None)
    monkeypatch.setattr(armed, "is_watched", lambda: True)
    return root


def files(root: Path) -> list[Path]:
    """Return the unit for a boot and its link, where they are."""
    return [path for name in (_UNIT, _LINK) if os.path.lexists(path := root / name.format(_NAME))]


def test_the_unit_for_a_boot_is_there_whole_and_goes_whole(host: Path) -> None:
    with journal.locked():
        armed.arm()
        assert len(files(host)) == 2
        assert "TimeoutStartSec=60" in files(host)[0].read_text()
        armed.disarm(pytest.fail)
    assert files(host) == []


def test_a_mask_of_the_unit_is_the_administrator_s(host: Path) -> None:
    unit, link = (host / name.format(_NAME) for name in (_UNIT, _LINK))
    unit.symlink_to("/dev/null")
    link.parent.mkdir()
    link.symlink_to(unit)
    with journal.locked():
        with pytest.raises(FabtuneError, match=r"is masked.*nothing was changed"):
            armed.arm()
        armed.disarm(pytest.fail)
    assert str(unit.readlink()) == "/dev/null" and link.is_symlink()


def test_somebody_else_s_unit_of_that_name_stays_as_it_is(host: Path) -> None:
    (host / _UNIT.format(_NAME)).write_text("[Service]\nExecStart=true\n")
    with journal.locked(), pytest.raises(FabtuneError, match="not fabtune's"):
        armed.arm()
    assert "ExecStart=true" in (host / _UNIT.format(_NAME)).read_text()


def test_killed_at_any_step_of_arming_nothing_stays_after_the_next_look(host: Path) -> None:
    def step() -> None:
        with journal.locked():
            armed.arm()

    number = 1
    while in_child(step, f"kill:{number}") == -signal.SIGKILL:
        with journal.locked():
            # A draft of a file that was killed in its middle is swept where the lock is taken.
            armed.disarm(pytest.fail)
        assert files(host) == []
        number += 1
    assert number > 2
    (host / _UNIT.format(f".{_NAME}.fabtune-draft")).touch()
    with journal.locked():
        pass
    assert not list((host / "etc/systemd/system").glob(".*"))


def waiting(root: Path, boot_id: str, until_s: float) -> None:
    """Apply values that wait to be confirmed until `until_s`."""
    write(root, "some", _ROWS)
    newest = journal.transactions()[-1]
    writer = journal.Writer(newest.path)
    writer.append(UnconfirmedLine(until_s, 5.0, boot_id, False, False))
    writer.close()


def test_a_revert_by_hand_takes_the_unit_away_where_nobody_watches(host: Path) -> None:
    with journal.locked():
        armed.arm()
    waiting(host, "some-boot", 0)
    assert main(["revert"]) == 0
    assert files(host) == []


def test_a_boot_takes_one_look_and_what_is_refused_is_left_to_who_watches(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[bool] = []
    monkeypatch.setattr(armed, "start_watching", lambda wait=True: started.append(wait))
    with journal.locked():
        armed.arm()
    waiting(host, "another-boot", 0)
    hosttree.put(host / _BACKLOG, "77")
    assert watcher.at_boot(lambda _: None) == 3
    assert started == [False] and len(files(host)) == 2
    hosttree.put(host / _BACKLOG, "4321")
    assert watcher.at_boot(lambda _: None) == 0
    assert files(host) == []


def test_who_has_given_up_no_longer_says_that_it_watches(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    hosttree.enter(host, monkeypatch)
    monkeypatch.setattr(watcher, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(watcher, "_TRY_EVERY_S", 0.01)
    seen: list[bool] = []
    monkeypatch.setattr(watcher, "_connect_late", lambda *_: seen.append(armed.is_watched()))
    waiting(host, "some-boot", 0)
    writer = journal.Writer(journal.transactions()[-1].path)
    writer.append(UnconfirmedLine(0, 5.0, "some-boot", True, False))
    writer.close()
    hosttree.put(host / _BACKLOG, "77")
    assert watcher.watch(lambda _: None) == 3
    assert seen == [False]


@pytest.fixture
def holder(host: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the lock and was stopped; asked to end, it says so."""
    program = (
        "import signal, sys, time\nfrom fabtune.tune import journal\n"
        "def end(*_): print('asked', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "with journal.locked():\n    print('holds', flush=True)\n    time.sleep(600)\n"
    )
    found = {**os.environ, "PYTHONPATH": str(Path(fabtune.__file__).parents[1])}
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=found)
    assert child.stdout and child.stdout.readline() == "holds\n"
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    yield child
    child.kill()
    child.wait()


def test_a_stopped_fabtune_that_keeps_the_lock_beyond_the_limit_is_asked_to_end(
    host: Path, holder: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    watching = watcher._Watch(-1, said.append)
    assert journal.stopped_holder() == holder.pid
    watching._free_lock()
    assert holder.stdout and holder.stdout.readline() == "asked\n"
    assert holder.wait() == 0
    assert f"process {holder.pid}" in said[0]
    assert journal.stopped_holder() is None


def test_one_that_is_stopped_again_is_killed(host: Path, holder: "subprocess.Popen[str]") -> None:
    watching = watcher._Watch(-1, lambda _: None, asked={holder.pid})
    watching._free_lock()
    assert holder.wait() == -signal.SIGKILL


def test_who_runs_and_holds_the_lock_is_left_alone(host: Path, holder: "subprocess.Popen[str]") -> None:
    holder.send_signal(signal.SIGCONT)
    while " T " in Path(f"/proc/{holder.pid}/stat").read_text():
        time.sleep(0.01)
    assert journal.stopped_holder() is None
