# SPDX-License-Identifier: GPL-2.0-or-later
"""One end of the sessions looked at, before and after: CPUs, threads, NIC, qdisc, limits of its buffers, backstores."""

import contextlib
import os
import platform
import re
import socket
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import attrs

from fabtune.errors import FabtuneError
from fabtune.host import iproute, namespaces, targets, tree
from fabtune.host.qdisc_rates import QdiscNow, QdiscRates
from fabtune.host.sockets import TcpSocket
from fabtune.measure.growth import delta
from fabtune.measure.queue_times import QueueCounters, QueueTimes, queue_between
from fabtune.model.observation import (
    INITIATOR,
    TARGET,
    WAYS,
    BackstoreSeen,
    EndSeen,
    NicSeen,
    QdiscSeen,
    QueueSeen,
    ThreadSeen,
)
from fabtune.model.served_seen import ServedSeen
from fabtune.stat import LunInterval, ServedOp, parse_target, target_diff
from fabtune.stat.snapshot import read_file

_SYSCTLS = (
    "net/core/rmem_max", "net/core/wmem_max", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/ipv4/tcp_notsent_lowat",
    "net/ipv4/tcp_slow_start_after_idle", "net/ipv4/tcp_congestion_control", "net/ipv4/tcp_window_scaling",
)  # fmt: skip
# The kernel's threads that carry sessions, by end: what their names begin with, and what they are while they do.
_THREADS = {
    INITIATOR: ("kworker", re.compile(r".*iscsi_q_\d+.*")),
    TARGET: ("iscsi_t", re.compile(r"iscsi_(?:ttx|trx)")),
}
_NIC_COUNTERS = (
    "rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors",
    "rx_missed_errors", "rx_fifo_errors", "rx_over_errors", "rx_crc_errors",
)  # fmt: skip
# A target of a thousand sessions has two thousand threads; below this share of a CPU none of them limits anything.
_LEAST_SHARE = 0.01
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@attrs.frozen
class EndCounters:
    """One end at one instant; counters are cumulative, those of NICs and their qdiscs by the NIC's name.

    `served` is the text of fabstat's counts of what a target serves: parsing it waits until the look is over.
    """

    cpu: tuple[tuple[int, int, int], ...]
    threads: Mapping[str, tuple[str, float]]
    nics: Mapping[str, Mapping[str, int]]
    qdiscs: Mapping[str, QdiscNow]
    backstores: Mapping[str, tuple[int, ...]]
    served: str = ""
    queues: Mapping[TcpSocket, Mapping[str, QueueCounters]] = {}


class Way(NamedTuple):
    """What decides where a socket's packets leave: peer, own address, interface's number or 0, and the portal's port.

    `port` is as `ip route get` is told it ("dport 3260"), '' where rules by port do not matter.
    """

    remote: str
    local: str = ""
    bound: int = 0
    port: str = ""


def way_of(one: TcpSocket, end: str = INITIATOR) -> Way:
    """Return the way of a socket at `end`: two sessions with one portal may leave by two NICs."""
    port = f"sport {one.local_port}" if end == TARGET else f"dport {one.remote_port}"
    return Way(one.remote, one.local, one.bound, port)


def nic_by(way: Way) -> str:
    """Return the NIC that packets of `way` leave by.  Raises FabtuneError where it is not known."""
    address, _, name = way.remote.partition("%")
    try:
        name = socket.if_indextoname(way.bound) if way.bound else name
    except OSError as error:
        raise FabtuneError(f"the interface that the connection to {way.remote} is bound to: {error.strerror}") from None
    return str(iproute.way_to(address, way.local.partition("%")[0], name, way.port)["dev"])


def nic_of(way: Way) -> str:
    """Return the NIC of this host that packets of `way` leave by, '' where it is not known."""
    try:
        return nic_by(way)
    except FabtuneError:
        return ""


