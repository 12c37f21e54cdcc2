# SPDX-License-Identifier: GPL-2.0-or-later
"""Step by step to the bound: each step lifts what limits now, and stays only if the load is faster for it."""

from collections.abc import Callable

import attrs

from fabtune.autotune.at_target import AtTarget, left_at_target
from fabtune.autotune.climb_asked import ClimbAsked
from fabtune.autotune.climbed import Climbed
from fabtune.autotune.disturbed import Witness
from fabtune.autotune.first_look import first_look, joined, of_several_sawteeth, on_quiet_ground
from fabtune.autotune.goal import Aim, Goal, beside_a_stream
from fabtune.autotune.learnt import OVERFLOW, KnownLine, Learnt
from fabtune.autotune.made import take_back_commands
from fabtune.autotune.new_connections import NewConnections, bring_owed
from fabtune.autotune.staying import told_of_staying
from fabtune.autotune.step import PROMISING, TuningStep
from fabtune.autotune.told import ToldRate, other_rates, rtt_doubts
from fabtune.autotune.view import View
from fabtune.autotune.wanted import PATH_QUEUE, PROBING, TOLD_PACE
from fabtune.errors import ExitCode
from fabtune.host import systemd
from fabtune.measure.request_times import check_histograms
from fabtune.model.judgement import Verdict
from fabtune.tune import owed, signals
from fabtune.tune.far_end import FarEnd, RefusedThereError
from fabtune.tune.lift import is_named
from fabtune.tune.saved_plan import HostChangedError
from fabtune.why.limiters.congestion import LOSS
from fabtune.why.limiters.line import COMPETING

AT_THE_BOUND, NOTHING_LEFT = "at the bound", "nothing left that settings lift"
NO_MORE_STEPS = "as many steps as --steps allows were taken, and more may help"
NOT_TRIED = "nothing left that settings lift without new connections, and none can be made in place"
NOT_PLANNED = "nothing left that settings lift, but for what could not be planned"
# Where only the target, which was not named, has something left.
NOTHING_HERE = "nothing left at this end"
NOT_TRIED_HERE = f"{NOTHING_HERE} without new connections, and none can be made in place"
UNDECIDED = "a step could not be judged (look longer, --for)"
INTERRUPTED = "ended before its last step could be judged"
_NO_SWITCH = (
    "no systemd runs here: a step that a power cut or a kill interrupts stays, unjudged; `fabtune verify` names it "
    "then, with what takes it back"
)
# What a step of this climb paced to is what the line itself showed.
_SHOWN = frozenset({OVERFLOW, PATH_QUEUE, PROBING})
# What makes no window larger.
_NO_WINDOW = _SHOWN | {LOSS.name, TOLD_PACE}


