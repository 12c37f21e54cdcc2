# SPDX-License-Identifier: GPL-2.0-or-later
"""What the package's own sources must keep to: one place for each way of touching the host."""

import ast
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest
from sources import trees

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "userspace/fabtune"


def _imports(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return found


# Modules that are nothing but ways to start another program, and what in `os` and `asyncio` is one.
_STARTERS = {"subprocess", "pty", "multiprocessing", "runpy", "_posixsubprocess", "asyncio.subprocess"}
_STARTS = re.compile(r"os\.(system|popen|spawn\w+|exec\w+|posix_spawnp?|fork|forkpty)|asyncio\.(create_)?subprocess\w*")


def starts_programs(tree: ast.Module) -> bool:
    """Tell whether a module starts other programs."""
    known = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }  # fmt: skip
    reached = {
        f"{known.get(node.value.id, node.value.id)}.{node.attr}"
        for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }  # fmt: skip
    reached |= {"asyncio." + one.partition(".")[2] for one in reached if "create_subprocess" in one}
    return bool(_imports(tree) & _STARTERS) or any(map(_STARTS.fullmatch, reached | _imports(tree)))


def test_programs_are_run_in_one_place() -> None:
    assert {name for name, tree in trees().items() if starts_programs(tree)} == {"host/run.py"}


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess", "from subprocess import run", "import os\nos.system('x')", "import os\nos.popen('x')",
        "import os\nos.spawnvp(os.P_WAIT, 'x', [])", "import os as host\nhost.execv('x', [])",
        "from os import execvp", "from os import posix_spawn as start", "import os\nstart = os.posix_spawnp",
        "import os\nos.fork()", "import pty\npty.spawn('x')", "from multiprocessing import Process",
        "import asyncio\nasyncio.create_subprocess_exec('x')", "from asyncio import create_subprocess_shell",
        "import asyncio.subprocess", "loop.subprocess_exec(x)\nimport asyncio\nasyncio.subprocess.Process",
    ],
)  # fmt: skip
def test_a_program_that_is_started_is_seen(source: str) -> None:
    assert starts_programs(ast.parse(source))


def imports_upward(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield each import at run time that may reach another package than its own; import-linter sees none of them."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if ast.unparse(node.func).rpartition(".")[2] not in ("import_module", "__import__"):
            continue
        text = ast.unparse(node.args[0]).removeprefix("f").strip("'\"")
        # A package that is imported as a whole is one below, which import-linter has seen to.
        if not re.match(rf"fabtune\.{name.partition('/')[0]}\.|{{(\w+\.)?__name__}}\.", text):
            yield ast.unparse(node)


def test_imports_at_run_time_stay_in_their_own_package() -> None:
    # cli/ is the top floor: whatever it imports lies below.
    below = {name: tree for name, tree in trees().items() if not name.startswith("cli/")}
    found = [f"{name}: {one}" for name, tree in below.items() for one in imports_upward(name, tree)]
    assert not found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('importlib.import_module("fabtune.cli.main")', 1),
        ('import_module("fabtune.report.page")', 1),
        ('importlib.import_module(f"fabtune.{name}")', 1),
        ("importlib.import_module(name)", 1),
        ('__import__("fabtune.cli")', 1),
        ('importlib.import_module("fabtune.host.run")', 0),
        ('importlib.import_module(f"{__name__}.{one}")', 0),
        ('importlib.import_module(f"{rules.__name__}.{one}")', 0),
    ],
)
def test_an_import_at_run_time_is_seen(source: str, count: int) -> None:
    assert len(list(imports_upward("host/tools.py", ast.parse(source)))) == count


def test_files_are_put_in_place_in_one_place() -> None:
    # A rename of one's own is how half a file, or somebody else's owner and mode, comes about.
    found = {name for name, tree in trees().items() if any(map(_renames, ast.walk(tree)))}
    # lab/cache.py, earlier.py and, in bpffs, portal_options.py: a directory that is there whole or not at all.
    assert found == {"experiment/earlier.py", "host/files.py", "host/portal_options.py", "lab/cache.py"}


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


