# SPDX-License-Identifier: GPL-2.0-or-later
"""The routes that storage traffic takes, through rules and tables, and how a journal finds one again."""

from collections.abc import Iterable

from fabtune.errors import FabtuneError
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host import iproute, namespaces
from fabtune.host.sockets import ISCSI_PORT
from fabtune.model.device import Device

_MAIN = "main"
# What the kernel gives IPv6 routes of its own and of those who name none: no part of an identity.
_USUAL_METRICS = ("", "0", "256", "1024")


def routes(around: HostSnapshot) -> list[Device]:
    """Return the routes that peers are reached by, each once."""
    found: dict[str, Device] = {}
    for family in ("-4", "-6"):
        asked = [words for peer, words in _questions(around) if (":" in peer) == (family == "-6")]
        try:
            rows = iproute.batch_json("ip", family, list(dict.fromkeys(asked)), netns=around.netns)
        except FabtuneError:
            continue
        for row in rows:
            if row.get("type", "unicast") == "unicast" and row.get("dev") != "lo" and "dst" in row:
                device = _device(row, family, around.netns)
                found[device.identity] = device
    return list(found.values())


def _questions(around: HostSnapshot) -> Iterable[tuple[str, str]]:
    """Yield each peer with the question for the route that its connection's packets match."""
    served = {port for _, port in around.portals}
    for one in around.sockets:
        port = f"sport {one.local_port}" if one.local_port in served else f"dport {one.remote_port}"
        yield one.remote, _question(one.remote, one.local, port, around.bound(one))
    if not around.sockets:
        for (peer, name), route in around.routes.items():
            yield peer, _question(peer, route["source"], f"dport {ISCSI_PORT}", name)


def _question(peer: str, local: str, port: str, name: str) -> str:
    """Return the question for the route to `peer`; `name` is the interface that the socket is bound to, '' for none."""
    bare, _, zone = peer.partition("%")
    zone = name or zone
    source = f" from {local.partition('%')[0]}" if local else ""
    return f"route get fibmatch {bare}{source}{f' oif {zone}' if zone else ''} ipproto 6 {port}"


def _gateway(row: iproute.Listed) -> str:
    """Return the first hop as an identity names it."""
    if row.get("nexthops"):
        return f"nhid {row['nhid']}" if "nhid" in row else "multipath"
    via = row.get("via")
    return str(via.get("host")) if isinstance(via, dict) else str(row.get("gateway", "direct"))


def _device(row: iproute.Listed, family: str, netns: str) -> Device:
    destination, name = str(row["dst"]), str(row.get("dev", ""))
    table, metric = str(row.get("table", _MAIN)), str(row.get("metric", ""))
    parts = [destination, _gateway(row), namespaces.identity(netns)]
    parts += [f"table:{table}"] if table != _MAIN else []
    parts += [f"metric:{metric}"] if metric not in _USUAL_METRICS else []
    label = f"{destination} dev {name}" if name else f"{destination} over {_gateway(row)}"
    where = {
        "destination": destination, "name": name, "family": family, "netns": netns, "table": table, "metric": metric,
    }  # fmt: skip
    return Device("route", ",".join(parts), label + (f" table {table}" if table != _MAIN else ""), where)


def locate(device: Device, around: HostSnapshot) -> Device | None:
    """Return the route that `device.identity` names, as it is now; None where it is positively absent.

    Raises FabtuneError where that cannot be told, or where two routes answer to the identity.
    """
    destination, _, rest = device.identity.partition(",")
    gateway, *others = rest.split(",")
    if not destination or not gateway:
        raise FabtuneError(f"route '{device.identity:.80}': expected DESTINATION,GATEWAY,netns:NAME")
    words = dict(part.partition(":")[::2] for part in others)
    netns = namespaces.find(f"netns:{words.get('netns', 'init')}", around.netns)
    if netns is None:
        return None
    table, metric = words.get("table", _MAIN), words.get("metric")
    family = "-6" if ":" in destination or ":" in gateway else "-4"
    found = [
        one
        for row in _listed(family if destination != "default" else "", table, destination, netns)
        for one in [_device({**row[1], "table": table}, row[0], netns)]
        if _gateway(row[1]) == gateway and (metric is None or one.where["metric"] == metric)
    ]
    if len(found) > 1 and metric is None:
        found = [one for one in found if one.where["metric"] in _USUAL_METRICS] or found
    if len(found) > 1:
        raise FabtuneError(f"route {device.label}: {len(found)} routes of this host answer to it; remove all but one")
    return found[0] if found else None


def _listed(family: str, table: str, destination: str, netns: str) -> Iterable[tuple[str, iproute.Listed]]:
    """Yield family and row of each route to exactly `destination` in `table`; an empty family is both."""
    for one in [family] if family else ["-4", "-6"]:
        words = [one, "route", "show", "table", table, "exact", destination]
        try:
            yield from ((one, row) for row in iproute.read_json("ip", *words, netns=netns))
        except FabtuneError as error:
            # A table exists from its first route to its last.
            if "does not exist" not in str(error):
                raise
