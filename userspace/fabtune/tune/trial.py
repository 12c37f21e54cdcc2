# SPDX-License-Identifier: GPL-2.0-or-later
"""One `fabtune tune` at a time: whoever tries steps and judges them holds a lock of its own from the first look on.

Others may write meanwhile: that needs the journal's lock alone.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from fabtune.errors import FabtuneError
from fabtune.tune import journal
from fabtune.tune.journal import Transaction
from fabtune.tune.unconfirmed import on_trial


def _open(flags: int) -> int:
    return os.open(journal.state_dir() / "tuning", flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Be the only one to try steps on this host.  Raises FabtuneError where another is at work, or left one behind."""
    try:
        fd = _open(os.O_RDWR | os.O_CREAT)
    except OSError:
        # Nothing was ever written here, or this user may not: that is made, or said.
        with journal.locked():
            fd = _open(os.O_RDWR | os.O_CREAT)
    try:
        if not _taken(fd):
            raise FabtuneError(other_tune())
        for one in on_trial(journal.transactions()):
            raise FabtuneError(f"transaction {one.name} {undecided_step(one)}; then tune again")
        yield
    finally:
        os.close(fd)


def _taken(fd: int) -> bool:
    """Lock `fd` and tell whether that was possible; who only looks has it for a moment."""
    for _ in range(20):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):
                # Who holds it is told to those who are refused; a full disk does not matter.
                os.ftruncate(fd, 0)
                os.pwrite(fd, str(os.getpid()).encode(), 0)
            return True
        time.sleep(0.05)
    return False


def other_tune() -> str:
    """Return which other `fabtune tune` tries steps now, and what to do about it; '' where none does."""
    try:
        fd = _open(os.O_RDONLY)
    except OSError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        return (
            f"another `fabtune tune` (process {holder}) tries steps on this host, and each would take the other's for "
            "its own effect: wait for it, or end it by Ctrl-C, which takes its last step back"
        )
    finally:
        os.close(fd)
    return ""


def undecided_step(step: Transaction) -> str:
    """Return what is to be said of `step`, whose tune is gone."""
    name = step.name
    if step.reverting:
        return (
            "is a step of a `fabtune tune` that was taken back only in part: "
            f"`fabtune revert --transaction {name}` goes on"
        )
    if not step.applied:
        return (
            "is a step of a `fabtune tune` that ended while it was written, and some of its values may stand: "
            f"`fabtune revert --transaction {name}` takes them back"
        )
    return (
        "is a step of a `fabtune tune` that ended before it could judge it, and stays until somebody decides: "
        f"`fabtune revert --transaction {name}` takes it back, `fabtune confirm --transaction {name}` keeps it"
    )
