# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps a fuzzing process from writing anywhere but to its scratch directory, and tells when it tries.

Two fences.  The outer one is the kernel's: a user, mount and network namespace in which every mount is
read-only but a tmpfs at the scratch directory; it holds for children too, and real root is root no more.
The inner one is Python's audit hook: it sees each attempt, names it, and refuses to start programs.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

COMMAND = ("unshare", "--user", "--map-root-user", "--mount", "--net")
# include/uapi/asm-generic/unistd.h, fcntl.h and mount.h; mount_setattr came with Linux 5.12.
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
# include/uapi/linux/prctl.h, capability.h
_SYS_CAPSET, _PR_CAPBSET_DROP, _CAPABILITY_VERSION_3, _CAPABILITIES = (
    {"x86_64": 126}.get(os.uname().machine, 91),
    24,
    0x20080522,
    64,
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit event -> places of the paths among its arguments that it writes to.
_CHANGES = {
    "os.rename": (0, 1), "os.remove": (0,), "os.rmdir": (0,), "os.mkdir": (0,), "os.truncate": (0,),
    "os.symlink": (1,), "os.link": (1,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,),
    "os.setxattr": (0,), "os.removexattr": (0,),
}  # fmt: skip
_PROGRAMS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.spawn", "os.fork", "os.forkpty")


class ForbiddenError(BaseException):
    """Something was about to be written, or started, that must not be; no handler for errors catches it."""


def _set_read_only(path: Path, set_bits: int, clear_bits: int, flags: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(set_bits, clear_bits, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, bytes(path), flags, attributes, 32):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))


def _drop_capabilities() -> None:
    """Give up what could make a mount writable again, for programs started later as well."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, nothing = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.syscall(_SYS_CAPSET, header, nothing):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def enclose(scratch: Path) -> None:
    """Make all mounts of this process's namespaces (see COMMAND) read-only for good but a new tmpfs at `scratch`."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "fuzz", str(scratch)], check=True)
    _set_read_only(Path("/"), _MOUNT_ATTR_RDONLY, 0, _AT_RECURSIVE)
    _set_read_only(scratch, 0, _MOUNT_ATTR_RDONLY, 0)
    _drop_capabilities()


class Watch:
    """The audit hook: collects the files of `scratch` that were written to and raises for any other."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = str(scratch.resolve())
        self.written: set[str] = set()
        self.forbidden: list[str] = []
        self.armed = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.armed:
            return
        if event == "open":
            path, mode, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and not isinstance(path, int):
                self._note(event, path)
        elif event in _CHANGES:
            for place in _CHANGES[event]:
                if not isinstance(arguments[place], int):
                    self._note(event, arguments[place])
        elif event in _PROGRAMS:
            self._refuse(f"{event} {arguments[0]!r:.200}")

    def _note(self, event: str, path: object) -> None:
        real = os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]
        if event == "os.mkdir" and Path(real).is_dir():
            return
        if real.startswith(self.scratch + "/"):
            self.written.add(real)
        elif real != os.devnull:
            self._refuse(f"{event} {real!r:.200}")

    def _refuse(self, what: str) -> None:
        self.forbidden.append(what)
        raise ForbiddenError(what)
