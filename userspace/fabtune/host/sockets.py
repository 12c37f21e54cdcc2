# SPDX-License-Identifier: GPL-2.0-or-later
"""What TCP itself knows of each iSCSI connection: round trip, throughput, buffers, losses (inet_diag)."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fabtune.errors import explained
from fabtune.host import namespaces, tree

ISCSI_PORT = 3260
ESTABLISHED = 1 << 1
# include/uapi/linux/inet_diag.h: attributes, and the bits that ask for them; size of struct inet_diag_msg
INFO, _CONG, SKMEMINFO = 2, 4, 7
EXTENSIONS = 1 << (INFO - 1) | 1 << (_CONG - 1) | 1 << (SKMEMINFO - 1)
_MESSAGE_BYTES = 72
# include/uapi/linux/netlink.h, sock_diag.h
SOCK_DIAG, BY_FAMILY, _REQUEST_DUMP = 4, 20, 0x301
_ERROR, _DONE, _HEADER_BYTES, RECEIVE_BYTES = 2, 3, 16, 1 << 16


@dataclass(frozen=True)
class TcpSocket:
    """One established connection, as tcp_info and meminfo show it."""

    local: str
    remote: str
    local_port: int
    remote_port: int
    rtt_ms: float
    min_rtt_ms: float
    delivery_bytes_per_s: int
    cwnd_segments: int
    mss_bytes: int
    retransmitted_segments: int
    congestion_control: str
    receive_buffer_bytes: int
    send_buffer_bytes: int
    # The number of the interface that the socket is bound to (SO_BINDTODEVICE), 0 for none.
    bound: int = 0
    # What /proc/PID/fd calls it.
    inode: int = 0
    # Since the connection was made: how long there was something to send, and of that waited for the peer's window or
    # for room in the send buffer; bytes that the peer has acknowledged, and that came in.
    busy_us: int = 0
    rwnd_limited_us: int = 0
    sndbuf_limited_us: int = 0
    acked_bytes: int = 0
    received_bytes: int = 0
    # What SO_MAX_PACING_RATE allows; 0: it was not set, or is not told.
    max_pacing_bytes_per_s: int = 0

    @property
    def path_rtt_ms(self) -> float:
        """The round trip of the path without queueing: the least seen, else the smoothed one."""
        return self.min_rtt_ms or self.rtt_ms


def established(netns: str = "") -> list[TcpSocket]:
    """Return the established TCP connections of `netns`, IPv4 and IPv6.  Raises FabtuneError."""
    with (
        namespaces.inside(netns),
        explained("inet_diag"),
        socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, SOCK_DIAG) as diag,
    ):
        diag.bind((0, 0))
        return [_socket(message) for family in (socket.AF_INET, socket.AF_INET6) for message in _dump(diag, family)]


@dataclass(frozen=True)
class UdpSocket:
    """One UDP socket with a local address; `remote` is '' if it is not connected."""

    local: str
    remote: str
    local_port: int


def datagrams(netns: str = "") -> list[UdpSocket]:
    """Return the UDP sockets of `netns` that have a local address: bound to one, or connected.  Raises FabtuneError."""
    found = []
    with namespaces.inside(netns):
        for name in ("udp", "udp6", "udplite", "udplite6"):
            # /proc/net is the namespace of the whole process.
            for line in (tree.read_text(tree.PROC / "thread-self/net" / name) or "").splitlines()[1:]:
                (local, port), (remote, _) = (end.split(":") for end in line.split()[1:3])
                if local.strip("0"):
                    far = _hexadecimal(remote) if remote.strip("0") else ""
                    found.append(UdpSocket(_hexadecimal(local), far, int(port, 16)))
    return found


def _hexadecimal(text: str) -> str:
    """Return an address of /proc/net: words of 32 bits as this machine stores them."""
    data = b"".join(struct.pack("=I", int(text[start : start + 8], 16)) for start in range(0, len(text), 8))
    return _address(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


def _dump(diag: socket.socket, family: int) -> Iterator[bytes]:
    """Yield an inet_diag_msg with its attributes for each established TCP socket of `family`."""
    request = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, EXTENSIONS, ESTABLISHED)
    # A kernel without this family says that there is no such file.
    with contextlib.suppress(FileNotFoundError):
        yield from dump(diag, BY_FAMILY, request)


def dump(netlink: socket.socket, kind: int, request: bytes) -> Iterator[bytes]:
    """Ask for all of `kind` and yield what each message of the answer has behind its header.  Raises OSError."""
    netlink.send(struct.pack("=IHHII", _HEADER_BYTES + len(request), kind, _REQUEST_DUMP, 0, 0) + request)
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


def attributes(message: bytes) -> dict[int, bytes]:
    """Return the attributes behind an inet_diag_msg, by number."""
    return attribute_list(message[_MESSAGE_BYTES:])


def attribute_list(data: bytes) -> dict[int, bytes]:
    """Return netlink attributes by number."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found[kind] = data[4:length]
        data = data[(max(length, 4) + 3) & ~3 :]
    return found


def _socket(message: bytes) -> TcpSocket:
    family = message[0]
    local_port, remote_port, local, remote = struct.unpack_from(">HH16s16s", message, 4)
    told = attributes(message)
    info, memory = told.get(INFO, b""), told.get(SKMEMINFO, b"")
    # struct sk_meminfo: rmem_alloc, rcvbuf, wmem_alloc, sndbuf, ...
    receive, send = struct.unpack_from("=4xI4xI", memory) if len(memory) >= 16 else (0, 0)
    # struct tcp_info, which only ever grows at its end.
    least_us, delivery_bytes_per_s = _number("=I", info, 148), _number("=Q", info, 160)
    most_bytes_per_s = _number("=Q", info, 112)
    return TcpSocket(
        local=_address(family, local),
        remote=_address(family, remote),
        local_port=local_port,
        remote_port=remote_port,
        rtt_ms=_number("=I", info, 68) / 1e3,
        # An unset minimum is all ones.
        min_rtt_ms=least_us / 1e3 if least_us < 2**32 - 1 else 0.0,
        delivery_bytes_per_s=delivery_bytes_per_s,
        cwnd_segments=_number("=I", info, 80),
        mss_bytes=_number("=I", info, 16),
        retransmitted_segments=_number("=I", info, 100),
        congestion_control=told.get(_CONG, b"").rstrip(b"\0").decode(errors="replace"),
        receive_buffer_bytes=receive,
        send_buffer_bytes=send,
        bound=struct.unpack_from("=I", message, 40)[0],
        inode=struct.unpack_from("=I", message, 68)[0],
        busy_us=_number("=Q", info, 168),
        rwnd_limited_us=_number("=Q", info, 176),
        sndbuf_limited_us=_number("=Q", info, 184),
        acked_bytes=_number("=Q", info, 120),
        received_bytes=_number("=Q", info, 128),
        max_pacing_bytes_per_s=most_bytes_per_s if most_bytes_per_s < 2**64 - 1 else 0,
    )


def _number(form: str, data: bytes, offset: int) -> int:
    """Return one member of a structure, 0 where this kernel's is shorter."""
    if len(data) < offset + struct.calcsize(form):
        return 0
    return int(struct.unpack_from(form, data, offset)[0])


def _address(family: int, data: bytes) -> str:
    text = socket.inet_ntop(family, data[:4] if family == socket.AF_INET else data)
    return text.removeprefix("::ffff:")
