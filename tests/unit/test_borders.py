# SPDX-License-Identifier: GPL-2.0-or-later
"""What differs between fabrics, or between targets, is asked of them: nobody else compares with their names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtune.catalog.tunable import shipped_catalog
from fabtune.host import targets
from fabtune.lab import fabrics

PACKAGE = Path(fabrics.__file__).parents[2]
# Each file here is a kind of its own and may know its own name.
KINDS = ("lab/fabrics", "host/targets")


# Words that are a fabric's or a target's name, and something else besides.
OTHER_MEANINGS = {
    "catalog/reference.py": ("srp", "iscsi"),  # the vocabulary's files
    "lab/cpu_time.py": ("nvmet",),  # the kernel's modules
    "measure/wire.py": ("iscsi",),  # tshark's protocol
    "packages.py": ("tgt",),  # a package of Debian's
    "tune/journal.py": ("iscsi", "target"),  # directories of /etc
    "tune/logout.py": ("iser",),  # the kernel's drivers
    "tune/pending.py": ("iscsi", "srp"),  # the vocabulary's files: parameters of a module, for all its sessions
}


def _names() -> set[str]:
    return {*fabrics.known(), *(kind.name for kind in targets.kinds())}


# Methods of a text, and functions of re and fnmatch, that ask what a name is.
_ASKING = {
    "startswith", "endswith", "removeprefix", "removesuffix", "rfind", "index", "count", "partition", "get",
    "match", "fullmatch", "search", "fnmatch", "compile",
}  # fmt: skip


def _words(*nodes: ast.AST | None) -> set[str]:
    """Return the texts that stand anywhere in `nodes`."""
    inside = (one for node in nodes if node for one in ast.walk(node))
    return {one.value for one in inside if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def _collected(node: ast.AST) -> set[str]:
    """Return the texts that a literal collection holds, or a table has for keys; a pair is no collection."""
    if isinstance(node, ast.Dict):
        return {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    if isinstance(node, ast.Set | ast.List | ast.Tuple):
        return {one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return set()


def decisions(source: str, names: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and text of whatever is decided by one of `names`.

    That is a comparison, `in` a list and `case` included; a set, list or table of them; a question for a prefix.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.MatchValue):
            words = _words(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ASKING:
            words = {word.strip("^$*.") for word in _words(*node.args[:1])}
        elif isinstance(node, ast.Subscript):
            words = _words(node.slice)
        else:
            words = _collected(node)
        if words & names:
            yield node.lineno, ast.unparse(node)


def test_nothing_is_decided_by_the_name_of_a_fabric_or_a_target_outside_its_own_file() -> None:
    found = [
        f"{name}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.parent.relative_to(PACKAGE)) not in KINDS
        for name in [str(path.relative_to(PACKAGE))]
        for line, text in decisions(path.read_text(), _names() - set(OTHER_MEANINGS.get(name, ())))
    ]
    assert not found, "ask the fabric or the target what it can do instead of its name:\n" + "\n".join(found)


# The floors that speak of single tunables: what limits and what lifts it, what is dangerous, what a session would do.
_OF_TUNABLES = {
    "lint/rules", "why/limiters", "host/targets",
    "tune/verify.py",  # who else is known to write a tunable
}  # fmt: skip


def test_nothing_is_decided_by_a_target_s_tunable_outside_its_file() -> None:
    known = {one.name for one in shipped_catalog().tunables.values() if targets.of_scope(one.scope)}
    found = [
        f"{name}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in [str(path.relative_to(PACKAGE))]
        if not {name, name.rpartition("/")[0]} & _OF_TUNABLES
        for line, text in decisions(path.read_text(), known)
    ]
    assert not found, "ask the target what its tunables are to each other:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('if settings.fabric == "iscsi": pass', 1),
        ('if "scsi_debug" != name: pass', 1),
        ('x = name in ("iscsi", "other")', 2),
        ('match name:\n    case "srp": pass', 1),
        ('WITHOUT_PATH = {"scsi_debug"}', 1),
        ('ISCSI_ONLY = frozenset(["iscsi", "iser"])', 1),
        ('DEPTHS = {"iscsi": 1}', 1),
        ('x = DEPTHS["iscsi"]', 1),
        ('x = DEPTHS.get("iser", 1)', 1),
        ('if name.startswith("iser"): pass', 1),
        ('if name.endswith(("iser", "x")): pass', 2),
        ('if re.match("^srp$", name): pass', 1),
        ('x = name == "wan"', 0),
        ('x = fabrics.find("iscsi")', 0),
    ],
)
def test_the_search_finds_what_it_is_for(source: str, count: int) -> None:
    assert len(list(decisions(source, _names()))) == count


def test_every_fabric_is_found_in_a_file_of_its_own() -> None:
    files = {path for path in (PACKAGE / "lab/fabrics").glob("*.py") if path.name != "__init__.py"}
    assert len(fabrics.known()) == len(files)
    assert all(name == one.NAME for name, one in fabrics.known().items())
