# SPDX-License-Identifier: GPL-2.0-or-later
"""What the other disks of this host's sessions move while one is looked at: session and line are theirs as well."""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from fabtune.model.observation import WAYS, BesideSeen

# So many are named.
_NAMED = 3


@attrs.frozen
class Moved:
    """What one disk moved, in bytes/s by direction: by which NIC ('' where it is not known) and session."""

    disk: str
    nic: str
    sid: int
    bytes_per_s: Mapping[str, float]


class Beside:
    """All disks of a look, and those of the same host that were not looked at."""

    def __init__(self, every: Iterable[Moved]) -> None:
        self._by_nic: dict[str, list[Moved]] = {}
        for one in every:
            if any(one.bytes_per_s.values()):
                self._by_nic.setdefault(one.nic, []).append(one)
        for disks in self._by_nic.values():
            disks.sort(key=lambda one: -sum(one.bytes_per_s.values()))
        self._of_nic = {nic: _summed(disks) for nic, disks in self._by_nic.items()}
        of_session: dict[int, list[Moved]] = {}
        for one in (one for disks in self._by_nic.values() for one in disks):
            of_session.setdefault(one.sid, []).append(one)
        self._of_session = {sid: _summed(disks) for sid, disks in of_session.items()}

    def of(self, mine: Moved) -> BesideSeen:
        """Return what the others of `mine`'s NIC and session moved."""
        near = (one.disk for one in self._by_nic.get(mine.nic, ())[: _NAMED + 1] if one.disk != mine.disk)
        return BesideSeen(
            tuple(near)[:_NAMED], _less(self._of_nic.get(mine.nic, {}), mine),
            _less(self._of_session.get(mine.sid, {}), mine),
        )  # fmt: skip


def _summed(disks: Sequence[Moved]) -> dict[str, float]:
    return {way: sum(one.bytes_per_s.get(way, 0.0) for one in disks) for way in WAYS}


def _less(every: Mapping[str, float], mine: Moved) -> dict[str, float]:
    return {way: max(0.0, every.get(way, 0.0) - mine.bytes_per_s.get(way, 0.0)) for way in WAYS}
