# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at live sessions for some seconds and says what was seen, as observations.  Reads only.

The initiator's end is always this host's own network namespace; the target's is another of it, or another host, on
which `target_ends` looks.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import attrs

from fabtune.backends import record
from fabtune.errors import FabtuneError, InputError
from fabtune.host import namespaces, sockets, srp, targets, tree
from fabtune.host.sessions import connection_counts
from fabtune.host.sockets import TcpSocket
from fabtune.host.srp import SrpLogin
from fabtune.measure.away import AwayEnd
from fabtune.measure.beat import off_beat, wait_for_others
from fabtune.measure.beside import Beside, Moved, OtherDisks, peer_of
from fabtune.measure.connection_group import ConnectionGroup, end_place
from fabtune.measure.disk_look import DiskLook, counted_between, fabstat_now, host_number
from fabtune.measure.looked import Looked, chosen
from fabtune.measure.request_times import RequestTimes
from fabtune.model.address import canonical
from fabtune.model.observation import (
    INITIATOR,
    TARGET,
    DiskSeen,
    EndSeen,
    Observation,
    SessionSeen,
)
from fabtune.model.one_clock import on_one_clock
from fabtune.model.served_seen import about_as_many
from fabtune.stat import Snapshot

_EVERY_S = 0.2
# So many connections' ends are looked at that often, for less than 1 % of a CPU.
_AT_ONCE = 200
_MOST_LOOKS = 1000
# The kernel takes so long to let go of the programs in iSCSI's queues: from a long look's end these are spared it.
_LET_GO_S, _LONG_S = 1.0, 5.0
# A target's disk that did so small a part of the requests is nobody's.
_FEW = 0.05