@attrs.define
class Climb:
    """All steps, and why there are no more; `first` and `last` are what was seen before and after all of them.

    `shown_bit_per_s` is what the line showed to carry, where a step that paced to that stays, or was as fast, and
    `other_rates` are those that profiles from before were told of other paths than these.
    """

    first: View
    last: View
    aim: Aim
    ended: str = ""
    steps: list[Climbed] = attrs.field(factory=list)
    remarks: list[str] = attrs.field(factory=list)
    shown_bit_per_s: float | None = None
    other_rates: tuple[ToldRate, ...] = ()
    learnt: Learnt = attrs.field(factory=Learnt)
    witness: Witness = attrs.field(factory=Witness)
    # What was not written, as nothing would have felt it.
    not_tried: list[str] = attrs.field(factory=list)
    # What a target that was not named may have left.
    at_target: AtTarget = attrs.field(factory=AtTarget)
    # Whether the last step was not written, as this host or the target's had changed since it was planned.
    host_changed: bool = False

    @property
    def take_back(self) -> list[str]:
        """The commands that take back the steps that stay, and nothing else."""
        return take_back_commands([one.made for one in self.steps if one.kept])

    @property
    def exit_code(self) -> ExitCode:
        """5 where nothing stays, and what limits cannot be told, or whether a step helped.

        1 where nothing stays, and what might have was not written.
        """
        if any(one.kept for one in self.steps) or self.ended == AT_THE_BOUND:
            return ExitCode.DONE
        here = self.ended == NOTHING_HERE and bool(self.at_target.tunables)
        if here or self.ended in (NOT_TRIED, NOT_TRIED_HERE, NOT_PLANNED):
            return ExitCode.FAILED
        told = self.steps or any(map(is_named, self.last.ways))
        return ExitCode.DONE if told and not self._untold else ExitCode.CANNOT_TELL

    def undecided(self, step: Climbed) -> bool:
        """Tell whether a step went back because it could not be judged."""
        return not (step.kept or step.unfair) and step.outcome.undecided(self.aim.goal)

    @property
    def _untold(self) -> bool:
        """Whether the last trial of anything went back because it could not be judged."""
        return any(map(self.undecided, {one.changes: one for one in self.steps}.values()))

    @property
    def why_no_more(self) -> str:
        """Why nothing is left to be tried: a full line is no answer to how long requests take."""
        if self.last.at_the_bound and not self.aim.by_times:
            return AT_THE_BOUND
        if self._untold:
            return UNDECIDED
        if self.last.at_the_bound:
            return AT_THE_BOUND
        if self.learnt.no_step and not self.not_tried:
            return NOT_PLANNED
        if self.at_target.remark:
            return NOT_TRIED_HERE if self.not_tried else NOTHING_HERE
        return NOT_TRIED if self.not_tried else NOTHING_LEFT


def climb(
    asked: ClimbAsked, progress: Callable[[str], None], interrupted: Callable[[Climb], None] = lambda _: None
) -> Climb:
    """Tune until the bound, or until nothing is left.  Raises FabtuneError, KeyboardInterrupt, the step taken back.

    `interrupted` is called before with the steps that were whole, if any.  CannotTellError where the goal is about
    times that nothing tells, InputError where new connections would bring what somebody else wrote.
    """
    # A step is not to wait, half done or unjudged, for whoever reads this.
    progress = signals.unfailing(progress)
    if asked.goal is not Goal.THROUGHPUT:
        check_histograms()
    far = FarEnd(asked.target_host) if asked.target_host else None
    if far:
        far.check()
        far.wait_for_others(progress)
    brought = bring_owed(asked, progress)
    witness = Witness(far)
    learnt = Learnt(friendly=asked.friendly)
    owed.let_leftovers_go()
    now = first_look(asked, learnt, progress)
    aim = _aim(asked.goal, now)
    # What a step of this climb is told is what it measured.
    found = Climb(now, now, aim, remarks=brought, other_rates=other_rates(), learnt=learnt, witness=witness)
    if aim.by_times:
        found.remarks.append(_whose(aim, now))
    found.remarks += rtt_doubts()
    if not systemd.manages_host():
        found.remarks.append(_NO_SWITCH)
        # Whoever is killed later says nothing.
        progress(_NO_SWITCH)
    try:
        _take_steps(asked, found, progress)
    except BaseException:
        # A load that ends is no reason to keep what it showed so far to oneself.
        if found.steps:
            found.ended = INTERRUPTED
            found.remarks += _of_path(found)
            interrupted(found)
        raise
    found.remarks += _of_path(found)
    return found


