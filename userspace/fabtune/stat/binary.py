# SPDX-License-Identifier: GPL-2.0-or-later
"""Readings of fabstat.ko from its file ``stats.bin``: what the text says, in words that need no parsing.

The format is described in Documentation/ABI/testing/debugfs-fabstat: a header of text, then records.  Records of kinds
that are not known here are passed over, and so is what a newer module has behind the known part of a record.
"""

import contextlib
import gc
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fabtune.errors import InputError
from fabtune.stat.histogram import Histogram
from fabtune.stat.snapshot import CountedDevice, HardwareQueue, Op, Snapshot, ends, words

TYPED_FILE = "stats.bin"
TYPED_VERSION = 1
_FIRST_LINE = f"# fabstat-typed {TYPED_VERSION}"

# Kinds of records, by number, as in kmod/records.h.
_DEVICE, _QUEUE, _EVENTS, _OP, _ERRORS, _HISTOGRAM, _DETAIL, _END = range(8)

# What each begins with: kind and length in 32 bits each, the device's id, then its own words in the text's order.
_HEAD = struct.Struct("=II")
_DEVICE_WORDS = struct.Struct("=8xQQ32sQQ40s32s32sQQqQQQQQQQQQ")
_QUEUE_WORDS, _WORD = struct.Struct("=16xQqQQQ"), struct.Struct("=Q")
_EVENTS_BYTES = 16
_OP_WORDS = struct.Struct("=16xQ9Q")
_ERRORS_WORDS = struct.Struct("=16xQ")
_HISTOGRAM_WORDS = struct.Struct("=16xQQ8x")
_END_RECORD = struct.Struct("=IIQ")
_DETAIL_WORDS = struct.Struct("=16xQQ16x")
# A place among the buckets or events, and the count there, as often as they fit.
_pairs: Callable[[bytes], Iterator[tuple[int, int]]] = struct.Struct("=QQ").iter_unpack  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class _Header:
    """What the records refer to; `first` is the offset of the first one."""

    module: dict[str, str]
    events: tuple[str, ...]
    lists: dict[str, tuple[str, ...]]
    empty: Histogram
    first: int


# The three parts of an Op that records of their own fill in: its histograms, details and errors by class.
_OfOp = tuple[dict[str, Histogram], dict[str, Histogram], dict[str, int]]


@dataclass(slots=True)
class _Parts:
    """The records of one device, filled in as they come; `of_op` by the number of the op."""

    words: tuple[Any, ...]  # of _DEVICE_WORDS
    events: dict[str, int]
    ops: dict[str, Op]
    of_op: dict[int, _OfOp]
    queues: list[HardwareQueue]


def is_typed(data: bytes) -> bool:
    """Say whether `data` begins as a reading of the version that this module reads."""
    return data.startswith(_FIRST_LINE.encode() + b"\n")