class Look:
    """One look at the disks called `names`; the target's sockets are in `target_netns`, or on host `target_host`."""

    def __init__(self, names: Sequence[str], target_netns: str | None = None, target_host: str = "") -> None:
        found = sockets.established()
        self._missing = [] if os.geteuid() == 0 else ["not root: fabstat, and what iscsiadm keeps, are not readable"]
        self._looked = chosen(names, found)
        mine = {one.disk for one in self._looked}
        unlooked = [one for one in chosen([], found) if one.disk not in mine] if names else []
        self._others = OtherDisks([(one.disk, one.bearer, one.socket) for one in unlooked])
        self._records, self._counts = _records(), connection_counts()
        self._sockets = {one.disk: one.socket for one in self._looked}
        self._unconnected = any(one.socket is None for one in self._looked)
        self._theirs: dict[TcpSocket, TcpSocket] = {}
        self._netns, self._host = target_netns or "", target_host
        self._in_netns = target_netns is not None
        self._afar: dict[tuple[str, str], EndSeen] = {}
        # The target's end without a connection, where it is looked at.
        self._serving: EndSeen | None = None
        self._groups: list[ConnectionGroup] = []
        self._disks: list[DiskLook] = []
        self._ran_out: dict[str, int] = {}
        self._begun_s = self._elapsed_s = 0.0
        if target_netns is not None:
            namespaces.netns_path(target_netns)
            self._theirs = _paired({one for one in self._sockets.values() if one}, sockets.established(target_netns))
            if not self._theirs and not self._unconnected:
                raise InputError(f"network namespace '{target_netns}' has no other end of these sessions' connections")

    def over(
        self, seconds: float, times: RequestTimes | None = None, at_unix_s: float | None = None
    ) -> list[Observation]:
        """Look for `seconds` from `at_unix_s` on at each disk; `times` reads meanwhile.  Raises FabtuneError."""
        if self._host:
            # The other host looks as soon as it is reached.
            wait_for_others(at_unix_s)
        away = AwayEnd(self._host, seconds) if self._host else None
        try:
            self.prepare()
            first, why_not = fabstat_now()
            self._missing += [f"no fabstat: {why_not}"] if why_not else []
            if away:
                away.wait_until_begun()
            wait_for_others(at_unix_s)
            self.begin()
            names = [one.name for one in self._disks]
            _sampled(self._groups, self._disks, seconds, partial(times.sample, names) if times else None)
            self.stop()
            return self.end(first, fabstat_now()[0], away)
        except BaseException:
            self.give_up()
            raise
        finally:
            if away:
                away.give_up()

    @property
    def disks(self) -> int:
        """How many disks are looked at."""
        return len(self._looked)

    def prepare(self) -> None:
        """Find what is to be looked at, which takes its time.  Raises FabtuneError."""
        mine = list({one for one in self._sockets.values() if one})
        alone = self._unconnected and self._in_netns
        hosts = {one.socket: host_number(one.disk) for one in self._looked if one.socket}
        hosts = {one: number for one, number in hosts.items() if number >= 0}
        # One by one: what there is is let go of where the next fails.
        self._groups = [ConnectionGroup(INITIATOR, "", mine, alone=self._unconnected, hosts=hosts)]
        self._groups.append(ConnectionGroup(TARGET, self._netns, list(self._theirs.values()), alone=alone))
        self._disks = [DiskLook(one.disk) for one in self._looked]

    def begin(self) -> None:
        """Begin the look; like `sample` and `stop` it costs a load no more than it must.  Raises FabtuneError."""
        for group in self._groups:
            group.begin()
        for disk in self._disks:
            disk.begin()
        self._others.begin()
        self._ran_out = self._credits_ran_out()
        self._begun_s = time.monotonic()

    def sample(self) -> None:
        """Look once at connections and disks, between `begin` and `stop`."""
        _sample(self._groups, self._disks, time.monotonic() - self._begun_s)

    def stop(self) -> None:
        """End the look.  Raises FabtuneError."""
        self._elapsed_s = time.monotonic() - self._begun_s
        for group in self._groups:
            group.stop()
        for disk in self._disks:
            disk.stop()
        self._others.stop()
        self._ran_out = {port: max(0, count - self._ran_out[port]) for port, count in self._credits_ran_out().items()}

    def _credits_ran_out(self) -> dict[str, int]:
        logins = (one.session for one in self._looked)
        return {one.port: srp.times_out_of_credit(one) for one in logins if isinstance(one, SrpLogin)}

    def give_up(self) -> None:
        """Let go of what `prepare` opened."""
        for group in self._groups:
            group.close()

    def end(self, first: Snapshot | None, last: Snapshot | None, away: AwayEnd | None = None) -> list[Observation]:
        """Return an observation of each disk.  Raises FabtuneError.

        `first` and `last` are fabstat's readings at both ends of the look, `away` is the target's end on another host.
        """
        seen = {one: end for group in self._groups for one, end in group.seen(self._elapsed_s).items()}
        mine, theirs = (group.common(self._elapsed_s) for group in self._groups)
        self._serving = theirs if self._in_netns else None
        counted = counted_between(first, last)
        told = [disk.seen(counted, self._elapsed_s) for disk in self._disks]
        if away:
            self._ask(away)
        self._missing += [text for group in self._groups for text in group.missing]
        found = [self._observation(one, disk, seen, mine) for one, disk in zip(self._looked, told, strict=True)]
        return self._with_others(found)

    def _with_others(self, found: Sequence[Observation]) -> list[Observation]:
        """Return `found`, each with what the other disks by its NIC moved."""
        moved = [
            Moved(
                seen.device, seen.initiator.nic.name if seen.initiator.nic else "", one.bearer,
                {way: moved.moved_bytes / seen.disk.elapsed_s for way, moved in seen.disk.ways.items()}, seen.rtt_ms,
                peer_of(one.socket),
            )
            for one, seen in zip(self._looked, found, strict=True)
        ]  # fmt: skip
        moved += self._others.moved(self._elapsed_s)
        beside = Beside(moved)
        return [attrs.evolve(seen, beside=beside.of(mine)) for seen, mine in zip(found, moved, strict=False)]

    def _ask(self, away: AwayEnd) -> None:
        """Take over what the other host saw; that it could not is said."""
        try:
            ends = away.seen()
        except FabtuneError as error:
            self._missing.append(f"the target's end: {error}")
            return
        self._afar = {(end.socket.local, end.socket.remote): end for end in ends if end.socket}
        # What is nobody's own is the same of all.
        self._serving = next((attrs.evolve(end, socket=None, nic=None, qdisc=None) for end in ends), None)

    def _observation(
        self, one: Looked, disk: DiskSeen, seen: Mapping[TcpSocket, EndSeen], initiator: EndSeen
    ) -> Observation:
        missing, target = list(self._missing), None
        session = self._session(one)
        if one.socket is None:
            missing.append(_unconnected(session, one.why_no_socket))
            target = self._serving
        else:
            initiator = seen[one.socket]
            theirs = self._theirs.get(one.socket)
            target = (
                seen[theirs] if theirs else self._afar.get((end_place(one.socket, far=True), end_place(one.socket)))
            )
            if self._afar and target is None:
                missing.append(
                    f"the target's end: {self._host} has no such connection; is it the target, or is NAT between?"
                )
        missing += [
            f"the {end.end}'s kernel {end.kernel} does not tell {', '.join(end.socket.lacks)}"
            for end in (initiator, target)
            if end and end.socket and end.socket.lacks
        ]
        found = Observation(
            device=one.disk, elapsed_s=disk.elapsed_s, session=session, disk=disk,
            initiator=initiator, target=target, missing=tuple(dict.fromkeys(missing)),
        )  # fmt: skip
        if text := _not_told(found):
            found = attrs.evolve(found, missing=(*found.missing, text))
        found = found if one.socket else _its_own(found)
        return on_one_clock(found) if self._afar else found

    def _session(self, one: Looked) -> SessionSeen:
        session = one.session
        if isinstance(session, SrpLogin):
            return self._login(session, one.multipath)
        kept = self._records.get(session.identity, {})
        return SessionSeen(
            target=session.target,
            portal=session.portal,
            state=session.state,
            transport=session.transport,
            rdma=session.is_rdma,
            can_queue=session.can_queue,
            negotiated=session.negotiated,
            disks=session.luns,
            connections=self._counts[session.sid],
            window_bytes=tree.whole(kept.get("node.conn[0].tcp.window_size")),
            multipath=one.multipath,
            initiator=(tree.read_text(session.directory / "initiatorname") or "").strip(),
            tpg=f"tpgt_{group}" if (group := tree.read_text(session.directory / "tpgt")) else "",
            interface=session.interface,
            striped=one.striped,
        )

    def _login(self, login: SrpLogin, multipath: str) -> SessionSeen:
        return SessionSeen(
            target=login.port_id, portal=login.port_id, state=login.state, transport="srp", can_queue=login.can_queue,
            negotiated={}, disks=login.luns, connections=max(login.ch_count, 1), multipath=multipath,
            rdma=True, no_credit=self._ran_out[login.port], gid=login.sgid, target_gid=login.dgid,
        )  # fmt: skip


