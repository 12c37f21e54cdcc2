# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests with the instants at which they are to leave, as the generator of an open loop reads them."""

import struct
from collections.abc import Iterable, Iterator

import attrs

# One arrival: its instant in ns from the begin, byte offset, bytes, and whether it writes.
_ARRIVAL = struct.Struct("<QQII")


@attrs.frozen
class Arrival:
    """One request: when it is to leave, in ns from the begin, and what it is."""

    at_ns: int
    offset: int
    length: int
    write: bool


def packed(arrivals: Iterable[Arrival]) -> bytes:
    """Return the arrivals as the generator reads them."""
    return b"".join(_ARRIVAL.pack(one.at_ns, one.offset, one.length, one.write) for one in arrivals)


def unpacked(raw: bytes) -> Iterator[Arrival]:
    """Yield the arrivals of `packed`."""
    return (Arrival(at_ns, offset, length, bool(write)) for at_ns, offset, length, write in _ARRIVAL.iter_unpack(raw))
