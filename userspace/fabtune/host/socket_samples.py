# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at chosen TCP connections again and again, one question each, as cheaply as inet_diag allows."""

import contextlib
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence

from fabtune.errors import explained
from fabtune.host import namespaces, netlink, sockets
from fabtune.host.sockets import TcpSocket
from fabtune.host.tcp_info import TcpInfo
from fabtune.model.address import canonical
from fabtune.model.observation import SocketSample

# include/uapi/linux/inet_diag.h: a request that names one socket leaves its cookie open with all ones.
_ANY_COOKIE = 0xFFFFFFFF
_NO_SLOW_START = 0x7FFFFFFF
# What a window that is not scaled can say (RFC 7323).
_UNSCALED = 65535
# Members of struct tcp_info that not every kernel has.
_NOT_EVERYWHERE = (
    "tcpi_max_pacing_rate", "tcpi_bytes_acked", "tcpi_bytes_received", "tcpi_notsent_bytes", "tcpi_min_rtt",
    "tcpi_delivery_rate", "tcpi_busy_time", "tcpi_rwnd_limited", "tcpi_sndbuf_limited", "tcpi_bytes_retrans",
    "tcpi_rcv_ooopack", "tcpi_snd_wnd", "tcpi_rcv_wnd",
)  # fmt: skip


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
                told = sockets.attributes(netlink.answer(self._diag.recv(netlink.RECEIVE_BYTES)))
                # What is left of a connection that was closed answers too.
                if told.get(sockets.INFO):
                    self.lacks = _lacking(told) if self.lacks is None else self.lacks
                    yield end, _sample(told, at_s)


def _lacking(told: Mapping[int, bytes]) -> tuple[str, ...]:
    """Return the names of what an answer of this kernel has no member for."""
    info = TcpInfo(told[sockets.INFO])
    found = [name for name in _NOT_EVERYWHERE if info.told(name) is None]
    return tuple(found if told.get(sockets.SKMEMINFO) else [*found, "sk_meminfo"])


def _request(end: TcpSocket) -> bytes:
    """Return the question about `end` alone: struct inet_diag_req_v2 with its whole id."""
    family = socket.AF_INET6 if ":" in canonical(end.local) else socket.AF_INET
    local, remote = (socket.inet_pton(family, canonical(one)).ljust(16, b"\0") for one in (end.local, end.remote))
    extensions = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, sockets.EXTENSIONS, sockets.ESTABLISHED)
    ports = struct.pack(">HH", end.local_port, end.remote_port)
    place = ports + local + remote + struct.pack("=III", end.bound, _ANY_COOKIE, _ANY_COOKIE)
    return netlink.question(sockets.BY_FAMILY, extensions + place)


def _sample(told: Mapping[int, bytes], at_s: float) -> SocketSample:
    info, memory = TcpInfo(told[sockets.INFO]), told.get(sockets.SKMEMINFO, b"").ljust(36, b"\0")
    held, receive, below, send, _, queued = struct.unpack_from("=6I", memory)
    mss, ssthresh = info.number("tcpi_snd_mss"), info.told("tcpi_snd_ssthresh")
    own = info.told("tcpi_rcv_wnd")
    # Before Linux 6.2 the own window is not told; what it may grow to at present is.
    own = info.told("tcpi_rcv_ssthresh") if own is None else own
    unacked = info.number("tcpi_unacked") - info.number("tcpi_sacked") - info.number("tcpi_lost")
    unacked += info.number("tcpi_retrans")
    return SocketSample(
        at_s=at_s,
        sent_bytes=info.number("tcpi_bytes_acked"),
        received_bytes=info.number("tcpi_bytes_received"),
        busy_us=info.number("tcpi_busy_time"),
        rwnd_limited_us=info.number("tcpi_rwnd_limited"),
        sndbuf_limited_us=info.number("tcpi_sndbuf_limited"),
        retransmitted_bytes=info.number("tcpi_bytes_retrans") or info.number("tcpi_total_retrans") * mss,
        out_of_order_segments=info.told("tcpi_rcv_ooopack"),
        cwnd_bytes=info.number("tcpi_snd_cwnd") * mss,
        ssthresh_bytes=None if ssthresh is None or ssthresh >= _NO_SLOW_START else ssthresh * mss,
        in_flight_bytes=max(0, unacked) * mss,
        notsent_bytes=info.number("tcpi_notsent_bytes"),
        send_window_bytes=info.told("tcpi_snd_wnd"),
        receive_window_bytes=None if own is None else min(own, _UNSCALED << info.own_scale),
        send_queue_bytes=queued,
        below_tcp_bytes=below,
        send_buffer_bytes=send,
        receive_queue_bytes=held,
        receive_buffer_bytes=receive,
        rtt_ms=info.number("tcpi_rtt") / 1e3,
        min_rtt_ms=info.min_rtt_ms,
        delivery_bytes_per_s=info.number("tcpi_delivery_rate"),
        app_limited=info.app_limited,
        pacing_bytes_per_s=info.told("tcpi_pacing_rate"),
        max_pacing_bytes_per_s=info.told("tcpi_max_pacing_rate"),
        delivered_segments=info.told("tcpi_delivered"),
        rtt_deviation_ms=info.number("tcpi_rttvar") / 1e3,
    )
