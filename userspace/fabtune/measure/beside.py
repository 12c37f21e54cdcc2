# SPDX-License-Identifier: GPL-2.0-or-later
"""What the other disks of this host's sessions move while one is looked at: session and line are theirs as well."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from fabtune.host.socket_samples import SocketSampler
from fabtune.host.sockets import TcpSocket
from fabtune.measure.disk_look import DiskLook
from fabtune.measure.ends import nic_of, way_of
from fabtune.model.address import canonical
from fabtune.model.beside_seen import BesideSeen
from fabtune.model.observation import WAYS
from fabtune.model.one_path import by_path

# So many are named.
_NAMED = 3


@attrs.frozen
class Moved:
    """What one disk moved, in bytes/s by direction: by which NIC, session and round trip, to or from which address.

    NIC and address (`peer`) are '' where they are not known.
    """

    disk: str
    nic: str
    bearer: str
    bytes_per_s: Mapping[str, float]
    rtt_ms: float | None = None
    peer: str = ""


class OtherDisks:
    """The disks of this host's sessions that are not looked at, each with its session and connection.

    Of these the counters alone are read, at both ends of a look.
    """

    def __init__(self, disks: Sequence[tuple[str, str, TcpSocket | None]]) -> None:
        self._disks = [(DiskLook(disk), bearer, socket) for disk, bearer, socket in disks]

    def begin(self) -> None:
        """Read the counters that `moved` takes differences to."""
        for disk, _, _ in self._disks:
            disk.begin()

    def stop(self) -> None:
        """Read them again: the look is over."""
        for disk, _, _ in self._disks:
            disk.stop()

    def moved(self, elapsed_s: float) -> list[Moved]:
        """Return what those moved that moved anything."""
        busy = [one for one in self._disks if any(one[0].moved_bytes().values())]
        rtts_ms = _rtts_ms({socket for _, _, socket in busy if socket})
        # A thousand sessions have few peers, and each question starts a program.
        nics = {way: nic_of(way) for way in {way_of(socket) for _, _, socket in busy if socket}}
        return [
            Moved(
                disk.name, nics[way_of(socket)] if socket else "", bearer,
                {way: count / elapsed_s for way, count in disk.moved_bytes().items()},
                rtts_ms.get(socket) if socket else None, peer_of(socket),
            )
            for disk, bearer, socket in busy
        ]  # fmt: skip


def peer_of(socket: TcpSocket | None) -> str:
    """Return the address that a connection leads to, '' without one."""
    return canonical(socket.remote) if socket else ""


def _rtts_ms(connections: Collection[TcpSocket]) -> dict[TcpSocket, float]:
    if not connections:
        return {}
    sampler = SocketSampler(list(connections))
    try:
        return {one: sample.min_rtt_ms for one, sample in sampler.sample(0.0)}
    finally:
        sampler.close()


class Beside:
    """All disks of a look, and those of the same host that were not looked at."""

    def __init__(self, every: Iterable[Moved]) -> None:
        of_nic: dict[str, list[Moved]] = {}
        of_session: dict[str, list[Moved]] = {}
        for one in every:
            if any(one.bytes_per_s.values()):
                of_nic.setdefault(_nic(one), []).append(one)
                of_session.setdefault(one.bearer, []).append(one)
        self._path: dict[str, int] = {}
        self._paths: list[list[Moved]] = []
        for disks in of_nic.values():
            for path in by_path(disks, lambda one: one.rtt_ms):
                self._path |= dict.fromkeys((one.disk for one in path), len(self._paths))
                self._paths.append(sorted(path, key=lambda one: -sum(one.bytes_per_s.values())))
        self._sums = [_summed(path) for path in self._paths]
        self._of_session = {bearer: _summed(disks) for bearer, disks in of_session.items()}
        self._of_nic = {nic: _summed(disks) for nic, disks in of_nic.items()}
        self._of_host = _summed([one for disks in of_nic.values() for one in disks])
        of_peer: dict[tuple[int, str], list[Moved]] = {}
        for number, disks in enumerate(self._paths):
            for one in disks:
                of_peer.setdefault((number, one.peer), []).append(one)
        self._of_peer = {which: _summed(disks) for which, disks in of_peer.items()}

    def of(self, mine: Moved) -> BesideSeen:
        """Return what the others of `mine`'s path and session moved."""
        path = self._path.get(mine.disk)
        if path is None:
            return BesideSeen((), {}, {})
        near = (one.disk for one in self._paths[path][: _NAMED + 1] if one.disk != mine.disk)
        of_session = _less(self._of_session[mine.bearer], mine)
        of_peer = _less(self._of_peer[path, mine.peer], mine) if mine.peer else {}
        return BesideSeen(
            tuple(near)[:_NAMED], _less(self._sums[path], mine), of_session, of_peer,
            _less(self._of_nic[_nic(mine)], mine), _less(self._of_host, mine),
        )  # fmt: skip


def _nic(one: Moved) -> str:
    # Of what leaves by an unknown NIC only the session is known.
    return one.nic or f" {one.bearer}"


def _summed(disks: Sequence[Moved]) -> dict[str, float]:
    return {way: sum(one.bytes_per_s.get(way, 0.0) for one in disks) for way in WAYS}


def _less(every: Mapping[str, float], mine: Moved) -> dict[str, float]:
    return {way: max(0.0, every.get(way, 0.0) - mine.bytes_per_s.get(way, 0.0)) for way in WAYS}
