# SPDX-License-Identifier: GPL-2.0-or-later
"""Throughput and CPU over request size, RTT and clients, each with its bound and its table."""

import functools
import math
from collections.abc import Mapping, Sequence

import attrs

from fabtune.measure.workload import said_value
from fabtune.model.runrecord import Value
from fabtune.report import cells as cell_sets
from fabtune.report.cells import CLIENTS, Cell
from fabtune.report.chart import Axis, Series, binary_size, in_sight, line_chart, said_of_bars
from fabtune.report.page import Figure, Section
from fabtune.report.table import Column, Table, decimals, percent, plain, significant

AXES = {
    "block_bytes": ("request size", Axis("request size", 2, binary_size)),
    "rtt_ms": ("round-trip time", Axis("round-trip time, ms")),
    **{name: ("clients", Axis(name, 2)) for name in CLIENTS},
    "stream_bytes_per_s": ("offered rate", Axis("MB/s asked of each stream", None, lambda rate: plain(rate / 1e6))),
    "queue_depth": ("queue depth", Axis("queue depth", 2)),
}
FILES = "files_per_s"
# More curves in one drawing than the palette has markers cannot be told apart.
MAX_CURVES = 6
# What loads the path more the further right: there latency belongs beside throughput.
LOADS = (*CLIENTS, "stream_bytes_per_s", "queue_depth")
# A bound is computed at so many places: no straight piece of it is seen as one.
STEPS = 120
# A drawing shows a bound that is at most so many times the highest mark: what is missing to it is to be seen.
_IN_SIGHT_TIMES = 30
_SAID_OF_MARKS = (
    "Marks are medians over the runs, bars their 95 % intervals from three runs on; only marks were measured."
)
# How far readers or writers may fall short of the rate asked for and still count as holding it.
BALANCE_TOLERANCE = 0.02


def sections(group: Sequence[Cell], workload: str, look: Mapping[str, int]) -> list[Section]:
    """Return one section for each parameter of `workload` that varies, or one with the table alone."""
    names = cell_sets.varying(group)
    found = [_section(group, workload, name, look) for name in names if name in AXES and _of_numbers(group, name)]
    heading = f"{workload}: throughput"
    found = found or [Section(heading, tables=(_table(heading, group, names), *_cpu(group, names)))]
    return [attrs.evolve(found[0], text=" ".join(balanced(group))), *found[1:]]


def _of_numbers(group: Sequence[Cell], name: str) -> bool:
    """Return whether a parameter is a number wherever it is known: whoever writes a workload names its parameters."""
    return not any(isinstance(cell.parameters.get(name), str) for cell in group)


def _section(group: Sequence[Cell], workload: str, x_name: str, look: Mapping[str, int]) -> Section:
    words, axis = AXES[x_name]
    others = [name for name in cell_sets.varying(group) if name != x_name]
    figures = []
    phases = len({cell.phase for cell in group})
    for (phase, op, facet), part in cell_sets.by(
        group, lambda c: (c.phase, c.op, tuple((name, c.parameters.get(name)) for name in others))
    ).items():
        where = ", ".join(_named(name, value) for name, value in facet if value is not None)
        title = f"{workload} {phase if phases > 1 else op} over {words}" + (f", {where}" if where else "")
        left_out = of_labels(len({cell.label for cell in part}))
        rate = FILES if part[0].values(FILES) else "mb_per_s"
        bounds = _bounds(part, x_name, look) if rate != FILES else []
        # A straight line between two marks would cross a bound that bends.
        curves = _curves(part, x_name, rate, look, "marks" if bounds else "line")
        if not any(len(one.points) > 1 for one in curves):
            continue
        bounds, far = in_sight(curves, bounds, _IN_SIGHT_TIMES)
        drawing = line_chart(title, [*curves, *bounds], axis, Axis("files/s" if rate == FILES else "MB/s"))
        figures.append(Figure(drawing, f"{title}. {_SAID_OF_MARKS}{far}{said_of_bars([*curves, *bounds])}{left_out}"))
        if x_name in LOADS:
            figures += _latency_by_load(part, x_name, title, look, left_out)
        cost = _curves(part, x_name, "cpu_s_per_gb", look)
        if any(len(one.points) > 1 for one in cost):
            drawing = line_chart(f"{title}: CPU", cost, axis, Axis("CPU seconds per GB"))
            said = f"CPU of this host for {title}, all of it, softirq included."
            figures.append(Figure(drawing, f"{said}{said_of_bars(cost)}{left_out}"))
    heading = f"{workload}: throughput over {words}"
    names = [x_name, *others]
    return Section(heading, figures=tuple(figures), tables=(_table(heading, group, names), *_cpu(group, names)))


