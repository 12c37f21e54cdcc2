# SPDX-License-Identifier: GPL-2.0-or-later
"""The initiator's live iSCSI sessions: path, negotiated values, LUNs (sysfs) and the socket below (inet_diag)."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path

from fabtune.host import blocks, iscsiadm, tree
from fabtune.host.sockets import TcpSocket
from fabtune.model.address import canonical

NEGOTIATED = {
    "initial_r2t": "InitialR2T",
    "immediate_data": "ImmediateData",
    "first_burst_len": "FirstBurstLength",
    "max_burst_len": "MaxBurstLength",
    "max_outstanding_r2t": "MaxOutstandingR2T",
    "data_pdu_in_order": "DataPDUInOrder",
    "data_seq_in_order": "DataSequenceInOrder",
    "erl": "ErrorRecoveryLevel",
}
_CONNECTION = {
    "max_recv_dlength": "MaxRecvDataSegmentLength",
    "max_xmit_dlength": "MaxXmitDataSegmentLength",
    "header_digest": "HeaderDigest",
    "data_digest": "DataDigest",
}

_RDMA_DRIVER = "iscsi_iser"
# host:channel:id:LUN names a SCSI device.
_ADDRESS_COLONS = 3


@dataclass(frozen=True)
class Session:
    """One logged-in session of this initiator."""

    sid: int
    target: str
    portal: str
    interface: str
    state: str
    address: str
    port: int
    local_port: int
    luns: tuple[str, ...]
    can_queue: int
    negotiated: dict[str, str] = field(hash=False)
    # Which of its record's sessions it is, from 1 on.
    place: int = 1
    # The driver that carries it, such as iscsi_tcp; '' where it is not told.
    transport: str = ""

    @property
    def identity(self) -> str:
        """The same name as its node record's, which several sessions may share (nr_sessions)."""
        return f"{self.target},{self.portal},{self.interface}"

    @property
    def is_rdma(self) -> bool:
        """Whether iSER carries it: no TCP connection does then."""
        return self.transport == _RDMA_DRIVER

    @property
    def own_identity(self) -> str:
        """The name of this session alone: its record's, with its place behind it from the second on."""
        return self.identity if self.place == 1 else f"{self.identity}#{self.place}"

    @property
    def label(self) -> str:
        """What people call the session."""
        return called(self.target, self.portal, self.interface, self.place)

    @property
    def directory(self) -> Path:
        """Where the kernel shows the session."""
        return tree.SYS / f"class/iscsi_session/session{self.sid}"


def called(target: str, portal: str, interface: str, place: int = 1) -> str:
    """Return what people call a session, or its record: two of one target and portal are not called the same."""
    over = "" if interface == "default" else f" over {interface}"
    return f"{target} at {portal}{over}{'' if place == 1 else f' (session {place})'}"


class Connections:
    """Connections by where they lead to: each of a thousand sessions asks for its own.

    `sessions` are all that this host has: a connection can be another's.
    """

    def __init__(self, sockets: Iterable[TcpSocket], sessions: Iterable[Session]) -> None:
        self._to: dict[tuple[str, int], list[TcpSocket]] = {}
        self._from: dict[tuple[str, int, int], list[TcpSocket]] = {}
        for one in sockets:
            portal = canonical(one.remote), one.remote_port
            self._to.setdefault(portal, []).append(one)
            self._from.setdefault((*portal, one.local_port), []).append(one)
        self._users = Counter(_portal(one) for one in sessions if not one.is_rdma)

    def to_portal(self, session: Session) -> list[TcpSocket]:
        """Return the connections that lead to `session`'s portal; others' sessions may be below."""
        return self._to.get(_portal(session), [])

    def of(self, session: Session) -> TcpSocket | None:
        """Return `session`'s connection; None where it has none now, or whose it is cannot be told."""
        if session.local_port:
            found = self._from.get((*_portal(session), session.local_port), [])
        else:
            # Kernels before 6.x have no local_port, and no kernel tells that of a session without a connection.
            alone = session.state == "LOGGED_IN" and not session.is_rdma and self._users[_portal(session)] == 1
            found = self.to_portal(session) if alone else []
        return found[0] if len(found) == 1 else None

    def perhaps_of(self, session: Session) -> list[TcpSocket]:
        """Return `session`'s connection, or all that lead to its portal where it is not told."""
        mine = self.of(session)
        return [mine] if mine else self.to_portal(session)

    def rtt_ms(self, session: Session) -> float:
        """Return the longest round trip of the path to `session`'s portal, 0 where nothing tells it."""
        return max((one.path_rtt_ms for one in self.perhaps_of(session)), default=0.0)

    def why_none(self, session: Session) -> str:
        """Return why no connection is taken for that of a session which is logged in, '' where there is none."""
        others = self.to_portal(session)
        if session.state != "LOGGED_IN" or session.local_port or not others or self.of(session):
            return ""
        many = f"which of the {len(others)} TCP connections" if len(others) > 1 else "whether the TCP connection"
        return f"{many} to {session.portal} is its own cannot be told: the kernel does not tell its port"


