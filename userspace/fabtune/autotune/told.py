# SPDX-License-Identifier: GPL-2.0-or-later
"""What was told of the path to the profiles in force, and is not what this host's connections show."""

from fabtune.errors import FabtuneError
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.model.one_path import alike
from fabtune.tune import journal
from fabtune.tune.planned_paths import longest_ms, planned_for


def rtt_doubts() -> list[str]:
    """Return a sentence on each profile in force that was planned for a round trip which is not this host's longest."""
    try:
        planned = [one for one in planned_for(journal.transactions()) if not one.header.netns]
        seen_ms = longest_ms(HostSnapshot().sockets) if planned else None
    except FabtuneError:
        # Who may not see that tunes all the same.
        return []
    found = ((one.profile, one.header.rtt_ms) for one in planned)
    return [
        f"profile '{name}' was planned for a round trip of {told_ms:g} ms, and the connections have {seen_ms:.1f} ms"
        for name, told_ms in found
        if told_ms is not None and seen_ms is not None and not alike(told_ms, seen_ms)
    ]
