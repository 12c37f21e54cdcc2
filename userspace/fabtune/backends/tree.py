# SPDX-License-Identifier: GPL-2.0-or-later
"""Where /sys, /proc and /etc are, and how to see them from inside a network namespace."""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fabtune.errors import FabtuneError, InputError

# FABTUNE_ROOT lets support and tests point at a copy of another host's trees.
ROOT = Path(os.environ.get("FABTUNE_ROOT", "/"))
SYS = ROOT / "sys"
PROC = ROOT / "proc"
ETC = ROOT / "etc"
CONFIGFS = SYS / "kernel/config/target"

_WHOLE = re.compile(r"-?[0-9]{1,20}")

# Descriptors that a tool which writes keeps open: if we are killed, the lock lasts until it has ended.
held: list[int] = []

_CLONE_NEWNET = 0x40000000
# The new mount API has the same numbers on every architecture (include/uapi/asm-generic/unistd.h).
_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432
_FSCONFIG_CMD_CREATE = 6


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
    if Path("/") != ROOT:
        raise InputError(f"network namespace '{netns}': FABTUNE_ROOT={ROOT} is not the host that it is in")
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
    """Return a sysfs root that shows the NICs of `netns`."""
    return _mounted(netns) if netns else SYS


@cache
def _mounted(netns: str) -> Path:
    """Return a sysfs mounted inside `netns`.

    /sys/class/net belongs to the namespace sysfs was mounted in, so another namespace needs a
    mount of its own.  It is made detached (fsopen, fsmount: Linux 5.2) and lives as long as its
    descriptor: nothing is left mounted however this process ends.
    """
    syscall = _libc().syscall
    with inside(netns):
        context = syscall(_SYS_FSOPEN, b"sysfs", 1)
        if context < 0 or syscall(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0) < 0:
            raise FabtuneError(f"sysfs of namespace '{netns}': {os.strerror(ctypes.get_errno())}; run as root")
        mount = syscall(_SYS_FSMOUNT, context, 1, 0)
        if mount < 0:
            raise FabtuneError(f"sysfs of namespace '{netns}': {os.strerror(ctypes.get_errno())}")
        os.close(context)
    return Path(f"/proc/self/fd/{mount}")


def read_text(path: Path) -> str | None:
    """Return the stripped text of `path`, or None when it is absent or not readable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def whole(text: str | None) -> int | None:
    """Return the number that a text of the kernel is, None for any other text (``²``, 5,000 digits, nothing)."""
    return int(text) if text and _WHOLE.fullmatch(text) else None


def write_text(path: Path, value: str) -> None:
    """Write `value` to an existing file of the kernel in one write().  Raises OSError."""
    # O_CREAT would turn a misspelt path in a copied tree into a new file.
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
