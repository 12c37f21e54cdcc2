# SPDX-License-Identifier: GPL-2.0-or-later
"""Routes, qdiscs, sysctls and NIC attributes of real interfaces, in a network namespace of the test's own."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_netns import own_netns

from fabtune import backends
from fabtune.errors import FabtuneError, InputError, UnsupportedError
from fabtune.host import namespaces
from fabtune.host.links import Links
from fabtune.host.nics import by_address
from fabtune.model.device import Device

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of one's own need root")


@pytest.fixture(scope="module")
def netns() -> Iterator[str]:
    """A namespace with a veth pair, an address and a route."""
    with own_netns(
        "link add v0 numtxqueues 2 numrxqueues 2 type veth peer name v1", "address add 192.0.2.1/24 dev v0",
        "link set v0 up", "link set v1 up", "route add 198.51.100.0/24 via 192.0.2.2 rto_min 50ms",
    ) as name:  # fmt: skip
        yield name


def nic(netns: str) -> Device:
    return Device("nic", "v0", "v0", {"directory": "class/net/v0", "netns": netns, "name": "v0"})


def route(netns: str) -> Device:
    where = {"destination": "198.51.100.0/24", "name": "v0", "family": "-4", "netns": netns}
    return Device("route", "r", "r", where)


def test_a_route_metric_comes_and_goes_and_the_others_stay(netns: str) -> None:
    backend, device = backends.get("route"), route(netns)
    assert backend.read(device, "congctl") == ""
    backend.write(device, "congctl", "reno")
    backend.write(device, "initcwnd", "20")
    assert backend.read(device, "congctl") == "reno"
    assert backend.read(device, "rto_min") == "50"
    backend.write(device, "congctl", "")
    backend.write(device, "initcwnd", "")
    assert backend.read(device, "congctl") == backend.read(device, "initcwnd") == ""
    assert backend.read(device, "rto_min") == "50"


def test_a_route_that_is_gone_is_said(netns: str) -> None:
    device = route(netns)
    device.where["destination"] = "203.0.113.0/24"
    with pytest.raises(UnsupportedError, match="gone"):
        backends.get("route").read(device, "congctl")


def test_a_qdisc_replaces_what_nobody_configured_and_goes_back(netns: str) -> None:
    backend, device = backends.get("qdisc"), nic(netns)
    before = backend.read(device, "kind")
    backend.write(device, "kind", "pfifo")
    assert backend.read(device, "kind") == "pfifo"
    backend.write(device, "kind", before)
    assert backend.read(device, "kind") == before


def test_a_qdisc_configured_by_hand_is_left_alone(netns: str) -> None:
    command = ["tc", "-n", netns, "qdisc", "replace", "dev", "v1", "root", "handle", "7:", "prio"]
    if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("this kernel has no sch_prio")
    device = Device("nic", "v1", "v1", {"name": "v1", "netns": netns})
    with pytest.raises(UnsupportedError, match="configured by hand"):
        backends.get("qdisc").write(device, "kind", "pfifo")


def test_ethtool_reads_and_writes_an_offload(netns: str) -> None:
    backend, device = backends.get("ethtool"), nic(netns)
    before = backend.read(device, "gso.on")
    backend.write(device, "gso.on", str(1 - int(before)))
    assert backend.read(device, "gso.on") == str(1 - int(before))
    backend.write(device, "gso.on", before)
    with pytest.raises(UnsupportedError):
        backend.read(device, "pause.rx")
    with pytest.raises(FabtuneError, match="unknown; groups"):
        backend.read(device, "rings.gr")


def features(netns: str, *switched: str) -> list[str]:
    """Switch features of v0 by hand, as in ``tx-tcp6-segmentation off``; return its TSO features that are on."""
    ethtool = ["ip", "netns", "exec", netns, "ethtool"]
    if switched:
        subprocess.run([*ethtool, "-K", "v0", *switched], check=True)
    shown = subprocess.run([*ethtool, "-k", "v0"], check=True, capture_output=True, text=True).stdout.splitlines()
    return sorted(line.split(":")[0].strip() for line in shown if "tx-tcp" in line and ": on" in line)


@pytest.fixture
def segmenting(netns: str) -> Iterator[Device]:
    """The NIC v0, which has all of its TSO features on again afterwards."""
    yield nic(netns)
    features(netns, "sg", "on", "tso", "on")


def test_tso_comes_back_as_it_was_and_leaves_alone_whether_ids_may_be_mangled(netns: str, segmenting: Device) -> None:
    backend, before = backends.get("ethtool"), features(netns, "tx-tcp-mangleid-segmentation", "off")
    backend.write(segmenting, "tso.on", "0")
    assert backend.read(segmenting, "tso.on") == "0" and not {"tx-tcp-segmentation"} & {*features(netns)}
    backend.write(segmenting, "tso.on", "1")
    assert backend.read(segmenting, "tso.on") == "1" and features(netns) == before


@pytest.mark.parametrize("wanted", ["0", "1"])
def test_tso_features_that_are_not_all_alike_are_no_value_and_are_left_alone(
    netns: str, segmenting: Device, wanted: str
) -> None:
    backend, before = backends.get("ethtool"), features(netns, "tx-tcp6-segmentation", "off")
    with pytest.raises(UnsupportedError, match="tx-tcp-segmentation is on, .*tx-tcp6-segmentation is off"):
        backend.read(segmenting, "tso.on")
    with pytest.raises(UnsupportedError, match="not all alike"):
        backend.write(segmenting, "tso.on", wanted)
    assert features(netns) == before


def test_tso_that_something_else_keeps_off_is_not_asked_for(netns: str, segmenting: Device) -> None:
    backend, before = backends.get("ethtool"), features(netns)
    features(netns, "sg", "off")
    assert backend.read(segmenting, "tso.on") == "0"
    with pytest.raises(UnsupportedError, match="something else"):
        backend.write(segmenting, "tso.on", "1")
    assert features(netns, "sg", "on") == before


def test_sysfs_shows_the_other_namespace_and_nothing_stays_mounted(netns: str) -> None:
    backend, device = backends.get("attribute"), nic(netns)
    mounts = Path("/proc/self/mountinfo").read_text()
    assert backend.read(device, "tx_queue_len") == "1000"
    backend.write(device, "tx_queue_len", "500")
    assert backend.read(device, "tx_queue_len") == "500"
    assert not Path("/sys/class/net/v0").exists()
    assert Path("/proc/self/mountinfo").read_text() == mounts


def test_queues_that_differ_get_each_its_own_value_back(netns: str) -> None:
    backend, device = backends.get("attribute"), nic(netns)
    backend.write(device, "queues/rx-*/rps_cpus", "1 2")
    mixed = backend.read(device, "queues/rx-*/rps_cpus")
    assert [int(mask, 16) for mask in mixed.replace(",", "").split()] == [1, 2]
    backend.write(device, "queues/rx-*/rps_cpus", "0")
    backend.write(device, "queues/rx-*/rps_cpus", mixed)
    assert backend.read(device, "queues/rx-*/rps_cpus") == mixed


def test_one_field_of_a_sysctl_vector_in_the_namespace(netns: str) -> None:
    backend = backends.get("sysctl")
    there, here = Device("netns", "n", "n", {"netns": netns}), Device("netns", "n", "n", {"netns": ""})
    before = backend.read(here, "net.ipv4.tcp_rmem")
    first = backend.read(there, "net.ipv4.tcp_rmem[0]")
    backend.write(there, "net.ipv4.tcp_rmem[2]", "7654321")
    assert backend.read(there, "net.ipv4.tcp_rmem").split()[2] == "7654321"
    assert backend.read(there, "net.ipv4.tcp_rmem[0]") == first
    assert backend.read(here, "net.ipv4.tcp_rmem") == before
    with pytest.raises(UnsupportedError):
        backend.read(there, "net.ipv4.tcp_no_such_thing")


def test_nics_are_found_by_address_with_their_kind(netns: str) -> None:
    (found,) = by_address(["192.0.2.1"], Links(netns))
    assert (found.name, found.driver, found.speed_bit_per_s) == ("v0", "veth", 0)


def test_an_unknown_namespace_is_an_input_error() -> None:
    with pytest.raises(InputError, match="not found at /run/netns/no-such"), namespaces.inside("no-such"):
        pass
