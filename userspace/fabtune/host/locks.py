# SPDX-License-Identifier: GPL-2.0-or-later
"""Locks of files (flock): taken without waiting, and who has them."""

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path


def lock_now(fd: int, how: int = fcntl.LOCK_EX) -> bool:
    """Lock the open file `fd` and tell whether nobody was in the way."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_holders(path: Path) -> list[int]:
    """Return the processes that have the file at `path` locked, as far as this user may see.  Raises OSError."""
    place = path.stat()
    return sorted(int(one.name) for one in Path("/proc").glob("[0-9]*") if _has_lock(one, place))


def processes_in_words(processes: Sequence[int]) -> str:
    """Return `processes` in words; where nobody may be seen, that there is one."""
    if not processes:
        return "another user's process"
    return f"process{'es' if len(processes) > 1 else ''} {', '.join(map(str, processes))}"


def _has_lock(process: Path, place: os.stat_result) -> bool:
    """Tell whether the process with that directory of /proc has the file at `place` open and locked."""
    with contextlib.suppress(OSError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                here = link.stat()
                # It may have it open once more, and not locked there.
                if (here.st_dev, here.st_ino) == (place.st_dev, place.st_ino) and "FLOCK" in (
                    process / "fdinfo" / link.name
                ).read_text():
                    return True
    return False
