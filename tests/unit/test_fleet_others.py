# SPDX-License-Identifier: GPL-2.0-or-later
"""What an administrator applied on a fleet's hosts stays, and no run is measured with it in force: real playbooks."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import hosttree
import pytest
from run_records import make_record

from fabtune.cli.main import main
from fabtune.errors import ExitCode, FabtuneError
from fabtune.experiment import batch, fleet
from fabtune.installed import PROGRAM, data_dir
from fabtune.measure import recordfile
from fabtune.model.results import Point

pytestmark = pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="ansible-core is not installed")

_LAUNCHER = """#!/bin/sh
export FABTUNE_ROOT={root} FABTUNE_STATE_DIR={root}/state FABTUNE_PROFILES={profiles}
export PYTHONPATH={path} PATH={root}/bin:$PATH
exec {python} -m fabtune "$@"
"""
_SITE = 'summary = "s"\n[initiator."tcp.slow_start_after_idle"]\nvalue = false\nwhy = "t"\n'


class Host:
    """A host of both roles, a tree that the real fabtune tunes, and the words of one run on a fleet of it alone."""

    def __init__(self, place: Path) -> None:
        self.profile = place / "profiles" / "site.toml"
        hosttree.put(self.profile, _SITE)
        self._root = hosttree.make(place / "one", 1)
        path = os.pathsep.join([str(PROGRAM / "userspace"), *filter(None, sys.path)])
        places = {"root": self._root, "profiles": self.profile.parent, "path": path, "python": sys.executable}
        self._launcher = self._root / "fabtune"
        self._launcher.write_text(_LAUNCHER.format_map(places))
        self._launcher.chmod(0o755)
        said = f"ansible_connection=local ansible_python_interpreter={sys.executable} fabtune_device=/dev/sdb"
        inventory = f"[targets]\none\n[initiators]\none fabtune_executable={self._launcher} {said}\n"
        (place / "hosts.ini").write_text(inventory)
        text = 'seeds = 1\n[factors]\nprofile = ["site"]\n[fixed]\nrtt = "1ms"\nrate = "1gbit"\nop = "read"\n'
        (place / "exp.toml").write_text(text)
        self.run = ["run", str(place / "exp.toml"), "--fleet", str(place / "hosts.ini"), "--out", str(place / "out")]

    def fabtune(self, *words: str) -> str:
        """Do something on the host, as its administrator."""
        done = subprocess.run([str(self._launcher), *words], check=False, capture_output=True, text=True)
        assert done.returncode in (ExitCode.DONE, ExitCode.NEEDS_ACTION), done.stderr
        return done.stdout

    def apply(self) -> None:
        """Apply the profile, as its administrator."""
        self.fabtune("apply", "site", "--role", "initiator", "--rtt", "1ms", "--rate", "1gbit", "--yes")

    @property
    def tuned(self) -> bool:
        """Whether the host has the profile's value."""
        return (self._root / "proc/sys/net/ipv4/tcp_slow_start_after_idle").read_text().strip() == "0"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("ANSIBLE_CONFIG", str(data_dir("ansible") / "ansible.cfg"))
    return Host(tmp_path)


def _measuring(monkeypatch: pytest.MonkeyPatch, does: Callable[[], object]) -> None:
    def measure(run: batch.Run, _: object) -> Sequence[Point]:
        does()
        recordfile.write(make_record(1.0), run.directory / "one" / f"read{recordfile.SUFFIX}")
        return [Point({"profile": run.settings.profile, "op": "read", "host": "all", "mb_per_s": 1.0})]

    monkeypatch.setattr(fleet, "_measure", measure)


def test_no_run_is_begun_where_something_is_in_force(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it was measured with was called untouched, and the administrator's values were taken back at the end."""
    _measuring(monkeypatch, lambda: pytest.fail("a run was begun"))
    host.apply()
    assert main(host.run) == ExitCode.FAILED
    told = " ".join(capsys.readouterr().err.split())
    assert "one: " in told and "profile site is in force" in told and "fabtune revert --transaction 2" in told
    assert host.tuned and "taken back" not in host.fabtune("history")


def test_what_an_administrator_applies_meanwhile_outlives_the_run(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same profile, with one value more: it was taken back by its name."""
    tuned: list[bool] = []

    def measured() -> None:
        tuned.append(host.tuned)
        host.profile.write_text(_SITE + '[initiator."tcp.mtu_probing"]\nvalue = 1\nwhy = "t"\n')
        host.apply()

    _measuring(monkeypatch, measured)
    assert main(host.run) == ExitCode.DONE
    history = host.fabtune("history", "--json")
    assert tuned == [True] and host.tuned
    assert history.count('"state": "taken back"') == 1 and history.count('"state": "in force"') == 1


def test_what_an_apply_wrote_that_gave_no_answer_is_taken_back_by_the_profile(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A connection that is lost in the middle, or Ctrl-C: which transaction it was nobody knows."""
    play = fleet._play

    def lost(name: str, *rest: object) -> None:
        if name == "apply":
            host.apply()
            raise FabtuneError("one: Apply the profile: lost or out of reach")
        play(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet, "_play", lost)
    assert main(host.run) == ExitCode.FAILED
    assert "not taken back" not in capsys.readouterr().err and not host.tuned
