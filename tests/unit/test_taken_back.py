# SPDX-License-Identifier: GPL-2.0-or-later
"""What a fleet's run or an interleaved session could not take back is said, however the run or session ended."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment import alternation, batch, fleet, inventory, publish
from fabtune.model.results import Point

TEXT = 'seeds = 3\n[factors]\nprofile = ["wan"]\n[fixed]\nop = "read"\n'
NOT_BACK = "two: Revert on initiators: lost or out of reach: no route to host"


def _interrupt() -> None:
    raise KeyboardInterrupt


def _fail() -> None:
    raise FabtuneError("one: Measure: fio failed")


class Fleet:
    """Playbooks that do what a test says, and the names of those that ran."""

    def __init__(self) -> None:
        self.does: dict[str, Callable[[], None]] = {}
        self.ran: list[str] = []

    def play(self, name: str, *_: object) -> None:
        self.ran.append(name)
        self.does.get(name, lambda: None)()


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.chdir(tmp_path)
    Path("exp.toml").write_text(TEXT)
    found = Fleet()
    monkeypatch.setattr(inventory, "load", lambda path: inventory.Inventory(path, ("one", "two"), ("t",)))
    monkeypatch.setattr(fleet, "_play", found.play)
    # That nothing is in force before is asked of real hosts: test_fleet_others.py.
    monkeypatch.setattr(fleet, "_check_untouched", lambda _: None)
    point = Point({"profile": "wan", "op": "read", "host": "all", "mb_per_s": 1.0})
    monkeypatch.setattr(fleet, "_points", lambda *_: [point])
    return found


def _not_back() -> None:
    raise FabtuneError(NOT_BACK)


def _no_room() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


RUN = ["run", "exp.toml", "--fleet", "hosts.ini", "--allow-relogin", "--out", "out"]


@pytest.mark.parametrize(
    ("measure", "said"), [(_interrupt, "interrupted"), (_fail, "fio failed"), (_no_room, "No space left on device")]
)
def test_a_fleet_that_is_not_back_is_said_however_its_run_ended(
    hosts: Fleet, capsys: pytest.CaptureFixture[str], measure: Callable[[], None], said: str
) -> None:
    """After Ctrl-C the interrupt alone was told, with 130: interrupted, and everything restored."""
    hosts.does = {"measure": measure, "revert": _not_back}
    assert main(RUN) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert said in told and f"not taken back everywhere: {NOT_BACK}" in told
    assert "--inventory hosts.ini fabtune.fleet.revert --extra-vars allow_relogin=true" in told
    # Nothing but what the run applied: not what an administrator has applied since.
    applied = f'"profile": "wan", "transactions": "{Path.cwd()}/out/profile=wan/run-'
    assert f"--extra-vars allow_relogin=true --extra-vars '{{{applied}" in told
    assert "0 of 3 runs are kept; measure the rest with `fabtune run exp.toml --fleet hosts.ini" in told
    # The next runs would have been those of a profile that they do not name.
    assert hosts.ran == ["apply", "measure", "revert"]


def test_a_revert_that_cannot_even_start_is_no_revert(hosts: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    hosts.does = {"measure": _interrupt, "revert": _no_room}
    assert main(RUN) == ExitCode.FAILED
    assert "not taken back everywhere: [Errno 28] No space left on device" in capsys.readouterr().err


def test_an_interrupted_fleet_that_is_back_is_interrupted(hosts: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    hosts.does = {"measure": _interrupt}
    assert main(RUN) == ExitCode.INTERRUPTED
    told = capsys.readouterr().err
    assert "0 of 3 runs are kept; go on with" in told and "not taken back" not in told
    assert hosts.ran == ["apply", "measure", "revert"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_signal_ends_a_revert(hosts: Fleet, capsys: pytest.CaptureFixture[str], number: int) -> None:
    """A second Ctrl-C ended the playbook that took the profile back."""

    def slowly() -> None:
        os.kill(os.getpid(), number)
        hosts.ran.append("reverted")

    hosts.does = {"revert": slowly}
    assert main(RUN) == ExitCode.INTERRUPTED
    assert hosts.ran == ["apply", "measure", "revert", "reverted"]


def test_what_failed_before_an_interrupt_is_told_as_well(hosts: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> None:
        _fail() if hosts.ran.count("measure") == 1 else _interrupt()

    hosts.does = {"measure": measure}
    assert main(RUN) == ExitCode.INTERRUPTED
    assert "one: Measure: fio failed" in capsys.readouterr().err


def test_an_error_of_the_pages_hides_no_host(
    hosts: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts.does = {"measure": _interrupt, "revert": _not_back}
    monkeypatch.setattr(batch.Run, "state", lambda _: _no_room())
    assert main(RUN) == ExitCode.FAILED
    assert f"not taken back everywhere: {NOT_BACK}" in capsys.readouterr().err


def test_a_tree_that_cannot_be_written_hides_no_interrupt(
    hosts: Fleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who pressed Ctrl-C read of a full disk, and not how to go on."""
    hosts.does = {"measure": _interrupt}
    monkeypatch.setattr(publish, "write_tree", lambda *_, **__: _no_room())
    assert main(RUN) == ExitCode.INTERRUPTED
    told = capsys.readouterr().err
    assert "No space left on device" in told and "0 of 3 runs are kept; go on with" in told


SIDES = ["ab", "untouched", "wan", "xdd", "--switch", "/bin/true", "--calibrate", "0", "--pairs", "4", "--settle", "0s"]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a session of four pairs whose switches are the test's own."""
    monkeypatch.chdir(tmp_path)
    Path("disk").mkdir()
    return [*SIDES, "--on", str(tmp_path / "disk"), "--out", "runs", "--set", "total_bytes=4m", "--set", "op=read"]


@pytest.mark.parametrize("again", [False, True])
def test_a_session_that_is_not_back_is_no_interrupt_alone(
    session: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: bool
) -> None:
    """Ctrl-C ended with 130, which says that everything is restored; a second one hid what was not."""
    runs: list[str] = []

    def switch(profile: str, *_: Any) -> None:
        runs.append(profile)
        if len(runs) == 2:
            if again:
                os.kill(os.getpid(), signal.SIGINT)
            raise FabtuneError("switching to 'untouched' failed: tcp.rmem_max is somebody else's")
        raise KeyboardInterrupt

    monkeypatch.setattr(alternation, "switch", switch)
    assert main(session) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert "tcp.rmem_max is somebody else's; take the rest back with: fabtune revert --allow-relogin" in told
    assert "interrupted" in told and len(runs) == 2


def test_an_interrupted_session_says_what_is_kept_and_how_to_go_on(
    session: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said where the records were, not how many pairs these make, nor that none is measured later."""
    runs: list[str] = []

    def switch(profile: str, *_: Any) -> None:
        runs.append(profile)
        if len(runs) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(alternation, "switch", switch)
    assert main(session) == ExitCode.INTERRUPTED
    told = capsys.readouterr().err
    assert "interrupted: 1 of 4 pairs is kept in runs (see it with: fabtune report runs)" in told
    assert "a session is not gone on with: the same command begins a new one" in told
    assert runs[-1] == "untouched" and len(runs) == 5
