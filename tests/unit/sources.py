# SPDX-License-Identifier: GPL-2.0-or-later
"""The package's own sources, parsed once for all the tests that look into them."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "userspace/fabtune"


@cache
def trees() -> dict[str, ast.Module]:
    """Return every module of the package by its path below it; not to be changed."""
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
