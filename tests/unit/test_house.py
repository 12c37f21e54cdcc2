# SPDX-License-Identifier: GPL-2.0-or-later
"""What the package's own sources must keep to: one place for each way of touching the host."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "userspace/fabtune"


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def _imports(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return found


def _calls(tree: ast.Module, *names: str) -> bool:
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(one, ast.Attribute) and one.attr in names for one in functions)


def test_programs_are_run_in_one_place() -> None:
    found = {name for name, tree in _sources() if "subprocess" in _imports(tree) or _calls(tree, "system", "popen")}
    assert found == {"host/run.py"}


def test_files_are_put_in_place_in_one_place() -> None:
    # A rename of one's own is how half a file, or somebody else's owner and mode, comes about.
    found = {name for name, tree in _sources() if any(map(_renames, ast.walk(tree)))}
    # lab/cache.py: a directory that is made whole or not at all.
    assert found == {"host/files.py", "lab/cache.py"}


def _renames(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    function, module = node.func.attr, node.func.value
    if isinstance(module, ast.Name) and module.id == "os":
        return function in ("rename", "renames", "replace", "link")
    # str.replace and files.replace take two arguments, dataclasses.replace names them.
    return function in ("rename", "hardlink_to") or (
        function == "replace" and len(node.args) == 1 and not node.keywords
    )


def test_who_uses_a_disk_is_asked_in_one_place() -> None:
    found = {name for name, _ in _sources() if re.search(r'proc/swaps|/ "swaps"', (PACKAGE / name).read_text())}
    assert found == {"host/users.py"}


def test_wwids_are_read_in_one_place() -> None:
    found = {name for name, _ in _sources() if re.search(r'device/wwid|/ "wwid"', (PACKAGE / name).read_text())}
    # tune/persist.py: a udev rule, which udev reads.
    assert found == {"host/blocks.py", "tune/persist.py"}


def test_the_host_layer_knows_nothing_above_it() -> None:
    above = {
        name: sorted(found)
        for name, tree in _sources()
        if name.startswith("host/")
        and (found := {one for one in _imports(tree) if one.startswith("fabtune.") and one.split(".")[1] not in _BELOW})
    }
    assert above == {}


_BELOW = ("errors", "host", "model", "stat", "installed")


def test_every_file_names_its_licence() -> None:
    if not (TOP / ".git").exists():
        pytest.skip("not a git tree")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, check=True, capture_output=True, text=True).stdout
    globs = [glob for one in tomllib.loads((TOP / "REUSE.toml").read_text())["annotations"] for glob in one["path"]]
    without = {
        name
        for name in listed.strip("\0").split("\0")
        # The text of the licence itself.
        if name != "LICENSE"
        and not any(PurePath(name).match(glob) for glob in globs)
        # A file that somebody is about to delete is listed, but not there.
        and (TOP / name).is_file()
        and b"SPDX-License-Identifier: " not in (TOP / name).read_bytes()[:1000]
    }
    assert without == set()
