# SPDX-License-Identifier: GPL-2.0-or-later
"""What TCP itself knows of each iSCSI connection: round trip, throughput, buffers, losses (inet_diag)."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fabtune.errors import explained
from fabtune.host import namespaces, netlink, tree
from fabtune.host.tcp_info import TcpInfo
from fabtune.model.observation import UNPACED

ISCSI_PORT = 3260
ESTABLISHED = 1 << 1
# include/uapi/linux/inet_diag.h: attributes, and the bits that ask for them; size of struct inet_diag_msg
INFO, _CONG, SKMEMINFO = 2, 4, 7
EXTENSIONS = 1 << (INFO - 1) | 1 << (_CONG - 1) | 1 << (SKMEMINFO - 1)
_MESSAGE_BYTES = 72
# include/uapi/linux/netlink.h, sock_diag.h
SOCK_DIAG, BY_FAMILY = 4, 20


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
    # The largest packet that the path takes as far as the connection knows; 0: it is not told.
    path_mtu_bytes: int = 0

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
        yield from netlink.dump(diag, BY_FAMILY, request)


def attributes(message: bytes) -> dict[int, bytes]:
    """Return the attributes behind an inet_diag_msg, by number."""
    return netlink.attribute_list(message[_MESSAGE_BYTES:])


def _socket(message: bytes) -> TcpSocket:
    family = message[0]
    local_port, remote_port, local, remote = struct.unpack_from(">HH16s16s", message, 4)
    told = attributes(message)
    info, memory = TcpInfo(told.get(INFO, b"")), told.get(SKMEMINFO, b"")
    # struct sk_meminfo: rmem_alloc, rcvbuf, wmem_alloc, sndbuf, ...
    receive, send = struct.unpack_from("=4xI4xI", memory) if len(memory) >= 16 else (0, 0)
    most_bytes_per_s = info.number("tcpi_max_pacing_rate")
    return TcpSocket(
        local=_address(family, local),
        remote=_address(family, remote),
        local_port=local_port,
        remote_port=remote_port,
        rtt_ms=info.number("tcpi_rtt") / 1e3,
        min_rtt_ms=info.min_rtt_ms,
        delivery_bytes_per_s=info.number("tcpi_delivery_rate"),
        cwnd_segments=info.number("tcpi_snd_cwnd"),
        mss_bytes=info.number("tcpi_snd_mss"),
        retransmitted_segments=info.number("tcpi_total_retrans"),
        congestion_control=told.get(_CONG, b"").rstrip(b"\0").decode(errors="replace"),
        receive_buffer_bytes=receive,
        send_buffer_bytes=send,
        bound=struct.unpack_from("=I", message, 40)[0],
        inode=struct.unpack_from("=I", message, 68)[0],
        busy_us=info.number("tcpi_busy_time"),
        rwnd_limited_us=info.number("tcpi_rwnd_limited"),
        sndbuf_limited_us=info.number("tcpi_sndbuf_limited"),
        acked_bytes=info.number("tcpi_bytes_acked"),
        received_bytes=info.number("tcpi_bytes_received"),
        max_pacing_bytes_per_s=most_bytes_per_s if most_bytes_per_s != UNPACED else 0,
        path_mtu_bytes=info.number("tcpi_pmtu"),
    )


def _address(family: int, data: bytes) -> str:
    text = socket.inet_ntop(family, data[:4] if family == socket.AF_INET else data)
    return text.removeprefix("::ffff:")
