# SPDX-License-Identifier: GPL-2.0-or-later
"""A limiter: a name, how much of a moment it accounts for, what shows it, and what lifts it.

    LIMITER = Limiter(
        name="receive-window", stage=HELD, claim=claim, subject="{end}'s receive window", evidence=evidence,
        lifts=("iscsi.tcp_window",),
    )

Stages are asked in order, because the later question makes sense only where the earlier ones say no: does anything
move at all, is the line full, does the sender have data that it may not send, and if it has none, who owes it some.
"""

from collections.abc import Callable, Iterable

import attrs

from fabtune.model.limits import Evidence
from fabtune.model.observation import ENDS
from fabtune.why.one_way import Moment, OneWay

STOPPED, LINE, HELD, OWED = range(4)
CANNOT_TELL = "cannot-tell"


@attrs.frozen
class Limiter:
    """One cause.

    `claim` is the share of a moment that it accounts for, 0..1; in the stage OWED of what the stages before have left.
    `order` is within a stage.  `subject` names it in the verdict, `ends` whose tunables among `lifts` can lift it.
    `among` makes it one of those that cannot be told apart from where one looks: the names of the candidates; `also`
    returns those that are candidates by what was seen.
    """

    name: str
    stage: int
    claim: Callable[[Moment], float]
    subject: Callable[[OneWay], str]
    evidence: Callable[[OneWay], Iterable[Evidence]]
    lifts: tuple[str, ...] = ()
    # Whether what lifts it does so there.
    felt: Callable[[OneWay], bool] = lambda _: True
    ends: Callable[[OneWay], tuple[str, ...]] = lambda _: ENDS
    advice: Callable[[OneWay], str] = lambda _: ""
    # The profile whose rows lift it, where that is not the usual one of such a path.
    profile: str = ""
    order: int = 0
    among: tuple[str, ...] = ()
    also: Callable[[OneWay], tuple[str, ...]] = lambda _: ()
    # Whose doing it is where many have it in common: target, path or initiator; '' for none of them alone.
    doing: str = ""
    # Whether requests are with it though nothing of theirs waits to be sent.
    serves: bool = False

    @property
    def holds_up(self) -> bool:
        """Whether requests that are under way wait for it: not for who has too few of them under way."""
        return self.serves or (not self.among and self.stage in (LINE, HELD))


def mb(bytes_per_s: float) -> str:
    """Return a rate in words."""
    return f"{bytes_per_s / 1e6:.1f} MB/s"


def kib(size_bytes: float) -> str:
    """Return a size in words."""
    return f"{size_bytes / 1024:.0f} KiB"