def _sampled(
    groups: Sequence[ConnectionGroup],
    disks: Sequence[DiskLook],
    seconds: float,
    beside: Callable[[float], None] | None = None,
) -> float:
    """Take samples for `seconds`, and call `beside` after each; return how long it was."""
    # Each look at a connection takes its time: those at many are fewer, of which ten are the least.
    many = sum(len(group.samples) for group in groups) / _AT_ONCE
    every_s = min(max(_EVERY_S, _EVERY_S * many), max(_EVERY_S, seconds / 10))
    every_s = max(every_s, seconds / _MOST_LOOKS)
    begun_s = time.monotonic()
    turn, counts = 0, seconds >= _LONG_S
    while (at_s := time.monotonic() - begun_s) <= seconds:
        _sample(groups, disks, at_s)
        if beside:
            beside(at_s)
        if counts and at_s >= seconds - _LET_GO_S:
            counts = False
            for group in groups:
                group.count_no_more()
        turn += 1
        # On a grid, so that what sampling takes does not stretch it.
        next_s = min(off_beat(turn, every_s), seconds + 0.001)
        time.sleep(max(0.0, begun_s + next_s - time.monotonic()))
    return time.monotonic() - begun_s


def _sample(groups: Iterable[ConnectionGroup], disks: Iterable[DiskLook], at_s: float) -> None:
    for group in groups:
        group.sample(at_s)
    for disk in disks:
        disk.sample(at_s)


