# SPDX-License-Identifier: GPL-2.0-or-later
"""Step by step to the bound: each step lifts what limits now, and stays only if the load is faster for it."""

from collections.abc import Callable

import attrs

from fabtune.autotune.step import ClimbAsked, Climbed, TuningStep
from fabtune.autotune.view import View
from fabtune.errors import ExitCode
from fabtune.host import systemd
from fabtune.tune.far_end import FarEnd

AT_THE_BOUND, NOTHING_LEFT, NO_MORE_STEPS = "at the bound", "nothing left that settings lift", "no more steps"


@attrs.define
class Climb:
    """All steps, and why there are no more; `first` and `last` are what was seen before and after all of them."""

    first: View
    last: View
    ended: str = ""
    steps: list[Climbed] = attrs.field(factory=list)
    remarks: list[str] = attrs.field(factory=list)

    @property
    def exit_code(self) -> ExitCode:
        """5 where nothing was changed and what limits cannot be told."""
        told = any(share.limiter and not share.among for way in self.last.ways for share in way.shares[:1])
        return ExitCode.DONE if told or self.steps else ExitCode.CANNOT_TELL


def climb(asked: ClimbAsked, progress: Callable[[str], None]) -> Climb:
    """Tune until the bound, or until nothing is left.  Raises FabtuneError, KeyboardInterrupt, the step taken back."""
    if asked.target_host:
        FarEnd(asked.target_host).check()
    progress(f"looking for {asked.seconds:g} s ...")
    now = asked.look()
    found = Climb(now, now)
    if not systemd.manages_host():
        found.remarks.append("no systemd runs here: a step that a power cut interrupts is left to `fabtune revert`")
    # What did not help once is not tried again.
    tried: set[str] = set()
    while not found.ended:
        progress(now.verdict)
        if rate := now.filled_bit_per_s:
            found.remarks.append(f"the line carries {rate / 1e6:.1f} Mb/s, as the load shows that fills it")
        step = None
        if now.at_the_bound:
            found.ended = AT_THE_BOUND
        elif len(found.steps) == asked.most_steps:
            found.ended = NO_MORE_STEPS
        else:
            step = TuningStep.next(asked, now, tried, progress)
            found.ended = "" if step else NOTHING_LEFT
        if step:
            climbed, after = step.take()
            found.steps.append(climbed)
            told = "stays; `fabtune revert` takes it back" if climbed.kept else "is taken back"
            progress(f"step {len(found.steps)} {told}")
            now = found.last = after if climbed.kept else now
            tried |= {one.limiter for one in step.reason.shares} if not climbed.kept else set()
    return found
