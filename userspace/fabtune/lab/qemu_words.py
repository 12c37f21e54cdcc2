# SPDX-License-Identifier: GPL-2.0-or-later
"""Paths in QEMU's words, in which a comma begins the next option: there a comma of the path's own is doubled."""

from pathlib import Path

_FILE = "file,path="


def in_option(path: Path) -> str:
    """Return `path` as the value of one of several options that a word has."""
    return str(path).replace(",", ",,")


def file_line(path: Path) -> str:
    """Return the chardev definition of a serial line that is written to `path`."""
    return _FILE + in_option(path)


def file_of(line: str) -> Path | None:
    """Return the file that the chardev definition `line` names; None where it is of another kind."""
    return Path(line.removeprefix(_FILE).replace(",,", ",")) if line.startswith(_FILE) else None
