# SPDX-License-Identifier: GPL-2.0-or-later
"""Who else uses a NIC that storage uses: only one that surely carries storage alone may get storage's rate."""

from collections.abc import Iterable
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.host import iproute, namespaces, sockets, tree
from fabtune.host.links import Links, as_kernel_writes
from fabtune.host.sockets import TcpSocket

_BRIDGES = ("bridge", "openvswitch")
# Their packets leave through any NIC, in the kernel's own name.
_TUNNELS = (
    "vxlan", "geneve", "bareudp", "wireguard", "ovpn", "gre", "gretap", "erspan", "ip6gre", "ip6gretap", "ip6erspan",
    "ipip", "ip6tnl", "sit", "vti", "vti6", "xfrm",
)  # fmt: skip
# Ends of pairs: what they name by number is their peer, not what they lie on.
_PAIRS = ("veth", "netkit", "vxcan")
# What VPNs split the default route into stands for it.
_DEFAULTS = {"-4": ("default", "0.0.0.0/1", "128.0.0.0/1"), "-6": ("default", "::/1", "8000::/1", "2000::/3")}
# A few packets an hour on every host: DHCP and NTP.
_QUIET_PORTS = (68, 123, 546)


class Sharing:
    """What is asked of each NIC, read once: storage's interfaces, addresses, peers; all connections; default routes."""

    def __init__(
        self, links: Links, own: Iterable[str], addresses: Iterable[str], peers: Iterable[str],
        connections: Iterable[TcpSocket],
    ) -> None:  # fmt: skip
        """`own` are the interfaces of storage's traffic, `addresses` its local ones, `peers` the other ends."""
        self._links = links
        self._own = set(own)
        self._addresses = {as_kernel_writes(address) for address in addresses}
        self._peers = {as_kernel_writes(peer) for peer in peers}
        self._connections = list(connections)
        self._default = self._default_devices()
        self._datagrams = sockets.datagrams(links.netns)
        self._elsewhere = _on_top_elsewhere(links.netns)

    def of(self, name: str) -> str:
        """Return who else uses `name` or what shares the wire with it, '' if storage alone does."""
        tower = set().union(*(self._links.tower(lowest) for lowest in self._links.lowest(name)))
        links = [self._links.all[one] for one in sorted(tower) if one in self._links.all]
        if strangers := sorted(tower - self._own):
            return f"{', '.join(strangers)} on top of it"
        if guest := next((self._guest(link.name) for link in links if self._guest(link.name)), ""):
            return f"{guest} on top of it, in another network namespace"
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
        far = {one.remote or "anybody" for one in self._datagrams
               if one.local in held and one.local_port not in _QUIET_PORTS} - self._peers - held  # fmt: skip
        if far:
            return f"UDP with {sorted(far)[0]}"
        tunnels = [one for one in self._links.all.values() if one.kind in _TUNNELS and one.up]
        if tunnel := next((one.name for one in tunnels if not one.over or one.over in tower), None):
            return f"perhaps the tunnel {tunnel}"
        if any(_forwards(link.name, self._links.netns) for link in links):
            return "hosts whose packets it forwards"
        return ""

    def _default_devices(self) -> set[str]:
        rows = [
            row
            for family, wide in _DEFAULTS.items()
            for prefix in wide
            for row in iproute.read_json(
                "ip", family, "route", "show", "table", "all", "exact", prefix, netns=self._links.netns
            )
        ]
        hops = [one for row in rows if isinstance(several := row.get("nexthops"), list) for one in several]
        return {str(way["dev"]) for way in (*rows, *hops) if isinstance(way, dict) and "dev" in way}

    def _guest(self, name: str) -> str:
        """Return what in another namespace lies on `name`, '' if nothing does."""
        number = tree.read_text(self._links.directory(name) / "ifindex")
        return self._elsewhere.get(tree.whole(number) or 0, "")


def _on_top_elsewhere(netns: str) -> dict[int, str]:
    """Return what lies on an interface of another namespace than its own, by that one's number, unless in `netns`.

    A number may be another namespace's than `netns`: then a NIC is taken for shared that is not.
    """
    found: dict[int, str] = {}
    for path in namespaces.other_namespaces(netns):
        try:
            rows = iproute.read_json("ip", "-details", "link", netns=path, texts=("ifname",))
        except FabtuneError:
            if Path(path).exists():
                raise
            continue
        for row in rows:
            info = row.get("linkinfo")
            kind = info.get("info_kind") if isinstance(info, dict) else None
            below = row.get("link_index")
            if isinstance(below, int) and kind not in _PAIRS:
                found[below] = str(row["ifname"])
    return found


def _forwards(name: str, netns: str) -> bool:
    with namespaces.inside(netns):
        texts = [tree.read_text(tree.PROC / f"sys/net/{family}/conf/{name}/forwarding") for family in ("ipv4", "ipv6")]
    return "1" in texts


def who_else(
    links: Links, own: Iterable[str], addresses: Iterable[str], peers: Iterable[str], connections: Iterable[TcpSocket]
) -> dict[str, str]:
    """Return who else uses each interface of `own`, '' for nobody; in doubt, somebody does."""
    names = list(own)
    try:
        sharing = Sharing(links, names, addresses, peers, connections)
        return {name: sharing.of(name) for name in names}
    except FabtuneError as error:
        return dict.fromkeys(names, f"somebody, perhaps ({error})")
