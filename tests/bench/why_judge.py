# SPDX-License-Identifier: GPL-2.0-or-later
"""Judges kept runs: the truth of each case, what `why` says of its observations, and what `whatif` foretells."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import attrs
from why_cases import BY_NAME, THRESHOLD

from fabtune.model import typed, units
from fabtune.model.foretell import Foretold, foretell
from fabtune.model.observation import Observation
from fabtune.model.path import LINUX_FRAMING, NetworkPath
from fabtune.tune.asked import asked
from fabtune.why.judging import Judged, judged
from fabtune.why.summing_up import with_rate

# Two lifts whose gains are this near each other are both the truth, or as near as two seeds of the same case are.
_TIE = 0.03
# Where the seeds differ by more, the truth is the lift that is best in their mean.
_NOISE = 0.10
# A run that carries this share of the line has nothing to gain.
_AT_BOUND = 0.97
# A direction with less of the bytes is not judged.
_MINOR = 0.1
# The truth of a run that nothing helps and that is not at the line.
UNKNOWN = "unknown"
# Settings of the lab that no tunable of a host is.
_OF_THE_LAB = ("path.", "disk.", "load.")


@dataclass(frozen=True)
class Run:
    """One kept run: which lift, the settings that it changed, the whole of them, and what was seen."""

    lift: str
    changed: Mapping[str, str]
    settings: Mapping[str, str]
    seen: Observation

    @cached_property
    def bytes_per_s(self) -> float:
        """What both directions moved."""
        return sum(way.moved_bytes for way in self.seen.disk.ways.values()) / self.seen.disk.elapsed_s

    @property
    def _line(self) -> float:
        rate = units.parse_bit_per_s(self.settings["path.rate"]) / 8
        return NetworkPath(0.0, rate, framing_bytes=LINUX_FRAMING).goodput_bytes_per_s

    @property
    def at_the_bound(self) -> bool:
        """Whether the line is full, in each direction that is asked for."""
        ways = 2 if self.settings["load.op"] == "mixed" else 1
        return self.bytes_per_s >= _AT_BOUND * ways * self._line

    def fills_the_line(self, way: str) -> bool:
        """Whether direction `way` is at the line, or the run as a whole is."""
        moved = self.seen.disk.ways[way].moved_bytes / self.seen.disk.elapsed_s
        return self.at_the_bound or moved >= _AT_BOUND * self._line

    def from_one_end(self) -> Observation:
        """Return what the initiator alone could see."""
        return attrs.evolve(self.seen, target=None)


def read_run(kept: Mapping[str, Any], settings: Mapping[str, str], where: str) -> Run:
    """Return a run as it was kept, with the rate told that its path had."""
    whole = {**settings, **kept["settings"]}
    seen = typed.TOLERANT.read(Observation, kept["observation"], where)
    rate = units.parse_bit_per_s(whole["path.rate"]) / 8
    return Run(kept["lift"], kept["settings"], whole, attrs.evolve(seen, rate_bytes_per_s=rate, rate_by="--rate"))


@dataclass(frozen=True)
class Truth:
    """A case: its runs, and which lifts raised its throughput most."""

    name: str
    runs: tuple[Run, ...]
    # Of a cause that comes and goes: its name, and the share of the time for which it is there.
    duty: tuple[str, float] | None = None
    seed: int = 1
    # By what share the same configuration moves more with another seed.
    noise: float = 0.0
    # What each lift brings in the mean over the configuration's seeds.
    mean_gains: Mapping[str, float] = field(default_factory=dict)

    @property
    def base(self) -> Run:
        """The run as it is."""
        return self.runs[0]

    @cached_property
    def gains(self) -> dict[str, float]:
        """How many times as much it moves with each lift alone."""
        return {run.lift: run.bytes_per_s / self.base.bytes_per_s for run in self.runs[1:] if run.lift != "all"}

    @property
    def noisy(self) -> bool:
        """Whether its seeds differ by so much that one alone does not tell the truth."""
        return self.noise > _NOISE

    @cached_property
    def lifts(self) -> tuple[str, ...]:
        """The lifts that raise it most, of settings first, then of the world's; none where nothing does."""
        gains = self.mean_gains if self.noisy else self.gains
        tie = _TIE if self.noisy else max(_TIE, self.noise)
        for world in (False, True):
            mine = {lift: gain for lift, gain in gains.items() if is_world(lift) == world}
            best = max(mine.values(), default=0.0)
            if best >= 1 + THRESHOLD:
                return tuple(lift for lift, gain in mine.items() if gain >= max(best * (1 - tie), 1 + THRESHOLD))
        return ()

    @property
    def configuration(self) -> str:
        """The case without its seed."""
        return self.name.removesuffix(f"-{self.seed}")

    @property
    def is_double(self) -> bool:
        """Whether two limiters were put in."""
        return any(run.lift == "all" for run in self.runs)