def test_the_command_line_makes_no_pages() -> None:
    # It asks experiment/ or report/ for them, so that whoever has the package has them too.
    makers = {"report.page", "report.results_pages", "report.demo"}
    found = {name: sorted(used) for name, tree in trees().items() if name.startswith("cli/")
             and (used := _imports(tree) & {f"fabtune.{one}" for one in makers})}  # fmt: skip
    assert found == {}


def test_who_uses_a_disk_is_asked_in_one_place() -> None:
    found = {name for name in trees() if re.search(r'proc/swaps|/ "swaps"', (PACKAGE / name).read_text())}
    assert found == {"host/users.py"}


def test_wwids_are_read_in_one_place() -> None:
    found = {name for name in trees() if re.search(r'device/wwid|/ "wwid"', (PACKAGE / name).read_text())}
    # tune/persist.py: a udev rule, which udev reads.
    assert found == {"host/blocks.py", "tune/persist.py"}


def test_the_host_layer_knows_nothing_above_it() -> None:
    above = {
        name: sorted(found)
        for name, tree in trees().items()
        if name.startswith("host/")
        and (found := {one for one in _imports(tree) if one.startswith("fabtune.") and one.split(".")[1] not in _BELOW})
    }
    assert above == {}


_BELOW = ("errors", "packages", "host", "model", "stat", "installed")


def too_long(name: str, source: str) -> Iterator[str]:
    """Yield what is longer in a file than one can take in: a function above 50 lines, a file above 400."""
    lines = source.count("\n")
    if lines > 400:
        yield f"{name}: {lines} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > 50:
                yield f"{name}: {node.name} has {length} lines"


def test_no_function_is_above_50_lines_and_no_file_above_400() -> None:
    found = [text for name in trees() for text in too_long(name, (PACKAGE / name).read_text())]
    assert not found, "split them by subject:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("def f():\n" + "    x\n" * 50, 1),
        ("class C:\n    async def f(self):\n" + "        x\n" * 50, 1),
        ("def f():\n" + "    x\n" * 49, 0),
        ("x\n" * 401, 1),
        ("x\n" * 400, 0),
    ],
)
def test_what_is_too_long_is_seen(source: str, count: int) -> None:
    assert len(list(too_long("f.py", source))) == count


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
        and b"SPDX-License-Identifier: GPL-2.0" not in (TOP / name).read_bytes()[:1000]
    }
    assert without == set()


def test_a_negated_command_of_a_bats_test_can_fail_it() -> None:
    # Bash's errexit passes over `! command`: a test with one that is not its last goes on whatever the command says.
    suites = [*(TOP / "tests").rglob("*.bats"), *(TOP / "tests").rglob("*.bash")]
    lines = [(path.name, line) for path in suites for line in re.sub(r"\\\n\s*", " ", path.read_text()).splitlines()]
    assert len(suites) > 50
    assert [one for one in lines if re.match(r"\s*! ", one[1]) and "||" not in one[1]] == []


def test_every_shell_script_is_read_by_shellcheck(tmp_path: Path) -> None:
    if not (TOP / ".git").exists():
        pytest.skip("not a git tree")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, check=True, capture_output=True, text=True).stdout
    files = [TOP / name for name in listed.split("\0") if name and (TOP / name).is_file()]
    first = {path.relative_to(TOP).as_posix(): path.read_bytes().partition(b"\n")[0] for path in files}
    scripts = {name for name, line in first.items() if re.match(rb"#!.*[/ ](ba|da|k)?sh\b", line)}
    recipe = subprocess.run(["make", "-n", "check-static"], cwd=TOP, check=True, capture_output=True, text=True).stdout
    (tmp_path / "shellcheck").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "shellcheck").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = set[str]()
    for line in (line for line in recipe.replace("\\\n", " ").splitlines() if "shellcheck --" in line):
        said = subprocess.run(line, shell=True, cwd=TOP, env=environment, check=True, capture_output=True, text=True)
        words.update(said.stdout.split())
    assert len(scripts) > 30 and not scripts - words
