# SPDX-License-Identifier: GPL-2.0-or-later
"""NIC rings, channels, coalescing, pause frames and offloads, through the kernel's own ethtool structures.

A key is ``<group>.<field>``, such as ``rings.rx``; ``rings.rx_max`` is its limit on this NIC.
"""

import errno
import struct
from dataclasses import dataclass

from fabtune.errors import FabtuneError, UnsupportedError, explained
from fabtune.host import nic_features, tools, tree
from fabtune.model.device import Device

_LRO_FLAG = 1 << 15
_TSO = "tso.on"
# ETHTOOL_STSO switches on whatever the NIC can, off by hand or not, and lets it mangle IPv4's IDs as well.
_TSO_FEATURES = ("tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp6-segmentation")


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
    "gso": _Group(0x23, 0x24, ("on",)),
    "gro": _Group(0x2B, 0x2C, ("on",)),
    "flags": _Group(0x25, 0x26, ("on",)),
}  # fmt: skip


def _call(device: Device, command: int, values: list[int]) -> list[int]:
    """Do one ethtool ioctl on the NIC of `device` and return the structure's fields.  Raises OSError."""
    layout = struct.Struct(f"={len(values) + 1}I")
    name, netns = _place(device)
    return list(layout.unpack(nic_features.call(name, netns, layout.pack(command, *values)))[1:])


def _place(device: Device) -> tuple[str, str]:
    """Return the name and the namespace of the NIC `device`.  Raises UnsupportedError."""
    if "name" not in device.where:
        raise UnsupportedError(f"{device.label}: not a NIC")
    if not tools.in_tree("/"):
        raise UnsupportedError(f"{device.label}: not read, because FABTUNE_ROOT={tree.ROOT} is not this host")
    return device.where["name"], device.where.get("netns", "")


def _tso(device: Device) -> dict[str, nic_features.Feature]:
    """Return the features that are TSO, those that can be switched if any can.

    Raises UnsupportedError where they were not all asked for alike: one value does not tell what they are.
    """
    known = nic_features.features_of(*_place(device))
    found = {name: known[name] for name in _TSO_FEATURES if name in known}
    found = {name: one for name, one in found.items() if one.switchable} or found
    if len({one.requested for one in found.values() if one.switchable}) > 1:
        told = ", ".join(f"{name} is {'on' if one.requested else 'off'}" for name, one in found.items())
        raise UnsupportedError(f"{device.label}: its TSO features are not all alike ({told})")
    return found


def _read_tso(device: Device) -> bool:
    return any(one.active for one in _tso(device).values())


def _write_tso(device: Device, on: bool) -> None:
    bits = {one.bit: one.requested for one in _tso(device).values() if one.switchable}
    if not bits:
        raise UnsupportedError(f"{device.label}: its driver lets nobody switch TSO")
    if on in bits.values() and _read_tso(device) != on:
        # Afterwards nobody could tell what was asked for before.
        state = "on" if on else "off"
        raise UnsupportedError(f"{device.label}: TSO is asked to be {state}, and something else keeps it from that")
    nic_features.ask_for(*_place(device), bits, on)


def _split(device: Device, key: str) -> tuple[_Group, int, bool]:
    """Return the group of `key`, the index of its field, and whether the key is the LRO flag."""
    name, _, field = key.partition(".")
    group = _GROUPS.get(name)
    if group is None or (field not in group.fields and key != "flags.lro"):
        raise FabtuneError(f"ethtool key '{key}': unknown; groups: {', '.join(_GROUPS)}, or {_TSO}")
    return group, 0 if key == "flags.lro" else group.fields.index(field), key == "flags.lro"


class _Ethtool:
    def read(self, device: Device, key: str) -> str:
        if key == _TSO:
            with explained(f"{device.label}: {key}"):
                return str(int(_read_tso(device)))
        group, index, is_lro = _split(device, key)
        with explained(f"{device.label}: {key}"):
            value = _call(device, group.get, [0] * len(group.fields))[index]
        if is_lro:
            return str(int(bool(value & _LRO_FLAG)))
        if value == 0 and key in ("rings.rx", "rings.tx", "channels.combined"):
            raise UnsupportedError(f"{device.label}: its driver has no {key}")
        return str(value)

    def write(self, device: Device, key: str, value: str) -> None:
        if key == _TSO:
            with explained(f"{device.label}: {key}={value}"):
                _write_tso(device, bool(int(value)))
            return
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
