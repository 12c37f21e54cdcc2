# SPDX-License-Identifier: GPL-2.0-or-later
"""The paths that what is in force was planned for."""

from collections.abc import Sequence

from fabtune.tune.transaction import IN_FORCE, Transaction


def planned_for(known: Sequence[Transaction]) -> list[Transaction]:
    """Return the newest apply in force of each profile, end and namespace that was planned for a path."""
    newest: dict[tuple[str, tuple[str, ...], str], Transaction] = {}
    for one in known:
        if one.state == IN_FORCE and one.header.rtt_ms is not None:
            newest[one.profile, one.header.roles, one.header.netns] = one
    return list(newest.values())
