# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads a file named on the command line or in another file, if it is a regular one of bounded size.

Anything else that a path may lead to (a device that never ends, a FIFO that nobody writes to, a sparse
file of 10 GB) is refused before a byte of it is read.
"""

import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

from fabtune.errors import InputError
from fabtune.model.document import Json

# The parser's time grows with the square of a dotted key's parts and of the tables' number.
_MAX_DOTS_A_LINE, _MAX_TABLES = 200, 2000
_KINDS = (
    (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"), (stat.S_ISSOCK, "a socket"),
)  # fmt: skip


def read_bytes(path: Path, most: int) -> bytes:
    """Return the content of the regular file `path` of at most `most` bytes.  Raises InputError naming it."""
    try:
        # Opening alone may act on a device (a tape rewinds), so its kind is asked first.
        _check(path, Path(path).stat(), most)
        # Should a FIFO have taken its place meanwhile, this does not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            _check(path, os.fstat(descriptor), most)
            data = file.read(most + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except ValueError as error:
        raise InputError(f"{str(path)!r}: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    if len(data) > most:
        raise InputError(f"{path}: grew while it was read; at most {most} bytes are allowed")
    return data


def size_of(path: Path, most: int) -> int:
    """Return the size of the regular file `path`, of at most `most` bytes, unread.  Raises InputError naming it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    _check(path, found, most)
    return found.st_size


def read_text(path: Path, most: int) -> str:
    """Return the UTF-8 text of the regular file `path` of at most `most` bytes.  Raises InputError naming it."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text at byte {error.start}") from None


def read_toml(path: Path, most: int) -> dict[str, Json]:
    """Return the parsed TOML of the regular file `path` of at most `most` bytes.  Raises InputError naming it."""
    return parse_toml(read_text(path, most), path)


def parse_toml(text: str, path: Path) -> dict[str, Json]:
    """Return the parsed TOML `text` of `path`, of which the caller has bounded the size.  Raises InputError."""
    tables = 0
    for number, line in enumerate(text.splitlines(), 1):
        tables += line.lstrip().startswith("[")
        if line.count(".") > _MAX_DOTS_A_LINE or tables > _MAX_TABLES:
            what = f"{_MAX_TABLES} tables" if tables > _MAX_TABLES else f"{_MAX_DOTS_A_LINE} dots on one line"
            raise InputError(f"{path}: line {number}: more than {what}")
    try:
        parsed = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # ValueError: also int() refusing numbers of more than 4300 digits.
        raise InputError(f"{path}: not valid TOML: {error}") from None
    if not all(-(1 << 63) <= number < 1 << 63 for number in _integers(parsed)):
        # Python takes more than TOML has, and cannot even print some of them.
        raise InputError(f"{path}: not valid TOML: an integer of more than 64 bits")
    return parsed


def _integers(value: object) -> Iterator[int]:
    """Yield each integer inside `value`."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _integers(one)


def _check(path: Path, found: os.stat_result, most: int) -> None:
    for is_kind, name in _KINDS:
        if is_kind(found.st_mode):
            raise InputError(f"{path}: {name}; expected a regular file")
    if found.st_size > most:
        raise InputError(f"{path}: {found.st_size} bytes; at most {most} are allowed")
