# SPDX-License-Identifier: GPL-2.0-or-later
"""What is left at a target that was not named: what lifts a limiter there is neither seen nor written."""

import attrs

from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.learnt import Learnt
from fabtune.autotune.view import View
from fabtune.autotune.wanted import to_lift
from fabtune.tune.lift import lifted_at_the_target
from fabtune.why.limiters.service import SENDER_OR_LINE, SENDER_SIDE

# What may be the target's buffer or pace as well as what no setting lifts.
_OF_A_SENDER = frozenset({SENDER_SIDE.name, SENDER_OR_LINE.name})
_AGAIN = "tune again with --target-host HOST (--target-netns NAME where it is in a namespace of this host)"


@attrs.frozen
class AtTarget:
    """The target's tunables that lift `limiters`; `unseen` where it cannot be told from here whether any does."""

    limiters: tuple[str, ...] = ()
    tunables: tuple[str, ...] = ()
    unseen: bool = False

    @property
    def remark(self) -> str:
        """What is left there, and how to tune it; '' where nothing is as far as can be seen."""
        if self.tunables:
            what = " and ".join(one.replace("-", " ") for one in self.limiters)
            return f"at the target, what lifts {what} is among {', '.join(self.tunables)}: {_AGAIN}"
        return f"what limits may be at the target, which was not looked at: {_AGAIN}" if self.unseen else ""


def left_at_target(asked: ClimbAsked, now: View, learnt: Learnt) -> AtTarget:
    """Return what is left to be tried at a target that nobody named."""
    if asked.target_host or asked.target_netns is not None:
        return AtTarget()
    shares = [one for one in to_lift(now, learnt) if lifted_at_the_target([one])]
    limiters = dict.fromkeys(one.limiter for one in shares)
    unseen = any(not way.both_ends and way.first.limiter in _OF_A_SENDER for way in now.ways)
    return AtTarget(tuple(limiters), tuple(lifted_at_the_target(shares)), unseen)
