# SPDX-License-Identifier: GPL-2.0-or-later
"""Where other programs are: this host's for this host alone."""

import shutil
from pathlib import Path

from fabtune.errors import UnsupportedError
from fabtune.host import tree


def find(program: str, package: str) -> str:
    """Return the path of `program`, which `package` brings.  Raises UnsupportedError.

    FABTUNE_ROOT points at a copy of a host's trees: only programs that lie in it may stand for that host's, for
    the others would show and change the host that fabtune runs on.
    """
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if path is None:
        raise UnsupportedError(f"{program} is not installed (package {package})")
    if not in_tree(path):
        raise UnsupportedError(f"{program}: not asked, for FABTUNE_ROOT={tree.ROOT} is not the host that {path} is for")
    return path


def in_tree(path: str) -> bool:
    """Tell whether `path` belongs to the host whose trees are looked at."""
    return Path("/") == tree.ROOT or Path(path).absolute().is_relative_to(tree.ROOT.absolute())
