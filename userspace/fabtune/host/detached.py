# SPDX-License-Identifier: GPL-2.0-or-later
"""File systems that are mounted for nobody to see: by descriptor alone, so that nothing is left however we end."""

import ctypes
import os
from functools import cache

# The new mount API has the same numbers on every architecture (include/uapi/asm-generic/unistd.h; Linux 5.2).
_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432
_FSCONFIG_CMD_CREATE, _CLOEXEC = 6, 1


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def mount_unseen(kind: str) -> int:
    """Return a descriptor of the root of a new mount of file system `kind`.  Raises OSError."""
    context = _call(_SYS_FSOPEN, kind.encode(), _CLOEXEC)
    try:
        _call(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _call(_SYS_FSMOUNT, context, _CLOEXEC, 0)
    finally:
        os.close(context)


def _call(number: int, *arguments: object) -> int:
    found = int(_libc().syscall(number, *arguments))
    if found < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found
