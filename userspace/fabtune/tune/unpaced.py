# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections that nothing paces any more once an fq is taken from under them.

What sends through fq once leaves its pacing to it for good (sk_pacing_status, net/sched/sch_fq.c): behind another qdisc
neither fq nor TCP's own timer paces it.  BBR without pacing fills every queue on its way: 9.9 MB/s with fq were 1.2
without, where a connection that never had it carries 9.5.  A new connection is paced by TCP.
"""

from collections.abc import Collection, Iterable

from fabtune.catalog.tunable import ROLES, Tunable
from fabtune.host import targets
from fabtune.host.sessions import Connections, live_sessions
from fabtune.host.sockets import TcpSocket, established
from fabtune.tune import pending
from fabtune.tune.pending import RECONNECT, Pending
from fabtune.tune.transaction import Step

_FQ = "fq"
# What paces by itself; the others are paced where somebody asked for it (SO_MAX_PACING_RATE).
_PACES = "bbr"


def by_writing(steps: Iterable[Step], roles: Collection[str], netns: str, boot_id: str) -> list[Pending]:
    """Return who must connect anew since `steps` were written in `netns`.  Raises FabtuneError."""
    return _due(((step.old, step.wrote) for step in steps if _is_kind(step.backend, step.key)), roles, netns, boot_id)


def by_undoing(steps: Iterable[Step], roles: Collection[str], netns: str, boot_id: str) -> list[Pending]:
    """Return who must connect anew since `steps` were taken back in `netns`.  Raises FabtuneError."""
    return _due(((step.wrote, step.old) for step in steps if _is_kind(step.backend, step.key)), roles, netns, boot_id)


def may_ask(tunable: Tunable) -> bool:
    """Tell whether connections may have to be made anew since `tunable` was written or taken back."""
    return _is_kind(tunable.backend, tunable.key)


def _is_kind(backend: str, key: str) -> bool:
    return (backend, key) == ("qdisc", "kind")


def _due(moves: Iterable[tuple[str, str]], roles: Collection[str], netns: str, boot_id: str) -> list[Pending]:
    """Return who is due since qdiscs moved from one kind to another; a NIC's leaves may be of several."""
    if not any(_FQ in before.split() and _FQ not in after.split() for before, after in moves):
        return []
    initiator, target = (role in roles for role in ROLES)
    found: list[Pending] = []
    if initiator and not netns:
        sessions = live_sessions()
        ends = Connections(established(), sessions)
        # One that has no connection now asks for its pace with the next.
        there = (one for one in sessions if one.state == "LOGGED_IN" and any(map(is_paced, ends.perhaps_of(one))))
        found = [pending.of_session(one, boot_id, RECONNECT) for one in there]
    if target:
        paced = {one.local_port for one in established(netns) if is_paced(one)}
        groups = targets.groups() if paced else []
        for group in groups:
            ports = {int(portal.rpartition(":")[2]) for portal in group.where["portals"].split()}
            if ports & paced:
                found = pending.merge(found, pending.of_initiators(group, boot_id))
    return found


def is_paced(one: TcpSocket) -> bool:
    """Tell whether the connection asks for pacing."""
    return one.congestion_control == _PACES or one.max_pacing_bytes_per_s > 0