def of_labels(count: int) -> str:
    """Return a sentence that says of how many labels there are curves, '' where of all."""
    return (
        f" {MAX_CURVES} of {count} labels are drawn, the first ones; the table has all." if count > MAX_CURVES else ""
    )


def _said(name: str, value: float) -> str:
    """Return a parameter's value for reading: sizes and rates in their units."""
    said = said_value(name, value)
    return said if isinstance(said, str) else plain(said)


def _named(name: str, value: float | str) -> str:
    return f"{name} {value if isinstance(value, str) else _said(name, value)}"


def _curves(part: Sequence[Cell], x_name: str, key: str, look: Mapping[str, int], style: str = "line") -> list[Series]:
    found = []
    for label, mine in _by_label(part):
        placed = [(float(cell.parameters[x_name]), cell) for cell in mine if x_name in cell.parameters]
        placed.sort(key=lambda one: one[0])
        known = tuple((x, y) for x, cell in placed if (y := cell.median(key)) is not None)
        spans = tuple((x, *ends) for x, cell in placed if (ends := cell.spread(key)))
        if known:
            found.append(Series(label or "no label", known, style, spans, look[label]))
    return found


def _latency_by_load(
    part: Sequence[Cell], x_name: str, title: str, look: Mapping[str, int], left_out: str
) -> list[Figure]:
    """Return p50 and p99 over the load: what the throughput beside it costs each request."""
    curves = [
        attrs.evolve(one, name=f"{one.name} {said}", style=style)
        for said, key, style in (("p99", "p99_ms", "line"), ("p50", "p50_ms", "plain"))
        for one in _curves(part, x_name, key, look)
    ]
    if not any(len(one.points) > 1 for one in curves):
        return []
    drawing = line_chart(f"{title}: latency", curves, AXES[x_name][1], Axis("latency, ms", 10))
    return [Figure(drawing, f"Latency of {title}: marked p99, plain p50, medians over the runs.{left_out}")]