def share_error_points(truth: Truth) -> float | None:
    """Return by how many points of a hundred the share of what comes and goes is off; None where nothing does."""
    if truth.duty is None:
        return None
    limiter, share = truth.duty
    told = sum(one.share for one in busiest(judged(truth.base.seen)).shares if one.limiter == limiter)
    return 100 * abs(told - share)


def busiest(found: Sequence[Judged]) -> Judged:
    """Return the direction that moved more."""
    return max(found, key=lambda one: one.bytes_per_s)


def is_world(lift: str) -> bool:
    """Return whether a lift is of no setting of a host."""
    return bool(BY_NAME[lift].get("world"))


def limiters_of(lifts: Iterable[str], run: Run, way: str) -> set[str]:
    """Return the names that are right for direction `way` of `run`, whose throughput `lifts` raise most.

    The line is one only of what fills it; there are none where the truth of that direction is not known.
    """
    names = {name for lift in lifts for name in BY_NAME[lift]["limiter"].get(way, [])}
    if run.fills_the_line(way):
        return names or {"line"}
    return names - {"line"}


def score(lifts: Sequence[str], run: Run, *, one_end: bool = False, rate_told: bool = True) -> tuple[float, str, str]:
    """Return how right `why` is of `run`, whose throughput `lifts` raise most, the truth and what it said.

    A stated choice that has the truth counts half.  Of several directions all have to be right; half of that is half.
    """
    seen = run.from_one_end() if one_end else run.seen
    every = judged(seen if rate_told else _rate_untold(seen))
    least = _MINOR * sum(one.bytes_per_s for one in every)
    scored = {}
    for one in (one for one in every if one.bytes_per_s >= least):
        if right := limiters_of(lifts, run, one.way):
            told = one.first.limiter
            points = 1.0 if told in right else 0.5 if right.intersection(one.first.among) else 0.0
            scored[one.way] = points, "/".join(sorted(right)), told
    if not scored:
        return 0.0, UNKNOWN, busiest(every).first.limiter if every else "nothing moves"
    points = math.floor(2 * statistics.fmean(points for points, _, _ in scored.values())) / 2
    return (
        points,
        _of_ways({way: right for way, (_, right, _) in scored.items()}),
        _of_ways({way: told for way, (_, _, told) in scored.items()}),
    )


def _rate_untold(seen: Observation) -> Observation:
    """Return `seen` as somebody who gives no --rate has it."""
    return with_rate(attrs.evolve(seen, rate_bytes_per_s=None, rate_by=""), None)


def _of_ways(said: Mapping[str, str]) -> str:
    """Return in one word what is the same in all directions, else what is of each."""
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{way}: {text}" for way, text in said.items())


