# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at live sessions for some seconds and says what was seen, as observations.  Reads only.

The initiator's end is always this host's own network namespace; the target's is another of it, if it is here.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.backends import record
from fabtune.errors import FabtuneError, InputError
from fabtune.host import blocks, namespaces, sockets, tree
from fabtune.host.sessions import Session, connections, live_sessions, transport
from fabtune.host.socket_samples import SocketSampler
from fabtune.host.sockets import TcpSocket
from fabtune.measure.disk_look import DiskLook, fabstat_now
from fabtune.measure.ends import End
from fabtune.model.address import canonical
from fabtune.model.observation import (
    INITIATOR,
    TARGET,
    DiskSeen,
    EndSeen,
    Observation,
    SessionSeen,
    SocketSample,
    SocketSeen,
)

_EVERY_S = 0.2
# Multiples of the golden ratio fall evenly between whole numbers.
_GOLDEN, _OFF_BEAT = 0.618, 0.5
_NO_SESSION = "no iSCSI session is logged in on this host"


@attrs.frozen
class Looked:
    """A disk of a session to look at."""

    disk: str
    session: Session
    socket: TcpSocket | None
    multipath: str = ""


def chosen(names: Sequence[str], found: Sequence[TcpSocket]) -> list[Looked]:
    """Return the disks that `names` stand for, or all disks of all sessions.  Raises InputError.

    A device on top of others (multipath, LVM) stands for those that sessions bring.
    """
    sessions = live_sessions()
    if not sessions:
        raise InputError(f"{_NO_SESSION}; log in first (iscsiadm -m node --login)")
    by_disk = {lun: session for session in sessions for lun in session.luns}
    wanted = list(dict.fromkeys(disk for name in names for disk in _below(name, by_disk))) or sorted(by_disk)
    if not wanted:
        raise InputError("the sessions of this host have no disks yet")
    heads = {disk: ", ".join(blocks.holders(disk)) for disk in wanted}
    return [Looked(disk, by_disk[disk], by_disk[disk].socket(list(found)), heads[disk]) for disk in wanted]


def _below(name: str, by_disk: Mapping[str, Session]) -> list[str]:
    place = Path(name) if name.startswith("/") else Path("/dev", name)
    # /dev/mapper's names and /dev/disk's lead to the kernel's own.
    bare = place.resolve().name if place.exists() else place.name
    directory = blocks.directory(bare)
    if not directory.exists():
        known = ", ".join(sorted(by_disk))
        raise InputError(f"{name}: no such block device; disks of iSCSI sessions here: {known or 'none'}")
    whole = directory.resolve().parent.name if (directory / "partition").exists() else bare
    slaves = [slave.name for slave in sorted((blocks.directory(whole) / "slaves").glob("*"))]
    found = [disk for slave in slaves for disk in _below(slave, by_disk)] if slaves else [whole]
    if any(disk not in by_disk for disk in found):
        known = ", ".join(sorted(by_disk))
        raise InputError(f"{name} is not a disk of an iSCSI session; those are: {known or 'none'}")
    return found