def _take_steps(asked: ClimbAsked, found: Climb, progress: Callable[[str], None]) -> None:
    """Take step after step, and note them and why there are no more in `found`."""
    now = found.first
    # What did not help once is not tried again; what could not be judged for others' doing is, once, and what was
    # faster, perhaps by chance.
    learnt, once_more, anew = found.learnt, set[tuple[str, ...]](), NewConnections(progress)
    while not found.ended:
        now = found.last = on_quiet_ground(asked, learnt, found.witness, now, progress)
        found.first = found.first if found.steps else now
        progress(now.verdict)
        step = TuningStep.next(asked, found.aim, now, learnt, progress, found.witness, anew)
        found.not_tried = anew.not_tried
        if not step and found.witness.changed_there():
            # What others try there by now may be why.
            continue
        if step and len(found.steps) == asked.most_steps:
            found.ended = NO_MORE_STEPS
        elif step:
            if (taken := _taken(found, step, progress)) is None:
                now = found.last
                continue
            climbed, after = taken
            found.steps.append(climbed)
            progress(f"step {len(found.steps)} {_told(climbed, found.undecided(climbed))}")
            if other := climbed.disturbance:
                found.remarks.append(f"step {len(found.steps)} could not be judged, and went back: {other.why}")
                progress(found.remarks[-1])
                now = found.last = step.look_again()
                if not (other.own or climbed.limiters in once_more):
                    once_more.add(climbed.limiters)
                    continue
            elif climbed.kept:
                found.last = after
                now = found.last = of_several_sawteeth(asked, learnt, after, progress)
            elif _worth_more_looks(asked, found, step, climbed):
                progress(f"that may be chance: looking for {asked.seconds:g} s without it ...")
                learnt.perhaps_chance |= {step.limiters, step.changes}
                now = found.last = joined(step.before, step.look_again())
                continue
            _learn(found, step, climbed, after)
        else:
            found.at_target = left_at_target(asked, now, learnt)
            found.ended = found.why_no_more


def _taken(found: Climb, step: TuningStep, progress: Callable[[str], None]) -> tuple[Climbed, View] | None:
    """Take a step; None where it is to be planned anew.

    Others came before it at the target's host, or a host changed by itself: then `found.last` is a look since, but
    where that comes twice in a row it is not waited for any longer.
    """
    try:
        taken = step.take()
    except (HostChangedError, RefusedThereError) as error:
        if step.witness.changed_there():
            return None
        if not isinstance(error, HostChangedError):
            raise
        if found.host_changed:
            raise HostChangedError(
                f"the host changed twice between the plan of a step and its write, last: {error.changes}; tune again "
                "when its sessions and values stay as they are"
            ) from error
        found.host_changed = True
        progress(f"the host has changed since the step was planned: {error.changes}; planning anew ...")
        found.last = step.look_again()
        return None
    found.host_changed = False
    return taken


def _learn(found: Climb, step: TuningStep, climbed: Climbed, after: View) -> None:
    """Note in `found` what a step that could be judged, and the look at it, say of what is left to be tried."""
    learnt = found.learnt
    rate_bit_per_s = step.wanted.reason.rate_bit_per_s
    beyond_shown = learnt.line_of(step.before).beyond_shown(rate_bit_per_s)
    if climbed.kept:
        learnt.in_vain.clear()
        learnt.perhaps_chance.clear()
    else:
        # What somebody else disturbed was not in vain as far as anybody knows.
        learnt.in_vain |= set() if climbed.disturbance and climbed.disturbance.others else {step.changes}
        learnt.did_not_help(step.limiters, rate_bit_per_s, step.before)
    # A small window keeps a load from losing much: without it losses are what is to be lifted, too.
    wider = not _NO_WINDOW.intersection(step.limiters)
    learnt.behind_losses = after.losing if wider and not climbed.kept else frozenset()
    # What a line that others use has for these sessions changes by itself: no step follows it.
    learnt.tried |= {COMPETING.name}.intersection(step.limiters)
    if _SHOWN.intersection(step.limiters):
        # What sends much again without that pace loses it to the path, or to a pace too high to tell.
        tells = not beyond_shown and not step.before.floods
        as_fast = climbed.outcome.throughput.verdict is Verdict.SAME and tells
        if climbed.kept or as_fast:
            found.shown_bit_per_s = rate_bit_per_s
        learnt.tried |= {TOLD_PACE, OVERFLOW} if climbed.kept else set()
        # Without a pace it may have overfilled the queue, and helped no one.
        learnt.tried -= {LOSS.name} if climbed.kept else set()
    elif climbed.kept:
        learnt.another_helped()
        # What was a window's best is no pace for a larger one.
        learnt.tried -= {TOLD_PACE} if wider else set()


