# SPDX-License-Identifier: GPL-2.0-or-later
"""Which children of iscsid it must not be ended beside, and which it would wait for in vain."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fabtune.host import iscsid
from fabtune.host.iscsid import Daemon

Start = Callable[..., int]
# Waits for an answer over a connection of its own, as iscsid's child does.
_ASKS = "import socket; a, b = socket.socketpair(); print(flush=True); a.recv(1)"
# Has such a connection and is at work: what it asks next, or the start of its wait.
_ABOUT_TO_ASK = "import socket; a, b = socket.socketpair(); print(flush=True)\nwhile True: pass"


@pytest.fixture
def child() -> Iterator[Start]:
    """Start a child that runs a Python text until the end of the test."""
    started: list[subprocess.Popen[Any]] = []

    def start(text: str, blocked: bool = False) -> int:
        if blocked:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        try:
            one = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        started.append(one)
        assert one.stdout and one.stdout.readline() == b"\n"
        return one.pid

    yield start
    for one in started:
        one.kill()
        one.communicate()


def me() -> Daemon:
    """Return this process as if it were iscsid."""
    return Daemon(os.getpid(), "1", os.getpgrp())


def test_a_child_from_before_it_served_sessions_looks_at_no_disk(child: Start) -> None:
    assert not iscsid.looks_at_disks(me())
    child("import time; print(flush=True); time.sleep(600)")
    child(_ASKS)
    assert not iscsid.looks_at_disks(me())
    child("import time; print(flush=True); time.sleep(600)", blocked=True)
    assert iscsid.looks_at_disks(me())


def test_only_the_child_that_asks_for_new_connections_is_ended(child: Start) -> None:
    child("import time; print(flush=True); time.sleep(600)")
    child(_ASKS, blocked=True)
    asking = {child(_ASKS), child(_ABOUT_TO_ASK)}
    assert set(iscsid._asking(me())) == asking
