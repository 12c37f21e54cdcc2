# SPDX-License-Identifier: GPL-2.0-or-later
"""Other programs run one way: what they say, how they end, and who gets the terminal's Ctrl-C."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import runs

from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.host import tools
from fabtune.host.run import TimeLimitError, ended, finish, launch, run

_SESSION = [sys.executable, "-c", "import os; print(os.getsid(0))"]


def test_run_returns_what_is_printed_and_names_what_failed() -> None:
    assert run(["cat"], what="copying", stdin="text") == "text"
    with pytest.raises(FabtuneError, match=r"(?s)looking failed \(exit 3\): sh -c .*\n  no such luck"):
        run(["sh", "-c", "echo no such luck >&2; exit 3"], what="looking")
    with pytest.raises(FabtuneError, match=r"looking: no-such-program not found"):
        run(["no-such-program"], what="looking")
    with pytest.raises(FabtuneError, match=r"looking: no end after 0.1 s: sleep 9"):
        run(["sleep", "9"], what="looking", timeout_s=0.1)


def test_finish_tells_how_it_ended() -> None:
    done = finish(["sh", "-c", r"printf '\303\050'; echo bad >&2; exit 21"])
    assert (done.status, done.stdout, done.stderr) == (21, "\N{REPLACEMENT CHARACTER}(", "bad\n")
    assert finish(["sh", "-c", "kill -9 $$"]).status == -9
    assert finish(["cat"]).stdout == ""
    with pytest.raises(TimeLimitError):
        finish(["sleep", "9"], timeout_s=0.1)
    with pytest.raises(FabtuneError, match="/ cannot be started: Permission denied"):
        finish(["/"])


def test_a_session_of_its_own_keeps_the_terminal_away() -> None:
    assert int(finish(_SESSION).stdout) == os.getsid(0)
    assert int(finish(_SESSION, own_session=True).stdout) != os.getsid(0)


def test_descriptors_that_it_shall_hold_stay_open(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        there = ["test", "-e", f"/proc/self/fd/{lock.fileno()}"]
        assert finish(there, pass_fds=[lock.fileno()]).status == 0
        assert finish(there).status == 1


def test_a_tool_that_writes_holds_our_lock_and_is_out_of_the_terminals_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "lock").open("w") as lock:
        monkeypatch.setattr(tools, "held", [lock.fileno()])
        there = ("test", "coreutils", "-e", f"/proc/self/fd/{lock.fileno()}")
        assert tools.run_tool(*there).status == 1
        assert tools.run_tool(*there, keeps_lock=True).status == 0
    monkeypatch.setattr(tools, "held", [])
    assert int(tools.run_tool("python3", "python3", *_SESSION[1:]).stdout) != os.getsid(0)
    with pytest.raises(FabtuneError, match="sleep 9: no answer within 1 s"):
        tools.run_tool("sleep", "coreutils", "9", timeout_s=1)
    with pytest.raises(UnsupportedError, match="no-such-program is not installed .package none"):
        tools.run_tool("no-such-program", "none")


def test_launch_runs_in_the_background_in_its_own_session(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = launch(
            [*_SESSION[:2], "import os, sys; print(os.getsid(0)); sys.exit(len(sys.stdin.read()))"], log=sink
        )
    assert ended(process, 30) and process.returncode == 0
    assert int(log.read_text()) == process.pid
    sleeper = launch(["sleep", "60"])
    assert not ended(sleeper, 0.1)
    sleeper.kill()
    assert ended(sleeper, 30)
    with pytest.raises(FabtuneError, match="no-such-program not found"):
        launch(["no-such-program"])


@pytest.mark.parametrize("late", [False, True], ids=["", "though we die before it is asked for"])
def test_what_is_to_die_with_us_does(late: bool, tmp_path: Path) -> None:
    environment = _environment()
    if late:
        slow = tmp_path / "setpriv"
        slow.write_text(
            # Not $PPID, which is another's where we are gone before the shell looks.
            "#!/bin/sh\nwhile kill -0 $STARTED_BY 2>/dev/null; do sleep 0.02; done\n"
            f'exec {shutil.which("setpriv")} "$@"\n'
        )
        slow.chmod(0o755)
        environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    code = "import os; os.environ['STARTED_BY'] = str(os.getpid()); from fabtune.host.run import launch; "
    code += "print(launch(['sleep', '60'], dies_by='KILL').pid, flush=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    deadline = time.monotonic() + 30
    while runs(done.stdout.strip()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not runs(done.stdout.strip())


def test_nobody_else_reads_what_is_typed_for_us(tmp_path: Path) -> None:
    script = f"cat >> {tmp_path / 'typed'}"
    code = f"from fabtune.host.run import finish, launch; finish(['sh', '-c', {script!r}]); "
    code += f"launch(['sh', '-c', {script!r}]).wait()"
    subprocess.run([sys.executable, "-c", code], input="y\n", text=True, check=True, env=_environment())
    assert (tmp_path / "typed").read_text() == ""


def test_on_our_terminal_it_has_our_session_and_our_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch(_SESSION, on_terminal=True).wait() == 0
    assert int(capfd.readouterr().out) == os.getsid(0)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "userspace")}


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel shares CPUs out by process alone")
def test_what_is_launched_in_a_session_of_its_own_is_as_nice_as_who_launched_it() -> None:
    """The kernel shares CPUs out by session, and a new one is at 0: guests of `nice fabtune run` had a full share."""
    text = """
import os, sys
from pathlib import Path
from fabtune.host.run import launch
mine = os.nice(1)
process = launch(["sleep", "600"])
print(Path(f"/proc/{process.pid}/autogroup").read_text().split()[-1], mine)
process.kill()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "userspace")}
    command = [sys.executable, "-c", text]
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()
    assert told[0] == told[1] != "0"
