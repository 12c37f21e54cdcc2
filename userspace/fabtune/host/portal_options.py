# SPDX-License-Identifier: GPL-2.0-or-later
"""Socket options for the connections of single portals: a program at connection events, a map of what it gives whom.

Program and map are kept in bpffs under one directory, which appears and goes as a whole; where it is not, nothing of
ours is attached.  What others attached stays: the program stands beside it.
"""

import os
import socket
import struct
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from fabtune.errors import FabtuneError, UnsupportedError, explained
from fabtune.host import libbpf, namespaces, tree
from fabtune.installed import PACKAGE
from fabtune.model.address import EVERY

OBJECT = "connection.bpf.o"
_BPFFS = Path("/sys/fs/bpf")
# bpffs takes no name with a dot.
_KEPT, _DRAFT, _LEFT = _BPFFS / "fabtune", _BPFFS / "fabtune_draft", _BPFFS / "fabtune_left"
_PORTALS, _LINK = "portals", "portal_options"
_GIVE, _WALK = "portal_options", "portal_connections"
_BTF = Path("/sys/kernel/btf/vmlinux")
# include/uapi/asm-generic/socket.h
_SO_NETNS_COOKIE = 71
_COOKIE = struct.Struct("=Q")
# The structures of bpf/connection.bpf.c: portal, options, order, connection.
_PORTAL = struct.Struct("=16sQHHI")
_OPTIONS = struct.Struct("=IIII16s")
_ORDER = struct.Struct("=16sQHHIII")
_CONNECTION = struct.Struct("=IIII16si")
_ROLES = {"initiator": 0, "target": 1}
# Which of a connection's options can be set while it lives, as the iterator numbers them, and what is none.
LIVE = {"pacing": (1, (1 << 32) - 1), "notsent_lowat": (2, 0)}


@dataclass(frozen=True)
class Portal:
    """One portal as an initiator reaches it or a target serves it, in network namespace `netns` ('' = our own)."""

    role: str
    address: str
    port: int
    netns: str


@dataclass(frozen=True)
class Options:
    """What the connections of a portal are given, or have; 0 and '' are none of ours."""

    sndbuf: int = 0
    rcvbuf: int = 0
    pacing: int = 0
    notsent_lowat: int = 0
    congestion: str = ""

    def get(self, name: str) -> int | str:
        """Return one of them."""
        found: int | str = getattr(self, name)
        return found


def no_means() -> str:
    """Return why this host cannot give connections options of their own, '' if it can as far as can be told."""
    try:
        _object()
        libbpf.check_library()
    except FabtuneError as error:
        return str(error)
    if not _BTF.exists():
        return "this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)"
    if os.geteuid() != 0:
        return "" if _BPFFS.is_dir() else f"{_BPFFS} is not there"
    if not any(line.split()[1:3] == [str(_BPFFS), "bpf"] for line in _mounts()):
        return f"{_BPFFS} is not mounted: mount -t bpf bpf {_BPFFS}"
    return "" if _KEPT.exists() else _trial()


def _mounts() -> list[str]:
    return (tree.read_text(tree.PROC / "self/mounts") or "").splitlines()


@cache
def _trial() -> str:
    """Return why the kernel would not take the programs, '' if it does; none of them is attached."""
    try:
        libbpf.Loaded(_object(), (_GIVE, _WALK), {}).close()
        return ""
    except FabtuneError as error:
        return str(error)


def _object() -> Path:
    if Path("/") != tree.ROOT:
        raise UnsupportedError(f"FABTUNE_ROOT={tree.ROOT} is not the host whose kernel would be asked")
    path = PACKAGE / "bpf" / OBJECT
    if not path.exists():
        raise UnsupportedError(f"{path} has not been built: `make bpf`, which needs clang and libbpf-dev")
    return path


@cache
def _walker() -> libbpf.Loaded:
    """Return the iterator over connections, loaded once."""
    return libbpf.Loaded(_object(), (_WALK,), {})


def _key(portal: Portal) -> bytes:
    with namespaces.inside(portal.netns), explained("network namespace"), socket.socket() as probe:
        (cookie,) = _COOKIE.unpack(probe.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, _COOKIE.size))
    return _PORTAL.pack(_packed(portal), cookie, portal.port, _ROLES[portal.role], 0)


def _packed(portal: Portal) -> bytes:
    if portal.address in EVERY:
        return bytes(16)
    if ":" in portal.address:
        return socket.inet_pton(socket.AF_INET6, portal.address)
    return bytes(10) + b"\xff\xff" + socket.inet_pton(socket.AF_INET, portal.address)


