# SPDX-License-Identifier: GPL-2.0-or-later
"""The paths that what is in force was planned for, and the round trip that plans are for."""

from collections.abc import Collection, Sequence

from fabtune.host.sockets import TcpSocket
from fabtune.model.one_path import alike
from fabtune.tune.transaction import IN_FORCE, Transaction

# The addresses of both ends of a connection.
Ends = tuple[str, str]


def planned_for(known: Sequence[Transaction]) -> list[Transaction]:
    """Return the newest apply in force of each profile, end and namespace that was planned for a path.

    Steps of a `fabtune tune` are for the sessions alone that they lift: one stands here only where there is no apply,
    that for the longest path, and none whose sessions are not known.
    """
    return [([one for one in each if not is_step(one)] or [_longest(each)])[-1] for each in _by_plan(known)]


def left_out(step: Transaction, known: Sequence[Transaction]) -> list[Transaction]:
    """Return the steps for sessions of other paths in whose place `planned_for` has `step`, none beside an apply."""
    # By name: what was read of it before may be less than is known by now.
    groups = [each for each in _by_plan(known) if step.name in {one.name for one in each} and all(map(is_step, each))]
    return [one for each in groups for one in _newest(each) if not lifted_by(one) <= lifted_by(step)]


def _by_plan(known: Sequence[Transaction]) -> list[list[Transaction]]:
    """Return what is in force for a path that is known, by profile, end and namespace."""
    found: dict[tuple[str, tuple[str, ...], str], list[Transaction]] = {}
    for one in known:
        if one.state == IN_FORCE and one.header.rtt_ms is not None and (one.header.ends or not one.header.on_trial):
            found.setdefault((one.profile, one.header.roles, one.header.netns), []).append(one)
    return list(found.values())


def _longest(steps: Sequence[Transaction]) -> Transaction:
    return max(_newest(steps), key=lambda one: one.header.rtt_ms or 0.0)


def _newest(steps: Sequence[Transaction]) -> list[Transaction]:
    """Return the steps that no newer one for the same sessions stands for."""
    newest: list[Transaction] = []
    for one in steps:
        newest = [one, *(other for other in newest if not lifted_by(other) <= lifted_by(one))]
    return newest


def is_step(one: Transaction) -> bool:
    """Tell whether it is a step of a `fabtune tune`, or was written for the sessions of one whose path had moved."""
    return one.header.on_trial or bool(one.header.ends)


def lifted_by(step: Transaction) -> frozenset[Ends]:
    """Return the ends of the connections that a step was planned for; nothing for an apply, which is for all."""
    return frozenset((one.local, one.remote) for one in step.header.ends)


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


def longest_of(
    sockets: Sequence[TcpSocket], told_ms: float, others_ms: Collection[float], lifted: Collection[Ends] = ()
) -> float | None:
    """Return the longest round trip for which a path was planned that is of `told_ms`; None where it is not known.

    Where any connection has that, those are another path's that have one of `others_ms`, or may have had it.  A path of
    those that a step `lifted` is that of no other.
    """
    if lifted:
        return longest_ms([one for one in sockets if ends_of(one) in lifted])
    own = at_distance(sockets, told_ms)
    others = [(other_ms, at_distance(sockets, other_ms)) for other_ms in others_ms]
    return longest_ms(but_others(sockets, own, others) if own else sockets)


def ends_of(one: TcpSocket) -> Ends:
    """Return the addresses of both ends."""
    return one.local, one.remote
