# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at chosen TCP connections again and again, one question each, as cheaply as inet_diag allows."""

import contextlib
import socket
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence

from fabtune.errors import explained
from fabtune.host import namespaces, sockets
from fabtune.host.sockets import TcpSocket
from fabtune.model.address import canonical
from fabtune.model.observation import SocketSample

# include/uapi/linux/inet_diag.h: a request that names one socket leaves its cookie open with all ones.
_ANY_COOKIE = 0xFFFFFFFF
_NO_SLOW_START = 0x7FFFFFFF
# What a window that is not scaled can say (RFC 7323).
_UNSCALED = 65535
# Where members of struct tcp_info end that not every kernel has.
_ENDS_AT = {
    "tcpi_max_pacing_rate": 120, "tcpi_bytes_acked": 128, "tcpi_bytes_received": 136, "tcpi_notsent_bytes": 148,
    "tcpi_min_rtt": 152, "tcpi_delivery_rate": 168, "tcpi_busy_time": 176, "tcpi_rwnd_limited": 184,
    "tcpi_sndbuf_limited": 192, "tcpi_bytes_retrans": 216, "tcpi_rcv_ooopack": 228, "tcpi_snd_wnd": 232,
    "tcpi_rcv_wnd": 236,
}  # fmt: skip


class SocketSampler:
    """Samples of `ends`, connections of namespace `netns`, read by questions about each of them alone."""

    def __init__(self, ends: Sequence[TcpSocket], netns: str = "") -> None:
        self._ends = {one: _request(one) for one in ends}
        # What this kernel does not tell of connections, known from the first sample on.
        self.lacks: tuple[str, ...] | None = None
        with namespaces.inside(netns), explained("inet_diag"):
            self._diag = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, sockets.SOCK_DIAG)

    def close(self) -> None:
        """Let go of the kernel's ear."""
        self._diag.close()

    def sample(self, at_s: float) -> Iterator[tuple[TcpSocket, SocketSample]]:
        """Yield a sample of each connection that is still there."""
        for end, request in self._ends.items():
            self._diag.send(request)
            with contextlib.suppress(FileNotFoundError):
                told = sockets.attributes(sockets.answer(self._diag.recv(sockets.RECEIVE_BYTES)))
                # What is left of a connection that was closed answers too.
                if told.get(sockets.INFO):
                    self.lacks = _lacking(told) if self.lacks is None else self.lacks
                    yield end, _sample(told, at_s)


def _lacking(told: Mapping[int, bytes]) -> tuple[str, ...]:
    """Return the names of what an answer of this kernel has no member for."""
    length = len(told[sockets.INFO])
    found = [name for name, ends_at in _ENDS_AT.items() if length < ends_at]
    return tuple(found if told.get(sockets.SKMEMINFO) else [*found, "sk_meminfo"])


def _request(end: TcpSocket) -> bytes:
    """Return the question about `end` alone: struct inet_diag_req_v2 with its whole id."""
    family = socket.AF_INET6 if ":" in canonical(end.local) else socket.AF_INET
    local, remote = (socket.inet_pton(family, canonical(one)).ljust(16, b"\0") for one in (end.local, end.remote))
    extensions = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, sockets.EXTENSIONS, sockets.ESTABLISHED)
    ports = struct.pack(">HH", end.local_port, end.remote_port)
    place = ports + local + remote + struct.pack("=III", end.bound, _ANY_COOKIE, _ANY_COOKIE)
    body = extensions + place
    return struct.pack("=IHHII", 16 + len(body), sockets.BY_FAMILY, 1, 0, 0) + body


def _sample(told: Mapping[int, bytes], at_s: float) -> SocketSample:
    info, memory = told[sockets.INFO], told.get(sockets.SKMEMINFO, b"").ljust(36, b"\0")
    held, receive, below, send, _, queued = struct.unpack_from("=6I", memory)
    mss = _u32(info, 16) or 0
    ssthresh = _u32(info, 76)
    scales = info[6] if len(info) > 6 else 0
    # Two bit fields: the peer's scale, then the own.
    own_scale = scales >> 4 if sys.byteorder == "little" else scales & 15
    own = _u32(info, 232)
    # Before Linux 6.2 the own window is not told; what it may grow to at present is.
    own = _u32(info, 64) if own is None else own
    least_us = _u32(info, 148)
    unacked = (_u32(info, 24) or 0) - (_u32(info, 28) or 0) - (_u32(info, 32) or 0) + (_u32(info, 36) or 0)
    return SocketSample(
        at_s=at_s,
        sent_bytes=_u64(info, 120) or 0,
        received_bytes=_u64(info, 128) or 0,
        busy_us=_u64(info, 168) or 0,
        rwnd_limited_us=_u64(info, 176) or 0,
        sndbuf_limited_us=_u64(info, 184) or 0,
        retransmitted_bytes=_u64(info, 208) or (_u32(info, 100) or 0) * mss,
        out_of_order_segments=_u32(info, 224),
        cwnd_bytes=(_u32(info, 80) or 0) * mss,
        ssthresh_bytes=None if ssthresh is None or ssthresh >= _NO_SLOW_START else ssthresh * mss,
        in_flight_bytes=max(0, unacked) * mss,
        notsent_bytes=_u32(info, 144) or 0,
        send_window_bytes=_u32(info, 228),
        receive_window_bytes=None if own is None else min(own, _UNSCALED << own_scale),
        send_queue_bytes=queued,
        below_tcp_bytes=below,
        send_buffer_bytes=send,
        receive_queue_bytes=held,
        receive_buffer_bytes=receive,
        rtt_ms=(_u32(info, 68) or 0) / 1e3,
        min_rtt_ms=least_us / 1e3 if least_us is not None and least_us < 2**32 - 1 else 0.0,
        delivery_bytes_per_s=_u64(info, 160) or 0,
        app_limited=bool(len(info) > 7 and info[7] & (1 if sys.byteorder == "little" else 0x80)),
        pacing_bytes_per_s=_u64(info, 104),
        max_pacing_bytes_per_s=_u64(info, 112),
        delivered_segments=_u32(info, 192),
        rtt_deviation_ms=(_u32(info, 72) or 0) / 1e3,
    )


def _u32(info: bytes, offset: int) -> int | None:
    """Return a member of struct tcp_info, None where this kernel's is shorter."""
    return int.from_bytes(info[offset : offset + 4], sys.byteorder) if len(info) >= offset + 4 else None


def _u64(info: bytes, offset: int) -> int | None:
    return int.from_bytes(info[offset : offset + 8], sys.byteorder) if len(info) >= offset + 8 else None
