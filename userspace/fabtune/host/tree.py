# SPDX-License-Identifier: GPL-2.0-or-later
"""Where /sys, /proc and /etc are, and how their files are read and written."""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

# FABTUNE_ROOT lets support and tests point at a copy of another host's trees.
ROOT = Path(os.environ.get("FABTUNE_ROOT", "/"))
SYS = ROOT / "sys"
PROC = ROOT / "proc"
ETC = ROOT / "etc"

_READ_BYTES = 1 << 16
_WHOLE = re.compile(r"-?[0-9]{1,20}")


def read_text(path: Path | str) -> str | None:
    """Return the stripped text of `path`, or None when it is absent or not readable."""
    try:
        return stripped_text(path)
    except OSError:
        return None


def read_texts(directory: str, names: Iterable[str]) -> dict[str, str]:
    """Return the stripped texts of those attributes `names` in `directory` that can be read, by name."""
    try:
        place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return {}
    found = {}
    try:
        for name in names:
            with contextlib.suppress(OSError):
                # sysfs's paths are long and full of links: they are walked once.
                found[name] = attribute_text(name, within=place)
    finally:
        os.close(place)
    return found


def attribute_text(path: str, within: int | None = None, *, through_link: bool = True) -> str:
    """Return the stripped text of attribute `path` of sysfs, from directory `within` on if it is given.

    Raises OSError, with ELOOP where `path` is a link and not to be followed.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if through_link else os.O_NOFOLLOW), dir_fd=within)
    try:
        # An attribute is a page at most, which comes whole.
        return os.read(fd, _READ_BYTES).decode(errors="replace").strip()
    finally:
        os.close(fd)


def stripped_text(path: Path | str) -> str:
    """Return the stripped text of `path`.  Raises OSError."""
    # Of a thousand sessions it is forty thousand files: a Python file object for each would take half of the time.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _READ_BYTES)
        # What the kernel writes in parts ends with an empty one alone.
        while more := os.read(fd, _READ_BYTES) if data else b"":
            data += more
    finally:
        os.close(fd)
    return data.decode(errors="replace").strip()


def names(place: Path | str) -> list[str]:
    """Return the names in directory `place` in order, none where it is not there."""
    try:
        return sorted(os.listdir(place))  # noqa: PTH208 - names are wanted; paths take longer than the listing
    except OSError:
        return []


def whole(text: str | None) -> int | None:
    """Return the number that a text of the kernel is, None for any other text (``²``, 5,000 digits, nothing)."""
    return int(text) if text and _WHOLE.fullmatch(text) else None


def write_text(path: Path | str, value: str) -> None:
    """Write `value` to an existing file of the kernel in one write().  Raises OSError."""
    # O_CREAT would turn a misspelt path in a copied tree into a new file.
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
