# SPDX-License-Identifier: GPL-2.0-or-later
"""What a path of a given round trip and rate can carry: BDP and the bound of a block workload."""

import math
from dataclasses import dataclass

# Bytes of headers in a full TCP segment: TCP 20, timestamps 12, and IPv4 20 or IPv6 40.
_OVER_IPV4, _OVER_IPV6 = 52, 72
# One Reno connection carries C MSS / (RTT sqrt(p)) (Mathis et al. 1997): C is sqrt(3/2) with periodic loss and an
# acknowledgement for each segment.  Sandia's study has a smaller one.
MATHIS, SANDIAS = 1.22, 0.7
# From this share of a bound on a change gains nothing that could be measured.
_AT_BOUND = 0.97
# What may pass of a rate, within what samples are off.
TOO_MUCH = 1.02
# Beyond this round trip some link that this host does not see is likely to be the slowest.
SITE_RTT_MS = 2.0
# What a packet takes of a link beside itself: on real Ethernet header 14, checksum 4, preamble 8 and gap 12;
# of a rate that netem or another shaper of Linux keeps the header alone.
ETHERNET_FRAMING, LINUX_FRAMING = 38, 14


def header_bytes(address: str) -> int:
    """Return how many bytes of headers a full TCP segment to IP address `address` has."""
    return _OVER_IPV6 if ":" in address else _OVER_IPV4


@dataclass(frozen=True)
class NetworkPath:
    """One way between initiator and target: round trip in s, rate in bytes/s of the slowest link.

    `estimated` tells a rate that nobody vouches for: measured with a few reads (busy CPUs make it too low),
    or a NIC's speed at a round trip that no site has (an upper limit).  `by_nic` tells that of the host's fastest NIC,
    which a session need not leave by.  `framing_bytes` is what the rate counts of a packet beside its IP packet:
    ETHERNET_FRAMING or LINUX_FRAMING; `header_bytes` what TCP and IP take of that.
    """

    rtt_s: float
    rate_bytes_per_s: float
    mtu: int = 1500
    estimated: bool = False
    framing_bytes: int = LINUX_FRAMING
    header_bytes: int = _OVER_IPV4
    by_nic: bool = False

    @property
    def bdp_bytes(self) -> float:
        """Bytes in flight that fill the path: rate times round trip."""
        return self.rtt_s * self.rate_bytes_per_s

    def sandias_reno_bytes_per_s(self, loss: float) -> float:
        """Return what one Reno connection carries by formula (2) of Sandia's study, which is less than the model's."""
        return reno_bytes_per_s(self.mtu - self.header_bytes, self.rtt_s, loss, SANDIAS)

    @property
    def goodput_bytes_per_s(self) -> float:
        """TCP payload that a full link carries in full segments."""
        return self.rate_bytes_per_s * (self.mtu - self.header_bytes) / (self.mtu + self.framing_bytes)


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


def sendable_bytes(io_bytes: int, bursts: Bursts) -> int:
    """Return how much of a write of `io_bytes` may be under way at once: what needs no leave, or what R2Ts ask for."""
    unasked = unsolicited_bytes(io_bytes, bursts)
    return max(unasked, min(io_bytes - unasked, bursts.outstanding_r2t * bursts.max_burst_bytes))


def reno_bytes_per_s(mss_bytes: int, rtt_s: float, loss: float, constant: float = MATHIS) -> float:
    """Return what one Reno connection carries where a share `loss` of its packets is lost at random."""
    rtts_s = rtt_s * math.sqrt(loss)
    return constant * mss_bytes / rtts_s if rtts_s else math.inf


def is_at_bound(carried: float, bound: float) -> bool:
    """Tell whether a rate is so near its bound that nothing but the bound holds it."""
    return carried >= _AT_BOUND * bound


def bound_bytes_per_s(
    path: NetworkPath,
    io_bytes: int,
    queue_depth: int,
    round_trips: float = 1,
    window_bytes: float = math.inf,
    share: float = 1,
) -> float:
    """Return the highest throughput one way of `queue_depth` requests of `io_bytes` kept in flight.

    `share` of the requests go this way, the others the other way, over a link of full duplex; `round_trips` is the
    mean over all.  Three ceilings: the link's goodput in the direction that has more to carry, the TCP window each
    round trip, and the queue emptied once in `round_trips` round trips plus the request's own time on the wire.
    """
    line = path.goodput_bytes_per_s
    request_s = round_trips * path.rtt_s + io_bytes / line
    both_ways = min(line / max(share, 1 - share), queue_depth * io_bytes / request_s)
    return min(share * both_ways, window_bytes / path.rtt_s if path.rtt_s else math.inf)
