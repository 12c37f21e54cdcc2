# SPDX-License-Identifier: GPL-2.0-or-later
"""Traffic of other hosts over the emulated path, and how much of it arrived: iperf3 between the neighbours."""

import os
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fabtune.errors import FabtuneError
from fabtune.host import tree
from fabtune.host.run import launch, run
from fabtune.lab import iperf3
from fabtune.lab.shell import nsenter
from fabtune.lab.topology import CROSS, CROSS_FAR, CROSS_FAR_ADDRESS, NEIGHBOUR_DEVICE

_PORT = 5202
# A short flow is an ordinary web page's size.
_SHORT_BYTES = 500_000
_LOOK_EVERY_S = 0.25
_DIRECTIONS = {"read": "--reverse", "write": "", "mixed": "--bidir"}


class Arrived:
    """Bytes that had arrived at the neighbours, headers included, by time."""

    def __init__(self, neighbours: tuple[int, ...]) -> None:
        self._neighbours = neighbours
        self._seen: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look)
        self._looking.start()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            self._seen.append((time.time(), sum(map(_received_bytes, self._neighbours))))

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._looking.join()

    def bytes_per_s(self, begun_unix_s: float, ended_unix_s: float) -> float:
        """Return the mean rate between two times.  Raises FabtuneError where nobody looked then."""
        within = [one for one in self._seen if begun_unix_s <= one[0] <= ended_unix_s]
        if len(within) < 2:
            raise FabtuneError("nobody counted the neighbours' traffic during the measured part")
        (first_s, first), (last_s, last) = within[0], within[-1]
        return (last - first) / (last_s - first_s)


def _received_bytes(process: int) -> int:
    """Return what the neighbour's device has received, in the namespace of `process`."""
    for line in (tree.read_text(tree.PROC / str(process) / "net/dev") or "").splitlines():
        name, _, figures = line.strip().partition(":")
        if name == NEIGHBOUR_DEVICE:
            return int(figures.split()[0])
    raise FabtuneError(f"{NEIGHBOUR_DEVICE} is not there, in the namespace of process {process}")


@contextmanager
def traffic(kind: str, op: str) -> Iterator[Arrived | None]:
    """Let the neighbours compete in the direction of `op` as the factor `cross` says; yields what counts it."""
    if kind == "none":
        yield None
        return
    if kind == "bbr":
        run(["modprobe", "tcp_bbr"], what="loading BBR")
    with iperf3.listening(CROSS_FAR, _PORT) as server_pid:
        client = launch([*nsenter(CROSS), "sh", "-c", _command(kind, op)])
        try:
            arrived = Arrived((server_pid, client.pid))
            try:
                yield arrived
            finally:
                arrived.stop()
        finally:
            # The flow of the moment, too, where a shell starts one after the other.
            os.killpg(client.pid, signal.SIGKILL)
            client.wait()


def _command(kind: str, op: str) -> str:
    words = [iperf3.program(), "--client", CROSS_FAR_ADDRESS, "--port", str(_PORT)]
    words += [_DIRECTIONS[op]] if _DIRECTIONS[op] else []
    if kind == "short":
        return f"while :; do {shlex.join([*words, '--bytes', str(_SHORT_BYTES)])}; done"
    return f"exec {shlex.join([*words, '--congestion', kind, '--time', '0'])}"
