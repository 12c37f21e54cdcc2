# SPDX-License-Identifier: GPL-2.0-or-later
"""What is installed is everybody's to read, whatever umask root has; a user who may not is told so."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]
NOBODY = 65534


# What an earlier install may have left.
EARLIER = ("usr/lib/systemd/system/fabtune-exporter.service", "usr/share/man/man8/fabtune.8", "usr/lib/fabtune/x/x")


def test_a_strict_umask_of_the_clone_or_of_root_closes_nothing_to_others(tmp_path: Path) -> None:
    clone, root = tmp_path / "clone", tmp_path / "root"
    leave = shutil.ignore_patterns("__pycache__", "results")
    for name in ("userspace", "tunables", "profiles", "kmod", "debian"):
        shutil.copytree(TOP / name, clone / name, ignore=leave)
    shutil.copy(TOP / "Makefile", clone)
    subprocess.run(["chmod", "-R", "go=", clone], check=True)
    for name in EARLIER:
        (root / name).parent.mkdir(parents=True)
        (root / name).touch()
        (root / name).chmod(0o600)
        (root / name).parent.chmod(0o700)
    words = ["make", "-s", "install", f"DESTDIR={root}", "PREFIX=/usr"]
    subprocess.run(words, cwd=clone, umask=0o077, check=True, stdout=subprocess.DEVNULL)
    paths = [path for path in root.rglob("*") if not path.is_symlink()]
    assert len(paths) > 100
    needed = {path: 0o5 if path.is_dir() else 0o4 for path in paths}
    assert not [str(path.relative_to(root)) for path, mode in needed.items() if path.stat().st_mode & mode != mode]


@pytest.fixture
def installed() -> Iterator[Path]:
    """Yield an installed program and package, where another user may come."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "bin").mkdir()
        shutil.copy(TOP / "userspace/bin/fabtune", root / "bin")
        leave = shutil.ignore_patterns("__pycache__")
        for part in ("fabtune", "experiments"):
            shutil.copytree(TOP / "userspace" / part, root / "lib/fabtune" / part, ignore=leave)
        yield root


@pytest.mark.parametrize(
    "closed",
    ["lib/fabtune", "lib/fabtune/fabtune", "lib/fabtune/fabtune/cli", "lib/fabtune/fabtune/needs.py",
     "lib/fabtune/fabtune/cli/main.py", "lib/fabtune/fabtune/cli/tune.py"],
)  # fmt: skip
def test_who_may_not_read_the_package_is_told_what(installed: Path, closed: str) -> None:
    (installed / closed).chmod(0)
    # Root reads everything.
    other: dict[str, Any] = {} if os.geteuid() else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    done = subprocess.run([installed / "bin/fabtune", "verify"], cwd="/", capture_output=True, text=True, check=False,
                          **other)  # fmt: skip
    (installed / closed).chmod(0o755)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(f"fabtune: {installed / closed}") and done.stderr.count("\n") == 1, done.stderr
    assert "ermission" in done.stderr
