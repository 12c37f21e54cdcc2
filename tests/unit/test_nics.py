# SPDX-License-Identifier: GPL-2.0-or-later
"""What NICs are called in a journal, how they are found again, and who else uses them: on copied trees."""

import sys
from pathlib import Path

import hosttree
import pytest

from fabtune.catalog.tunable import shipped_catalog
from fabtune.errors import FabtuneError
from fabtune.facts import devices
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.facts.sharing import who_else
from fabtune.host import iproute, namespaces, nics, tree
from fabtune.host.links import Link, Links
from fabtune.host.sockets import TcpSocket
from fabtune.model.device import Device
from fabtune.tune import plan
from fabtune.tune.plan import CHANGE, Row


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hosttree.enter(hosttree.make(tmp_path), monkeypatch)
    return tmp_path


def nic(root: Path, name: str, device: str, **files: str) -> Link:
    """Make interface `name` of the `device` (a path below sys/devices) and return its link."""
    directory = root / "sys/devices" / device / "net" / name
    for file, text in {"address": "02:00:00:00:00:01", "mtu": "1500", **files}.items():
        hosttree.put(directory / file, text)
    (directory / "device").symlink_to(root / "sys/devices" / device)
    (root / "sys/class/net").mkdir(parents=True, exist_ok=True)
    (root / "sys/class/net" / name).symlink_to(directory)
    mac = files.get("address", "02:00:00:00:00:01")
    return Link(name, "", "", frozenset(), frozenset(), True, mac)


def links_of(*found: Link) -> Links:
    links = Links()
    links.__dict__["all"] = {link.name: link for link in found}
    return links


def stack(root: Path, lower: str, upper: str) -> None:
    """Let `upper` lie on `lower`, both made before or as plain virtual ones."""
    base = root / "sys/class/net"
    for name in (lower, upper):
        (base / name).mkdir(parents=True, exist_ok=True)
    (base / upper / f"lower_{lower}").symlink_to(base / lower)
    (base / lower / f"upper_{upper}").symlink_to(base / upper)


PORTS = "pci0000:00/0000:03:00.0"


def test_ports_of_one_pci_function_have_each_an_identity_and_the_first_its_old_one(host: Path) -> None:
    links = links_of(
        nic(host, "a", PORTS), nic(host, "b", PORTS, dev_port="1"), nic(host, "r", PORTS, phys_port_name="pf0vf0")
    )
    assert [nics.nic_named(name, links).identity for name in "abr"] == [
        "pci:0000:03:00.0", "port:0000:03:00.0/port1", "port:0000:03:00.0/pf0vf0",
    ]  # fmt: skip
    assert [one.name for one in nics.with_identity("port:0000:03:00.0/port1", links)] == ["b"]
    assert [one.name for one in nics.with_identity("pci:0000:03:00.0", links)] == ["a"]


def test_a_port_named_as_its_functions_own_keeps_the_old_identity(host: Path) -> None:
    links = links_of(nic(host, "a", PORTS, phys_port_name="p1"))
    assert nics.nic_named("a", links).identity == "pci:0000:03:00.0"


def test_twins_that_the_kernel_does_not_tell_apart_are_told_by_their_mac(host: Path) -> None:
    links = links_of(nic(host, "a", PORTS, address="02::0a"), nic(host, "b", PORTS, address="02::0b"))
    assert nics.nic_named("b", links).identity == "port:0000:03:00.0/02::0b"
    # An old journal's name for both: which one it was cannot be told.
    assert len(nics.with_identity("pci:0000:03:00.0", links)) == 2


def test_usb_nics_on_one_controller_differ(host: Path) -> None:
    place = "pci0000:00/0000:00:14.0/usb1/1-2"
    links = links_of(nic(host, "u", f"{place}/1-2:1.0"), nic(host, "v", f"{place}/1-3:1.0"))
    assert nics.nic_named("u", links).identity == "usb:0000:00:14.0-usb-0:2:1.0"
    assert nics.nic_named("v", links).identity != nics.nic_named("u", links).identity


def test_a_pci_nic_without_an_interface_is_not_taken_for_absent(host: Path) -> None:
    device = Device("nic", "pci:0000:03:00.0,netns:init", "a")
    assert devices.locate(device, HostSnapshot()) is None
    (host / "sys/bus/pci/devices/0000:03:00.0").mkdir(parents=True)
    with pytest.raises(FabtuneError, match="without an interface"):
        devices.locate(device, HostSnapshot())


def test_a_namespace_without_a_name_cannot_be_told_and_a_gone_one_is_absent(host: Path) -> None:
    assert namespaces.find("netns:init", "") == ""
    assert namespaces.find("netns:no-such-namespace", "") is None
    with pytest.raises(FabtuneError, match="without a name"):
        namespaces.find("netns:self", "")


