# SPDX-License-Identifier: GPL-2.0-or-later
"""Exit codes and the errors that carry them to the user without a traceback."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class ExitCode(IntEnum):
    """What each exit status of ``fabtune`` means."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DRIFT = 3
    NEEDS_ACTION = 4
    CANNOT_TELL = 5
    INTERRUPTED = 130


_MOST_CHARACTERS = 3000


def printable(text: str) -> str:
    """Return `text` as a terminal may show it: control characters and half characters escaped, a huge one cut.

    What errors and tables quote was written by others: files, journals, targets, kernels.
    """
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = f"{text[:half]} [{len(text) - 2 * half} characters left out] {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)


class FabtuneError(Exception):
    """Something failed that is not the caller's mistake.

    The message names the thing (file, line, key, device), what was found, what was
    expected, and what to do about it.
    """

    exit_code = ExitCode.FAILED

    def __str__(self) -> str:
        return printable(super().__str__())


class InputError(FabtuneError):
    """The command line, a file or a value given by the user is wrong."""

    exit_code = ExitCode.USAGE


class CannotTellError(FabtuneError):
    """What was asked cannot be told from what is there; the message says what would tell it."""

    exit_code = ExitCode.CANNOT_TELL


class UnsupportedError(FabtuneError):
    """This kernel, driver or tool does not have the tunable; said, never a failure."""


class ByHandError(UnsupportedError):
    """Somebody made this by hand, in whole: it is left alone."""


# What kernels and drivers answer for "I do not have this".
_ABSENT = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOTDIR, errno.ENOSYS)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an OSError of touching `what` into a FabtuneError that says what it means."""
    try:
        yield
    except OSError as error:
        if error.errno in _ABSENT:
            raise UnsupportedError(f"{what}: not there ({error.strerror})") from error
        if error.errno == errno.EPERM and os.geteuid() == 0:
            raise FabtuneError(f"{what}: not permitted even to root; `lsattr` shows whether it is immutable") from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise FabtuneError(f"{what}: permission denied; run as root") from error
        raise FabtuneError(f"{what}: {error.strerror}") from error
