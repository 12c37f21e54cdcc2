# SPDX-License-Identifier: GPL-2.0-or-later
"""The paths that what is in force was planned for, and the round trip that plans are for."""

from collections.abc import Sequence

from fabtune.host.sockets import TcpSocket
from fabtune.tune.transaction import IN_FORCE, Transaction


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
