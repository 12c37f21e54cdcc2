# SPDX-License-Identifier: GPL-2.0-or-later
"""When signals may interrupt: orderly while values are half written, not at all while they go back."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Make SIGTERM and SIGHUP as orderly as Ctrl-C: they raise KeyboardInterrupt."""

    def stop(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


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
    """Let no signal break in, neither here nor in programs started meanwhile."""
    old = {number: signal.signal(number, signal.SIG_IGN) for number in _ALL}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
