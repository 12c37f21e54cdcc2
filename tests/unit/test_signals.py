# SPDX-License-Identifier: GPL-2.0-or-later
"""What breaks in and what does not, and that a program started meanwhile (iscsid, for good) inherits none of it."""

import os
import signal
import subprocess

from fabtune.tune import signals

_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def dispositions() -> dict[str, set[int]]:
    """Return the signals that a program started now ignores and blocks."""
    text = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    lines = dict(line.split(":", 1) for line in text.splitlines())
    return {name: {bit + 1 for bit in range(64) if int(lines[name], 16) >> bit & 1} for name in ("SigIgn", "SigBlk")}


def test_no_signal_breaks_in_and_no_program_started_meanwhile_ignores_it() -> None:
    before, old = dispositions(), [signal.getsignal(number) for number in _ALL]
    with signals.ignored():
        for number in _ALL:
            os.kill(os.getpid(), number)
        assert dispositions() == before
    assert [signal.getsignal(number) for number in _ALL] == old


def test_what_the_caller_ignores_stays_ignored() -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.ignored():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old)
