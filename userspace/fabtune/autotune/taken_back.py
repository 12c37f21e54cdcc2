# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes a step back on this host, and says what of it is not back."""

from collections.abc import Callable, Iterator, Sequence

import attrs

from fabtune.errors import FabtuneError
from fabtune.tune.pending import RECONNECT, TARGET_RELOGIN, Leave
from fabtune.tune.undo import Report, undo

# What a value is as it was by, or no longer ours to give back.
_BACK = ("restored", "already", "passed-on", "gone")


@attrs.frozen
class TakenBack:
    """What came of it: whether connections were made anew, or still are to be, and a sentence on each thing left."""

    connected: bool
    due: bool
    left: list[str]


def here(names: Sequence[str], progress: Callable[[str], None], connects: bool = True) -> TakenBack:
    """Take back the transactions `names`; where that may be felt so (`connects`), connect anew with the last of them.

    Else a new connection would bring nothing but what others left due.  One that fails keeps none of the others.
    """
    connected, due, left = False, False, list[str]()
    for name in names:
        by_hand = f"`fabtune revert --transaction {name}` tries again"
        try:
            report = undo(None, name, None, "", False, Leave(reconnect=connects and name == names[-1]), progress)
        except (FabtuneError, OSError) as error:
            left.append(f"{name} is not taken back: {error}; {by_hand}")
            continue
        connected = connected or bool(report.reconnected)
        # A target of this host owes its initiators' logins, which new connections of theirs bring.  What else is to be
        # done others have left: a re-login, a reload or a boot no step asks for.
        due = due or connects and any(one.action in (RECONNECT, TARGET_RELOGIN) for one in report.pending)
        left += [f"{text}; {by_hand}" for text in _not_back(report)]
    return TakenBack(connected, due and not connected, left)


def _not_back(report: Report) -> Iterator[str]:
    yield from report.problems
    for one in report.outcomes:
        if one.state not in _BACK:
            found = "" if one.found is None else f", which is {one.found}"
            yield f"{one.step.tunable} of {one.step.device.label}{found}, was not taken back: {one.note}"
