# SPDX-License-Identifier: GPL-2.0-or-later
"""The connections of one end, looked at together: samples of each, and what the end is besides."""

import time
from collections.abc import Mapping, Sequence
from functools import partial

import attrs

from fabtune.host.socket_samples import SocketSampler
from fabtune.host.sockets import TcpSocket
from fabtune.measure.ends import End, EndCounters, way_of
from fabtune.model.address import canonical
from fabtune.model.observation import EndSeen, SocketSample, SocketSeen

# Counting in iSCSI's own queues costs some tenths of a us a command: of so many a second it has seen enough by then.
_MANY_A_S, _RATE_KNOWN_S = 20_000, 0.5


class ConnectionGroup:
    """The connections of one end, looked at together."""

    def __init__(
        self, end: str, netns: str, connections: Sequence[TcpSocket], *, alone: bool = False,
        hosts: Mapping[TcpSocket, int] | None = None,
    ) -> None:  # fmt: skip
        self.samples: dict[TcpSocket, list[SocketSample]] = {one: [] for one in connections}
        self._end, self._way_of = End(end, netns, connections, alone=alone, hosts=hosts), partial(way_of, end=end)
        self._closed = self._rate_known = False
        try:
            self._sampler = SocketSampler(connections, netns) if connections else None
        except BaseException:
            self._end.close()
            raise
        self._before: EndCounters
        self._after: EndCounters
        self._begun_unix_s = 0.0
        self.missing = self._end.missing

    def begin(self) -> None:
        """Read the counters that `seen` takes differences to."""
        self._before = self._end.read()
        self._begun_unix_s = round(time.time(), 3)

    def sample(self, at_s: float) -> None:
        """Look once at each connection."""
        if self._sampler is None:
            return
        qdiscs = self._end.qdiscs()
        for one, sample in self._sampler.sample(at_s):
            now = qdiscs.get(self._end.nic_of(self._way_of(one)))
            rate = now.max_bytes_per_s if now else None
            self.samples[one].append(sample if rate is None else attrs.evolve(sample, qdisc_bytes_per_s=rate))
        if at_s >= _RATE_KNOWN_S and not self._rate_known:
            self._rate_known = True
            if self._end.queued_commands_since(self._before) > _MANY_A_S * at_s:
                self.count_no_more()

    def count_no_more(self) -> None:
        """Read what iSCSI's own queue did so far and let go of it, which takes the kernel a while."""
        self._end.count_no_more()

    def stop(self) -> None:
        """Read them again: the look is over."""
        self._after = self._end.read()

    def close(self) -> None:
        """Let go of the kernel's ears; the second time there is nothing to let go of."""
        if self._closed:
            return
        self._closed = True
        self._end.close()
        if self._sampler:
            self._sampler.close()

    def common(self, elapsed_s: float) -> EndSeen:
        """Return what was seen of the end but its connections."""
        common = self._end.common(self._before, self._after, elapsed_s)
        return attrs.evolve(common, begun_unix_s=self._begun_unix_s)

    def seen(self, elapsed_s: float) -> dict[TcpSocket, EndSeen]:
        """Return what was seen of each connection from the beginning to the end."""
        self.close()
        before, after = self._before, self._after
        common = self.common(elapsed_s)
        # A thousand connections may go one way.
        ways = set(map(self._way_of, self.samples))
        nics = {way: self._end.nic_seen(way, before, after) for way in ways}
        qdiscs = {way: self._end.qdisc_seen(way, before, after) for way in ways}
        return {
            one: attrs.evolve(
                common,
                socket=_connection(one, samples, self._sampler.lacks if self._sampler else None),
                nic=nics[self._way_of(one)],
                qdisc=qdiscs[self._way_of(one)],
                queue=self._end.own_queue_seen(one, before, after),
            )
            for one, samples in self.samples.items()
        }


def _connection(one: TcpSocket, samples: Sequence[SocketSample], lacks: tuple[str, ...] | None) -> SocketSeen | None:
    """Return the connection as it was seen, None where it went before two samples."""
    if len(samples) < 2:
        return None
    return SocketSeen(
        end_place(one), end_place(one, far=True), one.mss_bytes, one.congestion_control,
        tuple(samples), lacks or (), one.path_mtu_bytes or None,
    )  # fmt: skip


def end_place(one: TcpSocket, *, far: bool = False) -> str:
    """Return address and port of one end of a connection."""
    return f"{canonical(one.remote)}:{one.remote_port}" if far else f"{canonical(one.local)}:{one.local_port}"
