# SPDX-License-Identifier: GPL-2.0-or-later
"""One connection is looked at again and again, by a question about it alone."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fabtune.errors import FabtuneError
from fabtune.host import sockets
from fabtune.host.socket_samples import SocketSampler
from fabtune.host.sockets import TcpSocket

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
