# SPDX-License-Identifier: GPL-2.0-or-later
"""`make uninstall`: all of `make install` goes, nothing of a package's does, and not while something still needs it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fabtune import __version__
from fabtune.tune.armed import _AT_BOOT

TOP = Path(__file__).resolve().parents[2]
SOURCE = f"usr/src/fabstat-{__version__}"
GUARD = "fabtune-guard.service"


class Root:
    """A root of its own into which fabtune is installed below /usr/local, and what dpkg says of its files."""

    def __init__(self, root: Path, programs: Path) -> None:
        self.root, self.programs = root, programs
        self.packages_have()

    def packages_have(self, *paths: str) -> None:
        """Let packages own `paths` of this root, and nothing else."""
        known = "|".join(str(self.root / path) for path in paths) or "none"
        (self.programs / "dpkg").write_text(f'#!/bin/sh\ncase "$1 $2" in "-S "{known}) exit 0;; esac; exit 1\n')
        (self.programs / "dpkg").chmod(0o755)

    def uninstall(self) -> tuple[int, str]:
        """Uninstall; return the exit status and what was said."""
        # Of a make that runs the tests it would inherit flags, and complain of them.
        own = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
        done = subprocess.run(
            ["make", "-s", "uninstall", f"DESTDIR={self.root}"], cwd=TOP, capture_output=True, text=True, check=False,
            env=own | {"PATH": f"{self.programs}:{os.environ['PATH']}"},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def files(self) -> set[str]:
        """Return what is in this root beside directories."""
        found = (path for path in self.root.rglob("*") if path.is_symlink() or not path.is_dir())
        return {str(path.relative_to(self.root)) for path in found}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root into which fabtune was installed."""
    root = tmp_path_factory.mktemp("installed")
    subprocess.run(["make", "-s", "install", f"DESTDIR={root}"], cwd=TOP, check=True, stdout=subprocess.DEVNULL)
    return root


@pytest.fixture
def root(once: Path, tmp_path: Path) -> Root:
    """Return a copy of that root."""
    (tmp_path / "programs").mkdir()
    shutil.copytree(once, tmp_path / "root", symlinks=True)
    return Root(tmp_path / "root", tmp_path / "programs")


def test_nothing_that_install_put_there_is_left(root: Root) -> None:
    assert root.uninstall()[0] == 0
    assert root.files() == set()


def test_the_source_that_dkms_still_needs_is_not_taken_from_it(root: Root) -> None:
    """Without its dkms.conf no `dkms remove` can take the modules away, and each `dkms autoinstall` complains."""
    (root.root / f"var/lib/dkms/fabstat/{__version__}").mkdir(parents=True)
    before = root.files()
    status, said = root.uninstall()
    assert status != 0 and f"dkms remove fabstat/{__version__} --all" in said, said
    assert root.files() == before
    shutil.rmtree(root.root / "var/lib/dkms/fabstat")
    assert root.uninstall()[0] == 0 and not (root.root / SOURCE).exists()


def test_the_source_of_the_package_stays_with_its_dkms(root: Root) -> None:
    """/usr/src does not follow PREFIX: it is fabstat-dkms' once that is installed."""
    root.packages_have(SOURCE)
    (root.root / f"var/lib/dkms/fabstat/{__version__}").mkdir(parents=True)
    assert root.uninstall()[0] == 0
    left = root.files()
    assert f"{SOURCE}/dkms.conf" in left and all(name.startswith(SOURCE) for name in left)


def test_a_package_s_program_is_left_to_its_package(root: Root) -> None:
    root.packages_have("usr/local/bin/fabtune")
    before = root.files()
    status, said = root.uninstall()
    assert status != 0 and f"{root.root}/usr/local/bin/fabtune belongs to a package" in said, said
    assert root.files() == before


def test_while_an_apply_waits_only_fabtune_can_take_it_back(root: Root) -> None:
    waits = root.root / "etc/systemd/system" / _AT_BOOT
    waits.parent.mkdir(parents=True)
    waits.touch()
    before = root.files()
    status, said = root.uninstall()
    assert status != 0 and "'fabtune confirm' or 'fabtune revert' first" in said, said
    assert root.files() == before


def test_what_stays_in_force_is_said(root: Root) -> None:
    journal = root.root / "var/lib/fabtune/journal"
    journal.mkdir(parents=True)
    (journal / "1.jsonl").write_text('{"kind": "begin"}\n')
    (journal / "2.jsonl").write_text('{"kind": "begin"}\n{"kind": "closed"}\n')
    status, said = root.uninstall()
    assert status == 0 and "values that fabtune wrote stay in force (1 in /var/lib/fabtune/journal)" in said, said
    assert root.files() == {f"var/lib/fabtune/journal/{name}.jsonl" for name in (1, 2)}


needs_systemd = pytest.mark.skipif(shutil.which("systemctl") is None, reason="systemd is not installed")


def _enabled(root: Root) -> set[str]:
    return {path.name for path in (root.root / "etc/systemd/system").rglob("fabtune-*")}


@needs_systemd
def test_units_that_were_enabled_are_so_no_longer(root: Root) -> None:
    """Links that lead nowhere would be left, and guard restarted for ever without its program."""
    units = root.root / "usr/local/lib/systemd/system"
    names = {path.name for path in units.iterdir() if re.search(r"^WantedBy=", path.read_text(), re.MULTILINE)}
    subprocess.run(["systemctl", f"--root={root.root}", "--quiet", "enable", *names], check=True)
    assert _enabled(root) == names
    assert root.uninstall() == (0, "")
    assert _enabled(root) == set()


@needs_systemd
def test_a_unit_that_a_package_has_as_well_stays_enabled(root: Root) -> None:
    packages = root.root / "usr/lib/systemd/system"
    packages.mkdir(parents=True)
    shutil.copy(root.root / "usr/local/lib/systemd/system" / GUARD, packages)
    subprocess.run(["systemctl", f"--root={root.root}", "--quiet", "enable", GUARD], check=True)
    assert root.uninstall()[0] == 0
    assert _enabled(root) == {GUARD}