def _worth_more_looks(asked: ClimbAsked, found: Climb, step: TuningStep, climbed: Climbed) -> bool:
    """Tell whether a step that could not be judged was so much faster that it is worth a second trial, its only one.

    What a pace gains is little: so much more is chance.
    """
    if found.aim.by_times or step.wanted.spares or len(found.steps) == asked.most_steps:
        return False
    faster = found.undecided(climbed) and (climbed.outcome.throughput.ratio or 0.0) >= PROMISING
    return faster and found.learnt.perhaps_chance.isdisjoint({step.limiters, step.changes})


def _told(climbed: Climbed, undecided: bool) -> str:
    commands = " and ".join(f"`{one}`" for one in take_back_commands([climbed.made]))
    takes = f"; {commands} take{'s' * (len(climbed.made) == 1)} it back" if commands else ""
    if climbed.kept:
        return f"stays{takes}"
    return "could not be judged, and is taken back" if undecided else "is taken back"


def _of_path(found: Climb) -> list[str]:
    """Return a sentence on each thing that is not known of the path, or not as told, and on what stays."""
    told = [*found.not_tried, *(f"not seen: {text}" for one in (found.first, found.last) for text in one.missing)]
    told += [*sorted(found.learnt.left_alone), *found.learnt.no_step.values()]
    told += filter(None, [found.at_target.remark])
    if shared := found.learnt.shared:
        told.append(_shared(shared))
    line = found.learnt.line_of(found.last)
    unpaced = [one for one in found.steps if TOLD_PACE in one.limiters]
    if any(one.kept for one in unpaced):
        told.append(
            "the connections were held to a pace below what the line carries: the rate that it came from is not the "
            "line's"
        )
    if found.shown_bit_per_s is not None and not line.overtaken(found.shown_bit_per_s):
        told += found.first.rates_above(found.shown_bit_per_s)
    else:
        told += found.last.rate_doubts or found.first.rate_doubts
        # Without it they were no faster: the line carries no more.
        known = any(one.outcome.throughput.verdict in (Verdict.SAME, Verdict.WORSE) for one in unpaced)
        told += [] if known else found.last.pace_doubts
    if rate := found.last.filled_bit_per_s:
        apart = len({one.session.portal for one in found.last.seen}) > 1
        told.append(
            f"the line{', or the lines of their portals together,' * apart} is full with {rate / 1e6:.1f} Mb/s of "
            "these sessions; what others send over it, if they do, is not in that (--rate tells)"
        )
        told += [] if apart else filter(None, (one.doubt(rate) for one in found.other_rates))
    told += told_of_staying(found.steps)
    return list(dict.fromkeys(told))


def _shared(line: KnownLine) -> str:
    """Return a sentence on the others that use the line."""
    ours, all_of_it = (f"{8 * one / 1e6:.1f}" for one in (line.queued_bytes_per_s, line.bytes_per_s))
    return (
        f"others use the line: these sessions had {ours} Mb/s of its {all_of_it} or more while a queue stood on it; "
        "what would leave others less than half as much as these sessions have does not stay (--unfair keeps it)"
    )


def _whose(aim: Aim, first: View) -> str:
    """Return a sentence on whose requests' times are judged."""
    counted, streams = (", ".join(sorted(found)) for found in (aim.disks, {*first.under_way_bytes} - aim.disks))
    return f"p99 and median are those of the requests of {counted}{f', beside the stream of {streams}' * bool(streams)}"


def _aim(goal: Goal, first: View) -> Aim:
    """Return the aim of all steps.  Raises CannotTellError where a look sees too few requests for it."""
    aim = Aim(goal, beside_a_stream(first.under_way_bytes)) if goal is not Goal.THROUGHPUT else Aim(goal)
    aim.check(first.times)
    return aim
