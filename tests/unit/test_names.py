# SPDX-License-Identifier: GPL-2.0-or-later
"""A name means one thing, and what tests in guests name is there."""

import ast
import importlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from sources import trees

TOP = Path(__file__).resolve().parents[2]


def _files() -> list[Path]:
    """Return what git knows of this tree, or all of it where it is no repository."""
    listed = subprocess.run(["git", "-C", str(TOP), "ls-files", "-z"], capture_output=True, text=True, check=False)
    names = [name for name in listed.stdout.split("\0") if name]
    return [path for path in map(TOP.joinpath, names) if path.is_file()]


PACKAGE = TOP / "userspace/fabtune"
# Modules that share a name because they are about one thing.
ONE_MEANING = {
    **dict.fromkeys(("compare", "table"), "cli/ prints what the module below makes"),
    "results": "an index of results: its types, and what makes it",
    "srp": "the protocol, on this host and as a fabric of the lab",
}
# Public functions that share a name because they do one thing, each to what its module is about.
ONE_ACT = {
    "answers": "what a reader of an experiment asks first, answered from its points",
    "as_json": "what the module is about under the keys of its file",
    "begin": "what is written from now on, with nothing in it yet",
    "configure": "every verb's words, added to its parser",
    "figures": "what a record or a load says in numbers",
    "find": "the one of the module's kind that a name, a place or a scope stands for, or all of them",
    "give_back": "a session gets what was kept of it; relogin's also writes that down",
    "identity": "what names a thing for good",
    "is_ours": "whether fabtune wrote it",
    "judge": "what was found, held against what was said",
    "keep": "a file of results that is there to stay",
    "label": "what people call it",
    "load": "a file of the module's kind by its path or name",
    "locate": "a journalled device as it is now; facts/devices asks facts/routes for routes",
    "locked": "nobody else at it meanwhile",
    "main": "a program's entry",
    "measure": "the record of a run, however it is made",
    "names": "what the module ships",
    "observe": "what the PDUs of a session show; measure/capture takes them off the wire first",
    "of": "the module's own kind, made of what is given",
    "parse": "the module's own kind from text",
    "read": "the module's own kind from where it is kept",
    "read_text": "a file's text, or why there is none",
    "reasons": "why there is no figure or verdict",
    "render": "a page as text",
    "run": "a program to its end, and what it printed",
    "run_all": "the runs of an experiment that are not there yet",
    "section": "a part of the report, None where there is nothing to say",
    "sections": "parts of the report",
    "start": "a service, a device or a guest, up from here on",
    "table": "rows under headers",
    "why_not": "why something had better be left alone",
    "write": "the module's own kind to where it is kept",
}


def _several(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names that stand in more than one file, with these."""
    files: dict[str, list[str]] = {}
    for name, file in found:
        files.setdefault(name, []).append(file)
    return {name: where for name, where in files.items() if len(where) > 1}


def test_a_module_s_name_means_one_thing() -> None:
    found = _several((Path(file).stem, file) for file in trees() if not Path(file).stem.startswith("__"))
    assert set(found) == set(ONE_MEANING), found


def test_a_class_s_name_means_one_thing() -> None:
    found = _several(
        (node.name, file)
        for file, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert found == {}


def test_a_public_function_s_name_means_one_thing() -> None:
    found = _several(
        (node.name, file)
        for file, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        # One of several signatures is no other meaning.
        and "typing.overload" not in map(ast.unparse, node.decorator_list)
    )
    assert set(found) == set(ONE_ACT), {name: where for name, where in found.items() if name not in ONE_ACT}


# What is found by its name in every module of a directory, or stands there for whoever reads.
_FOUND = {"BACKEND", "FABRIC", "KIND", "LIMITERS", "__all__"}


def test_each_constant_of_a_module_has_a_reader() -> None:
    """Vulture goes by the name alone: one that is used anywhere hides its namesakes."""
    modules = {
        f"fabtune/{file}".removesuffix(".py").removesuffix("/__init__").replace("/", "."): tree
        for file, tree in trees().items()
    }
    read = {one for module, tree in modules.items() for one in _read(module, tree)}
    unread = [f"{module}.{name}" for module, tree in modules.items() for name in _constants(tree)
              if f"{module}.{name}" not in read and name not in _FOUND]  # fmt: skip
    assert unread == []


def _constants(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def _read(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the full name of each that the module reads: its own, those it imports, and those of modules it imports."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield f"{module}.{node.id}"
    yield from known.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{known.get(node.value.id, '')}.{node.attr}"


def test_what_tests_in_guests_import_is_there() -> None:
    wrong = []
    for path in (path for path in _files() if path.suffix in (".bats", ".bash")):
        for module, names in re.findall(r"from (fabtune[\w.]*) import ([\w, ]+)", path.read_text()):
            for name in (one.split()[0] for one in names.split(",")):
                try:
                    if not hasattr(importlib.import_module(module), name):
                        importlib.import_module(f"{module}.{name}")
                except ImportError:
                    wrong.append(f"{path.relative_to(TOP)}: from {module} import {name}")
    assert wrong == []
