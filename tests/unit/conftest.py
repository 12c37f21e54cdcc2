# SPDX-License-Identifier: GPL-2.0-or-later
"""What all unit tests start with."""

import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fabtune.host import run, tools
from fabtune.tune import journal

# A shell starts what it puts into the background with Ctrl-C ignored, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy this machine is, nothing about the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# A limit that a test sets is shorter.
_LEAST_LIMIT_S = 5
_LOCK_WAIT_S = 300.0


def _finish(*words: Any, timeout_s: float | None = None, **more: Any) -> run.Ended:
    limit_s = timeout_s if timeout_s is not None and timeout_s < _LEAST_LIMIT_S else None
    return run.finish(*words, timeout_s=limit_s, **more)


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tools end, and the lock come free, when they do: a loaded machine may take a minute to start one."""
    monkeypatch.setattr(tools, "finish", _finish)
    monkeypatch.setattr(journal, "_LOCK_WAIT_S", _LOCK_WAIT_S)
