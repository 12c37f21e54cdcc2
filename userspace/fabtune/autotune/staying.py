# SPDX-License-Identifier: GPL-2.0-or-later
"""What is to be known of the values that a climb leaves in force: what a reboot does to them, and whom they touch."""

from collections.abc import Iterable, Sequence

import attrs

from fabtune.autotune.climbed import Climbed
from fabtune.tune.locate import OUTLIVE_A_BOOT
from fabtune.tune.plan import Row

_CONGCTL, _TAKES_ALL = "route.congctl", "bbr"
_UNITS = "fabtune-apply.service and fabtune-apply-sessions.service"


@attrs.frozen
class _Value:
    """The last value that stays of one tunable of one device, the step that wrote it, and on which host."""

    row: Row
    step: int
    host: str

    @property
    def goes_with_boot(self) -> bool:
        """Whether a reboot gives it up; one that it gives up for the same is no loss."""
        tunable, wanted = self.row.tunable, self.row.wanted
        if tunable.backend in OUTLIVE_A_BOOT or wanted is None:
            return False
        return tunable.default is None or not tunable.same(wanted, tunable.native(tunable.default))


def told_of_staying(steps: Sequence[Climbed]) -> list[str]:
    """Return a sentence on what a reboot takes of the steps that stay, and one where others may get little."""
    staying = _values(steps)
    found = [_taken_by_boot(one for one in staying if one.goes_with_boot)]
    found += [_leaves_little(one.step) for one in staying if _is_aggressive(one.row)]
    return list(dict.fromkeys(filter(None, found)))


def _values(steps: Sequence[Climbed]) -> list[_Value]:
    found: dict[tuple[object, ...], _Value] = {}
    for number, step in enumerate(steps, 1):
        for made in step.made if step.kept else ():
            for row in made.rows:
                place = made.end, made.host, row.tunable.name, row.device.key if row.device else None
                found[place] = _Value(row, number, made.host)
    return list(found.values())


def _taken_by_boot(values: Iterable[_Value]) -> str:
    lost = list(values)
    if not lost:
        return ""
    names = ", ".join(dict.fromkeys(one.row.tunable.name for one in lost))
    hosts = " and ".join(dict.fromkeys(f"on {one.host}" if one.host else "here" for one in lost))
    return f"a reboot leaves node records, and takes {names} away: {_UNITS}, enabled {hosts}, write that again"


def _is_aggressive(row: Row) -> bool:
    return (row.tunable.name, row.wanted) == (_CONGCTL, _TAKES_ALL)


def _leaves_little(step: int) -> str:
    return (
        f"step {step} brought {_TAKES_ALL}, which leaves the cubic of others little of a line: when others come to use "
        "it, take that step back and tune again"
    )
