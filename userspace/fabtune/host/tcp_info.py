# SPDX-License-Identifier: GPL-2.0-or-later
"""struct tcp_info by the names of its members; it only ever grows at its end, and an older kernel's is shorter."""

import sys

# include/uapi/linux/tcp.h: where each member begins, and how many bytes it has.
_MEMBERS = {
    "tcpi_snd_mss": (16, 4), "tcpi_unacked": (24, 4), "tcpi_sacked": (28, 4), "tcpi_lost": (32, 4),
    "tcpi_retrans": (36, 4), "tcpi_pmtu": (60, 4), "tcpi_rcv_ssthresh": (64, 4), "tcpi_rtt": (68, 4),
    "tcpi_rttvar": (72, 4), "tcpi_snd_ssthresh": (76, 4), "tcpi_snd_cwnd": (80, 4), "tcpi_total_retrans": (100, 4),
    "tcpi_pacing_rate": (104, 8), "tcpi_max_pacing_rate": (112, 8), "tcpi_bytes_acked": (120, 8),
    "tcpi_bytes_received": (128, 8), "tcpi_notsent_bytes": (144, 4), "tcpi_min_rtt": (148, 4),
    "tcpi_delivery_rate": (160, 8), "tcpi_busy_time": (168, 8), "tcpi_rwnd_limited": (176, 8),
    "tcpi_sndbuf_limited": (184, 8), "tcpi_delivered": (192, 4), "tcpi_bytes_retrans": (208, 8),
    "tcpi_rcv_ooopack": (224, 4), "tcpi_snd_wnd": (228, 4), "tcpi_rcv_wnd": (232, 4),
}  # fmt: skip
_UNSET = 2**32 - 1
# Bit fields begin at the low end or at the high one.
_LITTLE = sys.byteorder == "little"


class TcpInfo:
    """One connection's, as the kernel answered."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def told(self, member: str) -> int | None:
        """Return a member, None where this kernel's structure is shorter."""
        begin, size = _MEMBERS[member]
        data = self._data[begin : begin + size]
        return int.from_bytes(data, sys.byteorder) if len(data) == size else None

    def number(self, member: str) -> int:
        """Return a member, 0 where this kernel's structure is shorter."""
        return self.told(member) or 0

    @property
    def min_rtt_ms(self) -> float:
        """The least round trip, 0 while none was measured."""
        least_us = self.number("tcpi_min_rtt")
        return least_us / 1e3 if least_us < _UNSET else 0.0

    @property
    def own_scale(self) -> int:
        """By how many bits the own window is shifted (tcpi_rcv_wscale)."""
        scales = self._data[6] if len(self._data) > 6 else 0
        return scales >> 4 if _LITTLE else scales & 15

    @property
    def app_limited(self) -> bool:
        """Whether the delivery rate is what the sender had to send (tcpi_delivery_rate_app_limited)."""
        return bool(len(self._data) > 7 and self._data[7] & (1 if _LITTLE else 0x80))
