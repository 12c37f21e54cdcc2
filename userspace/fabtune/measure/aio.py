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
# So much of each kind of buffer is made beforehand; a load with more of it outstanding makes the rest as it goes.
_BEFOREHAND_BYTES = 64 << 20
# Random bytes that writes are cut from, and the smallest unit in which a target looks for what it has already.
_RANDOM_BYTES, _BLOCK_BYTES = 4 << 20, 4096


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


class _RandomData:
    """Random bytes for writes of at most so many, of which no block of 4 KiB comes twice in 8 GiB.

    Making as many anew for each would take longer than many a device takes to write them.
    """

    def __init__(self, longest_bytes: int) -> None:
        self._length = max(_RANDOM_BYTES, -longest_bytes // _BLOCK_BYTES * -_BLOCK_BYTES)
        self._bytes = memoryview(os.urandom(self._length + _BLOCK_BYTES if longest_bytes else 0))
        self._at = self._shift = 0

    def cut(self, length: int) -> memoryview:
        """Return the next ones; each time round they begin a byte further on, so that all blocks are others."""
        if self._at + length > self._length:
            self._at, self._shift = 0, (self._shift + 1) % _BLOCK_BYTES
        begin = self._at + self._shift
        self._at += -length // _BLOCK_BYTES * -_BLOCK_BYTES
        return self._bytes[begin : begin + length]


def _buffer(length: int) -> mmap.mmap:
    """Return memory that is there, and not only promised."""
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)


class Ring:
    """Up to `slots` requests outstanding on one open file, each with a buffer of its own for each direction.

    What is read is never written: it would be copied elsewhere on the device.  The `longest` read and write, in bytes,
    say which buffers are made beforehand.
    """

    def __init__(self, descriptor: int, slots: int, longest: tuple[int, int]) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._descriptor = descriptor
        self._controls = (_Control * slots)()
        self._events = (_Event * slots)()
        self._buffers: tuple[list[mmap.mmap | None], list[mmap.mmap | None]] = ([None] * slots, [None] * slots)
        for buffers, length in zip(self._buffers, longest, strict=True):
            # The last slots are taken first, and again as soon as they are free.
            for slot in range(slots - 1, max(-1, slots - 1 - _BEFOREHAND_BYTES // max(1, length)), -1):
                buffers[slot] = _buffer(length) if length else None
        self._random = _RandomData(longest[_WRITE])
        self._call(_CALLS[0], ctypes.c_long(slots), ctypes.byref(self._context))

    def _call(self, number: int, *words: object) -> int:
        done = int(self._syscall(ctypes.c_long(number), *words))
        if done < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return done

    def prepare(self, slot: int, offset: int, length: int, *, write: bool) -> None:
        """Make one request, none longer than the longest; what is written is random."""
        buffers = self._buffers[write]
        buffer = buffers[slot]
        if buffer is None or len(buffer) < length:
            buffer = buffers[slot] = _buffer(length)
        if write:
            buffer[:length] = self._random.cut(length)
        place = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        code = _WRITE if write else _READ
        self._controls[slot] = _Control(slot, 0, 0, code, 0, self._descriptor, place, length, offset)

    def submit(self, slot: int) -> None:
        """Send the request that was made.  Raises OSError.  Waits where the device takes no more."""
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
