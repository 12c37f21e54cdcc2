# SPDX-License-Identifier: GPL-2.0-or-later
"""By which NIC a look says that each session leaves: as its own socket does, and asked once for each way."""

import json

import pytest

from fabtune.host import iproute
from fabtune.host.sockets import TcpSocket
from fabtune.measure import beside


def _socket(local: str = "10.2.0.101", bound: int = 0) -> TcpSocket:
    return TcpSocket(local, "10.2.0.1", 40000, 3260, 20.0, 20.0, 0, 10, 1448, 0, "cubic", 0, 0, bound)


class _Busy:
    def __init__(self, name: str) -> None:
        self.name = name

    def moved_bytes(self) -> dict[str, int]:
        return {"read": 1000, "write": 0}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What ip is asked; whoever leaves from .102 does so by eth1."""
    found: list[tuple[str, ...]] = []

    def run(*words: str, **_: object) -> str:
        found.append(words)
        return json.dumps([{"dev": "eth1" if "10.2.0.102" in words else "eth0", "dst": "10.2.0.1"}])

    monkeypatch.setattr(iproute, "run", run)
    monkeypatch.setattr(beside, "_rtts_ms", lambda _: {})
    return found


def test_the_way_of_a_thousand_other_disks_is_asked_for_once(
    asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ip route get` ran once for each busy disk: seconds on a host of many sessions."""
    monkeypatch.setattr(beside, "DiskLook", _Busy)
    others = beside.OtherDisks([(f"sd{number}", number, _socket()) for number in range(1000)])
    assert {one.nic for one in others.moved(10.0)} == {"eth0"}
    assert len(asked) == 1
