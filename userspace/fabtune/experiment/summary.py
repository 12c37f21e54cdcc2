# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs that differ in their seed alone, as one row: medians, intervals and groups, and what the profile gained.

One seed is one draw.  From three on, a figure's interval holds its mean over all seeds with 95 %, by Student's t on
logarithms; where the seeds fall into two groups no mean says anything, and the groups and their ends are given instead.
One seed apart from all others is no group: it may be an outlier, and is named beside the interval.
"""

import re
import statistics
from collections.abc import Mapping, Sequence

import attrs

from fabtune.measure.measured import ALIKE
from fabtune.model.judgement import ALPHA, LEAST, Judgement, Sides, failed_of, judge_together, lacking_of, left_out_of
from fabtune.model.results import (
    EVERY_HOST,
    OFF_BY,
    THROUGHPUT,
    UNTOLD_BECAUSE,
    WITHOUT_FIGURES,
    Point,
    PointRow,
    better_way,
    decides,
    number_of_runs,
)
from fabtune.model.runrecord import Value
from fabtune.model.statistics import groups_in, mean_interval, one_apart
from fabtune.model.untouched import baseline
from fabtune.why import words

# Figures that get an interval; of the others the median is all that is said.
_MEASURED = (
    THROUGHPUT, "fraction_of_bound", "p50_ms", "p99_ms", "cpu_s_per_gb", "oldest_s", "slowest_mb_per_s", "files_per_s",
)  # fmt: skip
# What is judged beside what decides, a family of its own; of these the CPU time is what a gain costs.
_CPU = "cpu_s_per_gb"
_BESIDE = ("p50_ms", "p99_ms", _CPU)
_OF_SEED, _LIMITS = "seed", "limits"
# What follows from the settings, and is no draw: of the seeds that do not tell it, it is what the others say.
_STATED = ("bound_mb_per_s", "line_mb_per_s", "mathis_mb_per_s")
# Under which name a point without figures says of its run that it FAILED, is LEFT_OUT, or is LACKING it.
UNTOLD = "untold"
# Times are known to a bucket of fabstat at least, those of fio better.
_OF_BYTES = (THROUGHPUT, "fraction_of_bound", "slowest_mb_per_s")
_IN_STEP = "readings see whole requests, of clients that ask in step"
_ROUNDED = dict.fromkeys(("p50_ms", "p99_ms", "oldest_s"), ALIKE / 2)


def rounded_of(figure: str) -> float:
    """Return the share by which a figure may be off to either side because it is known to a bucket only."""
    return _ROUNDED.get(figure, 0.0)


def off_of(figure: str, points: Sequence[PointRow]) -> float:
    """Return the share by which a figure may be off in all of its runs alike, of those `points`."""
    in_step = max((float(point.get(OFF_BY) or 0) for point in points), default=0.0)
    return rounded_of(figure) + (in_step if figure in _OF_BYTES else 0.0)


@attrs.frozen
class Summary:
    """One combination and direction over its seeds: the factors as written, and the point that stands for its runs.

    The point has as ``failed``, ``left_out`` and ``lacking`` how many others there are, no figures with others alone.
    `by_seed` are the values of the figures that are judged, of which the workload's own, `decides`, is looked at first.
    """

    factors: dict[str, str]
    point: Point
    by_seed: dict[str, dict[int, float]]

    @property
    def row(self) -> Point:
        """The point beside its factors as written."""
        return self.point | self.factors

    @property
    def published(self) -> Point:
        """The point beside those factors that its own values do not name."""
        return Point(dict(self.point.unsaid(self.factors))) | self.point

    def unfair(self, figure: str) -> str:
        """Return why its runs are no fair sample of a figure; nothing where they are."""
        name = str(self.point.get("profile"))
        failed, out, lacking = (int(self.point.number(one)) for one in WITHOUT_FIGURES)
        ended, told, runs = int(self.point["seeds"]), len(self.by_seed[figure]), number_of_runs(self.point)
        said = [failed_of(failed, runs, name)] if failed else []
        said += [left_out_of(out, runs, name)] if out else []
        said += [lacking_of(lacking, runs, name)] if lacking else []
        if said or figure == THROUGHPUT or told == ended:
            return "; ".join(said)
        because = self.point.get(f"{figure}{UNTOLD_BECAUSE}")
        why = f": {because}" if because else ""
        if not told:
            return f"no run of {name} tells it{why}"
        return f"{ended - told} of {ended} runs of {name} do not tell it{why}; the others are no fair sample"

    @property
    def decides(self) -> str:
        """The figure that decides a comparison of the row with another."""
        return decides(self.point)

    @property
    def tells(self) -> bool:
        """Whether there is a figure to judge, or a run that should have left one."""
        return bool(self.by_seed[THROUGHPUT]) or any(name in self.point for name in WITHOUT_FIGURES)

    @property
    def _others(self) -> tuple[str, ...]:
        """All that two rows have in common of which one shows what the other's profile gained."""
        texts = (text for name, text in self.factors.items() if name not in ("profile", "known"))
        return (*texts, str(self.point.get("op")), str(self.point.get("host")))


