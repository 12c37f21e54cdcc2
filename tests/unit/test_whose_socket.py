# SPDX-License-Identifier: GPL-2.0-or-later
"""Which TCP connection is a session's own: told by the kernel, or the only one there can be, else nobody's."""

from collections.abc import Callable, Sequence
from pathlib import Path

import hosttree
import pytest

from fabtune.export import gather
from fabtune.host import sockets
from fabtune.host.sessions import live_sessions
from fabtune.host.sockets import TcpSocket
from fabtune.measure.looked import chosen
from fabtune.tune import reconnect, unpaced

Host = Callable[..., list[TcpSocket]]


def _socket(local_port: int, congestion_control: str = "cubic", rtt_ms: float = 50.0) -> TcpSocket:
    return TcpSocket(
        "10.2.0.101", "10.2.0.1", local_port, 3260, rtt_ms, rtt_ms, 0, 10, 1448, 0, congestion_control, 0, 0
    )


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return what makes sessions with one portal: each with the port that the kernel tells (0: none), and its state."""

    def make(*told: tuple[int, str], connected: Sequence[TcpSocket]) -> list[TcpSocket]:
        hosttree.enter(hosttree.make(tmp_path, len(told)), monkeypatch)
        for number, (port, state) in enumerate(told, 1):
            below = tmp_path / f"sys/class/iscsi_connection/connection{number}:0"
            for name in ("address", "persistent_address"):
                hosttree.put(below / name, "10.2.0.1")
            if port:
                hosttree.put(below / "local_port", str(port))
            hosttree.put(tmp_path / f"sys/class/iscsi_session/session{number}/state", state)
        for module in (sockets, reconnect, unpaced):
            monkeypatch.setattr(module, "established", lambda netns="": list(connected))
        return list(connected)

    return make


def _own_ports(connected: Sequence[TcpSocket]) -> dict[str, int | None]:
    return {one.disk: one.socket.local_port if one.socket else None for one in chosen([], connected)}


def test_of_two_targets_behind_one_portal_none_has_the_other_s_connection(host: Host) -> None:
    """Without a port from the kernel both had the first: one session was judged by the other's counters."""
    both = host((0, "LOGGED_IN"), (0, "LOGGED_IN"), connected=[_socket(40001), _socket(40002)])
    assert _own_ports(both) == {"sd1": None, "sd2": None}
    assert list(gather._sockets_of(live_sessions(), both)) == [None, None]
    told = [one.why_no_socket for one in chosen([], both)]
    assert all("which of the 2 TCP connections to 10.2.0.1:3260 is its own cannot be told" in text for text in told)


def test_a_session_that_lost_its_connection_has_not_its_neighbour_s(host: Host) -> None:
    """It has no port to tell then: it counted as connected, and as moving what its neighbour moved."""
    left = host((0, "FAILED"), (40002, "LOGGED_IN"), connected=[_socket(40002)])
    assert _own_ports(left) == {"sd1": None, "sd2": 40002}
    assert [one and one.local_port for one in gather._sockets_of(live_sessions(), left)] == [None, 40002]


@pytest.mark.parametrize("told", [((0, "LOGGED_IN"), (0, "FAILED")), ((0, "FREE"),)])
def test_the_only_connection_is_nobody_s_while_some_session_logs_in(host: Host, told: tuple[tuple[int, str]]) -> None:
    only = host(*told, connected=[_socket(40001)])
    assert set(_own_ports(only).values()) == {None}


def test_where_the_kernel_tells_the_port_no_other_connection_is_taken(host: Host) -> None:
    other = host((40001, "LOGGED_IN"), connected=[_socket(40002)])
    assert _own_ports(other) == {"sd1": None}


def test_one_session_alone_has_the_only_connection(host: Host) -> None:
    only = host((0, "LOGGED_IN"), connected=[_socket(40001)])
    assert _own_ports(only) == {"sd1": 40001}


def test_a_pause_is_foretold_for_the_portal_s_round_trip_whose_ever_the_connection_is(host: Host) -> None:
    host((0, "LOGGED_IN"), (0, "LOGGED_IN"), connected=[_socket(40001, rtt_ms=500.0), _socket(40002)])
    assert reconnect.longest_pause_s(live_sessions(), {}) == pytest.approx(1.2 + 2 * (2 + 8 * 0.5))


def test_who_may_be_unpaced_is_said_where_it_cannot_be_told_which_of_two(host: Host) -> None:
    host((0, "LOGGED_IN"), (0, "FAILED"), connected=[_socket(40001), _socket(40002, "bbr")])
    due = unpaced._due([("fq", "noqueue")], ("initiator",), "", "boot")
    assert [one.identity for one in due] == [live_sessions()[0].identity]