def _options(raw: bytes) -> Options:
    sndbuf, rcvbuf, pacing, lowat, congestion = _OPTIONS.unpack(raw)
    return Options(sndbuf, rcvbuf, pacing, lowat, congestion.rstrip(b"\0").decode(errors="replace"))


def _raw(options: Options) -> bytes:
    numbers = (options.sndbuf, options.rcvbuf, options.pacing, options.notsent_lowat)
    return _OPTIONS.pack(*numbers, options.congestion.encode())


def given(portal: Portal) -> Options:
    """Return what new connections of `portal` are given.  Raises FabtuneError where that cannot be read."""
    if os.geteuid() != 0:
        raise FabtuneError("only root can read what connections are given")
    kept = _kept()
    try:
        raw = kept.get(_key(portal)) if kept else None
    finally:
        if kept:
            kept.close()
    return _options(raw) if raw else Options()


def _kept() -> libbpf.PinnedMap | None:
    """Return the map in force, None where nothing of ours is attached."""
    if not _in_force():
        return None
    with explained(str(_KEPT / _PORTALS)):
        return libbpf.PinnedMap(_KEPT / _PORTALS, _OPTIONS.size)


def _in_force() -> bool:
    return (_KEPT / _PORTALS).exists() and (_KEPT / _LINK).exists() and libbpf.attached(_KEPT / _LINK)


def give(portal: Portal, name: str, value: int | str) -> None:
    """Let the connections of `portal` have option `name`, those that live as well where that is possible.

    0 or '' takes it away again; with the last one goes the program.  Raises UnsupportedError where the kernel refuses,
    FabtuneError where a connection does.
    """
    tidy()
    if _KEPT.exists() and not _in_force():
        # Somebody has detached it, or taken a part away.
        _set_aside()
    changed: dict[str, Any] = {name: value}
    wanted = replace(given(portal), **changed)
    key, raw = _key(portal), _raw(wanted)
    if wanted == Options():
        _take_away(key)
    elif kept := _kept():
        try:
            kept.put(key, raw)
        finally:
            kept.close()
    else:
        _attach(key, raw)
    if name in LIVE:
        option, none = LIVE[name]
        _walk(portal, option, int(value) or none)


def _attach(key: bytes, raw: bytes) -> None:
    """Attach the program with one portal in its map: both are there at once, or neither is."""
    loaded = libbpf.Loaded(_object(), (_GIVE,), {})
    try:
        libbpf.update(loaded.map_fd(_PORTALS), key, raw, str(_KEPT))
        with explained(str(_DRAFT)):
            _DRAFT.mkdir(mode=0o700)
        loaded.pin_map(_PORTALS, _DRAFT / _PORTALS)
        loaded.attach_to_root(_GIVE, _DRAFT / _LINK)
        with explained(str(_KEPT)):
            _DRAFT.rename(_KEPT)
    finally:
        loaded.close()
        tidy()


def _take_away(key: bytes) -> None:
    """Take `key` from the map, and the program away with the last one."""
    kept = _kept()
    if kept is None:
        return
    try:
        kept.remove(key)
        last = kept.empty(_PORTAL.size)
    finally:
        kept.close()
    if last:
        _set_aside()


def _set_aside() -> None:
    with explained(str(_KEPT)):
        _KEPT.rename(_LEFT)
    tidy()


def tidy() -> None:
    """Remove what a process that was killed in the middle left: nothing in force is among it."""
    for place in (_DRAFT, _LEFT):
        if place.is_dir():
            with explained(str(place)):
                for one in place.iterdir():
                    one.unlink()
                place.rmdir()


def options_held(portal: Portal) -> list[Options]:
    """Return what the established connections of `portal` have; the kernel doubles the buffers that it is asked for."""
    return _walk(portal, 0, 0)


def _walk(portal: Portal, option: int, value: int) -> list[Options]:
    walker = _walker()
    order = _ORDER.pack(_packed(portal), 0, portal.port, _ROLES[portal.role], 0, option, value)
    libbpf.update(walker.map_fd("order"), bytes(4), order, "order to the connections")
    raw = walker.iterate(_WALK, partial(namespaces.inside, portal.netns))
    found = []
    for start in range(0, len(raw), _CONNECTION.size):
        *_, error = _CONNECTION.unpack_from(raw, start)
        if error:
            raise FabtuneError(f"a connection of {portal.address}: {os.strerror(-error)}")
        found.append(_options(raw[start : start + _OPTIONS.size]))
    return found
