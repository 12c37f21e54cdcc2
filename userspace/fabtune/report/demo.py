# SPDX-License-Identifier: GPL-2.0-or-later
"""Throughput over round-trip time: terminal table and HTML page.

A point is one profile at one RTT in one direction, over all seeds, with at least `KEYS`, and with
``mb_per_s_low`` and ``_high``, ``gain`` with the same, ``verdict`` and ``seeds`` where it was measured more than once.
Whatever else varies between points, path parameters and factors of an experiment, is shown apart.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from fabtune.errors import InputError
from fabtune.model.factors import FACTORS
from fabtune.model.judgement import Verdict
from fabtune.model.results import BY_DISK, Point, paced
from fabtune.model.units import counted
from fabtune.model.untouched import baseline
from fabtune.report import page, seednotes
from fabtune.report.answers import (
    COST_KEYS,
    CostByPlace,
    Gain,
    Reach,
    bound_by,
    cost_of,
    merged,
    of_best,
    of_costs,
    of_gains,
    of_limits,
    shortened,
)
from fabtune.report.chart import Axis, Series, line_chart, said_of_bars
from fabtune.report.looks import looks
from fabtune.report.page import Answer
from fabtune.report.table import Column, Table, decimals, plain, significant, times, whole_percent

# What places a point; one that tells no figure has these, and no others.
_PLACE = ("profile", "rtt_ms", "op", "mb_per_s")
KEYS = ("profile", "rtt_ms", "op", "mb_per_s", "bound_mb_per_s", "fraction_of_bound")
_LIMITS = "What limits now?"
# The section of all that was said of limits, of which the first screen has so many lines before and after.
_WHY, _WHY_LINES = "Why it was slow", 2
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

_COLUMNS = (
    Column("RTT", "rtt_ms", "ms", plain),
    Column("op", "op"),
    Column("profile", "profile"),
    Column("rate", "mb_per_s", "MB/s", decimals(1)),
    Column("low", "mb_per_s_low", "MB/s", decimals(1)),
    Column("high", "mb_per_s_high", "MB/s", decimals(1)),
    Column("of", "fraction_of_bound", "bound", whole_percent),
    Column("gain", "gain", seednotes.GAIN_UNIT, times),
    Column("verdict", "verdict"),
)
# Groups of points that differ in nothing but profile, round trip and direction, each with its heading.
_Facets = list[tuple[str, list[Point]]]
# The bent part of the bound is computed at so many places.
_STEPS = 96
# What only a page has room for.
_MORE = (
    Column("least", "gain_low", "gain", times),
    Column("most", "gain_high", "gain", times),
    Column("bound", "bound_mb_per_s", "MB/s", decimals(1)),
    Column("p50", "p50_ms", "ms", significant(3)),
    Column("p99", "p99_ms", "ms", significant(3)),
    Column("queue", "queue_full", "full", plain),
    Column("groups of seeds", seednotes.GROUPS),
    Column("one seed", seednotes.APART, "MB/s", decimals(1)),
)


def tables(points: Sequence[Point]) -> list[Table]:
    """Return one table for each set of path parameters.  Raises InputError when a point lacks a key."""
    found = [
        _table(heading or "Throughput over round-trip time", group, _COLUMNS) for heading, group in _facets(points)
    ]
    return [attrs.evolve(one, caption=f"{one.caption}, {_said_seeds(points)}") for one in found]


def group_notes(points: Sequence[Point]) -> list[str]:
    """Return what a table cannot show: figures whose seeds fall into two groups, or of which one seed differs."""
    return seednotes.said_of_seeds(
        (", ".join(filter(None, [one["profile"], f"{one['rtt_ms']:g} ms", one["op"], heading])), one)
        for _, heading, one in _placed(_facets(points))
    )


def _said_seeds(points: Sequence[Point]) -> str:
    told = _told(points)
    seeds = seednotes.number_of_seeds(told)
    if seeds == "1":
        return "one seed, so without intervals"
    if seednotes.too_few(told):
        return f"median of {seeds} seeds, too few for an interval"
    return f"median of {seeds} seeds with its 95 % interval"


def write(points: Sequence[Point], facts: page.Facts, commands: Sequence[str], out_dir: Path) -> Path:
    """Write ``figures.html`` to `out_dir` and return its path.

    `facts` say what the figures hold for (kernel, seed, image, clock, ...), shown in the order given; `commands`
    are those that made the figures.  What is missing, `runs`, stands at the top as well.
    Raises InputError when a point lacks a key, OSError when the file cannot be written.
    """
    sections = []
    for heading, group in _facets(points):
        for op in (op for op in OPS if any(point["op"] == op for point in group)):
            sections.append(_section(f"{OPS[op]}, {heading}" if heading else OPS[op], op, group))
    why = _why_section(points)
    html = page.render(
        "Block throughput over a WAN, before and after tuning",
        str(facts.get("runs", "")),
        [*sections, why] if why else sections,
        facts,
        commands,
        answers=answers(points),
    )
    return page.write(html, out_dir / "figures.html")


def takes(points: Sequence[Point]) -> bool:
    """Return whether all points are of those that can be shown: some fabrics and loads know no path or no bound."""
    return not any(_missing(point) or point["op"] not in OPS for point in points)


def _missing(point: Point) -> list[str]:
    """Return the keys that the point lacks, or does not tell."""
    if point.get("mb_per_s") is None:
        return [key for key in _PLACE if key not in point]
    return [key for key in KEYS if point.get(key) is None]


def _facets(points: Sequence[Point]) -> _Facets:
    """Split `points` by what varies besides profile, round trip and direction, with a heading for each group."""
    if not points:
        raise InputError("no points to show: the measurement has produced nothing")
    for index, point in enumerate(points):
        if missing := _missing(point):
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


def _told(points: Sequence[Point]) -> list[Point]:
    """Return the points with a figure: of others all runs failed, or are left out."""
    return [point for point in points if point["mb_per_s"] is not None]


def _profiles(points: Sequence[Point]) -> list[str]:
    names = list(dict.fromkeys(point["profile"] for point in points))
    return sorted(names, key=lambda name: name != baseline(names))


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
    rate = Axis(f"{OPS[op].lower()}, MB/s")
    return line_chart(f"{heading}: throughput over RTT", _series(op, points), Axis("round-trip time, ms"), rate)


def _series(op: str, points: Sequence[Point]) -> list[Series]:
    mine = [point for point in _told(points) if point["op"] == op]
    look = looks(_profiles(points))
    series = []
    for name in _profiles(points):
        own = sorted((point for point in mine if point["profile"] == name), key=lambda point: float(point["rtt_ms"]))
        if own:
            wide = [point for point in own if point.get("mb_per_s_low") is not None]
            spans = [(point["rtt_ms"], point["mb_per_s_low"], point["mb_per_s_high"]) for point in wide]
            marks = tuple((p["rtt_ms"], p["mb_per_s"]) for p in own)
            series.append(Series(name, marks, "marks", tuple(spans), look[name]))
    curve = _bound_curve(mine)
    measured = sorted({(point["rtt_ms"], point["bound_mb_per_s"]) for point in mine})
    return [*series, Series("bound", curve or tuple(measured), "bound" if curve else "limits", look=None)]


def _section(heading: str, op: str, points: Sequence[Point]) -> page.Section:
    mine = [point for point in points if point["op"] == op]
    caption = f"{OPS[op]} by profile, and the bound that path, queue depth and bursts set. "
    spread = any(point.get("mb_per_s_low") is not None for point in mine)
    alone = "Marks are medians over the seeds." if seednotes.too_few(mine) else "Each mark is one seed."
    caption += "Marks are medians over the seeds, bars their 95 % intervals." if spread else alone
    caption += " Only the marks were measured, so that nothing joins them."
    caption += said_of_bars(_series(op, points)) if _told(mine) else ""
    table = _table(heading, mine, (*_COLUMNS, *_MORE))
    return page.Section(
        heading,
        figures=(page.Figure(chart(heading, op, points), caption),) if _told(mine) else (),
        tables=(table,),
        notes=tuple(group_notes(mine)),
    )


def _bound_curve(points: Sequence[Point]) -> tuple[tuple[float, float], ...]:
    """Return the highest bound of any profile over RTT, with the knee where it is and not at the nearest measured RTT.

    Below the knee the bound is the line rate, above it what is outstanding over round trips and time on the wire.
    Where the points are not of that form (other bounds were at work) there is no curve.
    """
    most: dict[float, float] = {}
    for point in points:
        most[point["rtt_ms"]] = max(point["bound_mb_per_s"], most.get(point["rtt_ms"], 0.0))
    bounds = sorted(most.items())
    line = max(most.values())
    loads = {(point.get("queue_depth"), point.get("size_bytes")) for point in points}
    depth, size = loads.pop() if len(loads) == 1 else (None, None)
    far = [(rtt, bound) for rtt, bound in bounds if bound < line * 0.999 and rtt]
    if not far:
        return ((bounds[0][0], line), (bounds[-1][0], line))
    if not depth or not size:
        return ()
    # The request's own time on the wire, and the round trips that it takes, in ms.
    wire = size / 1e3 / line
    trips = [(depth * size / 1e3 / bound - wire) / rtt for rtt, bound in far]
    knee = (depth - 1) * wire / trips[0]
    near = [rtt for rtt, bound in bounds if bound >= line * 0.999]
    if max(trips) > min(trips) * 1.01 or max(near, default=0) > knee * 1.01:
        return ()
    last = bounds[-1][0]
    steps = (knee + (last - knee) * i / _STEPS for i in range(_STEPS + 1))
    return ((bounds[0][0], line), *((rtt, depth * size / 1e3 / (trips[0] * rtt + wire)) for rtt in steps))


def answers(points: Sequence[Point]) -> list[Answer]:
    """Return what was found: did each profile help, by how much, how sure is that, what limits it now."""
    profiles = _profiles(points)
    seeds = _said_seeds(points)
    facets = _facets(points)
    groups, alone = (sum(point.get(key) is not None for point in points) for key in (seednotes.GROUPS, seednotes.APART))
    apart = f" The seeds of {counted(groups, 'figure')} fall into two groups, named below." if groups else ""
    apart += f" One seed of {counted(alone, 'figure')} differs from all others, named below." if alone else ""
    found: list[Answer] = []
    of_name = {
        name: [(where, point) for where, _, point in _placed(facets) if point["profile"] == name] for name in profiles
    }
    judged = {name: [_gain(profiles[0], *one) for one in of_name[name]] for name in profiles[1:]}
    paid = {name: dict(pair for one in of_name[name] for pair in _cost(*one).items()) for name in judged}
    costs = of_costs(profiles[0], judged, paid)
    for name, gains in judged.items():
        found += of_gains(name, profiles[0], gains, f"{seeds.capitalize()}; all points are judged together.{apart}")
        found += costs[name]
        reached = _reached(of_name[name])
        found.append(of_limits(name, reached) if reached else Answer(_LIMITS, f"Not known: {name} tells no figure."))
    found = [*of_best(profiles[0], judged), *merged(found, profiles[1:])]
    if not found:
        found = [
            Answer("Did it help?", f"Cannot tell: {profiles[0]} alone was measured, nothing to hold it against."),
            Answer("How sure?", f"{seeds.capitalize()}."),
            of_limits(profiles[0], _reached(of_name[profiles[0]])),
        ]
    return [*found, *_why(facets, profiles)]


def _placed(facets: _Facets) -> list[tuple[str, str, Point]]:
    """Return each point with its place in words, and the heading of its group."""
    return [(_where(heading, point), heading, point) for heading, group in facets for point in group]


def _why(facets: _Facets, profiles: Sequence[str]) -> list[Answer]:
    """Return what limited the first profile, and then the others, at the longest round trip, each in a few lines."""
    found = []
    for question, names in (("Why was it slow?", profiles[:1]), ("What limits after?", profiles[1:])):
        mine = [(where, one) for where, _, one in _placed(facets) if one["profile"] in names and one.get("limits")]
        furthest = max((float(one["rtt_ms"]) for _, one in mine), default=0.0)
        far = [(where, one) for where, one in mine if one["rtt_ms"] == furthest]
        lines = dict.fromkeys(f"{one['profile']}, {where}: {one['limits']}." for where, one in far)
        if lines:
            found.append(shortened(question, list(lines), _WHY_LINES, _WHY))
    return found


def _why_section(points: Sequence[Point]) -> page.Section | None:
    """Return what `fabtune why` said of each point's load, those of the first profile first; None where none did."""
    first = baseline(_profiles(points))
    said = [(heading, one) for _, heading, one in _placed(_facets(points)) if one.get("limits")]
    said.sort(key=lambda placed: str(placed[1]["profile"]) != first)
    if not said:
        return None
    apart = any(heading for heading, _ in said)
    facet = (Column("at", "facet"),) if apart else ()
    columns = (Column("profile", "profile"), Column("RTT", "rtt_ms", "ms", plain), *facet, Column("why", "limits"))
    rows = tuple(
        (one["profile"], one["rtt_ms"], *((heading,) if apart else ()), one["limits"]) for heading, one in said
    )
    text = f"What `fabtune why` says of both ends while the load ran, {first} first; of several seeds, of most."
    return page.Section(_WHY, text, tables=(Table("What limited", columns, rows, group_by=1),))


def _gain(first: str, where: str, point: Point) -> Gain:
    return Gain(
        where=where, verdict=str(point.get("verdict") or Verdict.CANNOT_TELL.value),
        why=str(point.get("why") or "") if point.get("verdict") else f"{first} was not measured there",
        ratio=point.get("gain"), low=point.get("gain_low"), high=point.get("gain_high"),
    )  # fmt: skip


def _where(heading: str, point: Point) -> str:
    place = f"{OPS[point['op']].lower()} at {point['rtt_ms']:g} ms"
    return f"{place}, {heading}" if heading else place


def _cost(where: str, point: Point) -> CostByPlace:
    return cost_of(where, *(point.get(key) for key in COST_KEYS))


def _reached(places: Sequence[tuple[str, Point]]) -> list[Reach]:
    return [_reach(where, point) for where, point in places if _told([point])]


def _reach(where: str, point: Point) -> Reach:
    disk = point.get("bound_by") == BY_DISK
    by = bound_by(point["bound_mb_per_s"], point.get("line_mb_per_s") or 0, disk=disk)
    return Reach(where=where, share=point["fraction_of_bound"], by=by, paced=paced(point))
