# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's asynchronous I/O, by its system calls: many requests outstanding, and nobody waits for one of them."""

import ctypes
import errno
import mmap
import os
import platform
from collections.abc import Iterator

# io_setup, io_getevents, io_submit; those of all newer architectures are alike.
_CALLS = {"x86_64": (206, 208, 209), "ppc64le": (227, 229, 230)}.get(platform.machine(), (0, 4, 2))
_READ, _WRITE = 0, 1


class _Control(ctypes.Structure):
    """struct iocb of <linux/aio_abi.h>, little-endian."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16), ("priority", ctypes.c_int16), ("fd", ctypes.c_uint32), ("buf", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64), ("offset", ctypes.c_int64), ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32), ("resfd", ctypes.c_uint32),
    )  # fmt: skip


class _Event(ctypes.Structure):
    """struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("obj", ctypes.c_uint64), ("res", ctypes.c_int64), ("res2", ctypes.c_int64),
    )  # fmt: skip


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("ns", ctypes.c_long))


class Ring:
    """Up to `slots` requests outstanding on one open file, each with a buffer of its own."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._descriptor = descriptor
        self._controls = (_Control * slots)()
        self._events = (_Event * slots)()
        self._buffers: list[mmap.mmap | None] = [None] * slots
        self._call(_CALLS[0], ctypes.c_long(slots), ctypes.byref(self._context))

    def _call(self, number: int, *words: object) -> int:
        done = int(self._syscall(ctypes.c_long(number), *words))
        if done < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return done

    def submit(self, slot: int, offset: int, length: int, *, write: bool) -> None:
        """Send one request; what is written is random.  Raises OSError.  Waits where the device takes no more."""
        buffer = self._buffers[slot]
        if buffer is None or len(buffer) < length:
            buffer = self._buffers[slot] = mmap.mmap(-1, length)
            buffer[:length] = os.urandom(length) if write else bytes(length)
        place = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        code = _WRITE if write else _READ
        self._controls[slot] = _Control(slot, 0, 0, code, 0, self._descriptor, place, length, offset)
        pointer = ctypes.c_void_p(ctypes.addressof(self._controls) + slot * ctypes.sizeof(_Control))
        self._call(_CALLS[2], self._context, ctypes.c_long(1), ctypes.byref(pointer))

    def wait(self, timeout_ns: int | None) -> Iterator[tuple[int, int]]:
        """Wait for at least one end, or that long; yield slot and bytes (or a negative error) of what has ended."""
        until = None if timeout_ns is None else _Timespec(*divmod(max(0, timeout_ns), 10**9))
        place = None if until is None else ctypes.byref(until)
        room = ctypes.c_long(len(self._events))
        try:
            count = self._call(_CALLS[1], self._context, ctypes.c_long(1), room, ctypes.byref(self._events), place)
        except OSError as error:
            if error.errno != errno.EINTR:
                raise
            count = 0
        return ((event.data, event.res) for event in self._events[:count])