class End:
    """One end in namespace `netns`, with `connections`: what they have in common is read once.

    `alone`: sessions are looked at there that no connection is known of.  `hosts` are the SCSI hosts of an initiator's.
    """

    def __init__(
        self, end: str, netns: str, connections: Collection[TcpSocket], *, alone: bool = False,
        hosts: Mapping[TcpSocket, int] | None = None,
    ) -> None:  # fmt: skip
        self.end, self.netns, self._hosts, self._connections = end, netns, hosts or {}, connections
        self._looks = alone or bool(connections)
        self.missing: list[str] = []
        self._ways = {way: self._nic(way) for way in {way_of(one, end) for one in connections}}
        self._qdiscs = {nic: self._root(nic) for nic in sorted(set(self._ways.values()) - {""})}
        self._rates = QdiscRates(tuple(self._qdiscs), netns) if self._qdiscs else None
        self._carriers = _carriers(_THREADS[end][0]) if self._looks else ()
        self._stores = _stores() if end == TARGET and self._looks else {}
        self._queue = self._own_queue() if connections and os.geteuid() == 0 else None
        self._counted: dict[TcpSocket, dict[str, QueueCounters]] = {}

    def _nic(self, way: Way) -> str:
        try:
            with namespaces.inside(self.netns):
                return nic_by(way)
        except FabtuneError as error:
            self.missing.append(f"the {self.end}'s NIC: {error}")
            return ""

    def _own_queue(self) -> QueueTimes | None:
        try:
            return QueueTimes(self.end)
        except FabtuneError as error:
            self.missing.append(f"the {self.end}'s own iSCSI queue: {error}")
            return None

    def _queues(self) -> dict[TcpSocket, dict[str, QueueCounters]]:
        if self._queue is None:
            return self._counted
        if self.end == TARGET:
            return {one: self._queue.of_connection(one) for one in self._connections}
        return {one: self._queue.of_host(number) for one, number in self._hosts.items()}

    def queued_commands_since(self, before: EndCounters) -> int:
        """Return how many commands the own queue has sent since, 0 where nobody counts any more."""
        if self._queue is None:
            return 0
        now = self._queues()
        return sum(
            one.commands - before.queues[connection][way].commands
            for connection, ways in now.items()
            for way, one in ways.items()
        )

    def own_queue_seen(self, one: TcpSocket, before: EndCounters, after: EndCounters) -> dict[str, QueueSeen]:
        """Return what the end's own queue did with a connection's commands, by direction."""
        return queue_between(before.queues.get(one, {}), after.queues.get(one, {}))

    def _root(self, nic: str) -> iproute.Listed:
        """Return the qdisc that packets leave by: the root's, or the first below mq."""
        try:
            rows = iproute.read_json("tc", "-s", "qdisc", "show", "dev", nic, netns=self.netns, texts=("kind",))
        except FabtuneError as error:
            self.missing.append(f"the {self.end}'s qdisc: {error}")
            return {}
        queues = [row for row in rows if row["kind"] not in ("clsact", "ingress", "mq")]
        return next((row for row in queues if row.get("root")), queues[0] if queues else {})

    def read(self) -> EndCounters:
        """Return the counters as they are now."""
        place = namespaces.sysfs(self.netns) / "class/net"
        nics = {
            nic: {name: tree.whole(tree.read_text(place / nic / "statistics" / name)) or 0 for name in _NIC_COUNTERS}
            for nic in self._qdiscs
        }
        stores = {name: _disk_counters(path) for name, path in self._stores.items()}
        carriers = _threads(self._carriers, _THREADS[self.end][1])
        return EndCounters(_cpus(), carriers, nics, self.qdiscs(), stores, self._served(), self._queues())

    def _served(self) -> str:
        """Return what fabstat has counted of the commands that this end serves, '' where it does not."""
        try:
            return read_file("target") if self.end == TARGET and self._looks else ""
        except FabtuneError:
            return ""

    def qdiscs(self) -> dict[str, QdiscNow]:
        """Return the NICs' queueing disciplines as they are now."""
        return self._rates.read() if self._rates else {}

    def close(self) -> None:
        """End the look."""
        if self._rates:
            self._rates.close()
        self.count_no_more()

    def count_no_more(self) -> None:
        """Let go of the own queue; what was counted until now stays."""
        if self._queue:
            self._counted = self._queues()
            self._queue.close()
            self._queue = None

    def common(self, before: EndCounters, after: EndCounters, elapsed_s: float) -> EndSeen:
        """Return what happened at this end between two readings, without what is one connection's own."""
        spent = [tuple(map(int.__sub__, now, then)) for now, then in zip(after.cpu, before.cpu, strict=False)]
        return EndSeen(
            end=self.end,
            kernel=platform.release(),
            socket=None,
            cpu_busy=tuple(round(busy / total, 4) if total else 0.0 for busy, _, total in spent),
            softirq=tuple(round(soft / total, 4) if total else 0.0 for _, soft, total in spent),
            threads=_shares(before, after, elapsed_s),
            sysctls=_sysctls(self.netns),
            backstores=tuple(
                _backstore(name, after.backstores[name], counters, elapsed_s)
                for name, counters in before.backstores.items()
                if counters and after.backstores.get(name)
            ),
            served=_served_between(before.served, after.served),
        )

    def nic_of(self, way: Way) -> str:
        """Return the NIC that packets of `way` leave by, '' where it is not known."""
        return self._ways[way]

    def nic_seen(self, way: Way, before: EndCounters, after: EndCounters) -> NicSeen | None:
        """Return the NIC that packets of `way` leave by, None where it is not known."""
        nic = self._ways[way]
        if not nic:
            return None
        place = namespaces.sysfs(self.netns) / "class/net" / nic
        # Devices that are no hardware make their speed up.
        speed = tree.whole(tree.read_text(place / "speed")) if (place / "device").exists() else None
        mtu = tree.whole(tree.read_text(place / "mtu")) or 1500
        counters = delta(after.nics[nic], before.nics[nic])
        return NicSeen(nic, mtu, speed * 1e6 / 8 if speed and speed > 0 else None, counters)

    def qdisc_seen(self, way: Way, before: EndCounters, after: EndCounters) -> QdiscSeen | None:
        """Return the queueing discipline that packets of `way` leave by, None where it is not known."""
        nic = self._ways[way]
        queue = self._qdiscs.get(nic, {})
        if "kind" not in queue:
            return None
        then, now = (one.qdiscs.get(nic, QdiscNow(None)) for one in (before, after))
        # It may have changed meanwhile: the lower one held something back.
        rates = [one.max_bytes_per_s for one in (then, now) if one.max_bytes_per_s is not None]
        dropped = max(0, now.dropped - then.dropped)
        return QdiscSeen(nic, str(queue["kind"]), min(rates, default=None), dropped, now.backlog_bytes)


