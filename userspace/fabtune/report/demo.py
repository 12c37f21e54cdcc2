# SPDX-License-Identifier: GPL-2.0-or-later
"""The throughput-over-RTT result of a lab run: terminal table and HTML page.

A point is one measurement of one profile at one RTT: a mapping with at least ``profile``,
``rtt_ms``, ``op`` (``read`` or ``write``), ``mb_per_s``, ``bound_mb_per_s``,
``fraction_of_bound``, ``p50_ms``, ``p99_ms`` and ``queue_full``.  Points may carry the further
path parameters in `FACETS`; curves that differ in one of these are drawn apart.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fabtune.errors import InputError
from fabtune.model.untouched import UNTOUCHED
from fabtune.report import page
from fabtune.report.chart import Axis, Series, line_chart
from fabtune.report.table import Column, Table, decimals, percent, plain, times

Point = Mapping[str, Any]

KEYS = (
    "profile", "rtt_ms", "op", "mb_per_s", "bound_mb_per_s",
    "fraction_of_bound", "p50_ms", "p99_ms", "queue_full",
)  # fmt: skip
OPS = {"read": "Reads", "write": "Writes"}
# Optional path parameters: how each is said in a heading.
FACETS: dict[str, Callable[[Any], str]] = {
    "loss": lambda value: f"loss {value * 100:g} %",
    "rate_mbit": lambda value: f"{value:g} Mb/s",
    "queue_depth": lambda value: f"queue depth {value:g}",
}
# The reference of every gain; where it was not measured, the first profile is.
# As the same was called before.
BASELINES = (UNTOUCHED, "default")

_COLUMNS = (
    Column("RTT", "rtt_ms", "ms", plain),
    Column("op", "op"),
    Column("profile", "profile"),
    Column("rate", "mb_per_s", "MB/s", decimals(1)),
    Column("bound", "bound_mb_per_s", "MB/s", decimals(1)),
    Column("of", "fraction_of_bound", "bound", percent),
    Column("gain", "gain", "", times),
    Column("p50", "p50_ms", "ms", decimals(2)),
    Column("p99", "p99_ms", "ms", decimals(2)),
    Column("queue", "queue_full", "full", plain),
)


def tables(points: Sequence[Point]) -> list[Table]:
    """Return one table for each set of path parameters.  Raises InputError when a point lacks a key."""
    return [_table(heading or "Throughput over round-trip time", group) for heading, group in _facets(points)]


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
        _lead(points),
        sections,
        facts,
        meta.get("commands", ()),
    )
    return page.write(html, out_dir / "figures.html")


def _facets(points: Sequence[Point]) -> list[tuple[str, list[Point]]]:
    """Split `points` by those path parameters that vary, with a heading for each group."""
    if not points:
        raise InputError("no points to show: the measurement has produced nothing")
    for index, point in enumerate(points):
        missing = [key for key in KEYS if key not in point]
        if missing:
            raise InputError(f"point {index}: no {', '.join(missing)}; expected {', '.join(KEYS)}")
        if point["op"] not in OPS:
            raise InputError(f"point {index}: op is '{point['op']}', expected one of {', '.join(OPS)}")
    varying = [name for name in FACETS if len({point.get(name) for point in points}) > 1]
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple(point.get(name) for name in varying), []).append(point)
    return [
        (", ".join(FACETS[name](value) for name, value in zip(varying, key, strict=True) if value is not None), group)
        for key, group in groups.items()
    ]


def _profiles(points: Sequence[Point]) -> list[str]:
    names = list(dict.fromkeys(point["profile"] for point in points))
    return sorted(names, key=lambda name: name not in BASELINES)


def _table(caption: str, points: Sequence[Point]) -> Table:
    """Return the table of `points`; where all have one op, the caption says it and no column does."""
    columns = tuple(c for c in _COLUMNS if c.key != "op" or len({p["op"] for p in points}) > 1)
    order = {name: index for index, name in enumerate(_profiles(points))}
    ops = list(OPS)
    rows = sorted(points, key=lambda p: (float(p["rtt_ms"]), ops.index(p["op"]), order[p["profile"]]))
    base = {(p["rtt_ms"], p["op"]): p["mb_per_s"] for p in points if order[p["profile"]] == 0}
    return Table(
        caption,
        columns,
        tuple(tuple(_gain(p, base) if c.key == "gain" else p[c.key] for c in columns) for p in rows),
        group_by=len(columns) - len(_COLUMNS) + 2,
    )


def _gain(point: Point, base: Mapping[tuple[float, str], float]) -> float | None:
    reference = base.get((point["rtt_ms"], point["op"]))
    return point["mb_per_s"] / reference if reference else None


def _section(heading: str, op: str, points: Sequence[Point]) -> page.Section:
    mine = [point for point in points if point["op"] == op]
    series = [
        Series(name, tuple(sorted((p["rtt_ms"], p["mb_per_s"]) for p in mine if p["profile"] == name)))
        for name in _profiles(points)
        if any(point["profile"] == name for point in mine)
    ]
    series.append(Series("bound", _bound_curve(mine), "bound"))
    chart = line_chart(f"{heading}: throughput over RTT", series, Axis("round-trip time, ms"), Axis("MB/s"))
    caption = f"{OPS[op]} by profile, and the bound that path, queue depth and bursts set."
    return page.Section(heading, figures=(page.Figure(chart, caption),), tables=(_table(heading, mine),))


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


def _lead(points: Sequence[Point]) -> str:
    """Return what was measured and the largest gain, in words."""
    profiles = _profiles(points)
    rtts = sorted({float(point["rtt_ms"]) for point in points})
    span = f"{rtts[0]:g} to {rtts[-1]:g} ms" if len(rtts) > 1 else f"{rtts[0]:g} ms"
    names = " and ".join(profiles) if len(profiles) < 3 else ", ".join(profiles)
    lead = f"Measured at a round-trip time of {span} with {names}."
    same = ("rtt_ms", "op", *FACETS)
    base = {tuple(p.get(key) for key in same): float(p["mb_per_s"]) for p in points if p["profile"] == profiles[0]}
    best, gain = None, 0.0
    for point in (p for p in points if p["profile"] != profiles[0]):
        reference = base.get(tuple(point.get(key) for key in same))
        if reference and point["mb_per_s"] / reference > gain:
            best, gain = point, point["mb_per_s"] / reference
    if best:
        lead += (
            f" The largest gain over {profiles[0]} is {times(gain)}, by {best['profile']} for {OPS[best['op']].lower()}"
            f" at {best['rtt_ms']:g} ms: {best['mb_per_s']:.1f} MB/s,"
            f" {percent(best['fraction_of_bound'])} of the bound."
        )
    return lead
