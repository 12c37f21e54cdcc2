# SPDX-License-Identifier: GPL-2.0-or-later
"""What may interrupt: signals between two values or sessions, never within one, and output never."""

import contextlib
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Ctrl-Z, and a terminal that is another job's at the moment.
_STOPPING = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
# For a reader that is slow, not one that is away.
_OUTPUT_WAIT_S = 1.0
# How many `held_back` we are in.
_held = 0


class Stop:
    """A request to stop, checked where stopping is safe: an exception at any point could miss the rollback."""

    def __init__(self) -> None:
        self.wanted = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came."""
        if self.wanted:
            raise KeyboardInterrupt


@contextlib.contextmanager
def _taken(numbers: Iterable[int], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Let `handler` take these signals within the block; what the caller ignores (nohup) stays ignored."""
    old = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number, before in old.items() if before not in (signal.SIG_IGN, None)]
    for number in ours:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, old[number])


@contextlib.contextmanager
def noted(second_raises: bool = False) -> Iterator[Stop]:
    """Note Ctrl-C and signals to end instead of ending; what the caller ignores (nohup) stays ignored.

    With `second_raises` only the first is noted: the next one is a KeyboardInterrupt at once.  Where all signals are
    held back none is noted.
    """
    stop = Stop()
    if _held:
        yield stop
        return

    def note(_: int, __: FrameType | None) -> None:
        if second_raises:
            stop.check()
        stop.wanted = True

    with _taken(_ENDING, note):
        yield stop


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Deliver signals only after the block, to programs it starts as well: a tool stopped midway leaves half a file."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let no signal end or stop us here; one that came, Ctrl-Z among them, counts when the block is left.

    A program that ignored signals would do so for good, and iscsid may be started by a login: a handler that
    does nothing is not inherited.  Tools that must not be stopped midway are started apart from the terminal.
    """
    global _held
    came: set[int] = set()
    _held += 1
    try:
        with _taken((*_ENDING, *_STOPPING), lambda number, _: came.add(number)):
            yield
    finally:
        _held -= 1
        # What the terminal was wanted for is over.
        for one in sorted(came - {signal.SIGTTIN, signal.SIGTTOU}):
            signal.raise_signal(one)


@contextlib.contextmanager
def unstopped() -> Iterator[None]:
    """Let neither Ctrl-Z nor a terminal that is another job's stop us here: somebody waits for our end."""
    # A program that we start is stopped as ever: a handler, unlike SIG_IGN, is not inherited.
    with _taken(_STOPPING, lambda *_: None):
        yield


def _takes_output(wait_s: float) -> bool:
    """Tell whether stderr takes a line now, or within that time."""
    try:
        poll = select.poll()
        poll.register(sys.stderr.fileno(), select.POLLOUT)
    except (OSError, ValueError, AttributeError):
        # It is no file: a test's, perhaps.
        return True
    return bool(poll.poll(wait_s * 1e3))


def unfailing(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Return `progress` for which a stderr that is full, closed or a pipe without a reader does not matter.

    Nor does one that takes nothing (Ctrl-S, a pager at its first screen): once it was waited for, what it would wait
    for is dropped.  Nor does a terminal that stops whoever writes to it in the background (`stty tostop`).
    """
    wait_s = _OUTPUT_WAIT_S

    def told(text: str) -> None:
        nonlocal wait_s
        if not _takes_output(wait_s):
            wait_s = 0.0
            return
        # A handler would not do: the kernel refuses the write for as long as the signal can be delivered.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
        try:
            with contextlib.suppress(OSError, ValueError):
                progress(text)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)

    return told
