# SPDX-License-Identifier: GPL-2.0-or-later
"""The units: well-formed by systemd's own judgement, protected as promised, and there by `make install`."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
UNITS = sorted((TOP / "userspace/systemd").glob("*.*"))
NAMES = {path.name for path in UNITS if path.suffix in (".service", ".socket", ".timer")}
MOST_EXPOSED = 2.0

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where `make install` put the units."""
    root = tmp_path_factory.mktemp("root")
    words = ["make", "-s", "install", f"DESTDIR={root}", "PREFIX=/usr"]
    subprocess.run(words, cwd=TOP, check=True, stdout=subprocess.DEVNULL)
    return root / "usr/lib/systemd/system"


def test_every_unit_is_installed_with_its_program(installed: Path) -> None:
    assert {path.name for path in installed.iterdir()} == NAMES
    for path in installed.iterdir():
        assert "@" not in re.sub(r"~?@[a-z-]+", "", path.read_text()), path.name
        for command in re.findall(r"^ExecStart=-?(\S+)", path.read_text(), re.MULTILINE):
            assert (installed.parents[3] / command.lstrip("/")).exists(), command


def test_systemd_finds_nothing_wrong_with_them(installed: Path, tmp_path: Path) -> None:
    # The program itself is looked for on this host, where it need not be.
    for path in installed.iterdir():
        (tmp_path / path.name).write_text(re.sub(r"/usr/bin/fabtune(-pull)?\b", "/usr/bin/true", path.read_text()))
    words = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "fabtune" in line]
    assert not ours


def test_guard_runs_before_anything_is_applied_and_whatever_ended_it() -> None:
    """Nothing starts it once the first apply has been; and what ends it may be a journald that has died."""
    unit = (TOP / "userspace/systemd/fabtune-guard.service").read_text()
    assert "Condition" not in unit and "Restart=always" in unit


def test_a_guard_that_is_stopped_has_not_failed() -> None:
    """It says with 3 that something is not as applied then; a stop before it watches is 130."""
    unit = (TOP / "userspace/systemd/fabtune-guard.service").read_text()
    assert "\nSuccessExitStatus=3 130\n" in unit


@pytest.mark.parametrize("name", ["fabtune-apply.service", "fabtune-apply-sessions.service"])
def test_what_is_written_again_is_tried_again_only_where_that_may_help(name: str) -> None:
    unit = (TOP / "userspace/systemd" / name).read_text()
    assert "Restart=on-failure" in unit and "RestartPreventExitStatus=2\n" in unit


@pytest.mark.parametrize("name", ["fabtune-exporter.service", "fabtune-reader.service"])
def test_both_halves_of_the_exporter_are_shut_in(installed: Path, name: str) -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(installed / name)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert exposure and float(exposure[1]) <= MOST_EXPOSED
