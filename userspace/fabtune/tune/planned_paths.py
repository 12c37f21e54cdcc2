# SPDX-License-Identifier: GPL-2.0-or-later
"""The paths that what is in force was planned for, and the round trip that plans are for."""

from collections.abc import Collection, Sequence

from fabtune.host.sockets import TcpSocket
from fabtune.model.one_path import alike
from fabtune.tune.transaction import IN_FORCE, Transaction

# The addresses of both ends of a connection.
Ends = tuple[str, str]


def planned_for(known: Sequence[Transaction]) -> list[Transaction]:
    """Return the newest apply in force of each profile, end and namespace that was planned for a path."""
    newest: dict[tuple[str, tuple[str, ...], str], Transaction] = {}
    for one in known:
        if one.state == IN_FORCE and one.header.rtt_ms is not None:
            newest[one.profile, one.header.roles, one.header.netns] = one
    return list(newest.values())


def longest_ms(sockets: Sequence[TcpSocket]) -> float | None:
    """Return the longest of the least round trips of storage's connections, None where one of them is not known.

    Of several paths a plan is for the longest.
    """
    found = [one.min_rtt_ms for one in sockets]
    return max(found) if found and all(found) else None


def at_distance(sockets: Sequence[TcpSocket], rtt_ms: float) -> set[Ends]:
    """Return the ends of the connections that have such a round trip."""
    return {ends_of(one) for one in sockets if one.path_rtt_ms and alike(rtt_ms, one.path_rtt_ms)}


def but_others(
    sockets: Sequence[TcpSocket], own: Collection[Ends], others: Collection[tuple[float, Collection[Ends]]]
) -> list[TcpSocket]:
    """Return the connections by which one of several planned paths can be judged, if those between `own` are its.

    Of each of the `others` stands there what it was planned for, and between which ends connections are its: not by
    those that have that, or are.  Where one of them has none, and this path has, whatever is left may be that one's.
    """
    there = {ends_of(one) for one in sockets}
    if not there.isdisjoint(own) and any(there.isdisjoint(ends) for _, ends in others):
        return [one for one in sockets if ends_of(one) in own]

    def is_others(one: TcpSocket) -> bool:
        rtt_ms = one.path_rtt_ms
        return any(ends_of(one) in ends or (rtt_ms and alike(other_ms, rtt_ms)) for other_ms, ends in others)

    return [one for one in sockets if ends_of(one) in own or not is_others(one)]


def longest_of(sockets: Sequence[TcpSocket], told_ms: float, others_ms: Collection[float]) -> float | None:
    """Return the longest round trip for which a path was planned that is of `told_ms`; None where it is not known.

    Where any connection has that, those are another path's that have one of `others_ms`, or may have had it.
    """
    own = at_distance(sockets, told_ms)
    others = [(other_ms, at_distance(sockets, other_ms)) for other_ms in others_ms]
    return longest_ms(but_others(sockets, own, others) if own else sockets)


def ends_of(one: TcpSocket) -> Ends:
    """Return the addresses of both ends."""
    return one.local, one.remote
