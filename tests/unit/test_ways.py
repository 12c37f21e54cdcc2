# SPDX-License-Identifier: GPL-2.0-or-later
"""By which NIC a look says that each session leaves: as its own socket does, and asked once for each way."""

import json
import os
import socket
from pathlib import Path

import pytest
from own_netns import own_netns

from fabtune.host import iproute, namespaces
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.measure import beside, counters, ends
from fabtune.measure.ends import End
from fabtune.measure.target import Target
from fabtune.model.observation import INITIATOR, TARGET


def _socket(local: str = "10.2.0.101", bound: int = 0, local_port: int = 40000) -> TcpSocket:
    return TcpSocket(local, "10.2.0.1", local_port, 3260, 20.0, 20.0, 0, 10, 1448, 0, "cubic", 0, 0, bound)


class _Busy:
    def __init__(self, name: str) -> None:
        self.name = name

    def moved_bytes(self) -> dict[str, int]:
        return {"read": 1000, "write": 0}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What ip is asked; whoever leaves from .102 or is bound to eth1 does so by that."""
    found: list[tuple[str, ...]] = []

    def run(*words: str, **_: object) -> str:
        found.append(words)
        if words[0] == "tc":
            return "[]"
        return json.dumps([{"dev": "eth1" if {"10.2.0.102", "eth1"} & set(words) else "eth0", "dst": "10.2.0.1"}])

    monkeypatch.setattr(iproute, "run", run)
    monkeypatch.setattr(socket, "if_indextoname", ["lo", "eth0", "eth1"].__getitem__)
    monkeypatch.setattr(beside, "_rtts_ms", lambda _: {})
    return found


def test_the_way_of_a_thousand_other_disks_is_asked_for_once(
    asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ip route get` ran once for each busy disk: seconds on a host of many sessions."""
    monkeypatch.setattr(beside, "DiskLook", _Busy)
    others = beside.OtherDisks([(f"sd{number}", str(number), _socket()) for number in range(1000)])
    assert {one.nic for one in others.moved(10.0)} == {"eth0"}
    assert len(asked) == 1


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("other", [_socket("10.2.0.102"), _socket(bound=2)])
def test_two_sessions_with_one_portal_leave_by_the_nics_of_their_sockets(
    other: TcpSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The NIC that the portal is reached by in general was taken for both, and written to for both."""
    both = [_socket(), other]
    monkeypatch.setattr(ends.End, "_root", lambda *_: {})
    monkeypatch.setattr(ends, "QdiscRates", lambda *_: None)
    end = End(INITIATOR, "", both)
    assert [end.nic_of(ends.way_of(one)) for one in both] == ["eth0", "eth1"]
    monkeypatch.setattr(beside, "DiskLook", _Busy)
    others = beside.OtherDisks([(f"sd{number}", str(number), one) for number, one in enumerate(both)])
    assert [one.nic for one in others.moved(10.0)] == ["eth0", "eth1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of one's own need root")
def test_a_session_leaves_by_the_nic_that_a_rule_for_its_port_says() -> None:
    """Storage has a NIC of its own by a rule for port 3260: the other NIC's rows were the session's."""
    with own_netns(
        "link add eth0 type veth peer name far0", "link add eth1 type veth peer name far1", "link set far0 up",
        "link set far1 up", "link set eth0 up", "link set eth1 up",
        "address add 10.2.0.101/24 dev eth0", "route add 10.2.0.0/24 dev eth1 table 7",
        "rule add ipproto tcp dport 3260 table 7", "rule add ipproto tcp sport 3260 table 7",
    ) as name:  # fmt: skip
        here = _socket()
        there = TcpSocket(here.local, here.remote, 3260, 40000, 20.0, 20.0, 0, 10, 1448, 0, "cubic", 0, 0)
        with namespaces.inside(name):
            assert [ends.nic_of(ends.way_of(*one)) for one in ((here, INITIATOR), (there, TARGET))] == ["eth1"] * 2
            assert ends.nic_of(ends.Way(here.remote, here.local, port="dport 22")) == "eth0"


@pytest.mark.usefixtures("asked")
def test_a_run_record_has_the_nic_of_each_session_as_its_own_socket_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two sessions with one portal both had the NIC that the portal is reached by in general."""
    sessions = [
        Session(sid, "iqn.t", "10.2.0.1:3260", "default", "LOGGED_IN", "10.2.0.1", 3260, port, ("sda",), 128, {})
        for sid, port in ((1, 40000), (2, 40001))
    ]
    both = [_socket(), _socket(bound=2, local_port=40001)]
    monkeypatch.setattr(counters, "live_sessions", lambda: sessions)
    monkeypatch.setattr(counters, "established", lambda: both)
    monkeypatch.setattr(counters, "interface_counters", dict)
    monkeypatch.setattr(counters, "iscsi_session", lambda _: {})
    target = Target(Path("/dev/sda"), "device", 2**30, "sda", "naa.1", "LIO", 512, (1, 2))
    assert counters.edges(target).session_nics == {"1": "eth0", "2": "eth1"}
    # It has no connection while it logs in anew: its packets leave as any to its portal.
    monkeypatch.setattr(counters, "established", lambda: both[:0])
    assert counters.edges(target).session_nics == {"1": "eth0", "2": "eth0"}
