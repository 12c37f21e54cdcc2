# SPDX-License-Identifier: GPL-2.0-or-later
"""What differs between fabrics, or between targets, is asked of them: nobody else compares with their names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabtune.host import targets
from fabtune.lab import fabrics

PACKAGE = Path(fabrics.__file__).parents[2]
# Each file here is a kind of its own and may know its own name.
KINDS = ("lab/fabrics", "host/targets")


def _names() -> set[str]:
    return {*fabrics.known(), *(kind.name for kind in targets.kinds())}


def comparisons(source: str, names: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and text of every comparison with one of `names`, `in` a list and `case` included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.MatchValue):
            words = {
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
            if words & names:
                yield node.lineno, ast.unparse(node)


def test_no_name_of_a_fabric_or_a_target_is_compared_with_outside_its_own_file() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.parent.relative_to(PACKAGE)) not in KINDS
        for line, text in comparisons(path.read_text(), _names())
    ]
    assert not found, "ask the fabric or the target what it can do instead of its name:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('if settings.fabric == "iscsi": pass', 1),
        ('if "scsi_debug" != name: pass', 1),
        ('x = name in ("iscsi", "iser")', 1),
        ('match name:\n    case "srp": pass', 1),
        ('x = {"iscsi": 1}["iscsi"]', 0),
        ('x = name == "wan"', 0),
    ],
)
def test_the_search_finds_what_it_is_for(source: str, count: int) -> None:
    assert len(list(comparisons(source, _names()))) == count


def test_every_fabric_is_found_in_a_file_of_its_own() -> None:
    files = {path for path in (PACKAGE / "lab/fabrics").glob("*.py") if path.name != "__init__.py"}
    assert len(fabrics.known()) == len(files)
    assert all(name == one.NAME for name, one in fabrics.known().items())
