# SPDX-License-Identifier: GPL-2.0-or-later
"""What flows between packages is a type: nothing of Any, no bare table, and documents only where they come and go."""

import ast
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
import sources

PACKAGE = Path(__file__).resolve().parents[2] / "userspace/fabtune"
# Json is the type of what nobody has looked at yet.  It leaves by functions called as_json and the like;
# elsewhere it stands only in these modules.
DOCUMENTS = {
    "host/iproute": "what ip and tc print: each reader looks at the few parts that it needs",
    "host/userfile": "a TOML file as it was parsed, on its way to model/typed.py",
    "measure/workload_run": "a record's environment, handed on",
    "model/document": "the keys of a table that are no field, which nobody looks into",
    "model/runrecord": "a record's environment: kept and shown, never computed with",
    "model/typed": "turns documents into types, and types into documents",
}
_TABLES = ("dict", "Mapping", "MutableMapping", "list", "Sequence", "Iterable", "Iterator", "tuple", "set", "frozenset")
_LEAVING = ("as_json()", "to_json()", "network_json()")

Aliases = set[str]


def _names(annotation: ast.expr) -> set[str]:
    """Return the names in an annotation, ``module.Name`` by its last part."""
    nodes = list(ast.walk(annotation))
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


def _parsed(annotation: ast.expr) -> ast.expr:
    """Return an annotation without its quotation marks."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        # What Annotated says in words is no type.
        with contextlib.suppress(SyntaxError):
            return ast.parse(annotation.value, mode="eval").body
    return annotation


def is_untyped(annotation: ast.expr, aliases: Aliases) -> bool:
    """Tell whether an annotation says nothing of what it holds, by itself or by one of the names for such."""
    annotation = _parsed(annotation)
    inside = [_parsed(node) for node in ast.walk(annotation) if isinstance(node, ast.expr)]
    if any(_names(one) & (aliases | {"Any"}) for one in inside):
        return True
    held = {id(node.value) for node in inside if isinstance(node, ast.Subscript)}
    return any(
        (isinstance(node, ast.Name) and node.id in _TABLES and id(node) not in held)
        or (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id in _TABLES
            and "object" in _names(node.slice)
        )
        for node in inside
    )


def is_document(annotation: ast.expr, aliases: Aliases) -> bool:
    """Tell whether an annotation speaks of JSON that nobody has looked at yet."""
    return bool(_names(_parsed(annotation)) & (aliases | {"Json"}))


def _given(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """Return name and value of what may be a type's other name."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node.value
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        return (node.target.id, node.value) if "TypeAlias" in ast.unparse(node.annotation) else None
    return None


def aliases_of(trees: Iterable[ast.Module], kind: str) -> Aliases:
    """Return all names that any of `trees` gives to what is untyped, or to documents, names for names included."""
    judge = {"untyped": is_untyped, "document": is_document}[kind]
    given = [one for tree in trees for node in tree.body if (one := _given(node))]
    found: Aliases = set()
    while more := {
        name for name, value in given
        # A table is no type: of values only what reads as an annotation counts.
        if name not in found and isinstance(value, ast.Subscript | ast.BinOp | ast.Name) and judge(value, found)
    }:  # fmt: skip
        found |= more
    return found


def spots(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield each public function's parameters and results, fields and base classes, with their annotations."""
    for node in tree.body:
        inside = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if isinstance(node, ast.ClassDef) and inside:
            yield from ((f"class {node.name}", base) for base in node.bases)
        for one in node.body if isinstance(node, ast.ClassDef) and inside else [node]:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_private(one.name):
                taken = (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs, one.args.vararg, one.args.kwarg)
                for argument in taken:
                    if argument and argument.annotation:
                        yield f"{one.name}({argument.arg})", argument.annotation
                if one.returns:
                    yield f"{one.name}()", one.returns
            elif isinstance(one, ast.AnnAssign) and not ast.unparse(one.target).startswith("_"):
                yield ast.unparse(one.target), one.annotation


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _trees() -> dict[str, ast.Module]:
    return {name.removesuffix(".py"): tree for name, tree in sources.trees().items()}


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports of the package, as paths without .py."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.removeprefix("fabtune.").replace(".", "/") for one in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fabtune."):
            below = str(node.module).removeprefix("fabtune.").replace(".", "/")
            yield from (below, *(f"{below}/{one.name}" for one in node.names))


