# SPDX-License-Identifier: GPL-2.0-or-later
"""Judges kept runs: the truth of each case, what `why` says of its observations, and what `whatif` foretells."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

# Two lifts whose gains are this near each other are both the truth, or as near as two seeds of the same case are.
_TIE = 0.03
# A run that carries this share of the line has nothing to gain.
_AT_BOUND = 0.97
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
    def at_the_bound(self) -> bool:
        """Whether the line is full, in each direction that is asked for."""
        rate = units.parse_bit_per_s(self.settings["path.rate"]) / 8
        line = NetworkPath(0.0, rate, framing_bytes=LINUX_FRAMING).goodput_bytes_per_s
        ways = 2 if self.settings["load.op"] == "mixed" else 1
        return self.bytes_per_s >= _AT_BOUND * ways * line

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

    @property
    def base(self) -> Run:
        """The run as it is."""
        return self.runs[0]

    def _gain(self, run: Run) -> float:
        return run.bytes_per_s / self.base.bytes_per_s

    @cached_property
    def lifts(self) -> tuple[str, ...]:
        """The lifts that raise it most, of settings first, then of the world's; none where nothing does."""
        singles = [run for run in self.runs[1:] if run.lift != "all"]
        for world in (False, True):
            mine = [run for run in singles if bool(BY_NAME[run.lift].get("world")) == world]
            best = max((self._gain(run) for run in mine), default=0.0)
            if best >= 1 + THRESHOLD:
                tie = max(_TIE, self.noise)
                return tuple(run.lift for run in mine if self._gain(run) >= max(best * (1 - tie), 1 + THRESHOLD))
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


def limiters_of(lifts: Iterable[str], way: str) -> set[str]:
    """Return the names that are right for direction `way` where `lifts` raise throughput most."""
    return {name for lift in lifts for name in BY_NAME[lift]["limiter"].get(way, [])} or {"line"}


def score(lifts: Iterable[str], seen: Observation) -> tuple[float, str, str]:
    """Return how right `why` is where `lifts` raise throughput most, the truth and what it said.

    A stated choice that has the truth counts half.
    """
    one = busiest(judged(seen))
    right = limiters_of(lifts, one.way)
    told = one.first.limiter
    among = set(one.first.among) & right
    points = 1.0 if told in right else 0.5 if among else 0.0
    return points, "/".join(sorted(right)), told


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
        ways = foretell(seen, asked(words, seen).changes)
        yield Prediction(truth.name, run.lift, *_sum(ways), run.bytes_per_s, truth.base.bytes_per_s)


def _sum(ways: Sequence[Foretold]) -> tuple[float | None, float, float | None]:
    figures = [way.bytes_per_s for way in ways]
    highs = [way.high for way in ways]
    return (
        None if None in figures else sum(one for one in figures if one is not None),
        sum(way.low for way in ways),
        None if None in highs else sum(one for one in highs if one is not None),
    )


def best_is_right(truth: Truth, foretold: Iterable[Prediction]) -> bool | None:
    """Tell whether the change that is foretold to bring most is (nearly) the one that did; None where none is."""
    singles = [one for one in foretold if one.lift != "all" and one.foretold is not None]
    if not singles:
        return None
    chosen = max(singles, key=lambda one: one.foretold or 0.0)
    least = (1 + THRESHOLD) * truth.base.bytes_per_s
    reached = chosen.measured if (chosen.foretold or 0.0) >= least else truth.base.bytes_per_s
    best = max(truth.base.bytes_per_s, *(one.measured for one in singles))
    return reached >= (1 - max(THRESHOLD, truth.noise)) * best


def summed(truths: Sequence[Truth]) -> dict[str, Any]:
    """Return the figures of why.json; None where no run answers.

    A run is a configuration with one seed, of which a truth was found: that takes several logins.
    """
    off = [points for truth in truths if (points := share_error_points(truth)) is not None]
    truths = [truth for truth in truths if truth.duty is None]
    runs = [run for truth in truths for run in truth.runs]
    bound = [run for run in runs if run.at_the_bound]
    advised = [run for run in bound if advises(run)]
    foretold = {truth.name: list(predictions(truth)) for truth in truths}
    alone = [one for truth in truths for one in predictions(truth, one_end=True)]
    every = [one for found in foretold.values() for one in found]
    best = [told for truth in truths if (told := best_is_right(truth, foretold[truth.name])) is not None]
    singles, doubles = ([one for one in truths if one.is_double == double] for double in (False, True))
    return {
        "runs": len(truths),
        "configurations": len({truth.configuration for truth in truths}),
        "seeds": len({truth.seed for truth in truths}),
        "seeds_apart_most": max(apart(truths).values(), default=None),
        "logins": len(runs),
        "single_runs": len(singles),
        "single_right_both_ends": _mean(score(one.lifts, one.base.seen)[0] for one in singles),
        "single_right_one_end": _mean(score(one.lifts, one.base.from_one_end())[0] for one in singles),
        "double_runs": len(doubles),
        "double_right": _mean(score(one.lifts, one.base.seen)[0] for one in doubles),
        "runs_at_bound": len(bound),
        "advised_at_bound": len(advised),
        "duty_runs": len(off),
        "share_error_points": round(max(off), 2) if off else None,
        "predictions": len(every),
        **_errors("prediction", every),
        **_errors("prediction_one_end", alone),
        "best_change_right": _mean(map(float, best)),
    }


def apart(truths: Iterable[Truth]) -> dict[str, float]:
    """Return by what share runs of a configuration with different seeds moved more or less, for those of several."""
    moved: dict[str, list[float]] = {}
    for truth in truths:
        moved.setdefault(truth.configuration, []).append(truth.base.bytes_per_s)
    return {name: round(max(one) / min(one) - 1, 4) for name, one in moved.items() if len(one) > 1}


def with_noise(truths: Sequence[Truth]) -> list[Truth]:
    """Return `truths`, each with what its configuration's seeds differ by."""
    noise = apart(truths)
    return [replace(truth, noise=noise.get(truth.configuration, 0.0)) for truth in truths]


def advises(run: Run) -> bool:
    """Whether a change is advised from both ends, or from one."""
    return any(one.liftable for seen in (run.seen, run.from_one_end()) for one in judged(seen))


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
