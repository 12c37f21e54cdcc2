# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes files whole, configuration (`replace`, `amend`) and results (`keep`): a crash leaves old content or new.

The rest of a configuration file is kept: a symbolic link is written through, and the new file gets the old one's
owner, mode, access list and labels.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from fabtune.errors import UnsupportedError

# One name for every writer, so that a draft which a crash left behind is found again.
_DRAFT = ".{name}.fabtune-draft"
_NEW_FILE, _NEW_DIRECTORY = 0o644, 0o755
# They seal the content, so the old ones would be wrong for the new; the kernel makes its own.
_SEALS = ("security.ima", "security.evm")


def replace(path: Path, text: str) -> None:
    """Give `path` the content `text`, durable when the call returns.  Raises OSError, with nothing changed."""
    path = path.resolve() if path.is_symlink() else path
    for missing in reversed([parent for parent in path.parents if not parent.exists()]):
        make_directory(missing)
    draft = path.with_name(_DRAFT.format(name=path.name))
    with _drafted(draft, 0o600, text.encode(errors="surrogateescape"), like=path):
        draft.rename(path)
    sync_directory(path.parent)


def amend(path: Path, text: str) -> None:
    """As `replace`, of a file that somebody else made.

    Raises UnsupportedError where it has other names: they would keep the old content, and what is written there later
    would no longer count.
    """
    with contextlib.suppress(FileNotFoundError):
        names = path.stat().st_nlink
        if names > 1:
            raise UnsupportedError(
                f"{path}: left alone, as it has {names} names (hard links), and the others would keep the old content"
            )
    replace(path, text)


def keep(path: Path, content: bytes, mode: int = 0o666, *, over: bool) -> None:
    """Write a file of results, in the place of what is at `path` only if `over`; the umask counts.

    A device, a pipe or a link stays what it is.  Raises OSError (FileExistsError without `over`), with
    nothing changed.
    """
    with contextlib.suppress(FileNotFoundError):
        kind = stat.S_IFMT(path.lstat().st_mode)
        if over and kind not in (stat.S_IFREG, stat.S_IFDIR):
            raise OSError(errno.EINVAL, "not a regular file; it is left alone", str(path))
    # Several of us may write to one directory at once.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with _named(path, draft), _drafted(draft, mode, content):
        if over:
            draft.rename(path)
        else:
            # A hard link, unlike a rename, fails where the name is taken.
            os.link(draft, path)


@contextlib.contextmanager
def _named(path: Path, draft: Path) -> Iterator[None]:
    """Let an error of the draft name `path`, which somebody has asked for."""
    try:
        yield
    except OSError as error:
        if error.filename == os.fspath(draft):
            error.filename = os.fspath(path)
        raise


@contextlib.contextmanager
def _drafted(draft: Path, mode: int, content: bytes, like: Path | None = None) -> Iterator[None]:
    """Make the file `draft`, on disk within the block and removed after it, with the attributes of `like`."""
    draft.unlink(missing_ok=True)
    # O_EXCL: the draft is a new file of ours, whatever anybody puts there at this moment.
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as stream:
            if like is not None:
                _take_over(like, fd)
            stream.write(content)
            stream.flush()
            os.fsync(fd)
        yield
    finally:
        draft.unlink(missing_ok=True)


def _take_over(path: Path, draft: int) -> None:
    """Give the file open as `draft` the owner, mode and extended attributes of `path`, if there is one."""
    try:
        old = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        os.fchmod(draft, _NEW_FILE)
        return
    try:
        was = os.fstat(old)
        if not stat.S_ISREG(was.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        os.fchown(draft, was.st_uid, was.st_gid)
        os.fchmod(draft, stat.S_IMODE(was.st_mode))
        for name in _attributes(old):
            value = os.getxattr(old, name)
            if name not in _attributes(draft) or os.getxattr(draft, name) != value:
                os.setxattr(draft, name, value)
    finally:
        os.close(old)


def _attributes(fd: int) -> list[str]:
    """Return the names of a file's extended attributes; access lists and security labels are among them."""
    try:
        return [name for name in os.listxattr(fd) if name not in _SEALS]
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return []
        raise


def make_directory(path: Path) -> None:
    """Make the directory `path`, readable to all whatever the umask, durable when the call returns."""
    path.mkdir(exist_ok=True)
    path.chmod(_NEW_DIRECTORY)
    sync_directory(path.parent)


def link(path: Path, target: str) -> None:
    """Make `path` a symbolic link to `target`, durable when the call returns.

    Raises OSError, FileExistsError where something else is there.
    """
    if not path.parent.exists():
        make_directory(path.parent)
    try:
        path.symlink_to(target)
    except FileExistsError:
        if not path.is_symlink() or str(path.readlink()) != target:
            raise
    sync_directory(path.parent)


def remove(path: Path) -> None:
    """Delete `path`, durable when the call returns.  Raises OSError."""
    path.unlink(missing_ok=True)
    if path.parent.exists():
        sync_directory(path.parent)


def remove_directory(path: Path) -> None:
    """Delete the directory `path` if nothing is in it, durable when the call returns.  Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()
        sync_directory(path.parent)


def sweep(directories: Iterable[Path]) -> None:
    """Delete the drafts that crashed writers left in `directories`; the caller keeps other writers out."""
    pattern = _DRAFT.format(name="*")
    for directory in directories:
        # A file that is a link has its draft where it leads; drop-ins have directories of their own.
        linked = [link.resolve() for link in directory.glob("*") if link.is_symlink()]
        beside = [file.with_name(_DRAFT.format(name=file.name)) for file in linked]
        for draft in [*directory.glob(pattern), *directory.glob(f"*.d/{pattern}"), *filter(Path.exists, beside)]:
            remove(draft)


def sync_directory(directory: Path) -> None:
    """Wait until the disk has the names in `directory`.  Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
