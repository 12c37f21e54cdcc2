# SPDX-License-Identifier: GPL-2.0-or-later
"""One end of the sessions looked at, before and after: CPUs, threads, NIC, qdisc, limits of its buffers, backstores."""

import contextlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError
from fabtune.host import iproute, namespaces, targets, tree
from fabtune.measure.counters import delta
from fabtune.model.observation import TARGET, BackstoreSeen, EndSeen, NicSeen, QdiscSeen, SocketSeen, ThreadSeen

_SYSCTLS = (
    "net/core/rmem_max", "net/core/wmem_max", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/ipv4/tcp_notsent_lowat",
    "net/ipv4/tcp_slow_start_after_idle", "net/ipv4/tcp_congestion_control", "net/ipv4/tcp_window_scaling",
)  # fmt: skip
# The kernel's threads that carry sessions: the target's, and the initiator's workers while they do.
_THREAD = re.compile(r"iscsi_(?:ttx|trx)|.*iscsi_q_\d+.*")
_NIC_COUNTERS = (
    "rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors",
    "rx_missed_errors", "rx_fifo_errors", "rx_over_errors", "rx_crc_errors",
)  # fmt: skip
_NO_MAXRATE = (1 << 32) - 1
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@attrs.frozen
class EndCounters:
    """One end at one instant; counters are cumulative."""

    cpu: tuple[tuple[int, int, int], ...]
    threads: Mapping[str, tuple[str, float]]
    nic: Mapping[str, int]
    qdisc: Mapping[str, int]
    backstores: Mapping[str, tuple[int, ...]]


class End:
    """One end in namespace `netns`, whose connections go to `peer`."""

    def __init__(self, end: str, netns: str, peer: str) -> None:
        self.end, self.netns = end, netns
        self.missing: list[str] = []
        self.nic = self._nic(peer)
        self._qdisc = self._root() if self.nic else {}
        self._stores = _stores() if end == TARGET else {}

    def _nic(self, peer: str) -> str:
        try:
            with namespaces.inside(self.netns):
                return str(iproute.way_to(peer)["dev"])
        except FabtuneError as error:
            self.missing.append(f"the {self.end}'s NIC: {error}")
            return ""

    def _root(self) -> iproute.Listed:
        """Return the qdisc that packets leave by: the root's, or the first below mq."""
        try:
            rows = iproute.read_json("tc", "-s", "qdisc", "show", "dev", self.nic, netns=self.netns, texts=("kind",))
        except FabtuneError as error:
            self.missing.append(f"the {self.end}'s qdisc: {error}")
            return {}
        queues = [row for row in rows if row["kind"] not in ("clsact", "ingress", "mq")]
        return next((row for row in queues if row.get("root")), queues[0] if queues else {})

    def read(self) -> EndCounters:
        """Return the counters as they are now."""
        place = namespaces.sysfs(self.netns) / "class/net" / self.nic / "statistics"
        nic = {name: tree.whole(tree.read_text(place / name)) or 0 for name in _NIC_COUNTERS} if self.nic else {}
        now = self._root() if self.nic and self._qdisc.get("kind") != "noqueue" else {}
        qdisc = {key: value for key in ("drops", "backlog") if isinstance(value := now.get(key), int)}
        stores = {name: _disk_counters(path) for name, path in self._stores.items()}
        return EndCounters(_cpus(), _threads(), nic, qdisc, stores)

    def seen(self, before: EndCounters, after: EndCounters, elapsed_s: float, socket: SocketSeen | None) -> EndSeen:
        """Return what happened at this end between two readings."""
        spent = [tuple(map(int.__sub__, now, then)) for now, then in zip(after.cpu, before.cpu, strict=False)]
        return EndSeen(
            end=self.end,
            kernel=platform.release(),
            socket=socket,
            cpu_busy=tuple(round(busy / total, 4) if total else 0.0 for busy, _, total in spent),
            softirq=tuple(round(soft / total, 4) if total else 0.0 for _, soft, total in spent),
            threads=_shares(before, after, elapsed_s),
            nic=self._nic_seen(before, after),
            qdisc=self._qdisc_seen(before, after),
            sysctls=_sysctls(self.netns),
            backstores=tuple(
                _backstore(name, after.backstores[name], counters, elapsed_s)
                for name, counters in before.backstores.items()
                if counters and after.backstores.get(name)
            ),
        )

    def _nic_seen(self, before: EndCounters, after: EndCounters) -> NicSeen | None:
        if not self.nic:
            return None
        place = namespaces.sysfs(self.netns) / "class/net" / self.nic
        # Devices that are no hardware make their speed up.
        speed = tree.whole(tree.read_text(place / "speed")) if (place / "device").exists() else None
        mtu = tree.whole(tree.read_text(place / "mtu")) or 1500
        return NicSeen(self.nic, mtu, speed * 1e6 / 8 if speed and speed > 0 else None, delta(after.nic, before.nic))

    def _qdisc_seen(self, before: EndCounters, after: EndCounters) -> QdiscSeen | None:
        if "kind" not in self._qdisc:
            return None
        grown = delta(after.qdisc, before.qdisc)
        rate = _limit(self._qdisc)
        return QdiscSeen(self.nic, str(self._qdisc["kind"]), rate, grown.get("drops", 0), after.qdisc.get("backlog", 0))


