# SPDX-License-Identifier: GPL-2.0-or-later
"""What tuning is for: throughput, short requests, or both; whose requests those are; and which steps serve it."""

import enum
import statistics
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

import attrs

from fabtune.errors import CannotTellError
from fabtune.measure.measured import ALIKE
from fabtune.measure.request_times import DiskTimes
from fabtune.model.judgement import LEAST, LEAST_ROBUST, NO_RATIO, Judgement, Sides, Verdict, judge_together

# What short requests may cost of the throughput, at most.
LEAST_THROUGHPUT = 0.9
# And what throughput may cost of their times.
MOST_TIME = 1 / LEAST_THROUGHPUT
# A disk with less than this share of the bytes under way of the disk that has most of them stands beside a stream.
_BESIDE = 0.25
# Fewer requests have no slowest hundredth, and hardly a slowest twentieth.
_LEAST_REQUESTS = 20

Block = Mapping[str, DiskTimes]


class Goal(enum.Enum):
    """What a step has to bring to stay."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    BOTH = "both"


@attrs.frozen
class Figures:
    """What one look gave to judge by: blocks of throughput, and of requests' times in ms."""

    bytes_per_s: tuple[float, ...]
    p50_ms: tuple[float, ...] = ()
    p99_ms: tuple[float, ...] = ()
    sent_again_shares: tuple[float, ...] = ()
    # Why they say nothing of a step alone.
    disturbed: str = ""


@attrs.frozen
class JudgedStep:
    """One look against another: throughput, and where times are judged the p99 and the median beside it.

    `sent` is what was sent again, where that is judged as well.
    """

    throughput: Judgement
    p99: Judgement | None = None
    p50: Judgement | None = None
    sent: Judgement | None = None

    def serves(self, goal: Goal) -> bool:
        """Tell whether a step that this came of is worth keeping."""
        speed, tail, middle = self.throughput, self.p99, self.p50
        if tail is None or middle is None:
            return speed.verdict is Verdict.BETTER or self.spares
        if Verdict.WORSE in (tail.verdict, middle.verdict):
            return False
        if speed.low is None or speed.low < LEAST_THROUGHPUT:
            return False
        if goal is Goal.LATENCY:
            return tail.verdict is Verdict.BETTER
        # What cannot be told, or only that widely, may be worse.
        bounded = all(one.high is not None and one.high <= MOST_TIME for one in (tail, middle))
        return bounded and speed.verdict is not Verdict.WORSE and Verdict.BETTER in (speed.verdict, tail.verdict)

    def undecided(self, goal: Goal) -> bool:
        """Tell whether such a step would be worth keeping if what cannot be told of it were better."""
        best = [_at_best(one) for one in (self.throughput, self.p99, self.p50) if one]
        return not self.serves(goal) and JudgedStep(*best).serves(goal)

    @property
    def sends_less(self) -> bool:
        """Whether less is sent for what arrives."""
        return self.sent is not None and self.sent.verdict is Verdict.BETTER

    @property
    def spares(self) -> bool:
        """Whether that is so, and throughput is not seen to suffer."""
        speed = self.throughput
        return self.sends_less and speed.verdict is not Verdict.WORSE and (speed.low or 0.0) >= LEAST_THROUGHPUT


def _at_best(found: Judgement) -> Judgement:
    """Return a judgement as a longer look might give it."""
    if found.verdict is not Verdict.CANNOT_TELL:
        return found
    return attrs.evolve(found, verdict=Verdict.BETTER, low=1.0, high=1.0)


