# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that a process holds open without a descriptor: registered with io_uring, or on their way through a socket.

The kernel tells of both in /proc/PID/fdinfo: by name of what is registered (io_uring/fdinfo.c), by number of
what is under way (net/unix/af_unix.c, unix_show_fdinfo).  A ring is busy and a message under way for moments,
so both are asked several times before they are doubted.
"""

import os
import re
import time
from pathlib import Path

from fabtune.host import mounts, tree
from fabtune.host.blocks import Node, node_at
from fabtune.host.mounts import Mount

RING = "anon_inode:[io_uring]"
_TRIES, _PAUSE_S = 10, 0.02
# What stands for a file that has no node: of a pipe, socket, event; old kernels tell the last part of the name alone.
_NO_NODE = re.compile(r"<none>|(anon_inode|socket|pipe|net|mnt|uts|ipc|pid|user|cgroup|time):.*|/memfd:.*|\[.*\]|"
                      r"(TCP|UDP|UNIX|RAW|PING|MPTCP|SCTP|NETLINK|PACKET)\S*|")  # fmt: skip


def under_way(descriptor: Path) -> str:
    """Return how many files wait in socket `descriptor` to be received, '' if none stays there."""
    count = ""
    for _ in range(_TRIES):
        found = re.search(r"^scm_fds:\s+([1-9]\d*)$", _fdinfo(descriptor), re.MULTILINE)
        if not found:
            return ""
        count = found[1]
        time.sleep(_PAUSE_S)
    return count


def registered(descriptor: Path, process: Path) -> tuple[list[Node], str]:
    """Return the devices that are registered with ring `descriptor`, and what cannot be told of it, '' for nothing."""
    names: list[str] | None = None
    for _ in range(_TRIES):
        text = _fdinfo(descriptor)
        if not text:
            # It has been closed.
            return [], ""
        names = _names(text)
        if names is not None:
            break
        time.sleep(_PAUSE_S)
    if names is None:
        return [], "the files that it registered with io_uring cannot be told"
    nodes: list[Node] = []
    # As the process sees files, and as we do.
    places = (
        [(process / "root", mounts.seen_by(process)), (Path("/"), mounts.seen_by(tree.PROC / "self"))] if names else []
    )
    for name in names:
        found = _nodes(name, places)
        if found is None:
            return nodes, f"'{name:.200}', which it registered with io_uring, cannot be found"
        nodes += found
    return nodes, ""


def _fdinfo(descriptor: Path) -> str:
    return tree.read_text(descriptor.parent.parent / "fdinfo" / descriptor.name) or ""


def _names(text: str) -> list[str] | None:
    """Return the names of the registered files in a ring's fdinfo, None where the ring was too busy to tell them."""
    found = re.search(r"^UserFiles:\s+(\d+)\n((?:\s*\d+: .*\n)*)", text + "\n", re.MULTILINE)
    if found is None or (found[1] != "0" and not found[2]):
        return None
    return [line.partition(": ")[2] for line in found[2].splitlines()]


def _nodes(name: str, places: list[tuple[Path, list[Mount]]]) -> list[Node] | None:
    """Return the devices that `name` may be, seen from any of `places`; None where there is no such file.

    A file on somebody's server is none: see `mounts`.
    """
    if _NO_NODE.fullmatch(name):
        return []
    if name.startswith("/"):
        path = mounts.unescaped(name)
        near = [place for place, seen in places if mounts.answering(path, seen, str(place).rstrip("/"))]
        paths = [place / path.lstrip("/") for place in near if (place / path.lstrip("/")).exists()]
        if not paths and len(near) < len(places):
            return []
    else:
        # Up to Linux 6.12 only the last part of its path is told.
        paths = [
            Path(where) / name for place, _ in places for where, _, files in os.walk(place / "dev") if name in files
        ]
    return list(filter(None, map(node_at, paths))) if paths else None
