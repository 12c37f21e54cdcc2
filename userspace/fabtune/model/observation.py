# SPDX-License-Identifier: GPL-2.0-or-later
"""What one look of some seconds at one disk of one session saw, at one end or both: the border to `why` and `whatif`.

Counters are differences over the look, samples are what stood there at one instant.  None is what was not told: an
older kernel, a file that needs root, a module that is not loaded.  Units are in the names.
"""

from collections.abc import Mapping
from typing import Annotated

import attrs

from fabtune.model.beside_seen import BesideSeen
from fabtune.model.path import Bursts, NetworkPath, header_bytes, sendable_bytes
from fabtune.model.served_seen import ServedSeen, of_iscsi, of_srp
from fabtune.model.typed import at_least, one_of_words

INITIATOR, TARGET = "initiator", "target"
ENDS = (INITIATOR, TARGET)
WAYS = ("read", "write")
# Whose rate the line is taken to have where nobody told it.
BY_NIC, BY_TARGETS_NIC = "of the NIC", "of the target's NIC"
# What tells a socket that it need not pace itself (tcp_info's all ones).
UNPACED = 2**64 - 1


@attrs.frozen
class SocketSample:
    """One connection's end at one instant, `at_s` after the look began (tcp_info, sk_meminfo).

    Times and bytes of `*_us`, `sent_bytes`, `received_bytes`, `retransmitted_bytes`, `out_of_order_segments` are
    cumulative.  `send_window_bytes` is the peer's window as this end knows it, `receive_window_bytes` the own one
    as it offers it: what the scale of the handshake allows at most.
    """

    at_s: float
    sent_bytes: int
    received_bytes: int
    busy_us: int
    rwnd_limited_us: int
    sndbuf_limited_us: int
    retransmitted_bytes: int
    out_of_order_segments: int | None
    cwnd_bytes: int
    ssthresh_bytes: int | None
    in_flight_bytes: int
    notsent_bytes: int
    send_window_bytes: int | None
    receive_window_bytes: int | None
    # What the write queue takes of the buffer, overhead included, and of that, what lies below TCP (qdisc, NIC).
    send_queue_bytes: int
    below_tcp_bytes: int
    send_buffer_bytes: int
    receive_queue_bytes: int
    receive_buffer_bytes: int
    rtt_ms: float
    min_rtt_ms: float
    delivery_bytes_per_s: int
    app_limited: bool
    pacing_bytes_per_s: int | None
    max_pacing_bytes_per_s: int | None
    # What the queueing discipline that its packets leave by let one flow, or all of them, have then.
    qdisc_bytes_per_s: float | None = None
    # Those that are known to have arrived, what lies behind a gap included; cumulative in 32 bits.
    delivered_segments: int | None = None
    # How far round trips are from their mean (tcpi_rttvar).
    rtt_deviation_ms: float | None = None


@attrs.frozen
class SocketSeen:
    """One connection as one end has it; `samples` are at least two, in order.

    `lacks` names what this kernel does not tell of connections (members of tcp_info): samples have 0 or None there.
    """

    local: str
    remote: str
    mss_bytes: int
    congestion_control: str
    samples: tuple[SocketSample, ...]
    lacks: tuple[str, ...] = ()
    # The largest packet that the path takes as far as this end knows.
    path_mtu_bytes: int | None = None

    @property
    def elapsed_s(self) -> float:
        """The seconds between the first and the last sample."""
        return self.samples[-1].at_s - self.samples[0].at_s

    def grown(self, counter: str) -> int:
        """Return by how much a cumulative member of the samples grew."""
        return int(getattr(self.samples[-1], counter) - getattr(self.samples[0], counter))


@attrs.frozen
class ThreadSeen:
    """A kernel thread that carries sessions, and the share of one CPU that it took (1 = all of one)."""

    name: str
    cpu_share: float


@attrs.frozen
class QdiscSeen:
    """The queueing discipline that the connection's packets leave by; its rate in bytes/s, None for none.

    `max_bytes_per_s` is what it lets one flow, or all of them, have.
    """

    nic: str
    kind: str
    max_bytes_per_s: float | None
    dropped: int
    backlog_bytes: int


@attrs.frozen
class NicSeen:
    """The interface that the connection uses; counters are differences."""

    name: str
    mtu_bytes: int
    speed_bytes_per_s: float | None
    counters: Mapping[str, int]


@attrs.frozen
class BackstoreSeen:
    """A block device that the target's LUNs lie on: requests' mean time, and the share of the time it was not idle."""

    name: str
    completed: Mapping[str, int]
    mean_ms: Mapping[str, float]
    busy_share: float
    mean_depth: float


@attrs.frozen
class QueueSeen:
    """A command's mean time in an end's own queue: until the socket has all of it, and from the first of it on."""

    queued_ms: float
    sent_ms: float


