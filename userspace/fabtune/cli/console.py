# SPDX-License-Identifier: GPL-2.0-or-later
"""Standard input, output and error when they are closed, full, a pipe without a reader or a terminal that is gone."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TextIO

from fabtune.errors import ExitCode, FabtuneError

# What an exception carries a document by.
_BESIDE = "shown_beside"


def make_whole() -> None:
    """Open what the caller closed, so that no file of ours, and none of a program we start, gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one, since those below are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Python has no stream, and type checkers know of none such, for what was closed when it started.
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that is no UTF-8, or a locale without the character, must not end in an exception.
        sys.stdout.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def say(text: str) -> None:
    """Print one line to stderr.  What is told there matters less than what is being done: failure is ignored."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def interactive() -> bool:
    """Tell whether somebody is there to be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str:
    """Return the line that answers `question`, '' when input ends without one.  Raises KeyboardInterrupt."""
    print(question, end="", file=sys.stderr, flush=True)
    answer = sys.stdin.buffer.readline().decode(errors="replace")
    if not answer.endswith("\n"):
        # Whatever follows begins its own line.
        say("")
    return answer


class NotAnsweredError(FabtuneError):
    """The question was interrupted, or nobody was there to answer."""

    exit_code = ExitCode.INTERRUPTED


def agreed(question: str) -> bool:
    """Tell whether somebody answers `question`, before anything is changed, with yes.  Raises NotAnsweredError."""
    try:
        answer = ask(question)
    except KeyboardInterrupt:
        raise NotAnsweredError("interrupted; nothing was changed") from None
    if not answer:
        raise NotAnsweredError("no answer; nothing was changed")
    return answer.strip().lower() in ("y", "yes")


def ask_for_name(what: str, name: str) -> str:
    """Return what somebody types who was told `what` is about to happen, and that typing `name` allows it."""
    say(what)
    return ask(f"Type {name} to go on: ").strip()


def show_beside(error: BaseException, document: Mapping[str, object]) -> None:
    """Have `document` printed in one with `error`, which ends the verb."""
    error.__dict__[_BESIDE] = dict(document)


def shown_beside(error: BaseException) -> dict[str, object]:
    """Return what is to be printed in one document with `error`."""
    found: dict[str, object] = error.__dict__.get(_BESIDE, {})
    return found


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print what is done already: a reader who leaves early (`| head`) changes nothing, the exit code included."""
    with contextlib.suppress(BrokenPipeError):
        yield


def delivered(code: int) -> int:
    """Return `code` once everything printed is out; 1 where the result could not be printed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _silence(stream)
        except OSError as error:
            _silence(stream)
            if stream is sys.stdout and code != ExitCode.FAILED:
                say(f"fabtune: stdout: {error.strerror}; the result (exit code {code}) could not be printed")
                code = ExitCode.FAILED
    return code


def _silence(stream: TextIO) -> None:
    """Let what `stream` still holds go nowhere, or the interpreter would try again at its end and exit with 120."""
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(null, stream.fileno())
    os.close(null)
