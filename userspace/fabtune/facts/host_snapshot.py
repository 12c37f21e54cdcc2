# SPDX-License-Identifier: GPL-2.0-or-later
"""What the device finders look at: sessions, sockets, portals, peers and NICs of one namespace, each read once."""

import contextlib
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from fabtune.backends import record
from fabtune.errors import FabtuneError
from fabtune.facts.sharing import who_else
from fabtune.host import iproute, namespaces, nics, sockets, targets, tree
from fabtune.host.links import Links
from fabtune.host.nics import Nic
from fabtune.host.sessions import Session, live_sessions
from fabtune.host.sockets import TcpSocket
from fabtune.model.address import EVERY, canonical

# Where sysfs shows all of a scope, what no session uses included.
_SHOWN_IN = {"block": "block", "session": "class/iscsi_session", "srp-port": "class/srp_remote_ports"}


def _held(links: Links) -> frozenset[str]:
    """Return every address of one namespace, none if it cannot be read."""
    try:
        return frozenset().union(*(link.addresses for link in links.all.values()))
    except FabtuneError:
        return frozenset()


class HostSnapshot:
    """One namespace of this host at one moment."""

    def __init__(self, netns: str = "") -> None:
        self.netns = netns
        if netns:
            namespaces.netns_path(netns)

    @cached_property
    def sessions(self) -> list[Session]:
        """The initiator's live sessions; iscsid and its sockets live in the first network namespace."""
        return live_sessions()

    @cached_property
    def numbered(self) -> dict[tuple[str, str], Path]:
        """The directories of the kernel's disks, sessions and SRP ports, each by its scope and inode number."""
        found = {}
        for scope, place in _SHOWN_IN.items():
            for directory in (tree.SYS / place).glob("*"):
                with contextlib.suppress(OSError):
                    found[scope, str(directory.stat().st_ino)] = directory
        return found

    @cached_property
    def records(self) -> dict[str, dict[str, str]]:
        """open-iscsi's node records by identity; none without iscsiadm or its rights."""
        try:
            return record.BACKEND.all()
        except FabtuneError:
            return {}

    @cached_property
    def portals(self) -> list[tuple[str, int]]:
        """Address and port of each portal that a target serves, in whichever namespace."""
        portals = [portal.rpartition(":") for group in targets.groups() for portal in group.where["portals"].split()]
        return [(canonical(address), tree.whole(port) or sockets.ISCSI_PORT) for address, _, port in portals]

    @cached_property
    def links(self) -> Links:
        """The namespace's interfaces."""
        return Links(self.netns)

    @cached_property
    def elsewhere(self) -> dict[str, list[str]]:
        """The portals' addresses that no interface here holds, each with the namespaces in which one does."""
        wanted = {address for address, _ in self.portals} - {*EVERY}
        here = _held(self.links) if wanted else frozenset()
        missing = sorted(wanted - here) if here else []
        places = {name: _held(Links(name)) for name in namespaces.known_names()} if missing else {}
        return {address: [name for name, held in places.items() if address in held] for address in missing}

    @cached_property
    def sockets(self) -> list[TcpSocket]:
        """The established connections that belong to a session or a portal."""
        remote = {(canonical(session.address), session.port) for session in self.sessions}
        local = {port for _, port in self.portals}
        if not remote and not local:
            return []
        try:
            found = self.connections
        except (OSError, ImportError, FabtuneError):
            return []
        return [s for s in found if (canonical(s.remote), s.remote_port) in remote or s.local_port in local]

    @cached_property
    def connections(self) -> list[TcpSocket]:
        """Every established connection of the namespace, of any program.  Raises FabtuneError."""
        return sockets.established(self.netns)

    @cached_property
    def peers(self) -> list[str]:
        """The addresses at the other end: of sockets, else of the portals in node records."""
        return sorted({peer for peer, _ in self._ways})

    def bound(self, socket: TcpSocket) -> str:
        """Return the interface that `socket` is bound to, '' for none."""
        return self._names.get(socket.bound, "")

    @cached_property
    def _names(self) -> dict[int, str]:
        places = (namespaces.sysfs(self.netns) / "class/net").glob("*/ifindex")
        return {tree.whole(tree.read_text(path)) or 0: path.parent.name for path in places}

    @cached_property
    def _ways(self) -> set[tuple[str, str]]:
        """Each peer with the interface that its connection is bound to, '' for none; of sockets, else of records."""
        if self.sockets:
            return {(socket.remote, self.bound(socket)) for socket in self.sockets}
        rows = self.records.values()
        own = ((row.get("node.conn[0].address", ""), row.get("iface.net_ifacename", "")) for row in rows)
        return {(canonical(peer), name if name != "<empty>" else "") for peer, name in own if peer}

    @cached_property
    def routes(self) -> dict[tuple[str, str], dict[str, str]]:
        """How each peer is reached over the interface bound to ('' for none): interface and source address."""
        found = {}
        for family, name in sorted({("-6" if ":" in peer else "-4", name) for peer, name in self._ways}):
            peers = sorted(peer for peer, over in self._ways if over == name and (":" in peer) == (family == "-6"))
            over = f" oif {name}" if name else ""
            try:
                rows = iproute.batch_json("ip", family, [f"route get {peer}{over}" for peer in peers], netns=self.netns)
            except FabtuneError:
                continue
            for row in rows:
                if row.get("dev") not in (None, "lo") and row.get("dst") in peers:
                    way = {"name": str(row["dev"]), "source": str(row.get("prefsrc", ""))}
                    found[str(row["dst"]), name] = way
        return found

    @cached_property
    def nics(self) -> list[Nic]:
        """The NICs that storage uses and every layer below them, the lowest first, each with who else uses it."""
        addresses = {socket.local for socket in self.sockets} | {address for address, _ in self.portals}
        addresses |= {route["source"] for route in self.routes.values()}
        if not addresses:
            return []
        links = self.links
        try:
            found = nics.by_address(addresses, links)
        except FabtuneError:
            return []
        if not found:
            return []
        peers = {socket.remote for socket in self.sockets} | set(self.peers)
        try:
            shared = who_else(links, [nic.name for nic in found], addresses, peers, self.connections)
        except (OSError, ImportError, FabtuneError) as error:
            shared = {nic.name: f"somebody, perhaps ({error})" for nic in found}
        return [replace(nic, shared=shared[nic.name]) for nic in found]