@dataclass(frozen=True)
class Prediction:
    """One lift of one case: what was foretold (None: it was left open) and what came."""

    case: str
    lift: str
    foretold: float | None
    low: float
    high: float | None
    measured: float
    before: float
    # Whether it ends where the line is full, whose rate was told.
    at_line: bool = False

    @property
    def between(self) -> bool:
        """Whether more than the told rate and what is there already had to be known."""
        return not self.at_line and abs(self.measured / self.before - 1) >= _TIE

    @property
    def holds(self) -> bool:
        """Whether what came is between the least and the most that were said."""
        return self.low <= self.measured and (self.high is None or self.measured <= self.high)

    @property
    def error(self) -> float | None:
        """By what share it was off."""
        return None if self.foretold is None else abs(self.foretold - self.measured) / self.measured


def _words(changed: Mapping[str, str]) -> list[str] | None:
    """Return what `whatif` is asked to lift that way, None for a lift that is no host's setting."""
    if any(key.startswith(_OF_THE_LAB) for key in changed):
        return None
    return [f"{key}={value}" for key, value in changed.items() if value != "default"]


def predictions(truth: Truth, *, one_end: bool = False) -> Iterator[Prediction]:
    """Yield what is foretold of each lift of `truth` from its run as it is."""
    seen = truth.base.from_one_end() if one_end else truth.base.seen
    for run in truth.runs[1:]:
        rate = f"{units.parse_bit_per_s(run.settings['path.rate']):.0f}bit"
        # The lab's word for the path's own rate.
        changed = {key: rate if value == "path" else value for key, value in run.changed.items()}
        words = _words(changed)
        if not words:
            continue
        wanted = asked(words, seen).changes
        # Of what the model does not know `whatif` says no more than that.
        figures = _sum(foretell(seen, wanted)) if wanted else (None, 0.0, None)
        came = run.bytes_per_s, truth.base.bytes_per_s, run.at_the_bound
        yield Prediction(truth.name, run.lift, *figures, *came)


def _sum(ways: Sequence[Foretold]) -> tuple[float | None, float, float | None]:
    figures = [way.bytes_per_s for way in ways]
    highs = [way.high for way in ways]
    return (
        None if None in figures else sum(one for one in figures if one is not None),
        sum(way.low for way in ways),
        None if None in highs else sum(one for one in highs if one is not None),
    )


def best_is_right(truth: Truth, foretold: Iterable[Prediction]) -> float | None:
    """Return how right the change that is foretold to bring most is: 1 where it (nearly) did; None where none is asked.

    Where the one that did was left open, it is half right if what came is within what was said of it.
    """
    singles = [one for one in foretold if one.lift != "all"]
    if not singles:
        return None
    before = truth.base.bytes_per_s
    chosen = max(singles, key=lambda one: one.foretold or 0.0)
    reached = chosen.measured if (chosen.foretold or 0.0) >= (1 + THRESHOLD) * before else before
    best = max(singles, key=lambda one: one.measured)
    if reached >= (1 - max(THRESHOLD, min(truth.noise, _NOISE))) * max(before, best.measured):
        return 1.0
    return 0.5 if best.foretold is None and best.holds else 0.0


