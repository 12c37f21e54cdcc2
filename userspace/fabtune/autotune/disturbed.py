# SPDX-License-Identifier: GPL-2.0-or-later
"""What beside a step changed between the look before it and the one after: then nobody can tell what the step did."""

from collections.abc import Collection, Iterable, Mapping

import attrs

from fabtune.autotune.view import View
from fabtune.model.judgement import PRACTICAL
from fabtune.tune import journal
from fabtune.tune.far_end import FarEnd
from fabtune.tune.verify import no_longer_held


@attrs.frozen
class Disturbance:
    """What changed, in words, and whether that may be the step's own doing, or was others'."""

    why: str
    own: bool = False
    others: bool = False


def other_disks(before: View, after: View) -> Disturbance | None:
    """Return what says that two looks are not of the same disks under load, None where they are.

    A disk on which requests wait, and nothing moves, is under load.
    """
    if went := _matter(before.gone_bytes_per_s, before):
        return Disturbance(f"{went} went away during the look before it", others=True)
    stopped, began = (_not_in(one, other) for one, other in ((before, after), (after, before)))
    if stopped:
        return Disturbance(f"{stopped} stopped moving during it, or went away", own=True)
    return Disturbance(f"{began} began to move during it", others=True) if began else None


def _not_in(one: View, other: View) -> str:
    """Return the disks that move only in `one`, and enough to matter there."""
    rates: dict[str, float] = {}
    for way in one.ways:
        rates[way.device] = rates.get(way.device, 0.0) + way.bytes_per_s
    # One that went away may pass for one on which requests wait.
    there = {way.device for way in other.ways} - {*other.gone_bytes_per_s}
    return _matter({name: rate for name, rate in rates.items() if name not in there}, one)


def _matter(rates: Mapping[str, float], look: View) -> str:
    """Return the disks of those that move enough to matter in that look."""
    return ", ".join(name for name, rate in rates.items() if rate > PRACTICAL * look.bytes_per_s)


def _journalled() -> dict[str, int]:
    return {one.name: len(one.open_steps) for one in journal.transactions()}


@attrs.define
class Witness:
    """What this host's journal had before a look, by transaction: how many values each had not taken back.

    And where the target is another host, the state of what others had written there.
    """

    far: FarEnd | None = None
    _known: dict[str, int] = attrs.field(init=False, factory=_journalled)
    _there: dict[str, str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._there = self._others()

    def _others(self) -> dict[str, str]:
        return self.far.others() if self.far else {}

    def renew(self) -> None:
        """Take what is there now for what was there before the look that follows."""
        self._known, self._there = _journalled(), self._others()

    def changed_there(self, now: Mapping[str, str] | None = None) -> str:
        """Return what others have written or decided at the target's host since then, '' for nothing.

        `now` is what the host has just answered, where it need not be asked once more.
        """
        now = self._others() if now is None else now
        changed = [name for name in {**self._there, **now} if now.get(name) != self._there.get(name)]
        return f"{self.far.host}: transaction {changed[0]}" if self.far and changed else ""

    def note(self, names: Iterable[str]) -> None:
        """Note what a step did itself, by its transactions."""
        now = _journalled()
        self._known |= {name: now[name] for name in names if name in now}

    def disturbance(self, names: Collection[str]) -> Disturbance | None:
        """Return what somebody else wrote, or made of the values of the transactions `names`; None for nothing."""
        for one in journal.transactions():
            if self._known.get(one.name) != len(one.open_steps):
                why = f"transaction {one.name} ({one.profile}) was written or taken back meanwhile"
                return Disturbance(why, others=True)
        for value in no_longer_held(names):
            is_now = "cannot be read" if value.found is None else f"is {value.found}"
            note = f": {value.note}" if value.note else ""
            why = f"{value.tunable} of {value.device} {is_now}, and the step wrote {value.expected}{note}"
            return Disturbance(why, others=True)
        if changed := self.changed_there():
            return Disturbance(f"{changed} was written, kept or taken back there meanwhile", others=True)
        return None