def _at_borders(trees: Mapping[str, ast.Module]) -> list[str]:
    """Return the modules that another package imports."""
    found = {
        name
        for here, tree in trees.items()
        for name in _imported(tree)
        if name in trees and name.partition("/")[0] != here.partition("/")[0]
    }
    return sorted(found)


# A point's figures are reached by name: which there are depends on workload and fabric, and on what was judged of them.
POINTS = {
    "experiment/expect": ["judge(rows)"],
    "model/results": [
        "decides(point)",
        "number_of_runs(row)",
        "paced(point)",
        "class Point",
        "__getitem__()",
        "__or__(other)",
    ],
    "report/demo": ["FACETS"],
    "report/figure": ["table(rows)", "reasons(rows)", "write(rows)", "answers(rows)"],
    "report/seednotes": ["number_of_seeds(rows)", "too_few(rows)", "said_of_seeds(places)"],
}


def test_nothing_untyped_crosses_a_border() -> None:
    trees = _trees()
    aliases = aliases_of(trees.values(), "untyped")
    found = {
        name: bad
        for name in _at_borders(trees)
        if (bad := [what for what, annotation in spots(trees[name]) if is_untyped(annotation, aliases)])
    }
    assert found == POINTS, f"a frozen type belongs here: {found}"


def test_documents_stand_only_where_they_come_and_go() -> None:
    trees = _trees()
    aliases = aliases_of(trees.values(), "document")
    found = {
        name: bad
        for name in _at_borders(trees)
        if (bad := [what for what, annotation in spots(trees[name])
                    if what not in _LEAVING and is_document(annotation, aliases)])
    }  # fmt: skip
    more = {name: bad for name, bad in found.items() if name not in DOCUMENTS}
    assert not more, f"read it with model/typed.py and hand on what came of it: {more}"
    assert found.keys() == DOCUMENTS.keys(), "no longer needed in the list"


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: dict[str, Any]) -> int: ...",
        "def f(a: Mapping[str, Any] | None) -> int: ...",
        "def f() -> 'list[dict[str, Any]]': ...",
        "x: dict[str, Any]",
        "Record = dict[str, Any]\ndef f(a: Record) -> int: ...",
        "Record = dict[str, Any]\ndef f(a: 'list[Record]') -> int: ...",
        "Record: TypeAlias = dict[str, Any]\nRecords = list[Record]\ndef f(a: Records) -> int: ...",
        "Record = dict[str, Any] | None\ndef f(a: records.Record) -> int: ...",
        "def f(a: dict[str, object]) -> int: ...",
        "def f() -> list[dict[str, object]]: ...",
        "def f(a: dict) -> int: ...",
        "def f() -> list[dict]: ...",
        "def f(a: Any) -> int: ...",
        "def f() -> Any: ...",
        "def f(*a: Any) -> int: ...",
        "async def f(**a: Any) -> int: ...",
        "class C:\n    def f(self, a: Any) -> int: ...",
        "class C:\n    def __getitem__(self, a: str) -> Any: ...",
        "class C(Mapping[str, Any]): ...",
        "class C:\n    x: tuple[Any, ...]",
    ],
)
def test_what_is_untyped_is_seen(source: str) -> None:
    tree = ast.parse(source)
    assert len([what for what, one in spots(tree) if is_untyped(one, aliases_of([tree], "untyped"))]) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: dict[str, int], b: Callable[[object], bool], c: object) -> list[tuple[str, ...]]: ...",
        "def _f(a: Any) -> Any: ...",
        "class _C:\n    x: Any",
        "Row = Mapping[str, int | None]\ndef f(a: Row) -> int: ...",
        "Json = bool | Mapping[str, 'Json']\ndef f(a: dict[str, Json]) -> int: ...",
    ],
)
def test_what_is_typed_is_let_pass(source: str) -> None:
    tree = ast.parse(source)
    assert not [what for what, one in spots(tree) if is_untyped(one, aliases_of([tree], "untyped"))]


@pytest.mark.parametrize(
    "source", ["def f(a: dict[str, Json]) -> int: ...", "Row = dict[str, Json]\ndef f() -> list[Row]: ..."]
)
def test_documents_are_seen(source: str) -> None:
    tree = ast.parse(source)
    assert len([what for what, one in spots(tree) if is_document(one, aliases_of([tree], "document"))]) == 1
