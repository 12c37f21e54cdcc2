# SPDX-License-Identifier: GPL-2.0-or-later
"""Who else uses a NIC that storage uses: only what positively carries storage alone may be held to storage's rate."""

from collections.abc import Iterable

from fabtune.backends import iproute, tree
from fabtune.errors import FabtuneError
from fabtune.facts.links import Links, canonical
from fabtune.facts.sockets import TcpSocket

_BRIDGES = ("bridge", "openvswitch")


class Sharing:
    """What is asked of each NIC, read once: storage's interfaces, addresses, peers; all connections; default routes."""

    def __init__(
        self, links: Links, own: Iterable[str], addresses: Iterable[str], peers: Iterable[str],
        connections: Iterable[TcpSocket],
    ) -> None:  # fmt: skip
        """`own` are the interfaces that storage's traffic passes, `addresses` its local ones, `peers` the other ends."""
        self._links = links
        self._own = set(own)
        self._addresses = {canonical(address) for address in addresses}
        self._peers = {canonical(peer) for peer in peers}
        self._connections = list(connections)
        self._default = self._default_devices()

    def of(self, name: str) -> str:
        """Return who else uses `name` or what shares the wire with it, '' if storage alone does."""
        tower = set().union(*(self._links.tower(lowest) for lowest in self._links.lowest(name)))
        links = [self._links.all[one] for one in sorted(tower) if one in self._links.all]
        if strangers := sorted(tower - self._own):
            return f"{', '.join(strangers)} on top of it"
        if bridge := next((link.name for link in links if {link.kind, link.slave_kind} & set(_BRIDGES)), None):
            return f"whoever is behind the bridge of {bridge}"
        if way := next((link.name for link in links if link.name in self._default), None):
            return f"all that takes the default route over {way}"
        held = {address for link in links for address in link.addresses}
        other = {a for link in links for a in link.addresses - link.local_addresses} - self._addresses
        if other:
            return f"whoever uses its address {sorted(other)[0]}"
        far = {one.remote for one in self._connections if one.local in held} - self._peers - held
        if far:
            return f"connections to {sorted(far)[0]}"
        if any(_forwards(link.name, self._links.netns) for link in links):
            return "hosts whose packets it forwards"
        return ""

    def _default_devices(self) -> set[str]:
        rows = [
            row
            for family in ("-4", "-6")
            for row in iproute.read_json("ip", family, "route", "show", "default", netns=self._links.netns)
        ]
        ways = [way for row in rows for way in (row, *row.get("nexthops", []))]
        return {str(way["dev"]) for way in ways if "dev" in way}


def _forwards(name: str, netns: str) -> bool:
    with tree.inside(netns):
        texts = [tree.read_text(tree.PROC / f"sys/net/{family}/conf/{name}/forwarding") for family in ("ipv4", "ipv6")]
    return "1" in texts


def who_else(
    links: Links, own: Iterable[str], addresses: Iterable[str], peers: Iterable[str], connections: Iterable[TcpSocket]
) -> dict[str, str]:
    """Return for each interface of `own` who else uses it, '' for nobody; in doubt, somebody does."""
    names = list(own)
    try:
        sharing = Sharing(links, names, addresses, peers, connections)
        return {name: sharing.of(name) for name in names}
    except FabtuneError as error:
        return dict.fromkeys(names, f"somebody, perhaps ({error})")
