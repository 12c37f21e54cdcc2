# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes a step back on this host, and says what of it is not back."""

from collections.abc import Callable, Iterator, Sequence

from fabtune.errors import FabtuneError
from fabtune.tune.pending import Leave
from fabtune.tune.undo import Report, undo

# What a value is as it was by, or no longer ours to give back.
_BACK = ("restored", "already", "passed-on", "gone")


def here(names: Sequence[str], progress: Callable[[str], None]) -> tuple[bool, list[str]]:
    """Take back the transactions `names`, connecting anew in place with the last of them.

    Return whether that was done, and a sentence for each thing that is not as it was: one that fails keeps none of the
    others.
    """
    connected, left = False, list[str]()
    for name in names:
        by_hand = f"`fabtune revert --transaction {name}` tries again"
        try:
            report = undo(None, name, None, "", False, Leave(reconnect=name == names[-1]), progress)
        except (FabtuneError, OSError) as error:
            left.append(f"{name} is not taken back: {error}; {by_hand}")
            continue
        connected = connected or bool(report.reconnected)
        left += [f"{text}; {by_hand}" for text in _not_back(report)]
    return connected, left


def _not_back(report: Report) -> Iterator[str]:
    yield from report.problems
    for one in report.outcomes:
        if one.state not in _BACK:
            found = "" if one.found is None else f", which is {one.found}"
            yield f"{one.step.tunable} of {one.step.device.label}{found}, was not taken back: {one.note}"