@attrs.frozen
class Aim:
    """A goal, and the disks whose requests' times count for it: settled by the first look, for all steps."""

    goal: Goal
    disks: frozenset[str] = frozenset()

    @property
    def by_times(self) -> bool:
        """Whether requests' times are judged."""
        return self.goal is not Goal.THROUGHPUT

    def figures(
        self, bytes_per_s: Sequence[float], blocks: Sequence[Block], sent_again_shares: Sequence[float] = ()
    ) -> Figures:
        """Return what is judged of a look; what was sent again by throughput alone."""
        if not self.by_times:
            return Figures(tuple(bytes_per_s), sent_again_shares=tuple(sent_again_shares))
        joined = joined_blocks(blocks, self.disks)
        middle, tail = (
            tuple(found for one in joined if (found := one.percentile_ms(percent)) is not None) for percent in (50, 99)
        )
        return Figures(tuple(bytes_per_s), middle, tail)

    def check(self, blocks: Sequence[Block]) -> None:
        """Raise CannotTellError where a look saw too few requests to judge their times."""
        if self.by_times and len(joined_blocks(blocks, self.disks)) < LEAST:
            requests = sum(block[disk].requests for block in blocks for disk in self.disks if disk in block)
            raise CannotTellError(
                f"cannot tell the p99 of {requests} requests: at least {LEAST * _LEAST_REQUESTS} are needed in each "
                "look; look for longer (--for)"
            )

    def p99_ms(self, blocks: Sequence[Block]) -> float | None:
        """Return the p99 of all that a look saw of the requests that count, None where times are not judged."""
        found = [block[disk] for block in blocks for disk in self.disks if disk in block]
        return reduce(add, found).percentile_ms(99) if found and self.by_times else None

    def outcome(self, before: Figures, after: Figures) -> JudgedStep:
        """Return how `after` compares with `before`: one family, so that all its figures together err rarely."""
        unfair = after.disturbed
        was, came = map(_whole, (before.bytes_per_s, after.bytes_per_s))
        sides = [_sides(was, came, 1, unfair)]
        if self.by_times:
            times = ((before.p99_ms, after.p99_ms), (before.p50_ms, after.p50_ms))
            sides += [_sides(a, b, -1, unfair, rounded=ALIKE / 2) for a, b in times]
        elif before.sent_again_shares and after.sent_again_shares:
            sides.append(_sides(before.sent_again_shares, after.sent_again_shares, -1, unfair))
            speed, sent = judge_together(sides)
            return JudgedStep(speed, sent=sent)
        return JudgedStep(*judge_together(sides))


def _sides(a: Sequence[float], b: Sequence[float], better: int, unfair: str, rounded: float = 0.0) -> Sides:
    """Return a figure of the blocks of two looks: what stands still does so in many of them, which are one draw."""
    found = Sides(a=tuple(a), b=tuple(b), better=better, paired=False, rounded=rounded, unfair=unfair)
    return attrs.evolve(found, unfair=unfair or NO_RATIO) if found.n >= LEAST and found.stood_still else found


def _whole(rates: Sequence[float]) -> tuple[float, ...]:
    """Return the rates of so few stretches that all of each counts: of many the judgement leaves out the slowest."""
    if len(rates) < LEAST_ROBUST:
        return tuple(rates)
    return tuple(statistics.mean(rates[place : place + 2]) for place in range(0, len(rates), 2))


def joined_blocks(blocks: Sequence[Block], disks: frozenset[str]) -> list[DiskTimes]:
    """Return the times of `disks` together, of so many blocks that follow each other that each has requests enough."""
    found: list[DiskTimes] = []
    waiting: list[DiskTimes] = []
    for block in blocks:
        waiting += [block[disk] for disk in sorted(disks) if disk in block]
        if sum(one.requests for one in waiting) >= _LEAST_REQUESTS:
            found.append(reduce(add, waiting))
            waiting = []
    return found


def beside_a_stream(under_way_bytes: Mapping[str, float]) -> frozenset[str]:
    """Return the disks whose requests stand beside another's stream; all where there is no stream, or nothing else.

    The requests of a stream wait for each other: their time is their number over its rate, whatever is set.
    """
    most = max(under_way_bytes.values(), default=0.0)
    found = frozenset(disk for disk, known in under_way_bytes.items() if known < _BESIDE * most)
    return found or frozenset(under_way_bytes)