# A row, one of its figures, and the values of that and of the row that it is held against.
_Case = tuple[Summary, str, Sides]


def summarise(rows: Sequence[tuple[Mapping[str, str], Point]]) -> list[Summary]:
    """Return the (factors, point) of single runs as one row a combination and direction, in the order given.

    A row of another profile than the first is judged against that of the same other factors: `untouched`, else
    ``default``, else whichever profile comes first.  All of them are judged together, so that their number makes no
    difference certain; but what a fleet's hosts reach together follows from what each does, and is judged apart.
    A point that is UNTOLD stands for a run without figures: beside one that failed the others are no verdict.
    """
    cells: dict[tuple[object, ...], list[tuple[dict[str, str], Point]]] = {}
    for factors, point in rows:
        told = _told(factors)
        cells.setdefault((*told.values(), point.get("op"), point.get("host")), []).append((told, point))
    return _with_gains([_summary(mine[0][0], [point for _, point in mine]) for mine in cells.values()])


def _told(factors: Mapping[str, str]) -> dict[str, str]:
    """Return the factors that tell rows apart."""
    return {name: text for name, text in factors.items() if name != _OF_SEED}


def _summary(factors: dict[str, str], every: Sequence[Point]) -> Summary:
    points = [point for point in every if UNTOLD not in point]
    untold = [point[UNTOLD] for point in every if UNTOLD in point]
    merged: dict[str, Value | None] = {}
    if not points:
        merged = {name: value for name, value in every[0].items() if name not in (UNTOLD, _OF_SEED)} | {
            THROUGHPUT: None
        }
    for name in dict.fromkeys(name for point in points for name in point if name != _OF_SEED):
        values = [point[name] for point in points if point.get(name) is not None]
        if not values or not all(isinstance(value, int | float) for value in values):
            merged[name] = values[0] if values else None
            continue
        if len(values) < len(points) and name not in (THROUGHPUT, *_STATED):
            # What a seed cannot tell is seldom like what the others do.
            merged[name] = None
            continue
        merged[name] = _median(values)
        if name in _MEASURED:
            merged |= _spread(name, [float(value) for value in values], off_of(name, points))
    if OFF_BY in merged:
        merged[OFF_BY] = max(point.number(OFF_BY) for point in points)
    if _LIMITS in merged:
        merged[_LIMITS] = _most_said(points)
    merged["seeds"] = len(points)
    merged |= {kind: untold.count(kind) for kind in dict.fromkeys(untold)}
    by_seed = {
        figure: {
            int(point.get(_OF_SEED) or number): float(point[figure])
            for number, point in enumerate(points, 1)
            if point.get(figure) is not None
        }
        for figure in (THROUGHPUT, *_BESIDE)
    }
    return Summary(factors, Point(merged), by_seed)


