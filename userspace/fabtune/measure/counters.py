# SPDX-License-Identifier: GPL-2.0-or-later
"""What is read around a load and once a second during it.

A sample is small (a few files of /proc and /sys) and uses PCP's metric names and units, so that
it can stand beside an archive made by pmlogger.  Edges are read before and after a step: NICs,
queueing disciplines, iSCSI sessions and their sockets.
"""

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import iproute
from fabtune.host.blocks import SECTOR_BYTES
from fabtune.host.run import run
from fabtune.host.sessions import Connections, Session, live_sessions
from fabtune.host.sockets import established
from fabtune.measure.ends import Way, nic_of, way_of
from fabtune.measure.target import Target
from fabtune.model import typed
from fabtune.model.outputs import Qdisc
from fabtune.model.path import ETHERNET_FRAMING, LINUX_FRAMING
from fabtune.model.runrecord import Edge, Sample

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_CPU = ("user", "nice", "sys", "idle", "wait.total", "irq.hard", "irq.soft", "steal")
_TCP = {"RetransSegs": "network.tcp.retranssegs", "OutSegs": "network.tcp.outsegs", "InSegs": "network.tcp.insegs"}


def sample(disk: str | None) -> Sample:
    """Return one light sample.

    Keys: ``time.unix`` (s), ``time.monotonic`` (s), ``kernel.all.cpu.*`` (ms of all CPUs),
    ``disk.dev.*`` (requests; bytes in KiB, as PCP counts them), ``network.*`` (counts); with one CPU ``exact.cpu.idle``
    (ns), which nothing rounds to ticks.
    """
    values: Sample = {"time.unix": time.time(), "time.monotonic": time.monotonic()}
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    values.update({f"kernel.all.cpu.{name}": int(ticks) * _TICK_MS for name, ticks in zip(_CPU, fields, strict=False)})
    names, counts = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line[:4] == "Tcp:")
    tcp = dict(zip(names, counts, strict=True))
    values.update({name: int(tcp[key]) for key, name in _TCP.items()})
    softnet = [line.split() for line in Path("/proc/net/softnet_stat").read_text().splitlines()]
    values["network.softnet.dropped"] = sum(int(row[1], 16) for row in softnet)
    values["network.softnet.time_squeeze"] = sum(int(row[2], 16) for row in softnet)
    if os.cpu_count() == 1:
        values.update(_idle_ns())
    if disk:
        values.update(_disk(disk))
    return values


def _idle_ns() -> Sample:
    """Return how long the only CPU has been idle; nothing where the kernel does not say.

    Whoever reads this is running, so that no idle time is under way that is not yet counted.
    """
    try:
        text = Path("/proc/timer_list").read_text()
    except OSError:
        return {}
    found = re.findall(r"^\s*\.(?:idle|iowait)_sleeptime\s*: (\d+) nsecs", text, re.MULTILINE)
    return {"exact.cpu.idle": sum(map(int, found))} if found else {}


def _disk(disk: str) -> Sample:
    """Return the disk's counters; a vanished disk has none."""
    try:
        fields = [int(field) for field in Path(f"/sys/block/{disk}/stat").read_text().split()]
        inflight = [int(field) for field in Path(f"/sys/block/{disk}/inflight").read_text().split()]
    except FileNotFoundError:
        return {}
    return {
        "disk.dev.read": fields[0],
        "disk.dev.read_bytes": fields[2] * SECTOR_BYTES / 1024,
        "disk.dev.write": fields[4],
        "disk.dev.write_bytes": fields[6] * SECTOR_BYTES / 1024,
        "disk.dev.inflight": sum(inflight),
        "disk.dev.flush": fields[15] if len(fields) > 15 else 0,
    }


def edges(target: Target) -> Edge:
    """Return the counters that are read before and after a step, by kind."""
    every = live_sessions()
    sessions = [one for one in every if one.sid in target.sessions]
    return Edge(
        nics=interface_counters(),
        session_nics=_nics(sessions, every),
        qdiscs=typed.STRICT.read(
            tuple[Qdisc, ...], iproute.read_json("tc", "-s", "qdisc", "show"), "tc -s -j qdisc show"
        ),
        negotiated={str(one.sid): one.negotiated for one in sessions},
        luns={str(one.sid): one.luns for one in sessions},
        iscsi={str(sid): iscsi_session(sid) for sid in target.sessions},
        sockets=tuple(vars(one) for one in established() if one.remote_port in _portal_ports(target)),
    )


def _nics(sessions: Iterable[Session], every: Iterable[Session]) -> dict[str, str | None]:
    """Return the interface that the packets of each of `sessions` leave by, None where it is not known.

    Without a connection that is the way to its portal.  `every` are all sessions of this host.
    """
    found = Connections(established(), every)
    ways = {one.sid: way_of(of) if (of := found.of(one)) else Way(one.address) for one in sessions}
    return {str(sid): nic_of(way) or None for sid, way in ways.items()}


def framing_bytes(target: Target) -> int | None:
    """Return what a packet to the target takes of its link beside itself, None where the way there is not known.

    Only a card puts an Ethernet's preamble and gap around it; a rate that Linux shapes has no more than the header.
    """
    every = live_sessions()
    ways = set(_nics((one for one in every if one.sid in target.sessions), every).values()) - {None}
    if not ways:
        return None
    return ETHERNET_FRAMING if any(_has_card(Path("/sys/class/net", str(way))) for way in ways) else LINUX_FRAMING


def _has_card(nic: Path) -> bool:
    return (nic / "device").exists() or any(_has_card(below.resolve()) for below in nic.glob("lower_*"))


def _portal_ports(target: Target) -> set[int]:
    """Return the TCP ports of the portals that the target's sessions are logged in to."""
    ports = set()
    for sid in target.sessions:
        try:
            ports.add(int(Path(f"/sys/class/iscsi_connection/connection{sid}:0/port").read_text()))
        except OSError:
            ports.add(3260)
    return ports


def interface_counters() -> dict[str, dict[str, int]]:
    """Return traffic, drops and errors of every interface of this namespace."""
    wanted = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors")
    found = {}
    for nic in sorted(Path("/sys/class/net").iterdir()):
        if nic.name != "lo" and (nic / "statistics").is_dir():
            found[nic.name] = {name: int((nic / "statistics" / name).read_text()) for name in wanted}
    return found


def iscsi_session(sid: int) -> dict[str, int]:
    """Return the initiator's PDU counters of one session; empty when iscsiadm may not read them."""
    try:
        text = run(["iscsiadm", "-m", "session", "-r", str(sid), "-s"], what=f"reading the counters of session {sid}")
    except FabtuneError:
        return {}
    pairs = (line.strip().split(": ") for line in text.splitlines() if ": " in line)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
