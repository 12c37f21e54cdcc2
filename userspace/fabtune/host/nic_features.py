# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's binary ethtool structures (include/uapi/linux/ethtool.h): one call, and a NIC's features by name.

Not the tool's text: that changed with every release and driver.
"""

import ctypes
import fcntl
import socket
import struct
import sys
from collections.abc import Collection
from dataclasses import dataclass

from fabtune.host import namespaces

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSSET_INFO, _GFEATURES, _SFEATURES = 0x1B, 0x37, 0x3A, 0x3B
_FEATURES = 4
_STRING_BYTES, _WORD_BITS = 32, 32
# The command and how many words follow; then four words of 32 features each: available, requested, active, never.
_HEAD, _WORDS = struct.Struct("=II"), struct.Struct("=4I")


def call(name: str, netns: str, message: bytes) -> bytes:
    """Hand the kernel the structure `message` for the NIC `name` of `netns`; return what it made of it.

    Raises OSError.
    """
    buffer = ctypes.create_string_buffer(message, len(message))
    request = struct.pack("16sP16x", name.encode(), ctypes.addressof(buffer))
    with namespaces.inside(netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        fcntl.ioctl(channel.fileno(), _SIOCETHTOOL, request)
    return buffer.raw


@dataclass(frozen=True)
class Feature:
    """One feature of a NIC: its bit, whether it can be switched, was asked for, and is on.

    What was asked for may be off, as long as something that it needs is.
    """

    bit: int
    switchable: bool
    requested: bool
    active: bool


def features_of(name: str, netns: str) -> dict[str, Feature]:
    """Return the features of a NIC by their names, which are the same on every NIC.  Raises OSError."""
    count = _count(name, netns)
    strings = call(name, netns, struct.pack("=III", _GSTRINGS, _FEATURES, count) + bytes(count * _STRING_BYTES))
    size = _size(count)
    told = call(name, netns, _HEAD.pack(_GFEATURES, size) + bytes(size * _WORDS.size))
    words = list(_WORDS.iter_unpack(told[_HEAD.size :]))
    found = {}
    for bit in range(count):
        start = 12 + bit * _STRING_BYTES
        text = strings[start : start + _STRING_BYTES].partition(b"\0")[0].decode("ascii", "replace")
        switchable, requested, active, _ = (bool(word >> bit % _WORD_BITS & 1) for word in words[bit // _WORD_BITS])
        found[text] = Feature(bit, switchable, requested, active)
    # A bit that this kernel gives no meaning has no name.
    return {text: one for text, one in found.items() if text}


def ask_for(name: str, netns: str, bits: Collection[int], on: bool) -> None:
    """Ask for the features with these `bits`, or for their absence; no other is touched.  Raises OSError."""
    words = [0] * _size(_count(name, netns))
    for bit in bits:
        words[bit // _WORD_BITS] |= 1 << bit % _WORD_BITS
    blocks = b"".join(struct.pack("=II", word, word if on else 0) for word in words)
    call(name, netns, _HEAD.pack(_SFEATURES, len(words)) + blocks)


def _count(name: str, netns: str) -> int:
    told = call(name, netns, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _FEATURES, 0))
    return int.from_bytes(told[-4:], sys.byteorder)


def _size(count: int) -> int:
    return -(-count // _WORD_BITS)
