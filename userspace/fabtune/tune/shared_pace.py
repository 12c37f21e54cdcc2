# SPDX-License-Identifier: GPL-2.0-or-later
"""Whom else what is wanted for one path concerns: sessions of a host may go by several, and be several hosts'.

A pace is one path's rate.  What goes by another path would be held to it as well; so it is not given where that is
known, nor where it cannot be told and this host is seen to have several paths.  Other values of one path (`own_path`)
are not given to the routes, disks and records of sessions that all are known to go by another; where it cannot be told
they are given, and that is noted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fabtune.errors import FabtuneError
from fabtune.facts.collect import Facts
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host.links import Links
from fabtune.host.sockets import TcpSocket
from fabtune.model.address import EVERY, canonical
from fabtune.model.device import Device
from fabtune.model.observation import INITIATOR, TARGET, Observation
from fabtune.model.one_path import alike, by_path
from fabtune.model.path import SITE_RTT_MS
from fabtune.tune.passing import Passing
from fabtune.tune.plan import CHANGE, NOT_LIMITED, REFUSED, Plan, Row

# What each limits, and the parameter by which the user answers for the others.
_OVERRIDES = {"connection.pacing": "share_portal", "qdisc.maxrate": "share_nic"}
_OF_A_PATH = "share_path"
_PORTAL = "connection"
# Behind whom it concerns besides.
HELD_AS_WELL = "would be held to what these sessions showed; `fabtune apply wan --rate` gives all of them one rate"


def spare_others(plan: Plan, facts: Facts) -> None:
    """Note in the rows of `plan` whose connections they are of, and refuse those that are not of their path's."""
    overrides = (*_OVERRIDES.values(), _OF_A_PATH)
    plan.overrides = tuple(sorted(name for name in overrides if plan.parameters.get(name)))
    planned_ms = plan.path.rtt_s * 1e3 if plan.path else None
    routes = [row.device for row in plan.rows if row.device and row.device.scope == "route"]

    def look(netns: str, around: Facts | HostSnapshot) -> _Known:
        mine = (one for one in routes if one.where.get("netns", "") == netns)
        return _Known(around.sockets, planned_ms, Passing(around.sockets, around.sessions, mine))

    known = {facts.netns: look(facts.netns, facts)}
    for index, row in enumerate(plan.rows):
        if row.state != CHANGE or row.device is None or not (row.own_path or _is_of_connections(row)):
            continue
        netns = row.device.where.get("netns", "")
        if netns not in known:
            known[netns] = look(netns, HostSnapshot(netns))
        judge = known[netns].of_its_path if row.own_path else known[netns].paced
        plan.rows[index] = judge(row, row.device, plan.parameters)


def _is_of_connections(row: Row) -> bool:
    return row.tunable.scope == _PORTAL or row.tunable.name in _OVERRIDES


