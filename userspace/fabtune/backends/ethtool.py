# SPDX-License-Identifier: GPL-2.0-or-later
"""NIC rings, channels, coalescing, pause frames and offloads, through the kernel's own ethtool structures.

A key is ``<group>.<field>``, such as ``rings.rx``; ``rings.rx_max`` is its limit on this NIC.
Binary structures, not the tool's text: its text changed with every release and driver.
"""

import ctypes
import errno
import fcntl
import socket
import struct
from dataclasses import dataclass

from fabtune.errors import FabtuneError, UnsupportedError, explained
from fabtune.host import namespaces, tools, tree
from fabtune.model.device import Device

_SIOCETHTOOL = 0x8946
_LRO_FLAG = 1 << 15


@dataclass(frozen=True)
class _Group:
    """One structure of include/uapi/linux/ethtool.h: its commands and its u32 fields after `cmd`."""

    get: int
    set: int
    fields: tuple[str, ...]


_GROUPS = {
    "rings": _Group(0x10, 0x11, ("rx_max", "rx_mini_max", "rx_jumbo_max", "tx_max", "rx", "rx_mini", "rx_jumbo", "tx")),
    "channels": _Group(
        0x3C, 0x3D, ("max_rx", "max_tx", "max_other", "max_combined", "rx", "tx", "other", "combined")
    ),
    "coalesce": _Group(
        0x0E, 0x0F,
        ("rx_usecs", "rx_frames", "rx_usecs_irq", "rx_frames_irq", "tx_usecs", "tx_frames", "tx_usecs_irq",
         "tx_frames_irq", "stats_block_usecs", "adaptive_rx", "adaptive_tx", "pkt_rate_low", "rx_usecs_low",
         "rx_frames_low", "tx_usecs_low", "tx_frames_low", "pkt_rate_high", "rx_usecs_high", "rx_frames_high",
         "tx_usecs_high", "tx_frames_high", "rate_sample_interval"),
    ),
    "pause": _Group(0x12, 0x13, ("autoneg", "rx", "tx")),
    "tso": _Group(0x1E, 0x1F, ("on",)),
    "gso": _Group(0x23, 0x24, ("on",)),
    "gro": _Group(0x2B, 0x2C, ("on",)),
    "flags": _Group(0x25, 0x26, ("on",)),
}  # fmt: skip


def _call(device: Device, command: int, values: list[int]) -> list[int]:
    """Do one ethtool ioctl on the NIC of `device` and return the structure's fields.  Raises OSError."""
    name = device.where["name"]
    layout = struct.Struct(f"={len(values) + 1}I")
    buffer = ctypes.create_string_buffer(layout.pack(command, *values), layout.size)
    if not tools.in_tree("/"):
        raise UnsupportedError(f"{device.label}: not read, because FABTUNE_ROOT={tree.ROOT} is not this host")
    request = struct.pack("16sP16x", name.encode(), ctypes.addressof(buffer))
    with namespaces.inside(device.where.get("netns", "")), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        fcntl.ioctl(channel.fileno(), _SIOCETHTOOL, request)
    return list(layout.unpack(buffer.raw)[1:])


def _split(device: Device, key: str) -> tuple[_Group, int, bool]:
    """Return the group of `key`, the index of its field, and whether the key is the LRO flag."""
    if "name" not in device.where:
        raise UnsupportedError(f"{device.label}: not a NIC")
    name, _, field = key.partition(".")
    group = _GROUPS.get(name)
    if group is None or (field not in group.fields and key != "flags.lro"):
        raise FabtuneError(f"ethtool key '{key}': unknown; groups: {', '.join(_GROUPS)}")
    return group, 0 if key == "flags.lro" else group.fields.index(field), key == "flags.lro"


class _Ethtool:
    def read(self, device: Device, key: str) -> str:
        group, index, is_lro = _split(device, key)
        with explained(f"{device.label}: {key}"):
            value = _call(device, group.get, [0] * len(group.fields))[index]
        if is_lro:
            return str(int(bool(value & _LRO_FLAG)))
        if value == 0 and key in ("rings.rx", "rings.tx", "channels.combined"):
            raise UnsupportedError(f"{device.label}: its driver has no {key}")
        return str(value)

    def write(self, device: Device, key: str, value: str) -> None:
        group, index, is_lro = _split(device, key)
        number = int(value)
        with explained(f"{device.label}: {key}={value}"):
            values = _call(device, group.get, [0] * len(group.fields))
            if is_lro:
                number = values[0] | _LRO_FLAG if number else values[0] & ~_LRO_FLAG
            values[index] = number
            try:
                _call(device, group.set, values)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    # Drivers know a few steps only (e1000e: 0, 1, 3, 4 and 10 to 10,000 us), and nothing tells which.
                    raise UnsupportedError(f"{device.label}: its driver refuses {key}={value}") from error
                raise


BACKEND = _Ethtool()
