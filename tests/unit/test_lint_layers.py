# SPDX-License-Identifier: GPL-2.0-or-later
"""What lint says of NICs is said of those that carry packets, whatever VLAN, bond or bridge lies on them."""

from dataclasses import replace

import pytest
from test_lint import CARD, DISK, SESSION, SOCKET, WAN, facts_with

from fabtune.catalog.tunable import shipped_catalog
from fabtune.facts.collect import Facts, Reading
from fabtune.host.nics import Nic
from fabtune.lint.hazards import lint
from fabtune.lint.rule import Hazard
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath

OTHER = replace(CARD, name="eth1", pci_path="0000:00:04.0", lower=("eth1",))


def over(name: str, kind: str, *below: Nic, mtu: int = 1500, member_of: str = "") -> Nic:
    """Return an interface that lies on others; Linux tells a speed of it that is made of theirs."""
    names = tuple(one.name for one in below)
    lowest = tuple(name for one in below for name in one.lower)
    speed = sum(one.speed_bit_per_s for one in below)
    return Nic(name, kind, mtu, speed, "", lowest, below=names, member_of=member_of)


VLAN = over("eth0.100", "vlan", CARD)
BOND = over("bond0", "bond", CARD, OTHER)


def of_rule(rule: str, facts: Facts, path: NetworkPath = WAN) -> list[Hazard]:
    return [one for one in lint(facts, shipped_catalog(), path) if one.rule == rule]


@pytest.mark.parametrize(
    ("nics", "told_mbit", "named"),
    [
        ([CARD, VLAN], 1900, True),
        ([CARD, VLAN], 1000, False),
        ([CARD, OTHER, BOND], 1900, False),
        ([CARD, OTHER, BOND, over("bond0.7", "vlan", BOND)], 2100, True),
        # What a bridge tells is made up; what lies below it is what counts.
        ([CARD, replace(over("br0", "bridge", CARD), speed_bit_per_s=0)], 1900, True),
        ([replace(CARD, speed_bit_per_s=0), VLAN], 1900, False),
        # Facts of the first fabtune have no `below`.
        ([CARD, replace(VLAN, below=())], 1900, True),
    ],
)
def test_a_told_rate_is_held_against_the_nics_at_the_bottom_and_each_counts_once(
    nics: list[Nic], told_mbit: float, named: bool
) -> None:
    facts = facts_with()
    facts.nics = nics
    found = of_rule("rate-above-nic", facts, NetworkPath(0.05, told_mbit * 1e6 / 8))
    assert bool(found) is named
    together = sum(one.speed_bit_per_s for one in nics if one in (CARD, OTHER)) / 1e6
    assert all(f"have {together:.0f} Mb/s" in one.evidence for one in found)


def _mounted(
    *nics: Nic,
    locals_: tuple[str, ...] = ("10.0.0.2",),
    wwids: tuple[str, ...] = ("naa.1",),
    bonded: bool = False,
) -> Facts:
    """Return a host with a mounted disk a session; 10.0.0.2 is at eth0 (`bonded`: at eth1, too), 10.0.1.2 at eth1."""
    facts = facts_with()
    facts.nics, facts.sessions, facts.sockets = list(nics), [], []
    facts.readings = [one for one in facts.readings if one.device != DISK and one.device.scope != "nic"]
    for number, (local, wwid) in enumerate(zip(locals_, wwids, strict=True)):
        name, port = f"sd{'ab'[number]}", 4000 + number
        session = replace(SESSION, sid=number, luns=(name,), local_port=port, place=number + 1)
        facts.sessions.append(session)
        facts.sockets.append(replace(SOCKET, local=local, local_port=port))
        facts.readings.append(Reading("block.timeout", Device("block", f"{wwid},{session.own_identity}", name), "30"))
        facts.mounted.append(name)
    for nic in nics:
        first, second = "eth0" in nic.lower or bonded, "eth1" in nic.lower and not bonded
        where = {"name": nic.name, "addresses": " ".join(["10.0.0.2"] * first + ["10.0.1.2"] * second)}
        facts.readings.append(Reading("nic.rx_ring", Device("nic", nic.name, nic.name, where), "256"))
    return facts


@pytest.mark.parametrize(
    ("facts", "disks"),
    [
        (_mounted(CARD), {"eth0": "sda"}),
        (_mounted(CARD, VLAN), {"eth0": "sda"}),
        (_mounted(CARD, over("br0", "bridge", CARD)), {"eth0": "sda"}),
        (_mounted(CARD, OTHER, BOND, bonded=True), {}),
        # Another NIC of the host is no second path of a session that does not leave by it.
        (_mounted(CARD, OTHER), {"eth0": "sda"}),
        (_mounted(CARD, OTHER, locals_=("10.0.0.2", "10.0.1.2"), wwids=("a", "b")), {"eth0": "sda", "eth1": "sdb"}),
        (_mounted(CARD, OTHER, locals_=("10.0.0.2", "10.0.1.2"), wwids=("a", "a")), {}),
        (_mounted(CARD, OTHER, locals_=("10.0.0.2", "10.0.0.2"), wwids=("a", "a")), {"eth0": "sda, sdb"}),
    ],
    ids=["alone", "below a VLAN", "below a bridge", "bond", "a second NIC", "two disks", "multipath", "one NIC twice"],
)
def test_the_only_nic_of_a_mounted_disk_is_named_below_whatever_lies_on_it(facts: Facts, disks: dict[str, str]) -> None:
    found = of_rule("link-flap", facts)
    assert {one.device: one.evidence.rpartition("mounted ")[2] for one in found} == disks
    # There is nothing to change: it is worth knowing to whoever means to change rings.
    assert {one.severity for one in found} <= {"notice"}


def test_which_nic_a_session_leaves_by_is_not_guessed() -> None:
    facts = _mounted(CARD, OTHER)
    facts.sockets = []
    assert of_rule("link-flap", facts) == []


@pytest.mark.parametrize(
    ("nics", "named"),
    [
        ([CARD, OTHER, BOND], False),
        ([CARD, over("br0", "bridge", CARD)], True),
        ([replace(CARD, member_of="bridge")], True),
        ([CARD, OTHER, replace(BOND, member_of="bridge")], True),
        # The NIC beside it forwards nothing.
        ([CARD, OTHER, over("br0", "bridge", OTHER)], False),
        ([CARD, VLAN], False),
    ],
)
def test_lro_is_a_hazard_below_what_forwards(nics: list[Nic], named: bool) -> None:
    facts = facts_with(nic__lro="1")
    facts.nics = nics
    assert [one.device for one in of_rule("lro-on", facts)] == ["eth0"] * named


@pytest.mark.parametrize(
    ("nics", "named"),
    [
        ([replace(CARD, mtu_bytes=9000), VLAN], []),
        ([CARD, replace(VLAN, mtu_bytes=9000)], ["eth0.100"]),
        ([replace(CARD, mtu_bytes=9000), OTHER, replace(BOND, mtu_bytes=9000)], ["bond0"]),
        ([replace(CARD, mtu_bytes=9000), OTHER, BOND], []),
        # Each carries a path of its own.
        ([replace(CARD, mtu_bytes=9000), OTHER], []),
        ([CARD, replace(VLAN, mtu_bytes=9000, below=())], ["eth0.100"]),
    ],
)
def test_an_mtu_is_a_hazard_where_what_carries_it_has_less(nics: list[Nic], named: list[str]) -> None:
    facts = facts_with()
    facts.nics = nics
    found = of_rule("mtu-differs", facts)
    assert [one.device for one in found] == named
    assert all("set one MTU on all" not in one.fix and "9000" in one.evidence for one in found)