class Look:
    """One look at the disks called `names`; `target_netns` is where the target's sockets are, None for nowhere here."""

    def __init__(self, names: Sequence[str], target_netns: str | None = None) -> None:
        found = sockets.established()
        self._missing = [] if os.geteuid() == 0 else ["not root: fabstat, and what iscsiadm keeps, are not readable"]
        self._looked = chosen(names, found)
        self._records = _records()
        self._sockets = {one.disk: one.socket for one in self._looked}
        self._theirs: dict[TcpSocket, TcpSocket] = {}
        self._netns = target_netns
        if target_netns is not None:
            namespaces.netns_path(target_netns)
            self._theirs = _paired({one for one in self._sockets.values() if one}, sockets.established(target_netns))
            if not self._theirs:
                raise InputError(f"network namespace '{target_netns}' has no other end of these sessions' connections")

    def over(self, seconds: float) -> list[Observation]:
        """Look for `seconds` and return an observation of each disk.  Raises FabtuneError."""
        mine = list({one for one in self._sockets.values() if one})
        samplers = [SocketSampler(mine)]
        ends: dict[TcpSocket, End] = {one: End(INITIATOR, "", one.remote) for one in mine}
        if self._theirs:
            samplers.append(SocketSampler(list(self._theirs.values()), self._netns or ""))
            ends |= {one: End(TARGET, self._netns or "", one.remote) for one in self._theirs.values()}
        try:
            return self._look(seconds, samplers, ends)
        finally:
            for sampler in samplers:
                sampler.close()

    def _look(
        self, seconds: float, samplers: Sequence[SocketSampler], ends: Mapping[TcpSocket, End]
    ) -> list[Observation]:
        disks = [DiskLook(one.disk) for one in self._looked]
        first, why_not = fabstat_now()
        before = {one: end.read() for one, end in ends.items()}
        begun_s = time.monotonic()
        samples: dict[TcpSocket, list[SocketSample]] = {one: [] for one in ends}
        turn = 0
        while (at_s := time.monotonic() - begun_s) <= seconds:
            for sampler in samplers:
                for one, sample in sampler.sample(at_s):
                    samples[one].append(sample)
            for disk in disks:
                disk.sample(at_s)
            turn += 1
            # On a grid, so that what sampling takes does not stretch it; off the beat of requests that come regularly.
            next_s = (turn + _OFF_BEAT * (turn * _GOLDEN % 1)) * _EVERY_S
            time.sleep(max(0.0, begun_s + min(next_s, seconds + 0.001) - time.monotonic()))
        last, _ = fabstat_now()
        elapsed_s = time.monotonic() - begun_s
        after = {one: end.read() for one, end in ends.items()}
        self._missing += [f"no fabstat: {why_not}"] if why_not else []
        self._missing += [text for end in ends.values() for text in end.missing]
        seen = {
            one: end.seen(before[one], after[one], elapsed_s, _connection(one, samples[one]))
            for one, end in ends.items()
        }
        told = [disk.seen([first, last], elapsed_s) for disk in disks]
        return [self._observation(one, disk, seen) for one, disk in zip(self._looked, told, strict=True)]

    def _observation(self, one: Looked, disk: DiskSeen, seen: Mapping[TcpSocket, EndSeen]) -> Observation:
        missing = list(self._missing)
        initiator, target = EndSeen(INITIATOR, os.uname().release, None), None
        if one.socket is None:
            missing.append(f"no TCP connection of {one.session.target} is seen in this network namespace")
        else:
            initiator = seen[one.socket]
            if one.socket in self._theirs:
                target = seen[self._theirs[one.socket]]
        return Observation(
            device=one.disk, elapsed_s=disk.elapsed_s, session=self._session(one), disk=disk,
            initiator=initiator, target=target, missing=tuple(dict.fromkeys(missing)),
        )  # fmt: skip

    def _session(self, one: Looked) -> SessionSeen:
        session = one.session
        kept = self._records.get(session.identity, {})
        return SessionSeen(
            target=session.target,
            portal=session.portal,
            state=session.state,
            transport=transport(session),
            can_queue=session.can_queue,
            negotiated=session.negotiated,
            disks=session.luns,
            connections=connections(session),
            window_bytes=tree.whole(kept.get("node.conn[0].tcp.window_size")),
            multipath=one.multipath,
        )


def _records() -> dict[str, dict[str, str]]:
    """Return open-iscsi's node records, none where they may not be read."""
    try:
        return record.BACKEND.all()
    except FabtuneError:
        return {}


def _paired(mine: set[TcpSocket], others: Sequence[TcpSocket]) -> dict[TcpSocket, TcpSocket]:
    """Return the other end of each of `mine` among `others`."""
    by_ends = {(canonical(one.local), one.local_port, canonical(one.remote), one.remote_port): one for one in others}
    keys = {one: (canonical(one.remote), one.remote_port, canonical(one.local), one.local_port) for one in mine}
    return {one: by_ends[key] for one, key in keys.items() if key in by_ends}


def _connection(one: TcpSocket, samples: Sequence[SocketSample]) -> SocketSeen | None:
    """Return the connection as it was seen, None where it went before two samples."""
    if len(samples) < 2:
        return None
    return SocketSeen(
        f"{one.local}:{one.local_port}", f"{one.remote}:{one.remote_port}", one.mss_bytes, one.congestion_control,
        tuple(samples),
    )  # fmt: skip
