# SPDX-License-Identifier: GPL-2.0-or-later
"""Replaces a configuration file as a whole: a crash leaves the old content or the new, never half."""

import os
from collections.abc import Iterable
from pathlib import Path

# One name for every writer, so that a draft which a crash left behind is found again.
_DRAFT = ".{name}.fabtune-draft"


def replace(path: Path, text: str, mode: int = 0o644) -> None:
    """Give `path` the content `text`, durable when the call returns.  Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(_DRAFT.format(name=path.name))
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            os.fchmod(fd, mode)
            with os.fdopen(os.dup(fd), "w") as stream:
                stream.write(text)
            os.fsync(fd)
        finally:
            os.close(fd)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    _sync(path.parent)


def remove(path: Path) -> None:
    """Delete `path`, durable when the call returns.  Raises OSError."""
    path.unlink(missing_ok=True)
    _sync(path.parent)


def sweep(directories: Iterable[Path]) -> None:
    """Delete the drafts that crashed writers left in `directories`; the caller keeps other writers out."""
    for directory in directories:
        for draft in directory.glob(_DRAFT.format(name="*")):
            remove(draft)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
