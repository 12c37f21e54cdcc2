# SPDX-License-Identifier: GPL-2.0-or-later
"""Network namespaces: ours by name, how one that a journal names is reached today, and what is seen inside."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fabtune.errors import FabtuneError, InputError
from fabtune.host import detached, tree

_NAMED = Path("/run/netns")
_PLACES = (_NAMED, Path("/run/docker/netns"))
_OWN, _FIRST = Path("/proc/self/ns/net"), Path("/proc/1/ns/net")
_PREFIX = "netns:"

_CLONE_NEWNET = 0x40000000

# The descriptor of each sysfs that was mounted, with what its namespace was.
_mounted: dict[str, tuple[tuple[int, ...], int]] = {}


def netns_path(netns: str) -> Path:
    """Return the file of network namespace `netns`, a name under /run/netns or a path; '' is our own."""
    if not netns:
        return Path("/proc/self/ns/net")
    path = Path(netns) if "/" in netns else Path("/run/netns") / netns
    try:
        there = path.exists()
    except (OSError, ValueError) as error:
        # A name too long, one with a NUL, another process's namespace: never taken for absent.
        raise FabtuneError(f"network namespace {netns!r:.200}: {getattr(error, 'strerror', None) or error}") from None
    if not there:
        known = ", ".join(sorted(entry.name for entry in Path("/run/netns").glob("*"))) or "none"
        raise InputError(f"network namespace '{netns}' not found at {path}; known names: {known}")
    if Path("/") != tree.ROOT:
        raise InputError(f"network namespace '{netns}': FABTUNE_ROOT={tree.ROOT} is not the host that it is in")
    return path


@contextmanager
def inside(netns: str) -> Iterator[None]:
    """Run the block in network namespace `netns` ('' = stay); /proc/sys/net and sockets follow it."""
    if not netns:
        yield
        return
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(netns)
        try:
            yield
        finally:
            _setns(own, "the original network namespace")
    finally:
        os.close(own)


def _enter(netns: str) -> None:
    path = netns_path(netns)
    try:
        target = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise FabtuneError(f"network namespace '{netns}': {path}: {error.strerror}") from error
    try:
        _setns(target, f"network namespace '{netns}'")
    finally:
        os.close(target)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _setns(fd: int, what: str) -> None:
    # os.setns() exists only from Python 3.12 on.
    if _libc().setns(fd, _CLONE_NEWNET) != 0:
        raise FabtuneError(f"cannot enter {what}: {os.strerror(ctypes.get_errno())}; run as root")


def sysfs(netns: str) -> Path:
    """Return a sysfs root that shows the NICs of `netns`, as it is now: its name may be another one's by then.

    /sys/class/net belongs to the namespace sysfs was mounted in, so another namespace needs a
    mount of its own, which lives as long as its descriptor.
    """
    if not netns:
        return tree.SYS
    which = _which(netns)
    if netns not in _mounted or _mounted[netns][0] != which:
        mount = _mount(netns)
        for name in [netns, *_mounted]:
            if name in _mounted and (name == netns or _which(name) != _mounted[name][0]):
                os.close(_mounted.pop(name)[1])
        _mounted[netns] = which, mount
    return Path(f"/proc/self/fd/{_mounted[netns][1]}")


def _which(netns: str) -> tuple[int, ...]:
    """Return what tells the namespace at `netns` from an earlier one there, nothing where there is none."""
    try:
        found = netns_path(netns).stat()
    except (OSError, InputError):
        return ()
    # The kernel gives a number again as soon as it is free.  What a name is bound to has the time at which that was
    # done, but what /proc shows is made for each look.
    return found.st_dev, found.st_ino, 0 if netns.startswith("/proc/") else found.st_ctime_ns


def _mount(netns: str) -> int:
    with inside(netns):
        try:
            return detached.mount_unseen("sysfs")
        except OSError as error:
            raise FabtuneError(f"sysfs of namespace '{netns}': {error.strerror}; run as root") from None


def identity(netns: str) -> str:
    """Return the identity of namespace `netns` ('' = our own).  Raises InputError where it is not there."""
    if netns:
        path = netns_path(netns)
        return _PREFIX + (path.name if path.parent == _NAMED else str(path))
    # A copy of a host's trees has no namespaces.
    if Path("/") != tree.ROOT or _inode(_OWN) == _inode(_FIRST):
        return f"{_PREFIX}init"
    own = _inode(_OWN)
    name = next((path.name for path in _NAMED.glob("*") if _inode(path) == own), "self")
    return _PREFIX + name


def find(wanted: str, near: str) -> str | None:
    """Return the name or path under which namespace `wanted` (an identity) is reached, None where it is gone.

    `near` is the namespace that the caller works in ('' = our own).  Raises FabtuneError for one
    that had no name: nothing tells whether ours is the same.
    """
    if identity(near) == wanted:
        return near
    if identity("") == wanted:
        return ""
    name = wanted.removeprefix(_PREFIX)
    if name == "init":
        return str(_FIRST)
    if name == "self":
        raise FabtuneError("a network namespace without a name cannot be found again: run fabtune inside it")
    path = Path(name) if "/" in name else _NAMED / name
    return name if path.exists() else None


def known_names() -> list[str]:
    """Return the names that `ip netns` knows."""
    return sorted(path.name for path in _NAMED.glob("*")) if Path("/") == tree.ROOT else []


def other_namespaces(netns: str) -> list[str]:
    """Return a path to each other network namespace than `netns` ('' = our own) that a name or a process holds."""
    if Path("/") != tree.ROOT:
        return []
    kind = _OWN.stat().st_dev
    found: dict[int, str] = {}
    named = [f"{place}/{name}" for place in _PLACES for name in tree.names(place)]
    held = [f"{tree.PROC}/{name}/ns/net" for name in tree.names(tree.PROC) if name[0].isdigit()]
    for path in named + held:
        with contextlib.suppress(OSError):
            status = os.stat(path)  # noqa: PTH116 - of each of thousands of processes
            if status.st_dev == kind:
                found.setdefault(status.st_ino, path)
    found.pop(_inode(netns_path(netns)), None)
    return list(found.values())


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