def _limit(row: iproute.Listed) -> float | None:
    """Return the rate that a qdisc lets one flow (fq) or all together (tbf, netem) have, in bytes/s; None for none."""
    options = row.get("options")
    found = None
    if isinstance(options, Mapping):
        for key in ("maxrate", "rate"):
            value = options.get(key)
            # netem has a table of it.
            value = value.get("rate") if isinstance(value, Mapping) else value
            found = found or (value if isinstance(value, int) and 0 < value < 2**63 else None)
    return None if found is None or found == _NO_MAXRATE else float(found)


def _cpus() -> tuple[tuple[int, int, int], ...]:
    """Return ticks of each CPU: not idle, in soft interrupts, all."""
    found = []
    for line in (tree.read_text(tree.PROC / "stat") or "").splitlines():
        if re.match(r"cpu\d", line):
            ticks = [int(word) for word in line.split()[1:9]]
            found.append((sum(ticks) - ticks[3] - ticks[4], ticks[6], sum(ticks)))
    return tuple(found)


def _threads() -> dict[str, tuple[str, float]]:
    """Return name and CPU seconds of each kernel thread that carries sessions, by its id."""
    found = {}
    for place in tree.PROC.glob("[0-9]*/comm"):
        name = tree.read_text(place) or ""
        if _THREAD.fullmatch(name):
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[place.parent.name] = name, _cpu_s(place.parent)
    return found


def _cpu_s(place: Path) -> float:
    """Return the CPU seconds of a thread, to the ns where the kernel keeps them so."""
    exact = (tree.read_text(place / "schedstat") or "").split()
    if exact and exact[0] != "0":
        return int(exact[0]) / 1e9
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _shares(before: EndCounters, after: EndCounters, elapsed_s: float) -> tuple[ThreadSeen, ...]:
    found = []
    for number, (name, cpu_s) in after.threads.items():
        if number in before.threads and cpu_s > before.threads[number][1]:
            found.append(ThreadSeen(name, round((cpu_s - before.threads[number][1]) / elapsed_s, 4)))
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


def _disk_counters(path: Path) -> tuple[int, ...]:
    return tuple(int(word) for word in (tree.read_text(path) or "").split())


def _backstore(name: str, after: tuple[int, ...], before: tuple[int, ...], elapsed_s: float) -> BackstoreSeen:
    """Return what a block device did (Documentation/block/stat.rst)."""
    grown = [now - then for now, then in zip(after, before, strict=False)]
    done = {"read": grown[0], "write": grown[4]}
    spent_ms = {"read": grown[3], "write": grown[7]}
    mean_ms = {way: spent_ms[way] / count for way, count in done.items() if count}
    return BackstoreSeen(name, done, mean_ms, grown[9] / 1e3 / elapsed_s, grown[10] / 1e3 / elapsed_s)
