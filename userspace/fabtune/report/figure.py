# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment's points as one table and one chart a direction, with what was expected of them.

A row is a mapping: the factors as written, ``op``, and the figures over all seeds, with intervals; a row with
``missing`` says why there are none.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from fabtune.model.results import PointRow
from fabtune.report import page
from fabtune.report.chart import Axis, Series, line_chart, tick_text
from fabtune.report.table import Cell, Column, Table, decimals, percent, plain, times

# Every figure that a point may have; a table shows those that some row has.
_FIGURES = (
    Column("rate", "mb_per_s", "MB/s", decimals(1)),
    Column("low", "mb_per_s_low", "MB/s", decimals(1)),
    Column("high", "mb_per_s_high", "MB/s", decimals(1)),
    Column("gain", "gain", "", times),
    Column("verdict", "verdict"),
    Column("of", "fraction_of_bound", "bound", percent),
    Column("Mathis", "mathis_mb_per_s", "MB/s", decimals(1)),
    Column("slowest", "slowest_mb_per_s", "MB/s", decimals(2)),
    Column("fastest", "fastest_mb_per_s", "MB/s", decimals(2)),
    Column("slowest", "slowest_share", "of mean", percent),
    Column("p50", "p50_ms", "ms", decimals(2)),
    Column("p99", "p99_ms", "ms", decimals(2)),
    Column("CPU", "cpu_s_per_gb", "s/GB", decimals(2)),
    Column("queue", "queue_full", "full", plain),
    Column("at", "at_limit", "limit", percent),
    Column("oldest", "oldest_s", "s", decimals(2)),
    Column("depth", "depth_after", "after", plain),
    Column("failed", "paths_failed", "paths", plain),
)

_MATHIS = "mathis_mb_per_s"


@attrs.frozen
class Plot:
    """What a chart shows: the factor on the x axis, the factor that tells curves apart (or none), the figure.

    `x_values` are the numbers of the x factor's values; with `words` these are only their places.
    """

    x: str
    y: str
    series: str | None
    x_values: Mapping[str, float]
    log: bool
    words: bool = False


def table(caption: str, rows: Sequence[PointRow], factors: Sequence[str]) -> Table:
    """Return the table of `rows`: what varies, then the figures that there are."""
    varying = [name for name in (*factors, "op") if len({str(row.get(name)) for row in rows}) > 1] or ["op"]
    shown = [column for column in _FIGURES if any(row.get(column.key) is not None for row in rows)]
    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        texts = [str(row.get(name, "")) for name in varying]
        cells.append((*texts, *(row.get(column.key) for column in shown)))
    return Table(caption, (*(Column(name, name) for name in varying), *shown), tuple(cells), group_by=len(varying) - 1)


def reasons(rows: Sequence[PointRow]) -> list[str]:
    """Return why rows are empty, each reason once."""
    return list(dict.fromkeys(f"{row['fabric']}: {row['missing']}" for row in rows if row.get("missing")))


def write(
    rows: Sequence[PointRow],
    factors: Sequence[str],
    plot: Plot,
    verdicts: Sequence[tuple[str, str]],
    meta: Mapping[str, Any],
    out: Path,
) -> Path:
    """Write ``figures.html`` to `out` and return its path; `verdicts` are (what was expected, what was found)."""
    sections = []
    values = {number: text for text, number in plot.x_values.items()}
    marks = tuple(sorted(values))
    x_axis = Axis(plot.x, 2 if plot.log else None, lambda value: values.get(value) or tick_text(value), marks)
    for op in dict.fromkeys(str(row["op"]) for row in rows):
        mine = [row for row in rows if row["op"] == op and row.get(plot.y) is not None]
        names = dict.fromkeys(str(row[plot.series]) if plot.series else op for row in mine)
        series = []
        for name in names:
            own = [row for row in mine if not plot.series or str(row[plot.series]) == name]
            style = "marks" if plot.words else "line"
            series.append(Series(name, _curve(own, plot.y, plot), style, _spans(own, plot)))
        lossy = [row for row in mine if row.get(_MATHIS) is not None] if plot.y == "mb_per_s" else []
        if lossy:
            series.append(Series("one Reno connection (Mathis)", _curve(lossy, _MATHIS, plot), "bound"))
        label = next((f"{c.title} {c.unit}" for c in _FIGURES if c.key == plot.y), plot.y)
        figures: tuple[page.Figure, ...] = ()
        if any(len(one.points) > 1 for one in series):
            title = f"{op}: {plot.y} over {plot.x}"
            chart = line_chart(title, series, x_axis, Axis(label))
            figures = (page.Figure(chart, f"{title}."),)
        every = [row for row in rows if row["op"] == op]
        sections.append(page.Section(op, figures=figures, tables=(table(op, every, factors),)))
    columns = (Column("expected", "expected"), Column("found", "found"))
    sections.append(
        page.Section("Expected", tables=(Table("What the figures must look like", columns, tuple(verdicts)),))
    )
    facts = {name: value for name, value in meta.items() if name != "commands"}
    html = page.render(str(meta["experiment"]), str(meta.get("source", "")), sections, facts, meta.get("commands", ()))
    return page.write(html, out / "figures.html")


def _curve(rows: Sequence[PointRow], y: str, plot: Plot) -> tuple[tuple[float, float], ...]:
    """Return (x, mean of y) in rising order of x: where more than x and the curve vary, several rows share a place."""
    points: dict[float, list[float]] = {}
    for row in rows:
        points.setdefault(plot.x_values[str(row[plot.x])], []).append(float(row[y]))
    return tuple((x, sum(values) / len(values)) for x, values in sorted(points.items()))


def _spans(rows: Sequence[PointRow], plot: Plot) -> tuple[tuple[float, float, float], ...]:
    """Return (x, low, high) of the rows with an interval; none where several rows share a place."""
    found = [
        (plot.x_values[str(row[plot.x])], float(row[f"{plot.y}_low"]), float(row[f"{plot.y}_high"]))
        for row in rows
        if row.get(f"{plot.y}_low") is not None
    ]
    return tuple(sorted(found)) if len({x for x, *_ in found}) == len(found) else ()
