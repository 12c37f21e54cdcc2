# SPDX-License-Identifier: GPL-2.0-or-later
"""A server of iperf3 inside a guest's network namespace, for as long as it is needed."""

from collections.abc import Iterator
from contextlib import contextmanager

from fabtune.host.run import finish, launch, require
from fabtune.lab.shell import nsenter
from fabtune.lab.waiting import until


def program() -> str:
    """Return the path of iperf3.  Raises FabtuneError."""
    return require("iperf3", "iperf3")


@contextmanager
def listening(namespace: str | None, port: int) -> Iterator[int]:
    """Yield the process number of a server that listens at `port` of `namespace`, and end it.  Raises FabtuneError."""
    server = launch([*nsenter(namespace), program(), "--server", "--port", str(port)])
    ask = [*nsenter(namespace), "ss", "-Hltn", f"sport = :{port}"]
    try:
        until(lambda: bool(finish(ask).stdout.strip()), "iperf3 to listen")
        yield server.pid
    finally:
        server.kill()
        server.wait()
