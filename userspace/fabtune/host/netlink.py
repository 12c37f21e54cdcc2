# SPDX-License-Identifier: GPL-2.0-or-later
"""Netlink's own part of a question to the kernel and of its answer (include/uapi/linux/netlink.h)."""

import os
import socket
import struct
from collections.abc import Iterator

_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_HEADER_BYTES, RECEIVE_BYTES = 16, 1 << 16


def question(kind: int, body: bytes, flags: int = 0) -> bytes:
    """Return a question of `kind`, for one thing unless `flags` ask for all."""
    return struct.pack("=IHHII", _HEADER_BYTES + len(body), kind, _REQUEST | flags, 0, 0) + body


def dump(netlink: socket.socket, kind: int, body: bytes) -> Iterator[bytes]:
    """Ask for all of `kind` and yield what each message of the answer has behind its header.  Raises OSError."""
    netlink.send(question(kind, body, _DUMP))
    while True:
        data = netlink.recv(RECEIVE_BYTES)
        while data:
            length, found = struct.unpack_from("=IH", data)
            if found == _DONE:
                return
            yield answer(data)
            data = data[(length + 3) & ~3 :]


def answer(data: bytes) -> bytes:
    """Return what the first message of an answer has behind its header.  Raises OSError: ENOENT if nothing is there."""
    length, kind = struct.unpack_from("=IH", data)
    if kind == _ERROR:
        (error,) = struct.unpack_from("=i", data, _HEADER_BYTES)
        raise OSError(-error, os.strerror(-error))
    return data[_HEADER_BYTES:length]


def attribute_list(data: bytes) -> dict[int, bytes]:
    """Return netlink attributes by number."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found[kind] = data[4:length]
        data = data[(max(length, 4) + 3) & ~3 :]
    return found
