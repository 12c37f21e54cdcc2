# SPDX-License-Identifier: GPL-2.0-or-later
"""A Python that cannot run fabtune is told so at once, with what to do; the launcher picks the one that can."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sources import trees

from fabtune import needs

TOP = Path(__file__).resolve().parents[2]
PACKAGE = TOP / "userspace/fabtune"
LAUNCHER = TOP / "userspace/bin/fabtune"


def _run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/",
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(TOP / "userspace"), **environment},
    )  # fmt: skip


def test_a_python_without_the_modules_names_them_and_their_packages_before_anything_else() -> None:
    # Without site there is nothing but Python's own.
    done = _run("/usr/bin/python3", "-S", "-m", "fabtune", "plan", "wan", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1
    assert "cattrs (Debian package python3-cattr)" in done.stderr
    assert done.stderr.endswith(": apt install " + " ".join(needs.MODULES.values()) + "\n")


def test_another_python_than_the_system_s_is_shown_the_launcher(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.symlink_to("/usr/bin/python3")
    done = _run(other, "-S", "-m", "fabtune", "--version")
    assert done.returncode == 1 and done.stderr.startswith(f"fabtune: {other} lacks attrs ")
    assert f": run {LAUNCHER}, which takes the system's Python" in done.stderr


def test_an_old_python_can_read_what_tells_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("__init__.py", "__main__.py", "needs.py", "packages.py")
    for path in (*(PACKAGE / name for name in names), LAUNCHER):
        tree = ast.parse(path.read_text(), feature_version=(3, 6))
        # Annotations are evaluated, and an old Python does not know today's.
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.returns]
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert needs.complaint("x").startswith("fabtune: /usr/bin/python3 is Python 3.9, and fabtune needs 3.11 or later")


def test_what_the_package_imports_is_what_it_says_it_needs() -> None:
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    theirs = {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"fabtune"}
    assert theirs == set(needs.MODULES)
    run_with = re.search(r"^PACKAGES_RUN := (.*)$", (TOP / "Makefile").read_text(), re.MULTILINE)
    assert run_with and set(needs.MODULES.values()) == set(run_with[1].split()) - {"python3"}
    control = (TOP / "debian/control").read_text().partition("\nPackage: fabtune\n")[2].partition("\n\n")[0]
    assert set(needs.MODULES.values()) <= set(re.findall(r"[\w-]+", control.partition("Recommends:")[0]))
    least = re.search(r'^requires-python = ">=(\d+)\.(\d+)"$', (TOP / "pyproject.toml").read_text(), re.MULTILINE)
    assert least and tuple(map(int, least.groups())) == needs.LEAST_PYTHON


def test_the_launcher_runs_from_anywhere_by_a_link_and_beside_hostile_names(tmp_path: Path) -> None:
    link = tmp_path / "ft"
    link.symlink_to(LAUNCHER)
    # What lies in the directory, on the PATH or in PYTHONPATH of whoever types it is not what root runs.
    for name in ("json", "fabtune", "argparse"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken in')\n")
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 99\n")
    (tmp_path / "python3").chmod(0o755)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([link, "profiles", "--json"], capture_output=True, text=True, check=False, cwd=tmp_path,
                          env=environment)  # fmt: skip
    assert done.returncode == 0 and '"wan"' in done.stdout, done.stderr


def test_the_launcher_finds_an_installed_tree(tmp_path: Path) -> None:
    done = _run("make", "-s", "-C", TOP, "install", f"DESTDIR={tmp_path}", "PREFIX=/usr")
    assert done.returncode == 0, done.stderr
    found = _run(tmp_path / "usr/bin/fabtune", "profiles", "--json", PATH=os.environ["PATH"])
    assert found.returncode == 0 and str(tmp_path / "usr/lib/fabtune/profiles/wan.toml") in found.stdout, found.stderr
