# SPDX-License-Identifier: GPL-2.0-or-later
"""The network of a random host: veths, bonds, VLANs and routes between init_net and the target's namespace."""

from pathlib import Path

from draw import Host
from shell import batch, run, until

_NETNS = "target"
VLAN = 5
PORTALS = 3


def device(host: Host, end: str) -> str:
    """Return the name of the device that holds the addresses at `end`, i or t."""
    base = f"bond{end}" if host.layer.startswith("bond") else f"{end}0"
    return f"{base}.{VLAN}" if host.layer.endswith("vlan") else base


def devices(host: Host, end: str) -> list[str]:
    """Return every device at `end`, the lowest first."""
    slaves = [f"{end}0", f"{end}1"] if host.layer.startswith("bond") else [f"{end}0"]
    return list(dict.fromkeys([*slaves, *([f"bond{end}"] if len(slaves) > 1 else []), device(host, end)]))


def address(host: Host, number: int) -> str:
    """Return the address of portal `number`, counted from 0."""
    return f"fd00:2::{number + 1}" if host.family == 6 else f"10.2.0.{number + 1}"


def portal(host: Host, number: int, port: int = 3260) -> str:
    """Return portal `number` as iscsiadm writes it."""
    return f"[{address(host, number)}]:{port}" if host.family == 6 else f"{address(host, number)}:{port}"


def up(host: Host) -> None:
    """Make namespace, links, addresses and routes, then the administrator's queueing discipline."""
    pairs = 2 if host.layer.startswith("bond") else 1
    run("ip", "netns", "add", _NETNS)
    batch("ip", ["link set lo up"], _NETNS)
    for number in range(pairs):
        batch("ip", [f"link add i{number} type veth peer name t{number} netns {_NETNS}"])
    for end, namespace in (("i", ""), ("t", _NETNS)):
        batch("ip", [*_layers(host, end), *_addresses(host, end)], namespace)
    # Routes through a device without carrier are refused.
    until(lambda: all(_carrier(name) for name in devices(host, "i")), "carrier")
    batch("ip", _routes(host), family=host.family)
    if host.qdisc:
        tree(host.qdisc, device(host, "i"))


def _carrier(name: str) -> bool:
    try:
        return Path("/sys/class/net", name, "carrier").read_text().strip() == "1"
    except OSError:
        return False


def tree(words: str, name: str) -> None:
    """Give device `name` the queueing discipline `words`, with a class below what has classes."""
    lines = [f"qdisc replace dev {name} root {words}"]
    if " htb " in f" {words} ":
        lines += [
            f"class add dev {name} parent 1: classid 1:10 htb rate 900mbit ceil 900mbit",
            f"qdisc add dev {name} parent 1:10 handle 10: fq_codel limit 555",
        ]
    batch("tc", lines)


def _layers(host: Host, end: str) -> list[str]:
    lines: list[str] = []
    if host.layer.startswith("bond"):
        lines.append(f"link add bond{end} type bond mode active-backup miimon 100")
        lines += [f"link set {end}{number} master bond{end}" for number in range(2)]
    if host.layer.endswith("vlan"):
        base = f"bond{end}" if host.layer.startswith("bond") else f"{end}0"
        lines.append(f"link add link {base} name {base}.{VLAN} type vlan id {VLAN}")
    return lines + [f"link set {name} up" for name in devices(host, end)]


def _addresses(host: Host, end: str) -> list[str]:
    name = device(host, end)
    six = host.family == 6
    near = {"i": ("fd00:1::1", "10.1.0.1"), "t": ("fd00:1::254", "10.1.0.254")}[end][0 if six else 1]
    flags = " nodad" if six else ""
    prefix = 64 if six else 24
    lines = [f"addr add {near}/{prefix} dev {name}{flags}"]
    if host.route == "direct":
        wide = {"i": "fd00:2::64" if six else "10.2.0.100", "t": ""}[end]
        lines += [f"addr add {wide}/{prefix} dev {name}{flags}"] if wide else []
    if end == "t":
        lines += [f"addr add {address(host, number)}/{prefix} dev {name}{flags}" for number in range(PORTALS)]
    return lines


def _routes(host: Host) -> list[str]:
    six = host.family == 6
    gateway, net = ("fd00:1::254", "fd00:2::/64") if six else ("10.1.0.254", "10.2.0.0/24")
    name = device(host, "i")
    way = f"{net} via {gateway} dev {name}"
    # Only IPv6 routes expire.
    kinds: dict[str, list[str]] = {
        "direct": [],
        "via": [f"route add {way}"],
        "initcwnd": [f"route add {way} initcwnd 20 rto_min 30ms"],
        "expires": [f"route add {way}" + (" expires 1800" if six else "")],
        "nhid": [f"nexthop add id 30 via {gateway} dev {name}", f"route add {net} nhid 30"],
        "table": [
            f"rule add to {net} lookup 101 pref 1000",
            f"route add {way} table 101",
            f"route add {way} metric 900",
        ],
    }
    return kinds[host.route]


def down() -> None:
    """Remove everything `up` made."""
    for family in (4, 6):
        batch("ip", ["rule del pref 1000", "nexthop flush", "route flush table 101"], family=family, force=True)
    links = [f"link del {name}" for name in ("bondi.5", "bondi", "i0.5", "i0", "i1")]
    batch("ip", [*links, f"netns del {_NETNS}"], force=True)
