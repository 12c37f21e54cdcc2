# SPDX-License-Identifier: GPL-2.0-or-later
"""What revert makes of a tgtd that went, came anew, hides or hangs: only what is known to be lost is given up."""

import contextlib
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hosttree
import pytest
import tgttree
from processes import in_child

from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import ExitCode
from fabtune.facts.collect import survey
from fabtune.host.targets import Login
from fabtune.host.targets import tgt as kind
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune import journal
from fabtune.tune.apply import Result, apply
from fabtune.tune.pending import Leave
from fabtune.tune.plan import make_plan
from fabtune.tune.undo import Report, undo
from fabtune.tune.verify import verify


class Daemon:
    """A tgtd with one target: who listens on its socket, and the files that its tgtadm shows."""

    def __init__(self, host: Path, place: Path) -> None:
        self.host, self.place = host, place
        self.start()

    def start(self) -> None:
        """Listen on a socket made anew, with a target as tgtd makes it."""
        tgttree.serve(self.host)
        self.path.unlink(missing_ok=True)
        self.ears = socket.socket(socket.AF_UNIX)
        self.ears.bind(str(self.path))
        self.ears.listen()

    def stop(self) -> None:
        """End; the socket stays, as tgtd leaves it."""
        self.ears.close()

    def hear(self) -> None:
        """Take who waits to be heard: only so many may."""
        self.ears.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.ears.accept()[0].close()

    @property
    def path(self) -> Path:
        """Where it listens."""
        return self.place / "socket.0"

    @property
    def parameters(self) -> Path:
        """What its target holds."""
        return self.host / "parameters"

    def value(self, key: str) -> str:
        """Return one parameter of its target."""
        return dict(line.split("=", 1) for line in self.parameters.read_text().split())[key]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    hosttree.enter(hosttree.make(tmp_path, 1), monkeypatch)
    # The path of a socket has 108 bytes at most.
    with tempfile.TemporaryDirectory() as place:
        monkeypatch.setenv("TGT_IPC_SOCKET", f"{place}/socket")
        one = Daemon(tmp_path, Path(place))
        yield one
        one.stop()


def run_apply(profile: str = "wan") -> Result:
    known = survey(shipped_catalog().tunables.values())
    plan = make_plan(load_profile(profile, shipped_catalog()), ("target",), known, NetworkPath(0.05, 125e6, 1500), {})
    with journal.locked():
        result = apply(plan, known.host, Leave(), lambda _: None)
    assert any(row.tunable.name == "tgt.first_burst" for row in result.written)
    return result


def run_revert(force: bool = False) -> Report:
    kind._mute.clear()
    return undo(None, None, None, "", force, Leave(), lambda _: None)


def of_tgt(report: Report) -> tuple[set[str], str]:
    """Return the states of tgt's values, and what was said of the first."""
    mine = [one for one in report.outcomes if one.step.tunable.startswith("tgt.")]
    return {str(one.state) for one in mine}, mine[0].note


def state() -> str:
    (transaction,) = journal.transactions()
    return transaction.state


def test_a_target_that_redirects_its_initiators_still_owes_its_values(daemon: Daemon) -> None:
    run_apply()
    held = daemon.parameters.read_text()
    daemon.parameters.write_text("RedirectAddress=10.9.9.9\nRedirectPort=3260\nRedirectReason=Temporary\n")
    report = run_revert()
    states, note = of_tgt(report)
    assert states == {"waiting"} and report.exit_code == ExitCode.NEEDS_ACTION
    assert "redirects its initiators; revert again once it can be read" in note
    assert state() == "waiting"
    daemon.parameters.write_text(held)
    assert of_tgt(run_revert())[0] == {"restored"}
    assert daemon.value("FirstBurstLength") == "65536" and state() == "taken back"


def test_a_daemon_that_is_not_seen_still_owes_its_values(daemon: Daemon) -> None:
    run_apply()
    hidden = daemon.path.rename(daemon.place / "elsewhere")
    assert {one.note for one in verify(None, ("target",), "") if one.tunable.startswith("tgt.")} == {
        f"the tgtd that was told is not seen at {daemon.path}"
    }
    states, note = of_tgt(run_revert())
    assert states == {"waiting"}
    assert note.startswith(f"the tgtd that was told is not seen at {daemon.path}; revert again once it is back")
    assert state() == "waiting"
    hidden.rename(daemon.path)
    assert of_tgt(run_revert())[0] == {"restored"}
    assert daemon.value("FirstBurstLength") == "65536" and state() == "taken back"


