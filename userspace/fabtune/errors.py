# SPDX-License-Identifier: GPL-2.0-or-later
"""Exit codes and the errors that carry them to the user without a traceback."""

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


class FabtuneError(Exception):
    """Something failed that is not the caller's mistake.

    The message names the thing (file, line, key, device), what was found, what was
    expected, and what to do about it.
    """

    exit_code = ExitCode.FAILED


class InputError(FabtuneError):
    """The command line, a file or a value given by the user is wrong."""

    exit_code = ExitCode.USAGE
