# SPDX-License-Identifier: GPL-2.0-or-later
"""One connection is looked at again and again, by a question about it alone."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fabtune.errors import FabtuneError
from fabtune.host import sockets
from fabtune.host.socket_samples import SocketSampler
from fabtune.host.sockets import TcpSocket
from fabtune.model.observation import UNPACED

HOST = Path(sockets.__file__).parent
Pair = tuple[socket.socket, socket.socket, TcpSocket]


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A connection of this host with itself: both ends, and the first as inet_diag lists it."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with ExitStack() as stack:
        try:
            server = stack.enter_context(socket.create_server((request.param, 0), family=family))
            near = stack.enter_context(socket.create_connection(server.getsockname()[:2]))
            far = stack.enter_context(server.accept()[0])
            listed = sockets.established()
        except (OSError, FabtuneError) as error:
            pytest.skip(str(error))
        ports = near.getsockname()[1], server.getsockname()[1]
        (one,) = [end for end in listed if (end.local_port, end.remote_port) == ports]
        yield near, far, one


def test_bytes_and_queues_of_one_connection_are_seen_as_they_grow(pair: Pair) -> None:
    near, far, one = pair
    sampler = SocketSampler([one])
    ((_, before),) = sampler.sample(0.0)
    near.sendall(b"x" * 5000)
    assert len(far.recv(5000, socket.MSG_WAITALL)) == 5000
    far.sendall(b"y" * 300)
    assert near.recv(300, socket.MSG_WAITALL | socket.MSG_PEEK)
    # The answer has acknowledged what came before it.
    ((same, after),) = sampler.sample(0.5)
    assert same is one and (before.at_s, after.at_s) == (0.0, 0.5)
    assert after.sent_bytes - before.sent_bytes == 5000
    assert after.received_bytes - before.received_bytes == 300
    assert after.receive_queue_bytes >= 300 and after.cwnd_bytes > 0 < after.rtt_ms
    sampler.close()


def test_what_is_listed_of_a_connection_and_its_sample_tell_the_same(pair: Pair) -> None:
    near, far, one = pair
    near.sendall(b"x" * 5000)
    assert len(far.recv(5000, socket.MSG_WAITALL)) == 5000
    ports = one.local_port, one.remote_port
    (listed,) = [end for end in sockets.established() if (end.local_port, end.remote_port) == ports]
    sampler = SocketSampler([one])
    ((_, sample),) = sampler.sample(0.0)
    sampler.close()
    assert (listed.acked_bytes, listed.received_bytes) == (sample.sent_bytes, sample.received_bytes)
    assert (listed.rtt_ms, listed.min_rtt_ms) == (sample.rtt_ms, sample.min_rtt_ms)
    assert listed.cwnd_segments * listed.mss_bytes == sample.cwnd_bytes
    assert (listed.send_buffer_bytes, listed.receive_buffer_bytes) == (
        sample.send_buffer_bytes, sample.receive_buffer_bytes,
    )  # fmt: skip
    # None was set, which each has its own word for.
    assert (listed.max_pacing_bytes_per_s, sample.max_pacing_bytes_per_s) == (0, UNPACED)


def test_netlink_s_header_and_members_of_tcp_info_are_each_in_one_file() -> None:
    found = {what: [str(path.relative_to(HOST)) for path in sorted(HOST.rglob("*.py")) if what in path.read_text()]
             for what in ('"=IHHII"', "def _u32", "(info, 148", "tcpi_rtt")}  # fmt: skip
    assert found.pop('"=IHHII"') == ["netlink.py"]
    assert found.pop("tcpi_rtt") == ["socket_samples.py", "sockets.py", "tcp_info.py"]
    assert not any(found.values())


def test_a_connection_that_is_gone_has_no_sample_and_others_do(pair: Pair) -> None:
    near, far, one = pair
    sampler = SocketSampler([one])
    near.close()
    far.close()
    assert list(sampler.sample(1.0)) == []
    sampler.close()


def test_what_an_older_kernel_s_tcp_info_has_no_member_for_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, one = pair
    whole = sockets.attributes
    sampler = SocketSampler([one])
    list(sampler.sample(0.0))
    assert "tcpi_rwnd_limited" not in (sampler.lacks or ())
    # struct tcp_info of Linux 4.9 ends with tcpi_delivery_rate.
    short = {sockets.INFO: 168}
    monkeypatch.setattr(sockets, "attributes", lambda answer: {
        kind: data[:short.get(kind)] for kind, data in whole(answer).items()
    })  # fmt: skip
    older = SocketSampler([one])
    list(older.sample(0.0))
    assert older.lacks and {"tcpi_busy_time", "tcpi_rwnd_limited", "tcpi_rcv_wnd"} <= set(older.lacks)
    assert "tcpi_delivery_rate" not in older.lacks
    for end in (sampler, older):
        end.close()