def _cpus() -> tuple[tuple[int, int, int], ...]:
    """Return ticks of each CPU: not idle, in soft interrupts, all."""
    found = []
    for line in (tree.read_text(tree.PROC / "stat") or "").splitlines():
        if re.match(r"cpu\d", line):
            ticks = [int(word) for word in line.split()[1:9]]
            found.append((sum(ticks) - ticks[3] - ticks[4], ticks[6], sum(ticks)))
    return tuple(found)


def _carriers(begins: str) -> tuple[str, ...]:
    """Return the threads that carry sessions, or may: workers are called by what they do at present."""
    ids = [name for name in tree.names(tree.PROC) if name.isdigit()]
    return tuple(name for name in ids if (tree.read_text(f"{tree.PROC}/{name}/comm") or "").startswith(begins))


def _threads(carriers: Iterable[str], wanted: re.Pattern[str]) -> dict[str, tuple[str, float]]:
    """Return name and CPU seconds of each of `carriers` that is `wanted`, by its id."""
    found = {}
    for number in carriers:
        name = tree.read_text(f"{tree.PROC}/{number}/comm") or ""
        if wanted.fullmatch(name):
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[number] = name, _cpu_s(f"{tree.PROC}/{number}")
    return found


def _cpu_s(place: str) -> float:
    """Return the CPU seconds of a thread, to the ns where the kernel keeps them so."""
    exact = (tree.read_text(f"{place}/schedstat") or "").split()
    if exact and exact[0] != "0":
        return int(exact[0]) / 1e9
    fields = tree.stripped_text(f"{place}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _shares(before: EndCounters, after: EndCounters, elapsed_s: float) -> tuple[ThreadSeen, ...]:
    found = []
    for number, (name, cpu_s) in after.threads.items():
        share = (cpu_s - before.threads[number][1]) / elapsed_s if number in before.threads else 0.0
        if share >= _LEAST_SHARE:
            found.append(ThreadSeen(name, round(share, 4)))
    return tuple(sorted(found, key=lambda one: -one.cpu_share))


def _sysctls(netns: str) -> dict[str, str]:
    with namespaces.inside(netns):
        values = {name: tree.read_text(tree.PROC / "sys" / name) for name in _SYSCTLS}
    return {name.replace("/", "."): " ".join(value.split()) for name, value in values.items() if value is not None}


def _stores() -> dict[str, Path]:
    """Return the counters of each block device that the kernel's targets export, by its name."""
    found = {}
    for export in targets.exports():
        for major, minor in export.numbers:
            place = (tree.SYS / f"dev/block/{major}:{minor}").resolve()
            found[place.name] = place / "stat"
    return found


def _served_between(before: str, after: str) -> tuple[ServedSeen, ...]:
    """Return what was served between two readings of the module, by session; nothing where it was loaded anew."""
    if not before or not after:
        return ()
    try:
        interval = target_diff(parse_target(before), parse_target(after))
    except FabtuneError:
        return ()
    used = interval.windows_used()
    found = []
    for one in interval.luns:
        # The initiator's side does not know the identifiers that tell sessions of one portal group apart.
        ops = {way: one.ops[way] for way in WAYS if way in one.ops and one.ops[way].completed}
        if ops:
            found.append(_served(one, ops, used[one.lun.id]))
    return tuple(found)


def _served(one: LunInterval, ops: Mapping[str, ServedOp], used: int) -> ServedSeen:
    lun = one.lun
    # Only a write waits for data.
    waits = {way: op.ready_ms for way, op in ops.items() if way == "write"}
    stores = {way: op.backstore_ms for way, op in ops.items()}
    return ServedSeen(
        lun.initiator, lun.target, lun.lun, {way: op.completed for way, op in ops.items()},
        {way: op.target_ns / op.completed / 1e6 for way, op in ops.items()}, lun.tpg,
        {way: ms for way, ms in waits.items() if ms is not None},
        {way: ms for way, ms in stores.items() if ms is not None},
        lun.window, None if lun.window is None else used,
    )  # fmt: skip


def _disk_counters(path: Path) -> tuple[int, ...]:
    return tuple(int(word) for word in (tree.read_text(path) or "").split())


def _backstore(name: str, after: tuple[int, ...], before: tuple[int, ...], elapsed_s: float) -> BackstoreSeen:
    """Return what a block device did (Documentation/block/stat.rst)."""
    grown = [now - then for now, then in zip(after, before, strict=False)]
    done = {"read": grown[0], "write": grown[4]}
    spent_ms = {"read": grown[3], "write": grown[7]}
    mean_ms = {way: spent_ms[way] / count for way, count in done.items() if count}
    return BackstoreSeen(name, done, mean_ms, grown[9] / 1e3 / elapsed_s, grown[10] / 1e3 / elapsed_s)
