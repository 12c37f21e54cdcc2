# SPDX-License-Identifier: GPL-2.0-or-later
"""What experiments leave: points (one direction of one run) and the indexes of a tree of results, as files have them.

All paths in an index are relative to the directory that it stands in, so a tree may be moved anywhere; none leads out
of it, as pages are written where an index says.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, cast

import attrs

from fabtune.model import typed
from fabtune.model.origin import Origin
from fabtune.model.runrecord import Value

EXPERIMENT, SUITE = "fabtune-experiment-index/1", "fabtune-suite-index/1"
Status = Literal["measured", "failed", "refused", "not run"]


def _leads_down(path: str) -> bool:
    return "\0" not in path and all(name not in ("", ".", "..") for name in path.split("/"))


_Below = Annotated[str, typed.Check(_leads_down, "a path below the directory, without '..'")]
_Beside = Annotated[
    str, typed.Check(lambda name: _leads_down(name) and "/" not in name, "a directory's name, without '/'")
]
_OfRun = Annotated[
    str, typed.Check(lambda path: _leads_down(path) and path.count("/") == 1, "COMBINATION/RUN, without '..'")
]

# What ``bound_by`` says of a point whose bound is the rate of the target's disk.
BY_DISK = "disk"
# What decides a comparison of points, unless they say otherwise; declared before any run.
THROUGHPUT = "mb_per_s"
# Under which name a point says what does.
DECIDED_BY = "decided_by"
# How a row over seeds says of how many other runs there are no figures: they failed, theirs cannot be right, or they
# tell nothing of a direction that others tell.
FAILED, LEFT_OUT, LACKING = "failed", "left_out", "lacking"
WITHOUT_FIGURES = (FAILED, LEFT_OUT, LACKING)
# What stands behind a figure's name where a point says why it does not tell it.
UNTOLD_BECAUSE = "_untold"
# By which share throughput may be off in all seeds alike, where requests are few and all clients send in step.
OFF_BY = "mb_per_s_off"
# How a fleet calls the point of all hosts together.
EVERY_HOST = "all"
# So many digits of a figure count, however small it is: a gain is a ratio of two.
_DIGITS_THAT_COUNT = 5
# What there is to say of one point, by name: its factors, its figures, or why there are none.
PointRow = Mapping[str, Any]


def rounded(value: float, digits: int) -> float:
    """Return `value` with `digits` behind the point, as a point keeps it; with more where fewer than five count."""
    if not value or not math.isfinite(value):
        return value
    return round(value, max(digits, _DIGITS_THAT_COUNT - 1 - math.floor(math.log10(abs(value)))))


def decides(point: PointRow) -> str:
    """Return the figure that decides a comparison of a point with another: what its workload declares."""
    return str(point.get(DECIDED_BY) or THROUGHPUT)


def number_of_runs(row: PointRow) -> int:
    """Return how many runs a row over seeds is of, with figures and without."""
    return sum(int(row.get(name) or 0) for name in ("seeds", *WITHOUT_FIGURES))


def paced(point: PointRow) -> bool:
    """Tell whether a point's load sends at a given rate: its writers were told theirs, or latency decides."""
    return decides(point) != THROUGHPUT or bool(point.get("stream_rate"))


def better_way(figure: str) -> int:
    """Return +1 for a figure of which more is better, -1 for one of which less is."""
    return 1 if figure == THROUGHPUT else -1


@attrs.frozen(eq=False)
class Point(PointRow):
    """One direction of one run: what was asked for (``profile``, ``op``, ``rtt_ms``) and every figure by its name.

    Which there are depends on the workload and the fabric, so they are reached by name.
    """

    values_by_name: dict[str, Value | None]

    def __getitem__(self, name: str) -> Any:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def number(self, name: str) -> float:
        """Return the figure `name`, 0 where there is none."""
        value = self.get(name)
        return value if isinstance(value, int | float) else 0.0

    def __or__(self, other: PointRow) -> "Point":
        return Point({**self, **other})

    def unsaid(self, factors: Mapping[str, str]) -> dict[str, str]:
        """Return the factors that the point's own values do not name, such as its number of clients."""
        # Whether the path was measured is part of the profile's name.  A figure may begin with a factor's name, too:
        # cross_mb_per_s does not say which traffic `cross` was.
        units = ("", "_ms", "_mbit", "_bytes")
        return {
            name: text
            for name, text in factors.items()
            if name != "known" and not any(f"{name}{unit}" in self for unit in units)
        }


@attrs.frozen(kw_only=True)
class RunEntry:
    """One run; `files` are those it left, in name order, `points` none unless it was measured.

    `settings` are those that the definition asks for, `origin` has those that were in force; `why` says what is wrong
    with a run that is refused or left out, `failed_before` why it failed before it was measured, where it did.
    """

    number: int
    directory: _OfRun
    status: Status
    settings: dict[str, Value | None]
    files: tuple[_Below, ...]
    points: tuple[Point, ...]
    why: str = typed.omitted("")
    failed_before: str = typed.omitted("")
    origin: Origin | None = typed.omitted()


@attrs.frozen(kw_only=True)
class CombinationEntry:
    """One combination and its runs; `factors` are the texts as written."""

    name: str
    directory: _Beside
    factors: dict[str, str]
    runs: tuple[RunEntry, ...]


@attrs.frozen(kw_only=True)
class ExperimentIndex:
    """An experiment with every run of its definition, whether measured, failed or not yet run."""

    name: str
    summary: str
    source: str
    clock: str
    factors: dict[str, tuple[str, ...]]
    fixed: dict[str, str]
    commands: tuple[str, ...]
    combinations: tuple[CombinationEntry, ...]
    # 0 in what was made before there were seeds.
    seeds: int = 0
    schema: str = EXPERIMENT


@attrs.frozen(kw_only=True)
class ExperimentEntry:
    """What a suite says of one experiment; `runs` counts them by status."""

    name: str
    directory: _Beside
    summary: str
    combinations: int
    runs: dict[str, int]


@attrs.frozen(kw_only=True)
class SuiteIndex:
    """All experiments right below one directory."""

    name: str
    experiments: tuple[ExperimentEntry, ...]
    schema: str = SUITE


# An index that a later fabtune wrote may say more.
FORMAT = typed.Format(unknown_keys=True)
FORMAT.convert(Point, cast(Any, dict[str, int | float | str | None]), Point, dict)
