# SPDX-License-Identifier: GPL-2.0-or-later
"""What may interrupt: signals orderly while values are half written, not at all while they go back; output never."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDING = (*_ALL, signal.SIGQUIT)


class Stop:
    """A request to stop, checked where stopping is safe: an exception at any point could miss the rollback."""

    def __init__(self) -> None:
        self.wanted = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came."""
        if self.wanted:
            raise KeyboardInterrupt


@contextlib.contextmanager
def noted(second_raises: bool = False) -> Iterator[Stop]:
    """Note Ctrl-C and signals to end instead of ending; what the caller ignores (nohup) stays ignored.

    With `second_raises` only the first is noted: the next one is a KeyboardInterrupt at once.
    """
    stop = Stop()

    def note(_: int, __: FrameType | None) -> None:
        if second_raises:
            stop.check()
        stop.wanted = True

    old = {number: signal.getsignal(number) for number in _ENDING}
    ours = [number for number, handler in old.items() if handler not in (signal.SIG_IGN, None)]
    for number in ours:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        for number in ours:
            signal.signal(number, old[number])


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Deliver signals only after the block, to programs it starts as well: a tool stopped midway leaves half a file."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Let no signal break in here.

    A program that ignored signals would do so for good, and iscsid may be started by a login: a handler that
    does nothing is not inherited.  Tools that must not be stopped midway are started apart from the terminal.
    """
    old = {number: signal.getsignal(number) for number in _ALL}
    ours = [number for number, handler in old.items() if handler not in (signal.SIG_IGN, None)]
    for number in ours:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, old[number])


def unfailing(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Return `progress` for which a stderr that is full, closed or a pipe without a reader does not matter."""

    def told(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            progress(text)

    return told
