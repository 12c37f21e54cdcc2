# SPDX-License-Identifier: GPL-2.0-or-later
"""Throughput over round-trip time: terminal table and HTML page.

A point is one profile at one RTT in one direction, over all seeds, with at least `KEYS`, and with
``mb_per_s_low`` and ``_high``, ``gain`` with the same, ``verdict`` and ``seeds`` where it was measured more than once.
Whatever else varies between points, path parameters and factors of an experiment, is shown apart.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from fabtune.errors import InputError
from fabtune.model.factors import FACTORS
from fabtune.model.results import Point
from fabtune.model.untouched import UNTOUCHED
from fabtune.report import page
from fabtune.report.chart import Axis, Series, line_chart
from fabtune.report.table import Column, Table, decimals, percent, plain, times, whole_percent

KEYS = ("profile", "rtt_ms", "op", "mb_per_s", "bound_mb_per_s", "fraction_of_bound")
OPS = {"read": "Reads", "write": "Writes"}
# Factors that a table or its points have a place for; all others tell tables apart.
_OWN = ("profile", "known", "rtt", "rate", "depth", "size", "op", "seed")
# Optional path parameters: how each is said in a heading.
FACETS: dict[str, Callable[[Any], str]] = {
    "loss": lambda value: f"loss {value * 100:g} %",
    "rate_mbit": lambda value: f"{value:g} Mb/s",
    "queue_depth": lambda value: f"queue depth {value:g}",
    "size_bytes": lambda value: f"requests of {value:g} bytes",
    "fabric": str,
}
# What the others are held against, as it was called before too; where it was not measured, the first profile is it.
BASELINES = (UNTOUCHED, "default")
_CERTAIN = ("better", "worse")

_COLUMNS = (
    Column("RTT", "rtt_ms", "ms", plain),
    Column("op", "op"),
    Column("profile", "profile"),
    Column("rate", "mb_per_s", "MB/s", decimals(1)),
    Column("low", "mb_per_s_low", "MB/s", decimals(1)),
    Column("high", "mb_per_s_high", "MB/s", decimals(1)),
    Column("of", "fraction_of_bound", "bound", whole_percent),
    Column("gain", "gain", "", times),
    Column("verdict", "verdict"),
)
# What only a page has room for.
_MORE = (
    Column("least", "gain_low", "gain", times),
    Column("most", "gain_high", "gain", times),
    Column("bound", "bound_mb_per_s", "MB/s", decimals(1)),
    Column("p50", "p50_ms", "ms", decimals(2)),
    Column("p99", "p99_ms", "ms", decimals(2)),
    Column("queue", "queue_full", "full", plain),
    Column("groups of seeds", "mb_per_s_groups"),
)


def tables(points: Sequence[Point]) -> list[Table]:
    """Return one table for each set of path parameters.  Raises InputError when a point lacks a key."""
    found = [
        _table(heading or "Throughput over round-trip time", group, _COLUMNS) for heading, group in _facets(points)
    ]
    seeds = {int(point.get("seeds") or 1) for point in points}
    return [attrs.evolve(one, caption=f"{one.caption}, {_said_seeds(seeds)}") for one in found]


def group_notes(points: Sequence[Point]) -> list[str]:
    """Return what a table cannot show: figures whose seeds fall into two groups."""
    return [
        f"{point['profile']}, {point['rtt_ms']:g} ms, {point['op']}: the seeds fall into two groups, "
        f"{point['mb_per_s_groups'].replace(', ', ' and ')} MB/s (number of seeds); low and high are their ends"
        for point in points
        if point.get("mb_per_s_groups")
    ]


def _said_seeds(counts: set[int]) -> str:
    if counts == {1}:
        return "one seed, so without intervals"
    said = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return f"median of {said} seeds with its 95 % interval"


def write(points: Sequence[Point], meta: Mapping[str, Any], out_dir: Path) -> Path:
    """Write ``figures.html`` to `out_dir` and return its path.

    `meta` names what the figures hold for (kernel, seed, image, clock, ...), shown in the
    order given; its ``commands``, a list of strings, are those that made the figures.
    Raises InputError when a point lacks a key, OSError when the file cannot be written.
    """
    sections = []
    for heading, group in _facets(points):
        for op in (op for op in OPS if any(point["op"] == op for point in group)):
            sections.append(_section(f"{OPS[op]}, {heading}" if heading else OPS[op], op, group))
    facts = {name: value for name, value in meta.items() if name != "commands"}
    html = page.render(
        "Block throughput over a WAN, before and after tuning",
        lead(points),
        sections,
        facts,
        meta.get("commands", ()),
    )
    return page.write(html, out_dir / "figures.html")


def _facets(points: Sequence[Point]) -> list[tuple[str, list[Point]]]:
    """Split `points` by what varies besides profile, round trip and direction, with a heading for each group."""
    if not points:
        raise InputError("no points to show: the measurement has produced nothing")
    for index, point in enumerate(points):
        missing = [key for key in KEYS if key not in point]
        if missing:
            raise InputError(f"point {index}: no {', '.join(missing)}; expected {', '.join(KEYS)}")
        if point["op"] not in OPS:
            raise InputError(f"point {index}: op is '{point['op']}', expected one of {', '.join(OPS)}")
    named = dict.fromkeys((*FACETS, *(name for name in FACTORS if name not in _OWN)))
    varying = [name for name in named if len({point.get(name) for point in points}) > 1]
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point.get(name) for name in varying), []).append(point)
    return [
        (
            ", ".join(
                FACETS[name](value) if name in FACETS else f"{name} {value}"
                for name, value in zip(varying, key, strict=True)
                if value is not None
            ),
            group,
        )
        for key, group in groups.items()
    ]


def _profiles(points: Sequence[Point]) -> list[str]:
    names = list(dict.fromkeys(point["profile"] for point in points))
    return sorted(names, key=lambda name: name not in BASELINES)


def _table(caption: str, points: Sequence[Point], wanted: Sequence[Column]) -> Table:
    """Return the table of `points`; where all have one op, the caption says it and no column does."""
    one_op = len({p["op"] for p in points}) == 1
    columns = tuple(
        c
        for c in wanted
        if not (c.key == "op" and one_op) and (c.key in KEYS or any(p.get(c.key) is not None for p in points))
    )
    order = {name: index for index, name in enumerate(_profiles(points))}
    ops = list(OPS)
    rows = sorted(points, key=lambda p: (float(p["rtt_ms"]), ops.index(p["op"]), order[p["profile"]]))
    return Table(caption, columns, tuple(tuple(p.get(c.key) for c in columns) for p in rows), group_by=2 - one_op)


def chart(heading: str, op: str, points: Sequence[Point]) -> str:
    """Return the curves of one direction as an ``<svg>`` element."""
    mine = [point for point in points if point["op"] == op]
    series = []
    for name in _profiles(points):
        own = sorted((point for point in mine if point["profile"] == name), key=lambda point: float(point["rtt_ms"]))
        if own:
            spans = [(p["rtt_ms"], p["mb_per_s_low"], p["mb_per_s_high"]) for p in own if p.get("mb_per_s_low")]
            series.append(Series(name, tuple((p["rtt_ms"], p["mb_per_s"]) for p in own), spans=tuple(spans)))
    series.append(Series("bound", _bound_curve(mine), "bound"))
    rate = Axis(f"{OPS[op].lower()}, MB/s")
    return line_chart(f"{heading}: throughput over RTT", series, Axis("round-trip time, ms"), rate)


def _section(heading: str, op: str, points: Sequence[Point]) -> page.Section:
    mine = [point for point in points if point["op"] == op]
    caption = f"{OPS[op]} by profile, and the bound that path, queue depth and bursts set. Marks are medians over the"
    caption += " seeds, bars their 95 % intervals. Only the marks were measured; the lines join them."
    table = _table(heading, mine, (*_COLUMNS, *_MORE))
    return page.Section(
        heading,
        figures=(page.Figure(chart(heading, op, points), caption),),
        tables=(table,),
        notes=tuple(group_notes(mine)),
    )


def _bound_curve(points: Sequence[Point]) -> tuple[tuple[float, float], ...]:
    """Return the highest bound of any profile over RTT, with the knee where it is and not at the nearest measured RTT.

    Below the knee the bound is the line rate, above it what is outstanding over round trips and time on the wire.
    Where the points are not of that form (other bounds were at work) they are joined as they are.
    """
    most: dict[float, float] = {}
    for point in points:
        most[point["rtt_ms"]] = max(point["bound_mb_per_s"], most.get(point["rtt_ms"], 0.0))
    bounds = sorted(most.items())
    line = max(most.values())
    loads = {(point.get("queue_depth"), point.get("size_bytes")) for point in points}
    depth, size = loads.pop() if len(loads) == 1 else (None, None)
    far = [(rtt, bound) for rtt, bound in bounds if bound < line * 0.999 and rtt]
    if not depth or not size or not far:
        return tuple(bounds)
    # The request's own time on the wire, and the round trips that it takes, in ms.
    wire = size / 1e3 / line
    trips = [(depth * size / 1e3 / bound - wire) / rtt for rtt, bound in far]
    knee = (depth - 1) * wire / trips[0]
    near = [rtt for rtt, bound in bounds if bound >= line * 0.999]
    if max(trips) > min(trips) * 1.01 or max(near, default=0) > knee * 1.01:
        return tuple(bounds)
    last = bounds[-1][0]
    steps = (knee + (last - knee) * i / 24 for i in range(25))
    return ((bounds[0][0], line), *((rtt, depth * size / 1e3 / (trips[0] * rtt + wire)) for rtt in steps))


def lead(points: Sequence[Point]) -> str:
    """Return what was found, in words: verdicts, gains with their intervals, and how near the bound is."""
    profiles = _profiles(points)
    seeds = _said_seeds({int(point.get("seeds") or 1) for point in points})
    said = []
    for name in profiles[1:]:
        mine = [point for point in points if point["profile"] == name and point.get("gain")]
        # What is certain is said first.
        found = dict.fromkeys(str(point.get("verdict")) for point in mine)
        for verdict in sorted(found, key=lambda verdict: verdict not in _CERTAIN):
            alike = [point for point in mine if str(point.get("verdict")) == verdict]
            rtts = sorted({float(point["rtt_ms"]) for point in alike})
            at = ", ".join(f"{rtt:g}" for rtt in rtts)
            said.append(_sentence(name, profiles[0], verdict, alike, f"at {at} ms"))
    where = ", ".join(profiles[:-1]) + f" and {profiles[-1]}" if len(profiles) > 1 else profiles[0]
    return " ".join([*said, f"Measured with {where}: {seeds}."])


def _sentence(name: str, base: str, verdict: str, points: Sequence[Point], where: str) -> str:
    best = max(points, key=lambda point: float(point["gain"]))
    span = f" ({best['gain_low']:.3g} to {best['gain_high']:.3g})" if best.get("gain_low") else ""
    share = percent(best["fraction_of_bound"])
    if verdict in _CERTAIN:
        return (
            f"{name} is {verdict} than {base} {where}: up to {times(best['gain'])}{span} for {OPS[best['op']].lower()} "
            f"at {best['rtt_ms']:g} ms, {best['mb_per_s']:.1f} MB/s, {share} of the bound."
        )
    ops = ", ".join(dict.fromkeys(OPS[point["op"]].lower() for point in points))
    return f"{name} against {base} {where} ({ops}): {verdict}."
