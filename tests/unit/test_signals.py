# SPDX-License-Identifier: GPL-2.0-or-later
"""What breaks in and what does not, and that a program started meanwhile (iscsid, for good) inherits none of it."""

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

from fabtune.tune import logout, relogin, signals
from fabtune.tune.pending import Pending

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ALL = (*_ENDING, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


@pytest.fixture
def came() -> Iterator[list[int]]:
    """Collect the signals that reach us, in place of what they do otherwise."""
    found: list[int] = []
    old = {number: signal.signal(number, lambda number, _: found.append(number)) for number in _ALL}
    yield found
    for number, handler in old.items():
        signal.signal(number, handler)


def dispositions() -> dict[str, set[int]]:
    """Return the signals that a program started now ignores and blocks."""
    text = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    lines = dict(line.split(":", 1) for line in text.splitlines())
    return {name: {bit + 1 for bit in range(64) if int(lines[name], 16) >> bit & 1} for name in ("SigIgn", "SigBlk")}


def test_no_signal_breaks_in_and_no_program_started_meanwhile_ignores_it(came: list[int]) -> None:
    before, old = dispositions(), [signal.getsignal(number) for number in _ALL]
    with signals.held_back():
        for number in _ALL:
            os.kill(os.getpid(), number)
        assert dispositions() == before
        assert came == []
    assert [signal.getsignal(number) for number in _ALL] == old
    # Whoever writes to or reads from the terminal behind the block is told anew.
    assert sorted(came) == sorted((*_ENDING, signal.SIGTSTP))


def test_what_the_caller_ignores_stays_ignored() -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.held_back():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old)


class Known:
    """A session."""

    identity = "one"

    def __init__(self, sid: int) -> None:
        self.sid = sid


@pytest.mark.parametrize("number", _ENDING)
def test_a_signal_with_a_session_away_stops_before_the_next_one(
    monkeypatch: pytest.MonkeyPatch, came: list[int], number: signal.Signals
) -> None:
    """The session that is away comes back; nobody else is logged out."""
    gone = []

    def anew(session: Known, *_: object) -> tuple[str, str, list[Pending]]:
        os.kill(os.getpid(), number)
        gone.append(session.sid)
        return "", "", []

    monkeypatch.setattr(relogin, "live_sessions", lambda: [Known(1), Known(2)])
    monkeypatch.setattr(logout, "why_not", lambda _: "")
    monkeypatch.setattr(relogin, "_anew", anew)
    pending = [Pending("relogin", "one", "one", sid, "boot") for sid in ("1", "2")]
    with signals.noted() as stop, pytest.raises(KeyboardInterrupt):
        relogin.perform(pending, lambda _: None, lambda _: None, stop)
    assert gone == [1]


def test_a_terminal_that_stops_background_writers_does_not_stop_us() -> None:
    """`stty tostop`; the writer is a process group in the background, as after Ctrl-Z and `bg`."""
    pid, fd = pty.fork()
    if pid == 0:
        old = termios.tcgetattr(2)
        old[3] |= termios.TOSTOP
        termios.tcsetattr(2, termios.TCSANOW, old)
        writer = os.fork()
        if writer == 0:
            os.setpgid(0, 0)
            signals.unfailing(lambda text: print(os.write(2, text.encode())))("said")
            os._exit(0)
        status = os.waitpid(writer, os.WUNTRACED)[1]
        if os.WIFSTOPPED(status):
            os.kill(writer, signal.SIGKILL)
        os._exit(int(os.WIFSTOPPED(status)))
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.read(fd, 100).startswith(b"said")
    os.close(fd)


def test_what_notes_signals_notes_none_where_all_are_held_back() -> None:
    seen = []
    with pytest.raises(KeyboardInterrupt), signals.held_back():
        with signals.noted(second_raises=True) as stop:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        seen.append(stop.wanted)
    assert seen == [False]


def test_an_output_that_takes_nothing_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal after Ctrl-S, or a pager at its first screen: apply slept in its write and kept the lock."""
    read, written = os.pipe()
    os.set_blocking(written, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(written, bytes(4096))
    os.set_blocking(written, True)
    waits: list[float] = []
    takes = signals._takes_output

    def takes_output(wait_s: float) -> bool:
        waits.append(wait_s)
        return takes(min(wait_s, 0.01))

    monkeypatch.setattr(signals, "_takes_output", takes_output)
    with os.fdopen(written, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        said: list[str] = []
        told = signals.unfailing(said.append)
        told("one")
        told("two")
        assert said == [] and waits == [1.0, 0.0]
        os.read(read, 1 << 20)
        told("three")
        assert said == ["three"]
    os.close(read)
