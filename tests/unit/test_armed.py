# SPDX-License-Identifier: GPL-2.0-or-later
"""What takes unconfirmed values back: its unit for a boot, and the program that watches."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hosttree
import pytest
from processes import in_child, runs
from profiles import write

import fabtune
from fabtune import backends
from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
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


def test_the_unit_for_a_boot_is_there_whole_and_goes_whole(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my tools/bin/python3")
    name = ended(host)
    with journal.locked():
        armed.arm(name)
        assert len(files(host)) == 2
        unit = files(host)[0].read_text()
        armed.disarm(pytest.fail)
    assert "TimeoutStartSec=60" in unit and 'ExecStart="/opt/my tools/bin/python3" "-m"' in unit
    assert files(host) == []


def ended(root: Path) -> str:
    """Apply values and take them back; return the transaction's name."""
    write(root, "some", _ROWS)
    assert main(["revert"]) == 0
    return journal.transactions()[-1].name


def test_a_mask_of_the_unit_is_the_administrator_s(host: Path) -> None:
    unit, link = (host / name.format(_NAME) for name in (_UNIT, _LINK))
    unit.symlink_to("/dev/null")
    link.parent.mkdir()
    link.symlink_to(unit)
    with journal.locked():
        with pytest.raises(FabtuneError, match=r"is masked.*nothing was changed"):
            armed.arm("one")
        armed.disarm(pytest.fail)
    assert str(unit.readlink()) == "/dev/null" and link.is_symlink()


def test_somebody_else_s_unit_of_that_name_stays_as_it_is(host: Path) -> None:
    (host / _UNIT.format(_NAME)).write_text("[Service]\nExecStart=true\n")
    with journal.locked(), pytest.raises(FabtuneError, match="not fabtune's"):
        armed.arm("one")
    assert "ExecStart=true" in (host / _UNIT.format(_NAME)).read_text()


def test_killed_at_any_step_of_arming_nothing_stays_after_the_next_look(host: Path) -> None:
    name = ended(host)

    def step() -> None:
        with journal.locked():
            armed.arm(name)

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


def waiting(root: Path, boot_id: str = "some-boot", until_s: float = 0, reconnect: bool = False) -> None:
    """Apply values that wait to be confirmed until `until_s`, and enable what takes them back at a boot."""
    write(root, "some", _ROWS)
    newest = journal.transactions()[-1]
    writer = journal.Writer(newest.path)
    writer.append(UnconfirmedLine(until_s, 5.0, boot_id, reconnect, False))
    writer.close()
    with journal.locked():
        armed.arm(newest.name)


def test_a_revert_by_hand_takes_the_unit_away_where_nobody_watches(host: Path) -> None:
    waiting(host)
    assert main(["revert"]) == 0
    assert files(host) == []


