# SPDX-License-Identifier: GPL-2.0-or-later
"""What flows between packages is a type: no dict[str, Any] in what one package gives to another."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "userspace/fabtune"
# Files that are read and written: JSON's own shape, before a converter has made a type of it.
# How many there still are, by file.  It only ever becomes less.
ALLOWED: dict[str, int] = {
    "experiment/expect": 1,
    "host/iproute": 2,
    "host/userfile": 2,
    "measure/fio": 7,
    "measure/metrics": 2,
    "measure/proof": 1,
    "measure/workload_run": 1,
    "model/runrecord": 11,
    "report/cells": 1,
    "report/demo": 3,
    "report/figure": 4,
    "report/runs": 2,
}


def _untyped(annotation: ast.expr | None, names: set[str]) -> bool:
    """Tell whether `annotation` speaks of a table of anything, by itself or by one of `names` for it."""
    if annotation is None:
        return False
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    return any(
        isinstance(node, ast.Subscript)
        and ast.unparse(node) in ("dict[str, Any]", "Mapping[str, Any]", "MutableMapping[str, Any]")
        or isinstance(node, ast.Name)
        and node.id in names
        for node in ast.walk(annotation)
    )


def _aliases(tree: ast.Module) -> set[str]:
    """Return the names that a module gives a table of anything."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and _untyped(node.value, found):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _public(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each public function's and field's name with what it takes or returns."""
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else [node]
        for one in members:
            if isinstance(one, ast.FunctionDef) and (not one.name.startswith("_") or one.name == "__init__"):
                every = (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)
                yield from ((f"{one.name}({argument.arg})", argument.annotation) for argument in every)
                yield f"{one.name}()", one.returns
            elif isinstance(one, ast.AnnAssign) and not ast.unparse(one.target).startswith("_"):
                yield ast.unparse(one.target), one.annotation


def _imported_elsewhere() -> set[str]:
    """Return the modules that another package imports, as paths in the package without .py."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        here = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fabtune."):
                below = str(node.module).removeprefix("fabtune.").replace(".", "/")
                for name in (below, *(f"{below}/{one.name}" for one in node.names)):
                    if name.partition("/")[0] != here and (PACKAGE / f"{name}.py").exists():
                        found.add(name)
    return found


def test_no_table_of_anything_crosses_a_border() -> None:
    found: dict[str, list[str]] = {}
    for name in sorted(_imported_elsewhere()):
        tree = ast.parse((PACKAGE / f"{name}.py").read_text())
        names = _aliases(tree)
        spots = [what for what, annotation in _public(tree) if _untyped(annotation, names)]
        if spots:
            found[name] = spots
    more = {name: spots for name, spots in found.items() if len(spots) > ALLOWED.get(name, 0)}
    assert not more, f"a frozen type belongs here: {more}"


def test_a_table_of_anything_is_found() -> None:
    tree = ast.parse("Record = dict[str, Any]\ndef f(a: 'list[Record]') -> int: ...\nx: dict[str, Any]\n_y: Record\n")
    assert [what for what, one in _public(tree) if _untyped(one, _aliases(tree))] == ["f(a)", "x"]