class _Known:
    """Storage's connections of one namespace, and the round trip in ms of the path that is planned for."""

    def __init__(self, sockets: Sequence[TcpSocket], planned_ms: float | None, passing: Passing) -> None:
        self._sockets, self._passing = sockets, passing
        self._to: dict[tuple[str, int], list[TcpSocket]] = {}
        for one in sockets:
            self._to.setdefault((canonical(one.remote), one.remote_port), []).append(one)
        known_ms = [one.path_rtt_ms for one in sockets if one.path_rtt_ms]
        self._planned_ms = max(known_ms, default=0.0) if planned_ms is None else planned_ms
        self._several = len(by_path(known_ms, lambda one: one)) > 1 or any(map(self._is_a_site_s, known_ms))

    def _is_a_site_s(self, rtt_ms: float) -> bool:
        """Tell whether a connection stays within a site where a wide-area path is planned for."""
        return rtt_ms <= SITE_RTT_MS < self._planned_ms and not alike(rtt_ms, self._planned_ms)

    def paced(self, row: Row, device: Device, parameters: Mapping[str, float]) -> Row:
        """Return `row` with the other ends of its connections, refused where it is a pace of another path's."""
        mine = self._connections_of(device)
        row = replace(row, peers=tuple(sorted({canonical(one.remote) for one in mine})))
        unless = _OVERRIDES.get(row.tunable.name, "")
        if unless and not parameters.get(unless) and not row.rises and (why := self._why_held(mine)):
            return replace(row, state=REFUSED, note=f"{why}; --set {unless}=1 overrides")
        return row

    def of_its_path(self, row: Row, device: Device, parameters: Mapping[str, float]) -> Row:
        """Return `row`, refused where all whose it is go by another path, else with what else it is for."""
        if not self._several or parameters.get(_OF_A_PATH):
            return row
        mine_ms = sorted(self._passing.rtts_ms(device))
        strange_ms = [one for one in mine_ms if one and not alike(one, self._planned_ms)]
        has = f"a session with a round trip of {strange_ms[0]:.3g} ms uses it" if strange_ms else ""
        if strange_ms and len(strange_ms) == len(mine_ms):
            unless = f"; --set {_OF_A_PATH}=1 overrides" if _OF_A_PATH in parameters else ""
            return replace(row, state=REFUSED, note=f"{has}, and this is for a {self._way}{unless}")
        if not mine_ms or not any(one and alike(one, self._planned_ms) for one in mine_ms):
            has = f"it is not known whether a session of the {self._way} uses it, and this host has another"
        elif strange_ms:
            has += ", too"
        return replace(row, note="; ".join(filter(None, (row.note, has))))

    @property
    def _way(self) -> str:
        return f"path of {self._planned_ms:.3g} ms"

    def _connections_of(self, device: Device) -> list[TcpSocket]:
        """Return the connections of a portal, or those that leave through a NIC."""
        where = device.where
        if device.scope != _PORTAL:
            addresses = {canonical(one) for one in where.get("addresses", "").split()}
            return [one for one in self._sockets if canonical(one.local) in addresses]
        address, port = canonical(where["address"]), int(where["port"])
        if where["role"] == INITIATOR:
            return self._to.get((address, port), [])
        served = (one for one in self._sockets if one.local_port == port)
        return [one for one in served if address in (canonical(one.local), *EVERY)]

    def _why_held(self, mine: Iterable[TcpSocket]) -> str:
        """Return why a pace of the planned path may hold `mine` back, '' where nothing says so.

        People tell a round trip roughly, and a queue makes it longer: where there is one path it is the one meant.
        """
        if not self._several:
            return ""
        mine_ms = sorted(one.path_rtt_ms for one in mine)
        other_ms = next((one for one in mine_ms if one and not alike(one, self._planned_ms)), None)
        if other_ms is not None:
            return f"a connection with a round trip of {other_ms:.3g} ms would be held to the rate of a {self._way}"
        if mine_ms and all(mine_ms):
            return ""
        return f"it is not known whether its connections go by the {self._way}, and this host has another"


def others(row: Row, seen: Iterable[Observation]) -> str:
    """Return who else than the sessions of `seen` is held by what `row` writes for them, '' for nobody.

    What one host's sessions showed says nothing of another's.
    """
    if row.peers is None or not _is_of_connections(row) or row.tunable.scope == _PORTAL and row.role == INITIATOR:
        return ""
    if not row.peers:
        return "whoever is connected there, which cannot be told"
    ours = _own_addresses() if row.role == TARGET else set()
    for one in seen:
        initiator, target = (end.socket if end else None for end in (one.initiator, one.target))
        if row.role == INITIATOR:
            ours.add(_address(initiator.remote if initiator else one.session.portal))
        else:
            ours |= {_address(text) for text in (initiator and initiator.local, target and target.remote) if text}
    strangers = [peer for peer in row.peers if peer not in ours]
    return f"{strangers[0]}{f' and {len(strangers) - 1} more' if len(strangers) > 1 else ''}" if strangers else ""


def spared(rows: Iterable[Row]) -> list[str]:
    """Return a sentence on each row that would lift what limits, and is not written for others' sake."""
    mine = (row for row in rows if row.state == REFUSED and row.peers is not None and row.device)
    told = (row for row in mine if row.note.endswith(HELD_AS_WELL) or row.role == TARGET and row.note != NOT_LIMITED)
    return [f"{row.tunable.name} of {row.device.label if row.device else ''} is left alone: {row.note}" for row in told]


def _address(text: str) -> str:
    return canonical(text.rpartition(":")[0])


def _own_addresses() -> set[str]:
    """Return the addresses of this host, which several of its sessions may come from; none where that is not told."""
    try:
        return {canonical(address) for link in Links().all.values() for address in link.addresses}
    except FabtuneError:
        return set()