@pytest.mark.parametrize("has_such_a_target", [True, False])
def test_the_daemon_of_another_socket_is_not_taken_for_the_one_that_was_told(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, has_such_a_target: bool
) -> None:
    run_apply()
    with tempfile.TemporaryDirectory() as place:
        monkeypatch.setenv("TGT_IPC_SOCKET", f"{place}/socket")
        other = Daemon(daemon.host, Path(place))
        if not has_such_a_target:
            (daemon.host / "shown").write_text("")
        assert of_tgt(run_revert())[0] == {"waiting"}
        other.stop()


def test_what_is_given_up_with_force_is_said_to_be_so(daemon: Daemon) -> None:
    run_apply()
    daemon.path.unlink()
    states, note = of_tgt(run_revert(force=True))
    assert states == {"gone"} and "no longer waited for (--force)" in note


def test_a_daemon_that_has_ended_took_its_values_with_it(daemon: Daemon) -> None:
    run_apply()
    daemon.stop()
    states, note = of_tgt(run_revert())
    assert states == {"gone"}
    assert note == "it is not there; the value is gone with it, and a new one starts with its own"
    assert state() == "taken back"


@pytest.mark.parametrize(("has_its_target", "state_of_values"), [(True, "already"), (False, "gone")])
def test_a_daemon_that_was_started_anew_has_values_of_its_own(
    daemon: Daemon, has_its_target: bool, state_of_values: str
) -> None:
    run_apply()
    daemon.stop()
    # Its number is not given twice while the old one has it.
    old = daemon.path.rename(daemon.place / "old")
    daemon.start()
    old.unlink()
    daemon.parameters.write_text(daemon.parameters.read_text().replace("MaxBurstLength=262144", "MaxBurstLength=65536"))
    if not has_its_target:
        (daemon.host / "shown").write_text("")
    assert of_tgt(run_revert())[0] == {state_of_values}
    assert daemon.value("MaxBurstLength") == "65536" and state() == "taken back"


def test_a_target_that_its_daemon_no_longer_has_took_its_values_with_it(daemon: Daemon) -> None:
    run_apply()
    (daemon.host / "shown").write_text("")
    assert of_tgt(run_revert())[0] == {"gone"} and state() == "taken back"


def test_who_must_log_in_again_is_told_even_where_the_daemon_falls_silent(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_apply()
    monkeypatch.setattr(kind, "_SHOW_S", 1)
    script = daemon.host / "bin/tgtadm"
    script.write_text(script.read_text().replace("case", "[ -e silent ] && exec sleep 60\ncase", 1))
    # It hangs once its values have gone back.
    logins = kind.KIND.logins

    def hang(device: Device) -> list[Login]:
        (daemon.host / "silent").touch()
        return logins(device)

    monkeypatch.setattr(kind.KIND, "logins", hang)
    report = run_revert()
    assert of_tgt(report)[0] == {"restored"} and not report.problems
    assert report.exit_code == ExitCode.NEEDS_ACTION
    (due,) = [one for one in report.pending if one.action == "target-relogin"]
    assert due.label == "every initiator of disk1 tgt" and "no answer within 1 s" in due.reason
    assert state() == "taken back"


def test_who_must_log_in_again_is_told_by_the_revert_that_ends_a_killed_one(daemon: Daemon) -> None:
    # What is settled last asks for no login of its own.
    profile = daemon.host / "two.toml"
    profile.write_text(
        'summary = "x"\n[target."tgt.first_burst"]\nvalue = 32768\nwhy = "x"\n'
        '[target."tcp.slow_start_after_idle"]\nvalue = false\nwhy = "x"\n'
    )
    step = told = 0
    run_apply(str(profile))
    while in_child(run_revert, f"kill:{(step := step + 1)}") == -signal.SIGKILL:
        daemon.hear()
        if journal.transactions()[-1].open_steps:
            assert any(one.action == "target-relogin" for one in run_revert().pending), step
            told += 1
        run_apply(str(profile))
    assert told > 4
