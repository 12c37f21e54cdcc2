# SPDX-License-Identifier: GPL-2.0-or-later
"""Throughput and CPU over request size, RTT and clients, each with its bound and its table."""

import functools
from collections.abc import Sequence

import attrs

from fabtune.measure.workload import said_value
from fabtune.report import cells as cell_sets
from fabtune.report.cells import CLIENTS, Cell
from fabtune.report.chart import Axis, Series, binary_size, line_chart
from fabtune.report.page import Figure, Section
from fabtune.report.table import Column, Table, decimals, percent, plain

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
# How far readers or writers may fall short of the rate asked for and still count as holding it.
BALANCE_TOLERANCE = 0.02


def sections(group: Sequence[Cell], workload: str) -> list[Section]:
    """Return one section for each parameter of `workload` that varies, or one with the table alone."""
    names = [name for name in cell_sets.varying(group) if name in AXES]
    found = [_section(group, workload, name) for name in names]
    heading = f"{workload}: throughput"
    found = found or [Section(heading, tables=(_table(heading, group, []), *_cpu(group, [])))]
    return [attrs.evolve(found[0], text=" ".join(balanced(group))), *found[1:]]


def _section(group: Sequence[Cell], workload: str, x_name: str) -> Section:
    words, axis = AXES[x_name]
    others = [name for name in cell_sets.varying(group) if name != x_name]
    figures = []
    phases = len({cell.phase for cell in group})
    for (phase, op, facet), part in cell_sets.by(
        group, lambda c: (c.phase, c.op, tuple((name, c.parameters.get(name)) for name in others))
    ).items():
        where = ", ".join(_named(name, value) for name, value in facet if value is not None)
        title = f"{workload} {phase if phases > 1 else op} over {words}" + (f", {where}" if where else "")
        rate = FILES if part[0].values(FILES) else "mb_per_s"
        curves = _curves(part, x_name, rate)
        if not any(len(one.points) > 1 for one in curves):
            continue
        bounds = sorted({(float(c.parameters[x_name]), c.bound_mb_per_s) for c in part if c.bound_mb_per_s is not None})
        if bounds:
            curves.append(Series("bound", tuple(bounds), "bound"))
        drawing = line_chart(title, curves, axis, Axis("files/s" if rate == FILES else "MB/s"))
        figures.append(Figure(drawing, f"{title}; medians over the runs."))
        cost = _curves(part, x_name, "cpu_s_per_gb")
        if any(len(one.points) > 1 for one in cost):
            drawing = line_chart(f"{title}: CPU", cost, axis, Axis("CPU seconds per GB"))
            figures.append(Figure(drawing, f"CPU of this host for {title}, all of it, softirq included."))
    heading = f"{workload}: throughput over {words}"
    names = [x_name, *others]
    return Section(heading, figures=tuple(figures), tables=(_table(heading, group, names), *_cpu(group, names)))


def _said(name: str, value: float) -> str:
    """Return a parameter's value for reading: sizes and rates in their units."""
    said = said_value(name, value)
    return said if isinstance(said, str) else plain(said)


def _named(name: str, value: float | str) -> str:
    return f"{name} {value if isinstance(value, str) else _said(name, value)}"


def _curves(part: Sequence[Cell], x_name: str, key: str) -> list[Series]:
    found = []
    for label, mine in list(cell_sets.by(part, lambda c: c.label).items())[:MAX_CURVES]:
        points = [(float(cell.parameters[x_name]), cell.median(key)) for cell in mine if x_name in cell.parameters]
        known = tuple(sorted((x, y) for x, y in points if y is not None))
        if known:
            found.append(Series(label or "no label", known))
    return found


def _in_flight_kib(cell: Cell) -> float | None:
    """Return throughput times round trip: the same at every RTT, it is the window that holds a path down."""
    rate, rtt_ms = cell.median("mb_per_s"), cell.rtt_ms
    return rate * 1e6 * rtt_ms / 1e3 / 1024 if rate is not None and rtt_ms else None


def _asked_mb_per_s(cell: Cell) -> float:
    return float(cell.parameters["stream_bytes_per_s"]) * float(cell.parameters.get("streams") or 1) / 1e6


def balanced(group: Sequence[Cell]) -> list[str]:
    """Return, for each label of a workload of readers and writers at a set rate, the highest that both held."""
    said = []
    at_a_rate = [cell for cell in group if "stream_bytes_per_s" in cell.parameters]
    for label, mine in cell_sets.by(at_a_rate, lambda c: c.label).items():
        held = []
        for asked, sides in cell_sets.by(mine, _asked_mb_per_s).items():
            rates = {cell.op: cell.median("mb_per_s") or 0.0 for cell in sides}
            if len(rates) == 2 and min(rates.values()) >= asked * (1 - BALANCE_TOLERANCE):
                held.append(asked)
        found = f"{max(held):.1f} MB/s each way" if held else "none of those asked for"
        said.append(f"Highest rate that readers and writers both held{f', {label}' if label else ''}: {found}.")
    return said


def _table(caption: str, group: Sequence[Cell], names: Sequence[str]) -> Table:
    with_rtt = any(cell.rtt_ms for cell in group)
    with_files = any(cell.values(FILES) for cell in group)
    columns = (
        *(Column(name, name, "", functools.partial(_said, name)) for name in names),
        Column("step", "step"),
        Column("op", "op"),
        Column("label", "label"),
        Column("runs", "runs", "", plain),
        Column("median", "mb_per_s", "MB/s", decimals(1)),
        Column("least", "mb_per_s_min", "MB/s", decimals(1)),
        Column("most", "mb_per_s_max", "MB/s", decimals(1)),
        Column("bound", "bound_mb_per_s", "MB/s", decimals(1)),
        Column("of", "fraction_of_bound", "bound", percent),
        *([Column("rate × RTT", "implied_window_kib", "KiB", decimals(0))] if with_rtt else []),
        *([Column("files", FILES, "1/s", decimals(0))] if with_files else []),
        Column("p50", "p50_ms", "ms", decimals(3)),
        Column("p99", "p99_ms", "ms", decimals(3)),
        Column("CPU", "cpu_s_per_gb", "s/GB", decimals(3)),
    )
    rows = []
    for cell in group:
        rates, bound = cell.values("mb_per_s"), cell.bound_mb_per_s
        median = cell.median("mb_per_s")
        rows.append(
            (
                *(cell.parameters.get(name) for name in names), cell.step, cell.op, cell.label, len(cell.runs),
                median, min(rates, default=None), max(rates, default=None), bound,
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
        *(Column(name, f"{name}_s_per_gb", "s/GB", decimals(3)) for name in ("user", "sys", "softirq")),
        Column("all", "cpu_s_per_gb", "s/GB", decimals(3)),
        Column("%sys", "sys_percent_per_mb_per_s", "/(MB/s)", decimals(3)),
    )  # fmt: skip
    keys = [column.key for column in columns[len(names) + 3 :]]
    rows = [
        (*(c.parameters.get(name) for name in names), c.step, c.op, c.label, *(c.median(key) for key in keys))
        for c in group
        if c.median("cpu_s_per_gb") is not None
    ]
    return [Table("CPU of this host", columns, tuple(rows))] if rows else []