def summed(truths: Sequence[Truth]) -> dict[str, Any]:
    """Return the figures of why.json; None where no run answers.

    A run is a configuration with one seed, of which a truth was found: that takes several logins.
    """
    off = [points for truth in truths if (points := share_error_points(truth)) is not None]
    truths = [truth for truth in truths if truth.duty is None]
    runs = [run for truth in truths for run in truth.runs]
    bound = [run for run in runs if run.at_the_bound]
    told, untold = ([advises(run, rate_told=rate_told) for run in bound] for rate_told in (True, False))
    foretold = {truth.name: list(predictions(truth)) for truth in truths}
    alone = [one for truth in truths for one in predictions(truth, one_end=True)]
    every = [one for found in foretold.values() for one in found]
    best = [points for truth in truths if (points := best_is_right(truth, foretold[truth.name])) is not None]
    singles, doubles = ([one for one in truths if one.is_double == double] for double in (False, True))
    return {
        "runs": len(truths),
        "configurations": len({truth.configuration for truth in truths}),
        "seeds": len({truth.seed for truth in truths}),
        "seeds_apart_most": max(apart(truths).values(), default=None),
        "noisy_runs": sum(truth.noisy for truth in truths),
        "truth_unknown": sum(score(one.lifts, one.base)[1] == UNKNOWN for one in truths),
        "limiters_put_in": len(put_in(truths)),
        "logins": len(runs),
        "single_runs": len(singles),
        "single_right_both_ends": _mean(score(one.lifts, one.base)[0] for one in singles),
        "single_right_one_end": _mean(score(one.lifts, one.base, one_end=True)[0] for one in singles),
        "single_right_one_end_rate_untold": _mean(
            score(one.lifts, one.base, one_end=True, rate_told=False)[0] for one in singles
        ),
        "double_runs": len(doubles),
        "double_right": _mean(score(one.lifts, one.base)[0] for one in doubles),
        "runs_at_bound": len(bound),
        "advised_at_bound": sum(map(bool.__or__, told, untold)),
        "advised_at_bound_rate_untold": sum(untold),
        "duty_runs": len(off),
        "share_error_points": round(max(off), 2) if off else None,
        "predictions": len(every),
        **_errors("prediction", every),
        "prediction_open_share": _mean(float(one.foretold is None) for one in every),
        "predictions_between": sum(one.between for one in every),
        **_errors("prediction_between", [one for one in every if one.between]),
        **_errors("prediction_one_end", alone),
        "best_change_right": _mean(best),
    }


def apart(truths: Iterable[Truth]) -> dict[str, float]:
    """Return by what share runs of a configuration with different seeds moved more or less, for those of several."""
    moved: dict[str, list[float]] = {}
    for truth in truths:
        moved.setdefault(truth.configuration, []).append(truth.base.bytes_per_s)
    return {name: round(max(one) / min(one) - 1, 4) for name, one in moved.items() if len(one) > 1}


def with_noise(truths: Sequence[Truth]) -> list[Truth]:
    """Return `truths`, each with what its configuration's seeds differ by, and what lifts bring in their mean."""
    noise = apart(truths)
    gains: dict[str, dict[str, list[float]]] = {}
    for truth in truths:
        for lift, gain in truth.gains.items():
            gains.setdefault(truth.configuration, {}).setdefault(lift, []).append(gain)
    means = {name: {lift: statistics.fmean(every) for lift, every in one.items()} for name, one in gains.items()}
    return [
        replace(truth, noise=noise.get(truth.configuration, 0.0), mean_gains=means.get(truth.configuration, {}))
        for truth in truths
    ]


def put_in(truths: Iterable[Truth]) -> set[str]:
    """Return the lifts of what was put into a case; the world's, which are always there to lift, where they limited."""
    return {lift for truth in truths for lift in truth.gains if not is_world(lift) or lift in truth.lifts}


def advises(run: Run, *, rate_told: bool = True) -> bool:
    """Whether a change is advised, from both ends or from one, for what is not said to be one of several."""
    ends = [run.seen, run.from_one_end()]
    if not rate_told:
        ends = [_rate_untold(seen) for seen in ends]
    return any(not share.among for seen in ends for one in judged(seen) for share in one.liftable)


def _mean(found: Iterable[float]) -> float | None:
    values = list(found)
    return round(statistics.fmean(values), 4) if values else None


def _errors(name: str, found: Sequence[Prediction]) -> dict[str, Any]:
    errors = sorted(one.error for one in found if one.error is not None)
    p95 = errors[min(len(errors) - 1, round(0.95 * (len(errors) - 1)))] if errors else None
    return {
        f"{name}_median": round(statistics.median(errors), 4) if errors else None,
        f"{name}_p95": None if p95 is None else round(p95, 4),
        f"{name}_open": len(found) - len(errors),
    }