def target_ends(seconds: float, at_unix_s: float | None = None, netns: str = "") -> list[EndSeen]:
    """Look from `at_unix_s` on at the connections to this host's own targets.  Raises InputError without one."""
    ports = {
        tree.whole(portal.rpartition(":")[2]) for group in targets.groups() for portal in group.where["portals"].split()
    }
    found = [one for one in sockets.established(netns) if one.local_port in ports]
    # SRP's initiators, and an adapter's, have none.
    alone = not found and any(targets.exports())
    if not found and not alone:
        raise InputError(
            "no initiator is connected to a target of this host" if ports else "this host serves no target"
        )
    group = ConnectionGroup(TARGET, netns, found, alone=alone)
    try:
        wait_for_others(at_unix_s)
        group.begin()
        elapsed_s = _sampled([group], [], seconds)
        group.stop()
    except BaseException:
        group.close()
        raise
    return [*group.seen(elapsed_s).values(), *([group.common(elapsed_s)] if alone else [])]


def _records() -> dict[str, dict[str, str]]:
    """Return open-iscsi's node records, none where they may not be read."""
    record.BACKEND.forget()
    try:
        return record.BACKEND.all()
    except FabtuneError:
        return {}


def _its_own(seen: Observation) -> Observation:
    """Return `seen`, without a connection, with what is known to be its own of the target's end."""
    end, missing = seen.target, seen.missing
    if end is None:
        return seen
    cannot = "that one block device there did just these requests cannot be told"
    if _did(end, seen.disk):
        return seen
    if seen.served_sessions:
        stores = (f"the target's backstore: {cannot}",)
        return attrs.evolve(seen, target=attrs.evolve(end, backstores=()), missing=missing + stores)
    return attrs.evolve(seen, target=None, missing=(*missing, f"the target's end: {cannot}"))


def _not_told(seen: Observation) -> str:
    """Return why the target's own count of its sessions does not tell of this one, '' where it does or has none."""
    served, fit = seen.target.served if seen.target else (), len(seen.served_sessions)
    if not served or fit == 1:
        return ""
    if not seen.session.initiator:
        which = f"{fit} of its sessions may be the disk's; which" if fit else "which of its sessions is the disk's"
        return f"the target's time: {which} cannot be told by address, port, LUN and number of commands"
    many = f"the target's time: {fit} sessions of this initiator in one portal group use the LUN"
    return f"{many}; which is whose cannot be told" if fit else ""


def _did(end: EndSeen, disk: DiskSeen) -> bool:
    """Tell whether one block device of `end`, and no other, did what was asked of `disk`: nothing else says whose."""
    asked = sum(one.completed for one in disk.ways.values())
    did = [count for store in end.backstores if (count := sum(store.completed.values())) >= _FEW * asked]
    return len(did) == 1 and about_as_many(did[0], asked)


def _unconnected(session: SessionSeen, why: str) -> str:
    if session.rdma:
        return f"{session.transport} has no TCP connection: the round trip and the line are not seen"
    if why:
        return f"the TCP connection of {session.target}: {why}"
    return f"no TCP connection of {session.target} is seen in this network namespace"


def _paired(mine: set[TcpSocket], others: Sequence[TcpSocket]) -> dict[TcpSocket, TcpSocket]:
    """Return the other end of each of `mine` among `others`."""
    by_ends = {(canonical(one.local), one.local_port, canonical(one.remote), one.remote_port): one for one in others}
    keys = {one: (canonical(one.remote), one.remote_port, canonical(one.local), one.local_port) for one in mine}
    return {one: by_ends[key] for one, key in keys.items() if key in by_ends}
