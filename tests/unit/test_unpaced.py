# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose connections nobody paces when an fq is taken away."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fabtune.host import targets
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.host.targets.kind import Login
from fabtune.model.device import Device
from fabtune.tune import pending, unpaced
from fabtune.tune.transaction import Step

SESSION = Session(1, "iqn.a", "10.0.0.1:3260", "default", "LOGGED_IN", "10.0.0.1", 3260, 0, ("sda",), 32, {})
SOCKET = TcpSocket("10.0.0.9", "10.0.0.1", 50000, 3260, 1.0, 1.0, 0, 10, 1448, 0, "cubic", 0, 0)
GROUP = Device("tpg", "iqn.b,1", "iqn.b", {"portals": "10.0.0.9:3261"})


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what gives the host its connections."""

    def has(*sockets: TcpSocket) -> None:
        monkeypatch.setattr(unpaced, "established", lambda netns="": list(sockets))

    monkeypatch.setattr(unpaced, "live_sessions", lambda: [SESSION])
    monkeypatch.setattr(targets, "groups", lambda: [GROUP])
    monkeypatch.setattr(targets, "logins", lambda group: [Login("iqn.i", False, {}, "5")])
    return has


def due(*steps: tuple[str, str], roles: tuple[str, ...] = ("initiator", "target")) -> list[tuple[str, str]]:
    """Return who is due once these, (old, wrote), are taken back."""
    nic = Device("nic", "pci:1,netns:init", "eth0")
    made = [
        Step(number, "boot", "qdisc.kind", "qdisc", "kind", nic, old, wrote, "live", False)
        for number, (old, wrote) in enumerate(steps)
    ]
    turned = [replace(step, old=step.wrote, wrote=step.old) for step in made]
    found = unpaced.by_undoing(made, roles, "", "boot")
    assert unpaced.by_writing(turned, roles, "", "boot") == found
    return [(one.action, one.identity) for one in found]


def test_a_connection_under_bbr_is_due_and_so_is_one_with_a_pace_of_its_own(host: Callable[..., None]) -> None:
    for paced in (replace(SOCKET, congestion_control="bbr"), replace(SOCKET, max_pacing_bytes_per_s=10**6)):
        host(paced)
        assert due(("fq_codel", "fq")) == [(pending.RECONNECT, SESSION.identity)]


def test_what_asks_for_no_pacing_is_not_and_nothing_is_where_no_fq_went(host: Callable[..., None]) -> None:
    host(SOCKET)
    assert due(("noqueue", "fq")) == []
    host(replace(SOCKET, congestion_control="bbr"))
    assert due(("fq", "fq"), ("fq_codel", "pfifo_fast"), ("fq", "cake")) == []


def test_at_the_target_its_initiators_are(host: Callable[..., None]) -> None:
    host(replace(SOCKET, local_port=3261, remote_port=40000, congestion_control="bbr"))
    assert due(("noqueue", "fq"), roles=("target",)) == [(pending.TARGET_RELOGIN, "iqn.i")]
    host(replace(SOCKET, local_port=22, remote_port=40000, congestion_control="bbr"))
    assert due(("noqueue", "fq"), roles=("target",)) == []