def test_a_boot_takes_one_look_and_what_is_refused_is_left_to_who_watches(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[bool] = []
    monkeypatch.setattr(armed, "start_watching", lambda wait=True: started.append(wait))
    waiting(host, "another-boot")
    hosttree.put(host / _BACKLOG, "77")
    assert watcher.at_boot(lambda _: None) == 3
    assert started == [False] and len(files(host)) == 2
    hosttree.put(host / _BACKLOG, "4321")
    assert watcher.at_boot(lambda _: None) == 0
    assert files(host) == []


def test_a_boot_that_does_not_find_the_journal_keeps_the_unit(host: Path) -> None:
    waiting(host, "another-boot")
    state = journal.state_dir()
    state.rename(state.with_name("elsewhere"))
    assert main(["revert", "--unconfirmed=once"]) == ExitCode.FAILED
    assert len(files(host)) == 2
    # Nor does anybody else who has another journal.
    assert main(["revert"]) == 0
    assert len(files(host)) == 2


def test_an_apply_with_another_journal_does_not_take_the_unit_over(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(host, until_s=1e12)
    monkeypatch.setenv("FABTUNE_STATE_DIR", str(host / "other"))
    with journal.locked(), pytest.raises(FabtuneError, match="another state directory"):
        armed.arm("one")
    assert len(files(host)) == 2


def test_a_boot_waits_for_whoever_has_the_lock(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(host, "another-boot")
    monkeypatch.setattr(journal, "_LOCK_WAIT_S", 0.1)
    with lock_held(host) as other:
        assert watcher.at_boot(lambda text: other.kill() if "not yet" in text else None) == 0
    assert (host / _BACKLOG).read_text().strip() == "1000"


@pytest.fixture
def quick(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who watches looks again at once."""
    for name in ("_LOOK_EVERY_S", "_TRY_EVERY_S", "_SELDOM_S"):
        monkeypatch.setattr(watcher, name, 0.01)


def test_who_has_given_up_says_what_stays_and_no_longer_that_it_watches(
    host: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(host, reconnect=True)
    monkeypatch.undo()
    hosttree.enter(host, monkeypatch)
    seen: list[bool] = []
    monkeypatch.setattr(systemd, "manages_host", lambda: False)
    monkeypatch.setattr(watcher, "_TRY_EVERY_S", 0.01)
    monkeypatch.setattr(watcher, "_connect_late", lambda *_: seen.append(armed.is_watched()))
    hosttree.put(host / _BACKLOG, "77")
    said: list[str] = []
    assert watcher.watch(said.append) == ExitCode.DRIFT
    assert seen == [False]
    assert any("net.netdev_max_backlog" in one and "foreign" in one for one in said)
    assert "is not tried any more" in said[-1]


def test_what_is_refused_is_tried_until_it_is_not(host: Path, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(host)
    monkeypatch.setattr(armed, "hold_watch", lambda: os.open(os.devnull, os.O_RDONLY))
    backend, tries = backends.get("sysctl"), [0]
    give = backend.write

    def refused(*words: Any) -> None:
        tries[0] += 1
        if tries[0] < 12:
            raise FabtuneError("no space left on device")
        give(*words)

    monkeypatch.setattr(backend, "write", refused)
    said: list[str] = []
    assert watcher.watch(said.append) == ExitCode.FAILED
    assert any("no space left on device" in one for one in said)
    assert (host / _BACKLOG).read_text().strip() == "1000" and files(host) == []


def test_where_nothing_was_ever_applied_nothing_is_waited_for(host: Path) -> None:
    said: list[str] = []
    assert watcher.watch(said.append) == ExitCode.DONE
    assert said == ["nothing was applied from here: nothing to wait for"]
    assert not journal.state_dir().exists()


def test_a_lock_file_that_somebody_removed_keeps_nothing_from_going_back(host: Path) -> None:
    waiting(host)
    (journal.state_dir() / "lock").unlink()
    watcher._Watch(-1, lambda _: None).look()
    assert (host / _BACKLOG).read_text().strip() == "1000"


@contextlib.contextmanager
def lock_held(host: Path, then: str = "time.sleep(600)") -> Iterator["subprocess.Popen[str]"]:
    """Yield a process that holds the lock; asked to end, it says so."""
    program = (
        "import signal, sys, time\nfrom fabtune.host import tools\nfrom fabtune.tune import journal\n"
        "def end(*_): print('asked', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"with journal.locked():\n    print('holds', flush=True)\n    {then}\n"
    )
    found = {**os.environ, "PYTHONPATH": str(Path(fabtune.__file__).parents[1])}
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=found)
    assert child.stdout and child.stdout.readline() == "holds\n"
    yield child
    child.kill()
    child.wait()


@pytest.fixture
def holder(host: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the lock and was stopped."""
    with lock_held(host) as child:
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        yield child


def test_a_tool_that_outlives_its_fabtune_and_hangs_does_not_keep_the_lock(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(host)
    monkeypatch.setattr(journal, "_LOCK_WAIT_S", 0.1)
    hangs = "tools.in_tree = lambda _: True; tools.run_tool('sleep', 'x', '600', keeps_lock=True)"
    with lock_held(host, hangs) as child:
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        while not (tool := children.read_text().strip()):
            time.sleep(0.01)
        watching = watcher._Watch(-1, lambda _: None)
        watching.look()
        assert runs(tool) and watching.alone_s == {}
        child.kill()
        child.wait()
        watching.look()
        assert list(watching.alone_s) == [int(tool)] and runs(tool)
        watching.alone_s[int(tool)] -= 60
        while runs(tool):
            watching.look()
        watching.look()
    assert (host / _BACKLOG).read_text().strip() == "1000"


def test_a_stopped_fabtune_that_keeps_the_lock_beyond_the_limit_is_asked_to_end(
    host: Path, holder: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    watching = watcher._Watch(-1, said.append)
    assert journal.lock_keepers() == ([holder.pid], [])
    watching._free_lock()
    assert holder.stdout and holder.stdout.readline() == "asked\n"
    assert holder.wait() == 0
    assert f"process {holder.pid}" in said[0]
    assert journal.lock_keepers() == ([], [])


def test_one_that_is_stopped_again_is_killed(host: Path, holder: "subprocess.Popen[str]") -> None:
    watching = watcher._Watch(-1, lambda _: None, asked={holder.pid})
    watching._free_lock()
    assert holder.wait() == -signal.SIGKILL


def test_who_runs_and_holds_the_lock_is_left_alone(host: Path, holder: "subprocess.Popen[str]") -> None:
    holder.send_signal(signal.SIGCONT)
    while " T " in Path(f"/proc/{holder.pid}/stat").read_text():
        time.sleep(0.01)
    assert journal.lock_keepers() == ([], [])
