# SPDX-License-Identifier: GPL-2.0-or-later
"""Which connections and sessions have a route, a disk or a record, as far as that is known: each by its round trip."""

import ipaddress
from collections.abc import Iterable, Sequence
from functools import cached_property

from fabtune.host import blocks
from fabtune.host.blocks import kernel_name
from fabtune.host.sessions import Connections, Session
from fabtune.host.sockets import TcpSocket
from fabtune.model.address import canonical
from fabtune.model.device import Device
from fabtune.tune.whose import destination

_MAIN = "main"


class Passing:
    """The round trips in ms of what goes by each device, 0 for one that is not known.

    `routes` are all by which storage's connections of one namespace go.
    """

    def __init__(self, sockets: Sequence[TcpSocket], sessions: Sequence[Session], routes: Iterable[Device]) -> None:
        self._sockets, self._sessions = sockets, sessions
        self._routes = {one.key: one for one in routes}

    def rtts_ms(self, device: Device) -> list[float]:
        """Return those of `device`, none where nothing tells whose it is."""
        match device.scope:
            case "route":
                return self._by_route.get(device.key, [])
            case "block":
                return self._by_block.get(kernel_name(device), [])
        return self._by_identity.get(device.identity, [])

    @cached_property
    def _of_sessions(self) -> list[tuple[Session, float]]:
        ends = Connections(self._sockets, self._sessions)
        return [(one, ends.rtt_ms(one)) for one in self._sessions]

    @cached_property
    def _by_identity(self) -> dict[str, list[float]]:
        """A record's are all its sessions'."""
        found: dict[str, list[float]] = {}
        for session, rtt_ms in self._of_sessions:
            for name in {session.identity, session.own_identity}:
                found.setdefault(name, []).append(rtt_ms)
        return found

    @cached_property
    def _by_block(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for session, rtt_ms in self._of_sessions:
            for name in {above for lun in session.luns for above in blocks.above(lun)}:
                found.setdefault(name, []).append(rtt_ms)
        return found

    @cached_property
    def _by_route(self) -> dict[tuple[str, str], list[float]]:
        """Of routes of one table the narrowest is taken; which table a rule chooses is not asked here."""
        if any(one.where.get("table", _MAIN) != _MAIN or ",table:" in one.identity for one in self._routes.values()):
            return {}
        networks = {key: ipaddress.ip_network(text) for key, one in self._routes.items() if (text := destination(one))}
        found: dict[tuple[str, str], list[float]] = {}
        for one in self._sockets:
            peer = ipaddress.ip_address(canonical(one.remote))
            leading = {key: network.prefixlen for key, network in networks.items() if peer in network}
            narrowest = [key for key, bits in leading.items() if bits == max(leading.values())]
            # Of two that differ in metric or interface alone, either may be it.
            if len(narrowest) == 1:
                found.setdefault(narrowest[0], []).append(one.path_rtt_ms)
        return found
