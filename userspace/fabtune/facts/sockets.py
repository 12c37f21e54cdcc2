# SPDX-License-Identifier: GPL-2.0-or-later
"""What TCP itself knows of each iSCSI connection: round trip, throughput, buffers, losses (inet_diag)."""

import socket
import struct
from dataclasses import dataclass

from fabtune.backends import tree

ISCSI_PORT = 3260
_ESTABLISHED = 1 << 1
# INET_DIAG_INFO, _CONG and _SKMEMINFO as bits (include/uapi/linux/inet_diag.h)
_EXTENSIONS = (1 << 1) | (1 << 3) | (1 << 6)


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

    @property
    def path_rtt_ms(self) -> float:
        """The round trip of the path without queueing: the least seen, else the smoothed one."""
        return self.min_rtt_ms or self.rtt_ms


def established(netns: str = "") -> list[TcpSocket]:
    """Return the established TCP connections of `netns`, IPv4 and IPv6."""
    from pyroute2 import DiagSocket

    found: list[TcpSocket] = []
    with tree.inside(netns), DiagSocket() as diag:
        diag.bind()
        for family in (socket.AF_INET, socket.AF_INET6):
            for message in diag.get_sock_stats(family=family, states=_ESTABLISHED, extensions=_EXTENSIONS):
                attributes = dict(message["attrs"])
                info = attributes.get("INET_DIAG_INFO")
                if isinstance(info, dict):
                    found.append(_socket(message, attributes, info))
    return found


def _socket(message: dict[str, object], attributes: dict[str, object], info: dict[str, int]) -> TcpSocket:
    raw = attributes.get("INET_DIAG_SKMEMINFO", "")
    memory = bytes.fromhex(raw.replace(":", "")) if isinstance(raw, str) else b""
    # struct sk_meminfo: rmem_alloc, rcvbuf, wmem_alloc, sndbuf, ...
    receive, send = struct.unpack_from("=4xI4xI", memory) if len(memory) >= 16 else (0, 0)
    return TcpSocket(
        local=str(message["idiag_src"]).removeprefix("::ffff:"),
        remote=str(message["idiag_dst"]).removeprefix("::ffff:"),
        local_port=int(str(message["idiag_sport"])),
        remote_port=int(str(message["idiag_dport"])),
        rtt_ms=info.get("tcpi_rtt", 0) / 1e3,
        # An unset minimum is all ones.
        min_rtt_ms=info.get("tcpi_min_rtt", 0) / 1e3 if info.get("tcpi_min_rtt", 0) < 2**32 - 1 else 0.0,
        delivery_bytes_per_s=info.get("tcpi_delivery_rate", 0),
        cwnd_segments=info.get("tcpi_snd_cwnd", 0),
        mss_bytes=info.get("tcpi_snd_mss", 0),
        retransmitted_segments=info.get("tcpi_total_retrans", 0),
        congestion_control=str(attributes.get("INET_DIAG_CONG", "")),
        receive_buffer_bytes=receive,
        send_buffer_bytes=send,
    )
