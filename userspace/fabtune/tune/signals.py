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
def ignored() -> Iterator[None]:
    """Let no signal break in, neither here nor in programs started meanwhile."""
    old = {number: signal.signal(number, signal.SIG_IGN) for number in _ALL}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
