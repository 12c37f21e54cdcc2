# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the shipped data files are, in a checkout or beside the installed package, and how to start it again."""

import sys
from pathlib import Path

from fabtune.errors import FabtuneError

PACKAGE = Path(__file__).resolve().parent
# What Python imports this package from.
PROGRAM = PACKAGE.parent


def data_dir(name: str) -> Path:
    """Return the directory of the shipped data `name` (``tunables``, ``profiles``, ...).

    An installed tree keeps it beside the package, a checkout at its top or under
    ``userspace/``.  Raises FabtuneError when neither has it.
    """
    for base in (PROGRAM, PROGRAM.parent):
        if (base / name).is_dir():
            return base / name
    raise FabtuneError(f"data directory '{name}' not found beside {PACKAGE}; reinstall fabtune")


def command_again(module: str = "fabtune") -> list[str]:
    """Return the command that runs `module` of this very package; it needs `environment_again` too."""
    return [sys.executable, "-m", module]


def environment_again() -> dict[str, str]:
    """Return what a process must have in its environment to run `command_again`, however this one was started.

    What lies in the directory in which it begins is not imported in the place of what Python and fabtune bring.
    """
    return {"PYTHONPATH": str(PROGRAM), "PYTHONSAFEPATH": "1"}