def parse_typed(data: bytes, source: str = "fabstat") -> Snapshot:
    """Return the reading in `data`; `source` names it in errors.  Raises InputError."""
    if not is_typed(data):
        raise InputError(f"{source}: expected '{_FIRST_LINE}' in the first line")
    try:
        header = _header(data)
        module = header.module
        with _no_collection():
            found = [_device(parts, header) for parts in _grouped(data, header)]
        if ends(module, len(found)) and not data.endswith(_END_RECORD.pack(_END, _END_RECORD.size, len(found))):
            raise ValueError("it has no end")
        # As in the text: of one that went while the file was read the later record counts.
        devices = {one.id: one for one in found}
    except (KeyError, ValueError, IndexError, TypeError, StopIteration, struct.error) as error:
        raise InputError(f"{source}: damaged or cut short ({error!r})") from None
    times = int(module["time_ns"]), int(module["loaded_ns"]), int(module["depth_modulus_ns"]) or 2**64
    return Snapshot(*times, module, header.events, tuple(devices.values()))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from looking again and again at what is all kept: an eighth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _header(data: bytes) -> _Header:
    end = data.index(b"\0")
    lines = iter(data[:end].decode().splitlines()[1:])
    module = words(next(lines))
    from_ns = tuple(map(int, next(lines).split(" ")[2:]))
    events = tuple(next(lines).split(" ")[1:])
    lists = {}
    for line in lines:
        _, name, *values = line.split(" ")
        # "size=4KiB" is called 4KiB.
        lists[name] = tuple(value.rpartition("=")[2] for value in values)
    return _Header(module, events, lists, Histogram(from_ns), end // 8 * 8 + 8)


def _grouped(data: bytes, header: _Header) -> Iterator[_Parts]:
    """Yield each device with all of its records."""
    no_events, empty, from_ns = dict.fromkeys(header.events, 0), header.empty, header.empty.from_ns
    op_names, time_names = header.lists["op"], header.lists["time"]
    at, size = header.first, len(data)
    parts = None
    while at < size:
        kind, length = _HEAD.unpack_from(data, at)
        end = at + length
        if length % 8 or length < 16 or end > size:
            raise ValueError(f"record of {length} bytes at {at}")
        if kind == _DEVICE:
            if parts:
                yield parts
            parts = _Parts(_DEVICE_WORDS.unpack_from(data, at), no_events.copy(), {}, {}, [])
        elif parts is None:
            raise ValueError("no device before the first record")
        elif kind == _HISTOGRAM:
            op, time = _HISTOGRAM_WORDS.unpack_from(data, at)
            found = Histogram(from_ns, dict(_pairs(data[at + _HISTOGRAM_WORDS.size : end])))
            times, name = parts.of_op[op][0], time_names[time]
            times[name] = found
            if name == "device":
                # The module leaves the total times out while they equal the device times.
                times["total"] = found
        elif kind == _OP:
            op, *counts = _OP_WORDS.unpack_from(data, at)
            times, details, errors = parts.of_op[op] = {"device": empty, "total": empty, "refused": empty}, {}, {}
            parts.ops[op_names[op]] = Op(*counts, errors, times, details)  # type: ignore[call-arg]
        else:
            _add(parts, kind, data, at, end, header)
        at = end
    if parts:
        yield parts


def _add(parts: _Parts, kind: int, data: bytes, at: int, end: int, header: _Header) -> None:
    """Add a record of a `kind` that most devices have one of, or none."""
    if kind == _EVENTS:
        _count(parts.events, data[at + _EVENTS_BYTES : end], header.events)
    elif kind == _ERRORS:
        (op,) = _ERRORS_WORDS.unpack_from(data, at)
        _count(parts.of_op[op][2], data[at + _ERRORS_WORDS.size : end], header.events)
    elif kind == _DETAIL:
        op, detail = _DETAIL_WORDS.unpack_from(data, at)
        counted = dict(_pairs(data[at + _DETAIL_WORDS.size : end]))
        parts.of_op[op][1][header.lists["detail"][detail]] = Histogram(header.empty.from_ns, counted)
    elif kind == _QUEUE:
        queue, in_flight, highest, limit, at_limit_ns = _QUEUE_WORDS.unpack_from(data, at)
        issued = _WORD.unpack_from(data, at + _QUEUE_WORDS.size)[0] if end - at > _QUEUE_WORDS.size else None
        parts.queues.append(HardwareQueue(queue, in_flight, highest, limit, at_limit_ns, issued))


def _count(counts: dict[str, int], data: bytes, names: tuple[str, ...]) -> None:
    for place, count in _pairs(data):
        counts[names[place]] = count


def _device(parts: _Parts, header: _Header) -> CountedDevice:
    number, state, disk, dev, diskseq, hctl, driver, parent, *counts, error_ns, torn, limit_of = parts.words
    return CountedDevice(  # type: ignore[call-arg]
        number, header.lists["state"][state], _text(disk), f"{dev >> 32}:{dev & 0xFFFFFFFF}", diskseq,
        _text(hctl), _text(driver), _text(parent), *counts, parts.events, parts.ops, error_ns, torn,
        header.lists["limit_of"][limit_of], tuple(parts.queues),
    )  # fmt: skip


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode("utf-8", "backslashreplace")
