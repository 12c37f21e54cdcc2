# SPDX-License-Identifier: GPL-2.0-or-later
"""What a path of a given round trip and rate can carry: BDP and the bound of a block workload."""

import math
from dataclasses import dataclass

# Bytes of headers in a full TCP segment: IPv4 20, TCP 20, timestamps 12; Ethernet 14 header.
_TCP_IP_HEADERS = 52
_ETHERNET_HEADER = 14


@dataclass(frozen=True)
class NetworkPath:
    """One way between initiator and target: round trip in s, rate in bytes/s of the slowest link.

    `estimated` tells a rate that nobody vouches for: measured with a few reads (busy CPUs make it too low),
    or a NIC's speed at a round trip that no site has (an upper limit).
    """

    rtt_s: float
    rate_bytes_per_s: float
    mtu: int = 1500
    estimated: bool = False

    @property
    def bdp_bytes(self) -> float:
        """Bytes in flight that fill the path: rate times round trip."""
        return self.rtt_s * self.rate_bytes_per_s

    @property
    def goodput_bytes_per_s(self) -> float:
        """TCP payload a full link carries, with `rate` counted as netem and Linux shapers do (Ethernet header in)."""
        return self.rate_bytes_per_s * (self.mtu - _TCP_IP_HEADERS) / (self.mtu + _ETHERNET_HEADER)


@dataclass(frozen=True)
class Bursts:
    """The negotiated iSCSI values that decide how many round trips a write takes (RFC 7143, 13)."""

    first_burst_bytes: int
    max_burst_bytes: int
    target_mrdsl_bytes: int
    outstanding_r2t: int = 1
    immediate_data: bool = True
    initial_r2t: bool = True


def unsolicited_bytes(io_bytes: int, bursts: Bursts) -> int:
    """Return how much of a write of `io_bytes` leaves before the target asks for it.

    Immediate data fills one PDU (up to the target's MaxRecvDataSegmentLength); without
    InitialR2T the rest of FirstBurstLength follows unasked.
    """
    burst = min(io_bytes, bursts.first_burst_bytes)
    immediate = min(burst, bursts.target_mrdsl_bytes) if bursts.immediate_data else 0
    return immediate if bursts.initial_r2t else burst


def write_round_trips(io_bytes: int, bursts: Bursts) -> int:
    """Return the round trips one write of `io_bytes` needs: the command's own and one a group of R2Ts."""
    solicited = io_bytes - unsolicited_bytes(io_bytes, bursts)
    return 1 + math.ceil(math.ceil(solicited / bursts.max_burst_bytes) / bursts.outstanding_r2t)


def bound_bytes_per_s(
    path: NetworkPath, io_bytes: int, queue_depth: int, round_trips: int = 1, window_bytes: float = math.inf
) -> float:
    """Return the highest throughput of `queue_depth` requests of `io_bytes` kept in flight.

    Three ceilings: the link's goodput, the TCP window each round trip, and the queue emptied
    once in `round_trips` round trips plus the request's own time on the wire.
    """
    ceilings = [path.goodput_bytes_per_s]
    if path.rtt_s > 0:
        request_s = round_trips * path.rtt_s + io_bytes / path.goodput_bytes_per_s
        ceilings += [window_bytes / path.rtt_s, queue_depth * io_bytes / request_s]
    return min(ceilings)
