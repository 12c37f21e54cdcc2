# SPDX-License-Identifier: GPL-2.0-or-later
"""What a SCSI target itself says of a session's devices: which of them it still has, and who is registered there."""

import ctypes
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import tree
from fabtune.host.blocks import BLOCK, CHARACTER, numbered, rdev

# include/scsi/sg.h
_SG_IO, _FROM_DEVICE = 0x2285, -3
_TIMEOUT_MS = 10_000
_SENSE_BYTES = 64
# SPC-4: operation codes, the status CHECK CONDITION and two sense keys: a command that the device lacks, and news
_REPORT_LUNS, _PERSISTENT_RESERVE_IN = 0xA0, 0x5E
_CHECK_CONDITION, _ILLEGAL_REQUEST, _UNIT_ATTENTION = 2, 5, 6
# How many of them one after another are taken for news and not for the answer.
_ATTENTIONS = 3
_ANSWER_BYTES = 64 << 10
_WELL_KNOWN = 0xC1


class _Header(ctypes.Structure):
    """struct sg_io_hdr."""

    _fields_ = (
        ("interface_id", ctypes.c_int), ("direction", ctypes.c_int), ("command_bytes", ctypes.c_ubyte),
        ("sense_bytes", ctypes.c_ubyte), ("iovec_count", ctypes.c_ushort), ("data_bytes", ctypes.c_uint),
        ("data", ctypes.c_void_p), ("command", ctypes.c_void_p), ("sense", ctypes.c_void_p),
        ("timeout_ms", ctypes.c_uint), ("flags", ctypes.c_uint), ("pack_id", ctypes.c_int),
        ("usr_ptr", ctypes.c_void_p), ("status", ctypes.c_ubyte), ("masked_status", ctypes.c_ubyte),
        ("msg_status", ctypes.c_ubyte), ("sense_written", ctypes.c_ubyte), ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort), ("resid", ctypes.c_int), ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    )  # fmt: skip


class UnknownCommandError(FabtuneError):
    """The device does not have the command."""


def luns_gone(devices: Sequence[Path]) -> list[Path]:
    """Return which of a session's SCSI `devices` (sysfs directories) its target no longer has.

    Raises FabtuneError where the target does not say.
    """
    present = _offered(devices)
    return [one for one in devices if _lun(one) not in present]


def beyond(devices: Sequence[Path]) -> list[int]:
    """Return the LUNs of a target that are not among SCSI `devices`.  Raises FabtuneError where it does not say."""
    # A well known logical unit (SAM-5, 4.7.5) holds no data.
    return sorted(lun for lun in _offered(devices) - {_lun(one) for one in devices} if lun >> 8 & 0xFF != _WELL_KNOWN)


def _lun(device: Path) -> int:
    return int(device.name.rpartition(":")[2])


def _offered(devices: Sequence[Path]) -> set[int]:
    """Return the LUNs that the target of `devices` offers; none where there is nobody to ask."""
    problem = None
    for device in devices:
        try:
            # A LUN that is gone does not answer for the others.
            return set(parse_luns(_ask(device, _report_luns())))
        except FabtuneError as error:
            problem = problem or error
    if problem:
        raise problem
    return set()


def has_registrations(device: Path) -> bool:
    """Tell whether anybody has registered for persistent reservations of SCSI `device`.  Raises FabtuneError."""
    command = bytes([_PERSISTENT_RESERVE_IN, 0, 0, 0, 0, 0, 0, *(1 << 10).to_bytes(2, "big"), 0])
    try:
        answer = _ask(device, command)
    except UnknownCommandError:
        return False
    return int.from_bytes(answer[4:8], "big") > 0


def parse_luns(answer: bytes) -> Iterator[int]:
    """Yield the LUNs of REPORT LUNS' parameter data, as the kernel numbers them (scsilun_to_int)."""
    end = 8 + int.from_bytes(answer[:4], "big")
    if end > len(answer):
        raise FabtuneError(f"the target has {(end - 8) // 8} LUNs, more than fabtune looks at")
    for place in range(8, end, 8):
        lun = answer[place : place + 8]
        yield sum(int.from_bytes(lun[level : level + 2], "big") << (8 * level) for level in range(0, 8, 2))


def _report_luns() -> bytes:
    return bytes([_REPORT_LUNS, 0, 0, 0, 0, 0, *_ANSWER_BYTES.to_bytes(4, "big"), 0, 0])


def _ask(device: Path, command: bytes, again: int = _ATTENTIONS) -> bytes:
    """Send `command` to SCSI `device` and return the data it answers.  Raises FabtuneError, UnknownCommandError."""
    data, sense = ctypes.create_string_buffer(_ANSWER_BYTES), ctypes.create_string_buffer(_SENSE_BYTES)
    words = ctypes.create_string_buffer(command, len(command))
    header = _Header(
        interface_id=ord("S"), direction=_FROM_DEVICE, command_bytes=len(command), sense_bytes=_SENSE_BYTES,
        data_bytes=_ANSWER_BYTES, data=ctypes.addressof(data), command=ctypes.addressof(words),
        sense=ctypes.addressof(sense), timeout_ms=_TIMEOUT_MS,
    )  # fmt: skip
    fd = _open(device)
    try:
        fcntl.ioctl(fd, _SG_IO, header)
    except OSError as error:
        raise FabtuneError(f"SCSI device {device.name}: command {command[0]:02x}h: {error.strerror}") from error
    finally:
        os.close(fd)
    key = _sense_key(sense.raw) if header.status == _CHECK_CONDITION else None
    if key == _UNIT_ATTENTION and again:
        # Told once to each new session, in place of the answer: a device that nobody has asked anything yet.
        return _ask(device, command, again - 1)
    if key == _ILLEGAL_REQUEST:
        raise UnknownCommandError(f"SCSI device {device.name}: it has no command {command[0]:02x}h")
    if header.status or header.host_status or header.driver_status & 0x7:
        raise FabtuneError(f"SCSI device {device.name}: it does not answer command {command[0]:02x}h")
    return data.raw[: _ANSWER_BYTES - max(0, header.resid)]


def _sense_key(sense: bytes) -> int:
    """Return the key of fixed or descriptor sense data."""
    return (sense[1] if sense[0] & 0x7F in (0x72, 0x73) else sense[2]) & 0xF


def _open(device: Path) -> int:
    """Open the disk's node, or the generic SCSI node of a device that is not a disk.  Raises FabtuneError."""
    for kind, places in ((BLOCK, device.glob("block/*")), (CHARACTER, device.glob("scsi_generic/*"))):
        for place in places:
            number = numbered(kind, tree.read_text(place / "dev"))
            try:
                fd = os.open(f"/dev/{place.name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue
            if number and rdev(os.fstat(fd)) == number:
                return fd
            os.close(fd)
    raise FabtuneError(f"SCSI device {device.name}: it has no node by which it can be asked")
