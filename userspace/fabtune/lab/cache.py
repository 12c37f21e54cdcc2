# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's cache under XDG_CACHE_HOME: one directory an image, made whole or not at all."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import locks
from fabtune.host.run import privileged, run
from fabtune.progress import Progress

_USE = "use"
# Guests that start side by side wait for each other's copies, which take less.
_SAID_AFTER_S = 2.0


def cache_dir() -> Path:
    """Return the lab's cache directory, made when missing."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if home.startswith("/") else Path.home() / ".cache"
    path = base / "fabtune" / "lab"
    path.mkdir(parents=True, exist_ok=True)
    return path


def require_space(path: Path, needed_bytes: int, what: str) -> None:
    """Raise FabtuneError when `path`'s file system has less than `needed_bytes` free."""
    free_bytes = shutil.disk_usage(path).free
    if free_bytes < needed_bytes:
        raise FabtuneError(
            f"{what} needs {needed_bytes / 2**30:.1f} GiB in {path}, {free_bytes / 2**30:.1f} GiB are free; "
            "make room or point XDG_CACHE_HOME at a larger disk"
        )


@contextmanager
def using_cache() -> Iterator[None]:
    """Keep what the cache holds from being deleted meanwhile; any number of builds and guests may."""
    with _lock_file(_USE).open("w") as handle:
        _wait_for(handle.fileno(), _USE, fcntl.LOCK_SH, "`fabtune lab clean`")
        yield


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock `name`, so that two builds of one thing never run at once; who waits for one is told."""
    with using_cache(), _lock_file(name).open("w") as handle:
        _wait_for(handle.fileno(), name, fcntl.LOCK_EX, f"another build of {name}")
        yield


@contextmanager
def whole_cache() -> Iterator[None]:
    """Hold the whole cache, to delete it.  Raises FabtuneError where a build or a guest is at work, naming it."""
    with _lock_file(_USE).open("w") as handle:
        if not locks.lock_now(handle.fileno()):
            users = locks.processes_in_words(locks.lock_holders(_lock_file(_USE)))
            raise FabtuneError(
                f"the lab's cache {cache_dir()} is in use by {users}, which builds there or runs guests; "
                "nothing was deleted; try again when that has ended"
            )
        yield


def _lock_file(name: str) -> Path:
    return cache_dir() / f"{name}.lock"


def _wait_for(fd: int, name: str, how: int, whom: str) -> None:
    """Lock `fd`, the lock `name`, when those who have it are through; it is said for whom that takes long."""
    deadline = time.monotonic() + _SAID_AFTER_S
    while not locks.lock_now(fd, how):
        if time.monotonic() > deadline:
            Progress().say(f"waiting for {whom} ({locks.processes_in_words(locks.lock_holders(_lock_file(name)))}) ...")
            fcntl.flock(fd, how)
            return
        time.sleep(0.02)


@contextmanager
def making(target: Path) -> Iterator[Path]:
    """Yield an empty directory that becomes `target` when the `with` ends well and vanishes otherwise."""
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield draft
        draft.chmod(0o755)
        draft.rename(target)
    except BaseException:
        delete_tree(draft)
        raise


def delete_tree(path: Path) -> None:
    """Delete `path` and all below it; a guest's root in it belongs to root."""
    run(privileged(["rm", "-rf", "--one-file-system", path]), what=f"deleting {path}")