@attrs.frozen
class EndSeen:
    """One end: its socket, what carries the data there, and the limits that it sets.

    `cpu_busy` is the share of each CPU that was not idle, `softirq` the part of it in soft interrupts.  `sysctls` has
    what bounds its buffers (``net.core.wmem_max``), as texts.  `backstores` and `served` are a target's alone.
    `queue` is what its own iSCSI queue did, by direction (bpf/iscsi_queue.bpf.c); empty where nobody counted.
    `begun_unix_s` is when its look began, by the host's own clock; None of an older fabtune.
    """

    end: Annotated[str, one_of_words(*ENDS)]
    kernel: str
    socket: SocketSeen | None
    cpu_busy: tuple[float, ...] = ()
    softirq: tuple[float, ...] = ()
    threads: tuple[ThreadSeen, ...] = ()
    nic: NicSeen | None = None
    qdisc: QdiscSeen | None = None
    sysctls: Mapping[str, str] = {}
    backstores: tuple[BackstoreSeen, ...] = ()
    served: tuple[ServedSeen, ...] = ()
    begun_unix_s: float | None = None
    queue: Mapping[str, QueueSeen] = {}


@attrs.frozen
class WaySeen:
    """What one direction of the disk did: differences over the look.

    `device_ms` is a request's mean time from the driver to its answer, `total_ms` from its first issue, refusals
    included (without fabstat both are the next), `block_ms` from its way into the block queue, by the block layer.
    """

    completed: int
    moved_bytes: int
    device_ms: float | None
    total_ms: float | None
    block_ms: float | None = None
    p99_ms: float | None = None

    @property
    def request_bytes(self) -> float:
        """The mean size of a request, 0 where none completed."""
        return self.moved_bytes / self.completed if self.completed else 0.0

    @property
    def answered_ms(self) -> float | None:
        """A request's mean time from its last issue to its end: while it is refused nobody works on it."""
        return self.total_ms if self.device_ms is None else self.device_ms


@attrs.frozen
class DiskSample:
    """The disk at one instant: cumulative bytes by direction, the requests in flight, and how many may be.

    `limit` is the disk's queue depth, `nr_requests` what the block queue has; None where a look did not note them.
    """

    at_s: float
    read_bytes: int
    write_bytes: int
    in_flight: int
    limit: int | None = None
    nr_requests: int | None = None

    @property
    def most_in_flight(self) -> int | None:
        """How many requests may be in flight, None where it is not known."""
        return min((one for one in (self.limit, self.nr_requests) if one is not None), default=None)


@attrs.frozen
class DiskSeen:
    """One disk of the session.

    `limit` is how many requests the driver takes of it at once, `at_limit` the share of the time that so many were
    there (None without fabstat); `refusals` count by kind what fabstat calls queue full or held back.  `in_flight` are
    the requests of each direction that the block layer had as the look ended; none of an older fabtune.
    """

    name: str
    by_fabstat: bool
    elapsed_s: float
    ways: Mapping[str, WaySeen]
    mean_depth: float | None
    limit: int | None
    at_limit: float | None
    refusals: Mapping[str, int]
    refused_ms: Mapping[str, float]
    queue: Mapping[str, str]
    samples: tuple[DiskSample, ...] = ()
    lun: int | None = None
    in_flight: Mapping[str, int] = {}

    @property
    def went_away(self) -> bool:
        """Whether it was there when the look began and not to its end: what it had counted nobody could read then."""
        return bool(self.samples) and not self.ways

    @property
    def request_bytes(self) -> float:
        """The mean size of a request, either way; 0 where none completed."""
        completed = sum(one.completed for one in self.ways.values())
        return sum(one.moved_bytes for one in self.ways.values()) / completed if completed else 0.0


@attrs.frozen
class SessionSeen:
    """The session below the disk, or an SRP login: `target` and `portal` are its port's identity then.

    `window_bytes` is what its record locks its buffers to, 0 for autotuning, None where no record is readable;
    `disks` are all its disks, `connections` how many it has, `multipath` what is built on the disk, `tpg` the target
    portal group (``tpgt_1``), '' where it is not told; `interface` is open-iscsi's, '' of an older fabtune; `striped`
    says how many sessions of its host share a line whenever any is busy, 1 where one may be busy by itself.  An SRP
    login has no `initiator` but the GIDs of both ports, `target_gid` '' where it was made by address.
    """

    target: str
    portal: str
    state: str
    transport: str
    can_queue: int
    negotiated: Mapping[str, str]
    disks: tuple[str, ...]
    connections: int = 1
    window_bytes: int | None = None
    multipath: str = ""
    initiator: str = ""
    # Carried without a TCP connection, and what bounds one.
    rdma: bool = False
    # How often an SRP initiator found no credit during the look; None for all others.
    no_credit: int | None = None
    tpg: str = ""
    interface: str = ""
    gid: str = ""
    target_gid: str = ""
    striped: int = 1

    @property
    def is_up(self) -> bool:
        """Whether it is logged in, or nobody tells (SRP's ports run)."""
        return self.state in ("", "LOGGED_IN", "running")


