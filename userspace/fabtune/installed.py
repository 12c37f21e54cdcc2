# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the shipped data files are: in a checkout or beside the installed package."""

from pathlib import Path

from fabtune.errors import FabtuneError

PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """Return the directory of the shipped data `name` (``tunables``, ``profiles``, ...).

    An installed tree keeps it beside the package, a checkout at its top or under
    ``userspace/``.  Raises FabtuneError when neither has it.
    """
    for base in (PACKAGE.parent, PACKAGE.parent.parent):
        if (base / name).is_dir():
            return base / name
    raise FabtuneError(f"data directory '{name}' not found beside {PACKAGE}; reinstall fabtune")
