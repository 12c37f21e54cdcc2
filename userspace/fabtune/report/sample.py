# SPDX-License-Identifier: GPL-2.0-or-later
"""One side of a comparison: what its runs tell of each figure, and whether those that tell it stand for all."""

from collections.abc import Collection, Mapping, Sequence

import attrs

from fabtune.measure.metrics import Figure, Metric, Untold
from fabtune.model.judgement import failed_of, lacking_of, left_out_of
from fabtune.model.runrecord import RunRecord
from fabtune.model.units import counted
from fabtune.report.pairing import Belonging, Valued

# So many of a list are named.
MOST_NAMED = 4
# The step, with what tells it apart, and the key of the figure.
Key = tuple[str, str]


@attrs.frozen
class Sample:
    """One side's runs: place and figures of those to be used, their clocks, the steps of others.

    `ways` are the directions in which each run was to move data, by step.  Of the others some `failed`, and some are
    `left_out` since they break a law of their own figures.
    """

    name: str
    used: tuple[tuple[Belonging | None, dict[Key, Figure]], ...]
    ways: tuple[Mapping[str, frozenset[str]], ...]
    clocks: tuple[str, ...]
    failed: tuple[frozenset[str], ...]
    left_out: tuple[frozenset[str], ...] = ()

    def values(self, key: Key) -> list[Valued]:
        """Return the figure `key` of each run that has it, with the run's place."""
        figures = [(place, found.get(key)) for place, found in self.used]
        return [(place, one.value) for place, one in figures if isinstance(one, Metric)]

    def rounded(self, key: Key) -> float:
        """Return how far the figure may be off because of its bucket."""
        return max((found[key].rounded for _, found in self.used if key in found), default=0)

    def clocks_of(self, key: Key) -> set[str]:
        """Return by which clocks the figure `key` was measured; of a lab's loose record that is not known."""
        runs = zip(self.clocks, self.used, strict=True)
        return {clock for clock, (_, found) in runs if isinstance(found.get(key), Metric)}

    def unfair(self, key: Key) -> str:
        """Return why the runs that have the figure are no fair sample of all; nothing where they are.

        What fails, cannot be right, moves nothing one way or cannot tell a latency, is seldom a run like the others:
        by those that are left alone, a setting under which every other run fails would be none the worse for it.
        """
        step, figure = key
        runs = [(found, ways) for (_, found), ways in zip(self.used, self.ways, strict=True)]
        here = [(found, ways[step]) for found, ways in runs if any(one == step for one, _ in found)]
        # One that failed before its first step failed at all of them.
        failed = sum(not steps or step in steps for steps in self.failed)
        out = sum(step in steps for steps in self.left_out)
        every = len(here) + failed + out
        if failed or out:
            said = [failed_of(failed, every, self.name)] if failed else []
            return "; ".join([*said, left_out_of(out, every, self.name)] if out else said)
        elsewhere = dict.fromkeys(one for _, found in self.used for one, _ in found)
        if not here and elsewhere:
            return f"{self.name} was not measured there, but at {listed(list(elsewhere))}"
        # The same step may be run in one direction at a time: those runs tell nothing of the other.
        way = next((way for way in ("read", "write") if figure.startswith(f"{way}_")), "")
        asked = [found for found, ways in here if not way or way in ways]
        mine = [found for found in asked if any(one == step and name.startswith(way) for one, name in found)]
        if lacking := len(asked) - len(mine):
            return lacking_of(lacking, len(asked), self.name)
        untold = [one for found in mine if not isinstance(one := found.get(key), Metric)]
        if not untold:
            return ""
        why = next((f": {one.why}" for one in untold if isinstance(one, Untold)), "")
        if len(untold) == len(mine):
            return f"no run of {self.name} tells it{why}"
        some = f"{len(untold)} of {counted(len(mine), 'run')} of {self.name}"
        return f"{some} do not tell it{why}; the others are no fair sample"


def clocks_apart(key: Key, a: Sample, b: Sample) -> str:
    """Return why the sides' figures `key` say nothing about one another, where they are not by one clock."""
    clocks = a.clocks_of(key) | b.clocks_of(key)
    if len(clocks) < 2:
        return ""
    return f"runs {said_clocks(clocks, 'clock')}: times of one say nothing about times of the other"


def said_clocks(clocks: Collection[str], noun: str) -> str:
    """Return by which clocks runs are; the first time that a sentence names any, its `noun` is clock, then one."""
    unknown = "by a clock that nothing names" if noun == "clock" else f"by {noun} that nothing names"
    return " and ".join(f"by the {clock} {noun}" if clock else unknown for clock in sorted(clocks))


def listed(parts: Sequence[str]) -> str:
    """Return the first of a list whose parts have commas of their own, and how many more there are."""
    more = len(parts) - MOST_NAMED
    return "; ".join(parts) if more < 2 else f"{'; '.join(parts[:MOST_NAMED])}; and {more} more"


def on_both_sides(runs: Sequence[RunRecord], others: Sequence[RunRecord]) -> int:
    """Return how many of `runs` are among `others`, under whatever name."""
    known: dict[tuple[float, str], list[RunRecord]] = {}
    for one in others:
        known.setdefault((one.started_unix_s, one.label), []).append(_wherever(one))
    return sum(_wherever(one) in known.get((one.started_unix_s, one.label), []) for one in runs)


def _wherever(record: RunRecord) -> RunRecord:
    return attrs.evolve(record, file="", replicate=None)
