# SPDX-License-Identifier: GPL-2.0-or-later
"""Network namespaces: what ours is called, and how one that a journal names is reached today."""

import contextlib
from pathlib import Path

from fabtune.backends import tree
from fabtune.errors import FabtuneError

_NAMED = Path("/run/netns")
_PLACES = (_NAMED, Path("/run/docker/netns"))
_OWN, _FIRST = Path("/proc/self/ns/net"), Path("/proc/1/ns/net")
_PREFIX = "netns:"


def identity(netns: str) -> str:
    """Return the identity of namespace `netns` ('' = our own).  Raises InputError where it is not there."""
    if netns:
        path = tree.netns_path(netns)
        return _PREFIX + (path.name if path.parent == _NAMED else str(path))
    # A copy of a host's trees has no namespaces.
    if Path("/") != tree.ROOT or _inode(_OWN) == _inode(_FIRST):
        return f"{_PREFIX}init"
    own = _inode(_OWN)
    named = next((path.name for path in _NAMED.glob("*") if _inode(path) == own), "self")
    return _PREFIX + named


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


def named() -> list[str]:
    """Return the names that `ip netns` knows."""
    return sorted(path.name for path in _NAMED.glob("*")) if Path("/") == tree.ROOT else []


def others(netns: str) -> list[str]:
    """Return a path to each other network namespace than `netns` ('' = our own) that a name or a process holds."""
    if Path("/") != tree.ROOT:
        return []
    kind = _OWN.stat().st_dev
    found: dict[int, str] = {}
    for path in (*(one for place in _PLACES for one in place.glob("*")), *tree.PROC.glob("[0-9]*/ns/net")):
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_dev == kind:
                found.setdefault(status.st_ino, str(path))
    found.pop(_inode(tree.netns_path(netns)), None)
    return list(found.values())


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
