# SPDX-License-Identifier: GPL-2.0-or-later
"""Interleaved sessions that may stop early: which of their planned looks they reached, and what counts at the last one.

The level of each look is that of the looks that were planned.  A session that ended at another number of pairs, after
Ctrl-C say, is judged at the last look that it reached; before its first one nothing is judged.
"""

from collections.abc import Iterable, Sequence

import attrs

from fabtune.model.runrecord import RunRecord, SessionTurn
from fabtune.model.units import counted


@attrs.frozen
class LooksTaken:
    """How far a session came: the `looks` that were planned, by their number of pairs, and the `pairs` made."""

    session: str
    looks: tuple[int, ...]
    pairs: int

    @property
    def taken(self) -> tuple[int, ...]:
        """The looks that were reached."""
        return tuple(look for look in self.looks if look <= self.pairs)

    @property
    def too_early(self) -> str:
        """Why nothing can be told where not even the first look was reached; '' else."""
        if self.taken:
            return ""
        made = f"{self.pairs} of at most {counted(self.looks[-1], 'pair')}"
        return f"the session ended after {made}, before its first look, after {self.looks[0]}"


def of_sessions(records: Sequence[RunRecord]) -> tuple[LooksTaken, ...]:
    """Return how far each session among `records` came that was to be looked at several times.

    A pair counts that has a run of each side that is there; a run that Ctrl-C ended is as good as none.
    """
    sessions: dict[str, list[SessionTurn]] = {}
    for one in records:
        if one.session and one.session.rules and one.session.rules.looks and (one.complete or one.failed):
            sessions.setdefault(one.session.name, []).append(one.session)
    return tuple(_taken(name, turns) for name, turns in sessions.items())


def _taken(name: str, turns: Sequence[SessionTurn]) -> LooksTaken:
    pairs = [{turn.pair for turn in turns if turn.side == side} for side in {turn.side for turn in turns}]
    looks = next(turn.rules.looks for turn in turns if turn.rules)
    return LooksTaken(name, looks, 1 + max(set.intersection(*pairs), default=-1))


def counting(records: Iterable[RunRecord], found: Iterable[LooksTaken]) -> list[RunRecord]:
    """Return the records without those that were made after the last look that their session reached."""
    ends = {one.session: one.taken[-1] for one in found if one.taken}

    def counts(turn: SessionTurn | None) -> bool:
        return turn is None or turn.name not in ends or turn.pair < ends[turn.name]

    return [one for one in records if counts(one.session)]
