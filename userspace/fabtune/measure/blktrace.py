# SPDX-License-Identifier: GPL-2.0-or-later
"""Traces of blktrace, read: which requests a user's programs sent to one device, and when.

The format is struct blk_io_trace of the kernel's <linux/blktrace_api.h>, as blktrace leaves it for each CPU and
``blkparse -d`` merges it.
"""

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs

from fabtune.errors import InputError
from fabtune.host import userfile
from fabtune.host.blocks import SECTOR_BYTES
from fabtune.measure.arrivals import Arrival

_MOST_BYTES = 512 << 20
_MAGIC = 0x65617407
# magic, sequence, time in ns, sector, bytes, action, pid, device, cpu, error, bytes that follow
_FIELDS = "IIQQIIIIIHH"
_QUEUE = 1
_WRITE, _PC, _NOTIFY, _DISCARD = 1 << 1, 1 << 9, 1 << 10, 1 << 13
_MINOR_BITS = 20
# A name that blktrace gives the file of one CPU.
_OWN = re.compile(r"(.*\.blktrace)\.[0-9]+", re.DOTALL)


@attrs.frozen
class Trace:
    """What was sent to the device: each request with its time since the first; `left_out` counts what moves no data."""

    name: str
    sha256: str
    device: str
    requests: tuple[Arrival, ...]
    left_out: int


def load(path: Path) -> Trace:
    """Return the trace in `path`, with those of the other CPUs beside it where it is one of blktrace's own files.

    Raises InputError, which names the file, what was found there and what is allowed.
    """
    digest, queued, left_out = hashlib.sha256(), [], 0
    for file in _of_all_cpus(path):
        raw = userfile.read_bytes(file, _MOST_BYTES)
        digest.update(raw)
        for when_ns, sector, length, action, device in _events(raw, file):
            if action & 0xFFFF != _QUEUE or action >> 16 & (_NOTIFY | _PC):
                continue
            if not length or action >> 16 & _DISCARD:
                left_out += 1
                continue
            if length % SECTOR_BYTES:
                raise InputError(f"{file}: a request of {length} bytes, allowed: multiples of {SECTOR_BYTES}")
            queued.append((when_ns, sector, length, bool(action >> 16 & _WRITE), device))
    return Trace(path.name, digest.hexdigest(), *_of_one_device(queued, path), left_out)


def _of_all_cpus(path: Path) -> list[Path]:
    """Return `path` and the files of the other CPUs beside it where it is one of blktrace's own.  Raises InputError.

    Copies beside them, such as ``sda.blktrace.0.bak``, are none of these.
    """
    own = _OWN.fullmatch(path.name)
    try:
        names = sorted(one.name for one in path.parent.iterdir()) if own else []
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        raise InputError(f"{path.parent}: where the other CPUs' files may be: {error.strerror}") from error
    if not own or path.name not in names:
        return [path]
    return [path.with_name(name) for name in names if (like := _OWN.fullmatch(name)) and like[1] == own[1]]


def _events(raw: bytes, file: Path) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield time, sector, bytes, action and device of every event.  Raises InputError."""
    order = next((one for one in "<>" if raw[:4] == struct.pack(f"{one}I", _MAGIC)), "")
    if raw and not order:
        raise InputError(
            f"{file}: found {raw[:4]!r} at its beginning, allowed: a binary trace of blktrace, version 7 "
            "(record one with: blktrace -d DEVICE -o NAME; merge its files with: blkparse -i NAME -O -d FILE)"
        )
    event, at = struct.Struct(f"{order}{_FIELDS}"), 0
    while at < len(raw):
        if len(raw) - at < event.size:
            raise InputError(f"{file}: ends at byte {len(raw)} within the event that begins at byte {at}: cut short")
        magic, _, when_ns, sector, length, action, _, device, _, _, more = event.unpack_from(raw, at)
        if magic != _MAGIC:
            raise InputError(f"{file}: found {magic:#x} at byte {at}, allowed: {_MAGIC:#x}, the begin of an event")
        yield when_ns, sector, length, action, device
        at += event.size + more


def _of_one_device(queued: list[tuple[int, int, int, bool, int]], path: Path) -> tuple[str, tuple[Arrival, ...]]:
    """Return the device's number and its requests in order.  Raises InputError where they are of none or of several."""
    devices = Counter(f"{device >> _MINOR_BITS},{device & (1 << _MINOR_BITS) - 1}" for *_, device in queued)
    if not devices:
        raise InputError(
            f"{path}: no reads or writes were queued, allowed: one or more (blktrace must trace the action 'queue')"
        )
    if len(devices) > 1:
        said = ", ".join(f"{name} ({count} requests)" for name, count in sorted(devices.items()))
        raise InputError(f"{path}: found requests to the devices {said}, allowed: one device; trace it alone")
    queued.sort(key=lambda one: one[0])
    first_ns = queued[0][0]
    requests = tuple(
        Arrival(when_ns - first_ns, sector * SECTOR_BYTES, length, write)
        for when_ns, sector, length, write, _ in queued
    )
    return next(iter(devices)), requests


@attrs.frozen
class Fitted:
    """A trace's requests as a device can take them, and of how many the address was `folded` or anything `aligned`."""

    requests: tuple[Arrival, ...]
    folded: int
    aligned: int


def fit(trace: Trace, size_bytes: int, block_bytes: int) -> Fitted:
    """Return the requests of `trace` for a device of that size and of blocks of `block_bytes`.

    What lies beyond its end is folded back, modulo its size; what is no whole number of blocks is widened to one.
    Raises InputError where a request is larger than the device.
    """
    size_bytes -= size_bytes % block_bytes
    fitted, folded, aligned = [], 0, 0
    for one in trace.requests:
        begin = one.offset - one.offset % block_bytes
        length = -(-(one.offset + one.length - begin) // block_bytes) * block_bytes
        if length > size_bytes:
            raise InputError(f"{trace.name}: a request of {one.length} bytes, allowed on this device: {size_bytes}")
        aligned += (begin, length) != (one.offset, one.length)
        if begin + length > size_bytes:
            begin, folded = min(begin % size_bytes, size_bytes - length), folded + 1
        fitted.append(attrs.evolve(one, offset=begin, length=length))
    return Fitted(tuple(fitted), folded, aligned)