def _most_said(points: Sequence[Point]) -> str | None:
    """Return the sentence of the run in the middle of those that name what most do, and of how many seeds it is true.

    Sentences are alike that differ in their numbers alone.  Their rate is the median of the runs that say so.
    """
    looked = [point for point in points if point.get(_LIMITS)]
    if not looked:
        return None
    names = [re.sub(r"[0-9.]+", "", str(point[_LIMITS])) for point in looked]
    most = max(dict.fromkeys(names), key=names.count)
    alike = [point for point, name in zip(looked, names, strict=True) if name == most]
    middle = sorted(alike, key=lambda one: one.number(THROUGHPUT))[len(alike) // 2]
    rate = statistics.median(one.number(THROUGHPUT) for one in alike)
    said = words.at_rate(str(middle[_LIMITS]), middle.number(THROUGHPUT) * 1e6, rate * 1e6)
    others, unseen = len(points) - len(alike), len(points) - len(looked)
    if not others:
        return said
    who = ("the other" if others == 1 else "the others") if unseen == others else f"{unseen} of the others"
    blind = f", {who} {'was' if unseen == 1 else 'were'} not looked at" if unseen else ""
    return f"{said}; so with {len(alike)} of {len(points)} seeds{blind}"


def _median(values: Sequence[float]) -> float:
    """Return the median; of one kind of value alone that very value, not its float."""
    return values[0] if len(set(values)) == 1 else statistics.median(values)


def _spread(name: str, values: Sequence[float], rounded: float) -> dict[str, Value | None]:
    # Of two values Student's t makes an interval that excludes nothing.
    low, high = mean_interval(values, ALPHA, rounded) if len(values) >= LEAST else (None, None)
    found: dict[str, Value | None] = {f"{name}_low": _rounded(low), f"{name}_high": _rounded(high)}
    apart = groups_in(values, rounded)
    if len(apart) > 1:
        found |= {f"{name}_low": min(values), f"{name}_high": max(values)}
        found[f"{name}_groups"] = ", ".join(f"{statistics.median(one):.4g} ({len(one)})" for one in apart)
    if (alone := one_apart(values, rounded)) is not None:
        found[f"{name}_apart"] = _rounded(alone)
    return found


def _with_gains(rows: Sequence[Summary]) -> list[Summary]:
    """Return `rows` with what their profile gained over the one that they are held against."""
    names = dict.fromkeys(str(row.point.get("profile")) for row in rows)
    first = baseline(names)
    bases = {row._others: row for row in rows if str(row.point.get("profile")) == first}
    pairs = [(row, base) for row in rows if (base := bases.get(row._others)) and base is not row]
    held = [(row, base) for row, base in pairs if base.tells and row.tells]
    gains: dict[int, dict[str, Value | None]] = {}
    primary = [(row, row.decides, _sides(row.decides, base, row)) for row, base in held]
    for (row, _, sides), judgement in _judged(primary):
        gains[id(row)] = {
            "gain": _rounded(judgement.ratio or _gain(sides, row.point[row.decides])),
            "gain_low": _rounded(judgement.low), "gain_high": _rounded(judgement.high),
            "verdict": judgement.verdict.value, "why": judgement.why,
        }  # fmt: skip
    beside = [
        (row, figure, _sides(figure, base, row))
        for row, base in held
        for figure in _BESIDE
        if figure != row.decides and (base.by_seed[figure] or row.by_seed[figure])
    ]
    for (row, figure, _), judgement in _judged(beside):
        if figure == _CPU:
            gains[id(row)] |= {
                "cpu_change": _rounded(judgement.ratio), "cpu_change_low": _rounded(judgement.low),
                "cpu_change_high": _rounded(judgement.high), "cpu_verdict": judgement.verdict.value,
                "cpu_why": judgement.why,
            }  # fmt: skip
    return [attrs.evolve(row, point=row.point | gains.get(id(row), {})) for row in rows]


def _gain(sides: Sides, median: float | None) -> float | None:
    """Return the gain of what was not judged: as of what was, over the seeds' ratios, and with a 0 of the medians."""
    if sides.a and min(*sides.a, *sides.b) > 0:
        return statistics.geometric_mean([b / a for a, b in zip(sides.a, sides.b, strict=True)])
    before = statistics.median(sides.a) if sides.a else 0
    return median / before if median is not None and before else None


def _judged(cases: Sequence[_Case]) -> list[tuple[_Case, Judgement]]:
    """Return the cases with their judgement; those of what a fleet's hosts reach together are a family of their own."""
    found: list[tuple[_Case, Judgement]] = []
    for together in (False, True):
        family = [case for case in cases if (case[0].point.get("host") == EVERY_HOST) is together]
        found += zip(family, judge_together([sides for _, _, sides in family]), strict=True)
    return found


def _sides(figure: str, base: Summary, row: Summary) -> Sides:
    """Return the values of a figure of the seeds that both have."""
    of_base, of_row = base.by_seed[figure], row.by_seed[figure]
    seeds = sorted(of_base.keys() & of_row.keys())
    a, b = (tuple(found[seed] for seed in seeds) for found in (of_base, of_row))
    unfair = base.unfair(figure) or row.unfair(figure)
    rounded = off_of(figure, [base.point]) + off_of(figure, [row.point])
    sides = Sides(a=a, b=b, better=better_way(figure), paired=True, rounded=rounded, unfair=unfair)
    return sides if rounded == 2 * rounded_of(figure) else attrs.evolve(sides, rounded_by=_IN_STEP)


def _rounded(value: float | None) -> float | None:
    """Return `value` with the digits that anybody can use; a file's bytes must not hang on the last ones."""
    return None if value is None else float(f"{value:.5g}")