def _portal(session: Session) -> tuple[str, int]:
    return canonical(session.address), session.port


def _words(name: str, value: str) -> str:
    """Return a negotiated value as the protocol writes it."""
    if name in ("HeaderDigest", "DataDigest"):
        return {"0": "None", "1": "CRC32C"}.get(value, value)
    if name in ("InitialR2T", "ImmediateData", "DataPDUInOrder", "DataSequenceInOrder"):
        return {"0": "No", "1": "Yes"}.get(value, value)
    return value


def _number(text: str | None) -> int:
    return tree.whole(text) or 0


def live_sessions() -> list[Session]:
    """Return every session the kernel has, sorted by identity and place.

    Sessions of one record have places by their SCSI host's number: the kernel gives the number that a
    logout frees to the next login, so that a session which logs in again alone keeps its place, as does
    its disk.  Session ids only ever grow.
    """
    found = []
    shown = tree.SYS / "class/iscsi_session"
    for name in tree.names(shown):
        host = _scsi_host(shown / name)
        # One that goes while we look is logged out.
        session = _session(f"{shown}/{name}", host) if name.startswith("session") else None
        found += [(session.identity, _number(host.removeprefix("host")), session)] if session else []
    places: Counter[str] = Counter()
    placed = []
    for identity, _, session in sorted(found, key=itemgetter(0, 1)):
        places[identity] += 1
        placed.append(replace(session, place=places[identity]))
    return placed


def why_waits(disk: str) -> str:
    """Return why a write to the queue of `disk` would wait for requests that do not come back now, '' if not.

    That of a device which is built on disks waits with theirs.
    """
    down = {name: one for one in live_sessions() if one.state != "LOGGED_IN" for name in one.luns}
    met: list[str] = []

    def away(name: str) -> bool:
        met.extend([name] if name in down else [])
        return name in down

    if not blocks.waits_with(disk, away):
        return ""
    session = down[met[0]]
    return f"its session {session.label} is {session.state or 'in an unknown state'}"


def scsi_devices(session: Session) -> list[Path]:
    """Return sysfs's directory of each SCSI device behind `session`: disks, tapes, changers and the rest."""
    return [Path(one) for one in _scsi_devices(str(session.directory))]


def _scsi_devices(session: str) -> list[str]:
    ports = [name for name in tree.names(f"{session}/device") if name.startswith("target")]
    return [
        f"{session}/device/{port}/{name}"
        for port in ports
        for name in tree.names(f"{session}/device/{port}")
        if name.count(":") == _ADDRESS_COLONS
    ]


def _scsi_host(directory: Path) -> str:
    """Return the name of the SCSI host of the session that the kernel shows in `directory`."""
    # .../hostN/sessionM/iscsi_session/sessionM: one link tells it; to follow all of them takes twenty questions.
    with contextlib.suppress(OSError, IndexError):
        if (name := os.readlink(directory).split("/")[-4]).startswith("host"):  # noqa: PTH115 - of each of a thousand
            return name
    return (directory / "device").resolve().parent.name


def connections(session: Session) -> int:
    """Return how many connections `session` has."""
    return connection_counts()[session.sid]


def connection_counts() -> Counter[int]:
    """Return how many connections each session has, by its id."""
    found = (tree.SYS / "class/iscsi_connection").glob("connection*:*")
    return Counter(_number(one.name.removeprefix("connection").partition(":")[0]) for one in found)


def _session(place: str, host: str) -> Session | None:
    """Return the session that the kernel shows in directory `place`, with the SCSI host called `host`."""
    mine = tree.read_texts(place, ("targetname", "ifacename", "state", *NEGOTIATED))
    target = mine.get("targetname")
    if not target:
        return None
    sid = _number(place.rpartition("/session")[2])
    below = tree.read_texts(
        f"{tree.SYS}/class/iscsi_connection/connection{sid}:0",
        ("persistent_address", "persistent_port", "address", "port", "local_port", *_CONNECTION),
    )
    scsi = tree.read_texts(f"{tree.SYS}/class/scsi_host/{host}", ("can_queue", "proc_name"))
    persistent, port = below.get("persistent_address", ""), below.get("persistent_port") or "3260"
    address = below.get("address") or persistent
    negotiated = {name: mine.get(file) for file, name in NEGOTIATED.items()}
    negotiated |= {name: below.get(file) for file, name in _CONNECTION.items()}
    return Session(
        sid=sid,
        target=target,
        portal=iscsiadm.portal_text(persistent or address, port),
        interface=mine.get("ifacename") or "default",
        state=mine.get("state", ""),
        address=canonical(address),
        port=_number(below.get("port") or port),
        local_port=_number(below.get("local_port")),
        luns=tuple(sorted(name for one in _scsi_devices(place) for name in tree.names(f"{one}/block"))),
        can_queue=_number(scsi.get("can_queue")),
        negotiated={name: _words(name, value) for name, value in negotiated.items() if value},
        transport=scsi.get("proc_name", ""),
    )