@attrs.frozen
class Observation:
    """One look at one disk.  `rate_bytes_per_s` is what the slowest link carries where somebody told it (`rate_by`).

    `beside` is None where nobody looked at other disks.
    `missing` says in words what could not be read, and what would be needed.
    """

    device: str
    elapsed_s: Annotated[float, at_least(0)]
    session: SessionSeen
    disk: DiskSeen
    initiator: EndSeen
    target: EndSeen | None = None
    rate_bytes_per_s: float | None = None
    rate_by: str = ""
    missing: tuple[str, ...] = ()
    beside: BesideSeen | None = None

    def sender(self, way: str) -> EndSeen | None:
        """Return the end that sends the data of direction `way`."""
        return self.target if way == "read" else self.initiator

    def receiver(self, way: str) -> EndSeen | None:
        """Return the end that receives the data of direction `way`."""
        return self.initiator if way == "read" else self.target

    @property
    def rate_is_a_nics(self) -> bool:
        """Whether nobody told the line's rate but a NIC: it carries no more, and a link on the way may have less."""
        return self.rate_by in (BY_NIC, BY_TARGETS_NIC)

    @property
    def served_sessions(self) -> tuple[ServedSeen, ...]:
        """What the target counted of the sessions that may be this disk's."""
        told, one, lun = self.target.served if self.target else (), self.session, self.disk.lun
        if one.initiator:
            return of_iscsi(told, one.initiator, one.target, one.tpg, lun)
        asked = sum(way.completed for way in self.disk.ways.values())
        return of_srp(told, one.gid, one.target_gid, lun, asked)

    @property
    def served(self) -> ServedSeen | None:
        """What the target counted of this disk's commands, None where its fabstat does not tell, or not whose."""
        return self.served_sessions[0] if len(self.served_sessions) == 1 else None

    @property
    def _sockets(self) -> list[SocketSeen]:
        return [one.socket for one in (self.initiator, self.target) if one and one.socket]

    @property
    def mss_bytes(self) -> int:
        """The payload of a full segment, an usual one where no connection is seen."""
        return max((one.mss_bytes for one in self._sockets), default=1448)

    @property
    def header_bytes(self) -> int:
        """What TCP and IP put before it: IPv6 more than IPv4, as it usually is."""
        return header_bytes(next((one.remote.rpartition(":")[0] for one in self._sockets), ""))

    def payload_of(self, rate_bytes_per_s: float) -> float:
        """Return the payload that a line of such a rate carries in full segments, in bytes/s."""
        headers = self.header_bytes
        return NetworkPath(0, rate_bytes_per_s, self.mss_bytes + headers, header_bytes=headers).goodput_bytes_per_s

    @property
    def rtt_ms(self) -> float | None:
        """The least round trip that either end has seen: the path without queues."""
        return min(
            (sample.min_rtt_ms for one in self._sockets for sample in one.samples if sample.min_rtt_ms), default=None
        )

    def sendable_bytes(self, way: str) -> float:
        """Return what the requests under way have to send at once, on average: of writes what R2Ts ask for."""
        one = self.disk.ways.get(way)
        if one is None:
            return 0.0
        requests = (one.answered_ms or 0.0) / 1e3 * one.completed / self.disk.elapsed_s
        size = one.request_bytes
        return requests * (sendable_bytes(round(size), self.bursts) if way == "write" and self.bursts else size)

    def served_ms(self, way: str) -> float | None:
        """Return a command's mean time at the target without the way of its data, None where nobody tells it."""
        return self.served.own_ms(way) if self.served else None

    def backstore_ms(self, way: str) -> float | None:
        """Return the mean time that this disk's commands took in the target's backstore, None where it is not told."""
        return self.served.backstore_ms.get(way) if self.served else None

    @property
    def bursts(self) -> Bursts | None:
        """What the session agreed on that decides a write's round trips, None where it is not told."""
        agreed = self.session.negotiated
        try:
            return Bursts(
                first_burst_bytes=int(agreed["FirstBurstLength"]),
                max_burst_bytes=int(agreed["MaxBurstLength"]),
                target_mrdsl_bytes=int(agreed["MaxXmitDataSegmentLength"]),
                outstanding_r2t=int(agreed["MaxOutstandingR2T"]),
                immediate_data=agreed["ImmediateData"] == "Yes",
                initial_r2t=agreed["InitialR2T"] == "Yes",
            )
        except (KeyError, ValueError):
            return None
