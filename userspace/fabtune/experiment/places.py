# SPDX-License-Identifier: GPL-2.0-or-later
"""Which points runs should have left, a direction each, on a fleet for each host, and which of them one lacks."""

from collections.abc import Sequence
from typing import Protocol

from fabtune.experiment.settings import common, ops_of, ways_of
from fabtune.model.factors import Settings
from fabtune.model.results import EVERY_HOST, Point

# What a point says of where it is; all else are figures.
_PLACE = frozenset((*common(Settings(), ""), "host"))


class RunAsked(Protocol):
    """A run as far as it says which points it should leave."""

    @property
    def settings(self) -> Settings: ...
    @property
    def hosts(self) -> tuple[str, ...]: ...


# A run and the points that it left.
Left = tuple[RunAsked, Sequence[Point]]


def only_place(point: Point) -> Point:
    """Return what a point says of where it is, without its figures."""
    return Point({name: value for name, value in point.items() if name in _PLACE})


def points_due(run: RunAsked) -> list[Point]:
    """Return a point a direction, of a fleet for each host and for all together, that says what it is of alone."""
    ways = [way for op in ops_of(run.settings) for way in ways_of(op)]
    if not run.hosts:
        return [common(run.settings, way) for way in ways]
    told = Point({"profile": run.settings.profile, "seed": run.settings.seed})
    return [told | {"host": host, "op": way} for way in ways for host in (*run.hosts, EVERY_HOST)]


def like_others(run: RunAsked, others: Sequence[Left]) -> list[Point]:
    """Return the points that a failed run lacks, as those of `others` are: of what they are, and how told.

    A mixed load may have moved data one way alone.
    """
    every = [(one, point) for one, points in others for point in points if "missing" not in point]
    ways = {point.get("op") for one, point in every if _same_load(one, run)}
    names = {name for _, point in every for name in point} or _PLACE
    return [
        Point({name: value for name, value in place.items() if name in names})
        for place in points_due(run)
        if not ways or place["op"] in ways
    ]


def points_lacking(run: RunAsked, left: Sequence[Point], others: Sequence[Left]) -> list[Point]:
    """Return the points that a run with the points `left` lacks and others of the same load have: of what they are.

    Where a request of the reads hangs, writes are not measured; that is no less of a loss than a run that failed.
    """
    if any("missing" in point for point in left):
        return []
    theirs = {whose_place(point) for one, points in others if _same_load(one, run) for point in points}
    wanted = theirs - {whose_place(point) for point in left}
    return [place for place in like_others(run, others) if whose_place(place) in wanted]


def _same_load(one: RunAsked, other: RunAsked) -> bool:
    return (one.settings.workload, one.settings.op) == (other.settings.workload, other.settings.op)


def whose_place(point: Point) -> tuple[object, object]:
    """Return which point of its run one is: its direction, and its host on a fleet."""
    return point.get("op"), point.get("host")