def _by_label(part: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    return list(cell_sets.by(part, lambda c: c.label).items())[:MAX_CURVES]


def _bounds(part: Sequence[Cell], x_name: str, look: Mapping[str, int]) -> list[Series]:
    """Return the bound's own curve, computed densely; one a label where they differ."""
    places = sorted({float(cell.parameters[x_name]) for cell in part if x_name in cell.parameters})
    if len(places) < 2:
        return []
    found: dict[str, tuple[tuple[float, float], ...]] = {}
    for label, mine in _by_label(part):
        curve = ((x, mine[0].bound_at(x_name, x)) for x in _dense(places, AXES[x_name][1]))
        if known := tuple((x, y) for x, y in curve if y is not None):
            found[label] = known
    if len(set(found.values())) == 1:
        return [Series("bound", next(iter(found.values())), "bound", look=None)]
    return [Series(f"bound, {label or 'no label'}", curve, "bound", look=look[label]) for label, curve in found.items()]


def _dense(places: Sequence[float], axis: Axis) -> list[float]:
    """Return the places of `STEPS` steps from the first to the last of `places`, even on the axis."""
    low, high = places[0], places[-1]
    if axis.base and low > 0:
        between = [low * (high / low) ** (step / STEPS) for step in range(STEPS + 1)]
    else:
        between = [low + (high - low) * step / STEPS for step in range(STEPS + 1)]
    return sorted({*between, *places})


def _place(names: Sequence[str], cell: Cell) -> tuple[tuple[float, str], ...]:
    """Return where a cell stands in a table: by number where its parameters are numbers."""
    values = (cell.parameters.get(name) for name in names)
    return tuple((-1.0, "") if v is None else (math.inf, v) if isinstance(v, str) else (float(v), "") for v in values)


def _in_flight_kib(cell: Cell) -> float | None:
    """Return throughput times round trip: the same at every RTT, it is the window that holds a path down."""
    rate, rtt_ms = cell.median("mb_per_s"), cell.rtt_ms
    return rate * 1e6 * rtt_ms / 1e3 / 1024 if rate is not None and rtt_ms else None


def _asked_mb_per_s(cell: Cell) -> float:
    return float(cell.parameters["stream_bytes_per_s"]) * float(cell.parameters.get("streams") or 1) / 1e6


def balanced(group: Sequence[Cell]) -> list[str]:
    """Return, for each label and point of readers and writers at a set rate, the highest rate that both held."""
    said = []
    at_a_rate = [one for one in group if "stream_bytes_per_s" in one.parameters and _of_numbers([one], "streams")]
    names = [name for name in cell_sets.varying(at_a_rate) if name != "stream_bytes_per_s"]
    ordered = sorted(at_a_rate, key=functools.partial(_place, names))
    for (label, point), mine in cell_sets.by(ordered, lambda c: (c.label, _of(names, c))).items():
        held = []
        for asked, sides in cell_sets.by(mine, _asked_mb_per_s).items():
            slowest = min(cell.median("mb_per_s") or 0.0 for cell in sides)
            if len({cell.op for cell in sides}) == 2 and slowest >= asked * (1 - BALANCE_TOLERANCE):
                held.append(asked)
        where = "".join(f", {one}" for one in (label, *(_named(*pair) for pair in point)) if one)
        found = f"{max(held):.1f} MB/s each way" if held else "none of those asked for"
        said.append(f"Highest rate that readers and writers both held{where}: {found}.")
    return said


def _of(names: Sequence[str], cell: Cell) -> tuple[tuple[str, Value], ...]:
    return tuple((name, cell.parameters[name]) for name in names if name in cell.parameters)


def _table(caption: str, group: Sequence[Cell], names: Sequence[str]) -> Table:
    with_rtt = any(cell.rtt_ms for cell in group)
    with_files = any(cell.values(FILES) for cell in group)
    columns = (
        *(Column(name, name, "", functools.partial(_said, name)) for name in names),
        Column("step", "step"),
        Column("op", "op"),
        Column("label", "label"),
        Column("runs", "runs", "", plain),
        Column("median", "mb_per_s", "MB/s", significant(4)),
        Column("low", "mb_per_s_low", "MB/s", decimals(1)),
        Column("high", "mb_per_s_high", "MB/s", decimals(1)),
        Column("bound", "bound_mb_per_s", "MB/s", decimals(1)),
        Column("of", "fraction_of_bound", "bound", percent),
        *([Column("rate × RTT", "implied_window_kib", "KiB", decimals(0))] if with_rtt else []),
        *([Column("files", FILES, "1/s", decimals(0))] if with_files else []),
        Column("p50", "p50_ms", "ms", significant(3)),
        Column("p99", "p99_ms", "ms", significant(3)),
        Column("CPU", "cpu_s_per_gb", "s/GB", significant(3)),
    )
    rows = []
    for cell in sorted(group, key=functools.partial(_place, names)):
        median, bound = cell.median("mb_per_s"), cell.bound_mb_per_s
        rows.append(
            (
                *(cell.parameters.get(name) for name in names), cell.step, cell.op, cell.label, len(cell.runs),
                median, *(cell.spread("mb_per_s") or (None, None)), bound,
                median / bound if median is not None and bound else None,
                *([_in_flight_kib(cell)] if with_rtt else []),
                *([cell.median(FILES)] if with_files else []),
                *(cell.median(key) for key in ("p50_ms", "p99_ms", "cpu_s_per_gb")),
            )
        )  # fmt: skip
    return Table(caption, columns, tuple(rows))


def _cpu(group: Sequence[Cell], names: Sequence[str]) -> list[Table]:
    """Return where this host's CPU time went for each GB, and the studies' own figure; nothing where not seen."""
    columns = (
        *(Column(name, name, "", functools.partial(_said, name)) for name in names),
        Column("step", "step"), Column("op", "op"), Column("label", "label"),
        *(Column(name, f"{name}_s_per_gb", "s/GB", significant(3)) for name in ("user", "sys", "softirq")),
        Column("all", "cpu_s_per_gb", "s/GB", significant(3)),
        Column("%sys", "sys_percent_per_mb_per_s", "/(MB/s)", significant(3)),
    )  # fmt: skip
    keys = [column.key for column in columns[len(names) + 3 :]]
    rows = [
        (*(c.parameters.get(name) for name in names), c.step, c.op, c.label, *(c.median(key) for key in keys))
        for c in sorted(group, key=functools.partial(_place, names))
        if c.median("cpu_s_per_gb") is not None
    ]
    return [Table("CPU of this host", columns, tuple(rows))] if rows else []
