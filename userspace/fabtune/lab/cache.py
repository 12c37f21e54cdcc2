# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's cache under XDG_CACHE_HOME: one directory an image, made whole or not at all."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host.run import privileged, run


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
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock `name`, so that two builds of one thing never run at once."""
    with (cache_dir() / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


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
