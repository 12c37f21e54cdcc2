# SPDX-License-Identifier: GPL-2.0-or-later
"""What lint says of one session is said by its own path, and by the target that it logs in to."""

import re
from dataclasses import replace

import pytest
from test_lint import CARD, SESSION, SOCKET, WAN, facts_with

from fabtune.catalog.tunable import shipped_catalog
from fabtune.facts.collect import Facts, Reading
from fabtune.lint.hazards import lint
from fabtune.model.device import Device
from fabtune.model.path import NetworkPath
from fabtune.tune.path_choice import choose


def of_rule(rule: str, facts: Facts, path: NetworkPath | None = WAN) -> list[tuple[str, str]]:
    return [(one.device, one.evidence) for one in lint(facts, shipped_catalog(), path) if one.rule == rule]


def test_a_session_s_commands_are_held_against_the_window_of_the_target_that_it_logs_in_to() -> None:
    """That of a LIO of this host was taken for a remote array's, and a large one hid a small one."""
    small, large = (Device("tpg", f"iqn.{name},tpgt_1", f"{name} tpgt_1") for name in ("small", "large"))
    records = [
        Device("record", f"iqn.{name},10.0.0.1:3260,default", name, {"portal": "10.0.0.1:3260", "initiator": "iqn.i"})
        for name in ("array", "small", "large")
    ]
    windows = Device("acl", "iqn.large,tpgt_1,iqn.other", "other"), Device("acl", "iqn.large,tpgt_1,iqn.i", "i")
    facts = facts_with()
    spoken = ("iscsi.cmds_max", "lio.default_cmdsn_depth", "lio.cmdsn_depth")
    facts.readings = [one for one in facts.readings if one.tunable not in spoken]
    facts.readings += [Reading("iscsi.cmds_max", one, "256") for one in records]
    facts.readings += [Reading("lio.default_cmdsn_depth", *of) for of in ((small, "64"), (large, "512"))]
    said = "the session may queue 241 commands, the target's window is {}".format
    assert of_rule("queue-above-window", facts) == [("small", said(64))]
    # Who has an ACL has its window.
    facts.readings += [Reading("lio.cmdsn_depth", *of) for of in zip(windows, ("32", "128"), strict=True)]
    assert of_rule("queue-above-window", facts) == [("large", said(128)), ("small", said(64))]


def _locked(*rtts_ms: float, speeds_mbit: tuple[int, ...] = (10_000,), sysctls: str = "4194304") -> Facts:
    """Each of these sessions over a NIC of its own, with iscsid's default window; a round trip of 0: not logged in."""
    facts = facts_with(net__rmem_max=sysctls, net__wmem_max=sysctls)
    facts.readings = [one for one in facts.readings if one.tunable != "iscsi.tcp_window"]
    facts.sessions, facts.sockets, facts.nics = [], [], []
    for number, rtt_ms in enumerate(rtts_ms):
        here, there, portal = f"10.0.{number}.2", f"10.0.{number}.1", f"10.0.{number}.1:3260"
        record = Device("record", f"iqn.t,{portal},default", str(rtt_ms), {"portal": portal})
        facts.readings.append(Reading("iscsi.tcp_window", record, "524288"))
        if rtt_ms:
            facts.sessions.append(replace(SESSION, portal=portal, address=there))
            facts.sockets.append(replace(SOCKET, local=here, remote=there, rtt_ms=rtt_ms, min_rtt_ms=rtt_ms))
        nic = Device("nic", f"pci:{number},netns:init", f"eth{number}", {"addresses": here})
        facts.readings.append(Reading("nic.gro", nic, "1"))
        speed = speeds_mbit[min(number, len(speeds_mbit) - 1)] * 10**6
        facts.nics.append(replace(CARD, name=f"eth{number}", speed_bit_per_s=speed))
    return facts


def test_what_a_path_holds_over_ipv6_is_less_by_its_headers() -> None:
    facts = _locked(3.0)
    facts.sessions = [replace(facts.sessions[0], address="fd00::1")]
    facts.sockets = [replace(facts.sockets[0], local="fd00::2", remote="fd00::1")]
    path = choose(facts, None, None)
    assert path and path.goodput_bytes_per_s == pytest.approx(1.25e9 * 1428 / 1514)
    (found,) = [one for one in lint(facts, shipped_catalog(), path) if one.rule == "window-locked"]
    assert f"of {1250 * 1428 / 1514:.1f} MB/s" in found.consequence
    # Of both kinds the larger figure is what is certain not to be exceeded.
    facts.sockets.append(SOCKET)
    assert (mixed := choose(facts, None, None)) and mixed.goodput_bytes_per_s == pytest.approx(1.25e9 * 1448 / 1514)


@pytest.mark.parametrize(
    ("facts", "accused"),
    [
        # 375 kB fill the path, and what iscsid locks is more than the 512 KiB that it asks for.
        (_locked(0.3), set()),
        (_locked(3.0), {"3.0"}),
        # Nor is a session of the LAN that of the WAN beside it, or a slow NIC the fast one's.
        (_locked(0.3, 50.0), {"50.0"}),
        (_locked(3.0, 3.0, speeds_mbit=(10_000, 1_000)), {"3.0"}),
        # Which path a record's portal has that nobody is logged in to is not known where there are two.
        (_locked(0.3, 50.0, 0.0), {"50.0"}),
        (_locked(50.0, 0.0), {"50.0", "0.0"}),
        (_locked(0.3, sysctls="65536"), {"0.3"}),
    ],
)
def test_a_locked_window_is_held_against_the_path_of_its_own_session(facts: Facts, accused: set[str]) -> None:
    path = choose(facts, None, None)
    found = [one for one in lint(facts, shipped_catalog(), path) if one.rule == "window-locked"]
    assert {one.device for one in found} == accused and len(found) == len(accused)
    for one in found:
        least, most = map(float, re.findall(r"([0-9.]+) MB/s", one.consequence))
        assert least < most, "what holds nothing back is no hazard"


@pytest.mark.parametrize("kind", ["lio", "tgt"])
def test_what_open_iscsi_never_agrees_on_is_mended_each_in_its_own_way(kind: str) -> None:
    """For an ErrorRecoveryLevel of 2 several sessions were advised, which is what helps where one connection is few."""
    facts = facts_with()
    names = [f"{kind}.max_connections", f"{kind}.error_recovery_level"]
    facts.readings = [one for one in facts.readings if one.tunable not in names]
    facts.readings += [Reading(name, Device("tpg", f"iqn.{kind},tpgt_1", kind), "2") for name in names]
    found = [one for one in lint(facts, shipped_catalog(), WAN) if one.rule == "offer-never-taken"]
    fixes = {one.evidence.partition(" ")[0]: one.fix for one in found}
    assert fixes == {names[0]: "use several sessions and dm-multipath instead", names[1]: f"set {names[1]} to 0"}
