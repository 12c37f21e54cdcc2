# SPDX-License-Identifier: GPL-2.0-or-later
"""A network namespace of a test's own."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_netns(*commands: str) -> Iterator[str]:
    """Give the name of a network namespace in which `ip` has run `commands`; it is gone afterwards.

    One at a time, though tests run side by side: each is a mount, and a test looks whether any came or went.
    """
    name = f"fabtune-test-{os.getpid()}"
    with Path(__file__).open("rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        subprocess.run(["ip", "netns", "add", name], check=True)
        try:
            for command in commands:
                subprocess.run(["ip", "-n", name, *command.split()], check=True)
            yield name
        finally:
            subprocess.run(["ip", "netns", "del", name], check=True)