def connection(remote: str) -> TcpSocket:
    return TcpSocket("10.0.0.1", remote, 40000, 3260, 1.0, 1.0, 0, 10, 1448, 0, "cubic", 0, 0)


STORAGE = Link("e0", "", "", frozenset({"10.0.0.1", "fe80::1"}), frozenset({"fe80::1"}), True, "")


def use(root: Path, links: Links, own: list[str], *remotes: str) -> str:
    return who_else(links, own, ["10.0.0.1"], ["10.0.0.9"], map(connection, remotes))["e0"]


def test_a_nic_is_storages_alone_only_as_long_as_nothing_speaks_against_it(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host / "sys/class/net/e0").mkdir(parents=True)
    assert use(host, links_of(STORAGE), ["e0"], "10.0.0.9", "10.0.0.1") == ""
    assert "connections to 10.0.0.8" in use(host, links_of(STORAGE), ["e0"], "10.0.0.9", "10.0.0.8")
    second = Link("e0", "", "", STORAGE.addresses | {"10.0.0.2"}, STORAGE.local_addresses, True, "")
    assert "address 10.0.0.2" in use(host, links_of(second), ["e0"])
    port = Link("e0", "", "bridge", STORAGE.addresses, STORAGE.local_addresses, True, "")
    assert "bridge" in use(host, links_of(port), ["e0"])
    hosttree.put(host / "proc/sys/net/ipv4/conf/e0/forwarding", "1")
    assert "forwards" in use(host, links_of(STORAGE), ["e0"])
    monkeypatch.setattr(iproute, "read_json", lambda *_words, **_where: [{"dst": "default", "dev": "e0"}])
    assert "default route" in use(host, links_of(STORAGE), ["e0"])


def test_udp_tunnels_and_guests_in_other_namespaces_speak_against_it(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosttree.put(host / "sys/class/net/e0/ifindex", "7")
    table = host / "proc/thread-self/net/udp"
    end = {"little": "0100000A", "big": "0A000001"}[sys.byteorder]
    for port, said in ((68, ""), (51820, "UDP with anybody")):
        hosttree.put(table, f"  sl  local_address\n 1: {end}:{port:04X} 00000000:0000 07 0")
        assert use(host, links_of(STORAGE), ["e0"]) == said
    hosttree.put(table, "  sl  local_address\n")
    for over, said in (("", "perhaps the tunnel wg0"), ("e1", "")):
        tunnel = Link("wg0", "wireguard", "", frozenset(), frozenset(), True, "", over)
        assert use(host, links_of(STORAGE, tunnel), ["e0"]) == said
    monkeypatch.setattr(namespaces, "other_namespaces", lambda _netns: ["/run/netns/box"])
    rows = [{"ifname": "eth0", "link_index": 7, "linkinfo": {"info_kind": "macvlan"}}]
    monkeypatch.setattr(iproute, "read_json", lambda *words, **_where: rows if "link" in words else [])
    assert use(host, links_of(STORAGE), ["e0"]) == "eth0 on top of it, in another network namespace"
    rows[0]["linkinfo"] = {"info_kind": "veth"}
    assert use(host, links_of(STORAGE), ["e0"]) == ""


def test_another_vlan_on_the_same_wire_is_another_user(host: Path) -> None:
    stack(host, "e0", "v5")
    stack(host, "e0", "v6")
    bare = Link("e0", "", "", frozenset(), frozenset(), True, "")
    links = links_of(bare, Link("v5", "vlan", "", STORAGE.addresses, STORAGE.local_addresses, True, ""))
    assert links.stack(["v5"]) == ["e0", "v5"]
    assert use(host, links, ["e0", "v5"]) == "v6 on top of it"


def mtu_row(name: str, below: str, now: int, wanted: int) -> Row:
    device = Device("nic", f"name:{name},netns:init", name, {"name": name, "below": below})
    return Row(shipped_catalog().tunables["nic.mtu"], "initiator", device, str(now), str(wanted), CHANGE, "")


def test_mtus_rise_from_the_bottom_up_and_fall_from_the_top_down() -> None:
    layers = (("v5", "bond0"), ("e0", ""), ("bond0", "e0"))
    up = plan.ordered([mtu_row(name, below, 1500, 9000) for name, below in layers])
    assert [row.device.label for row in up if row.device] == ["e0", "bond0", "v5"]
    down = plan.ordered([mtu_row(name, below, 9000, 1500) for name, below in layers])
    assert [row.device.label for row in down if row.device] == ["v5", "bond0", "e0"]


def test_addresses_are_compared_as_addresses(host: Path) -> None:
    (host / "sys/class/net/e0").mkdir(parents=True)
    link = Link("e0", "", "", frozenset({"fd00:2::1"}), frozenset(), True, "")
    assert [one.name for one in nics.by_address(["[fd00:0002:0000:0000:0000:0000:0000:0001]"], links_of(link))] == [
        "e0"
    ]
    assert host / "sys" == tree.SYS
