# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment's points as one table and one chart a direction, with what was expected of them.

A row is a mapping: the factors as written, ``op``, and the figures over all seeds, with intervals; a row with
``missing`` says why there are none.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.model.results import (
    BY_DISK,
    DECIDED_BY,
    FAILED,
    THROUGHPUT,
    WITHOUT_FIGURES,
    PointRow,
    better_way,
    decides,
    number_of_runs,
    paced,
)
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
)
from fabtune.report.chart import Axis, Series, in_sight, line_chart, said_of_bars, tick_text
from fabtune.report.looks import looks, natural
from fabtune.report.page import Answer
from fabtune.report.table import Cell, Column, Table, decimals, percent, plain, significant, times

# Every figure that a point may have; a table shows those that some row has.
_FIGURES = (
    Column("rate", "mb_per_s", "MB/s", decimals(1)),
    Column("low", "mb_per_s_low", "MB/s", decimals(1)),
    Column("high", "mb_per_s_high", "MB/s", decimals(1)),
    Column("gain", "gain", seednotes.GAIN_UNIT, times),
    Column("verdict", "verdict"),
    Column("decided by", DECIDED_BY),
    Column("of", "fraction_of_bound", "bound", percent),
    Column("Sandia's Reno", "mathis_mb_per_s", "MB/s", decimals(1)),
    Column("slowest", "slowest_mb_per_s", "MB/s", decimals(2)),
    Column("fastest", "fastest_mb_per_s", "MB/s", decimals(2)),
    Column("slowest", "slowest_share", "of mean", percent),
    Column("p50", "p50_ms", "ms", significant(3)),
    Column("p99", "p99_ms", "ms", significant(3)),
    Column("CPU", "cpu_s_per_gb", "s/GB", significant(3)),
    *(Column(name, f"{name}_cpu_share", "of CPU", percent) for name in ("initiator", "target", "path")),
    Column("queue", "queue_full", "full", plain),
    Column("at", "at_limit", "limit", percent),
    Column("oldest", "oldest_s", "s", significant(3)),
    Column("depth", "depth_after", "after", plain),
    Column("failed", "paths_failed", "paths", plain),
)

_MATHIS = "mathis_mb_per_s"
# How figures and factors are called in sentences and drawings where their own names do not say it.
_FIGURE_WORDS = {
    "mb_per_s": "MB/s",
    "p50_ms": "p50 latency, ms",
    "p99_ms": "p99 latency, ms",
    "cpu_s_per_gb": "CPU s/GB",
}
_FACTOR_WORDS = {
    "rtt": "round trip", "rate": "line rate", "loss": "packet loss", "mtu": "MTU", "size": "request size",
    "depth": "queue depth", "buffer": "queue of the line, BDP", "cross": "other traffic",
    "cmds_max": "session commands", "cmdsn_depth": "command window", "stream_rate": "rate of each writer",
    "target_rate": "disk rate, MiB/s", "window": "socket buffer", "lun": "LUN",
}  # fmt: skip
# What became of something that was expected.
WORDS = {True: "as expected", False: "NOT AS EXPECTED", None: "cannot tell"}
# What loads the path more the further right: there latency belongs beside throughput.
LOADS = ("depth", "sessions", "clients", "threads", "streams", "stream_rate", "cmdsn_depth", "targets")
# A drawing shows a bound that is at most so many times the highest mark.
_IN_SIGHT_TIMES = 3
# A law's curve is computed at so many places between two points.
_STEPS = 24


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


def reasons(rows: Sequence[PointRow], factors: Sequence[str]) -> list[str]:
    """Return why rows are empty, each reason once, and of which rows the seeds fall into groups or differ."""
    empty = dict.fromkeys(f"{row['fabric']}: {row['missing']}" for row in rows if row.get("missing"))
    varying = _varying(rows, factors)
    failed = [
        f"{_place(row, varying)}: {row[FAILED]} of {number_of_runs(row)} runs failed" for row in rows if row.get(FAILED)
    ]
    return [*empty, *failed, *_seed_notes(rows, factors)]


def _varying(rows: Sequence[PointRow], factors: Sequence[str]) -> list[str]:
    return [name for name in (*factors, "op") if len({str(row.get(name)) for row in rows}) > 1]


def _seed_notes(rows: Sequence[PointRow], factors: Sequence[str]) -> list[str]:
    varying = _varying(rows, factors)
    return seednotes.said_of_seeds((_place(row, varying), row) for row in rows)


def write(
    rows: Sequence[PointRow],
    factors: Sequence[str],
    plot: Plot,
    verdicts: Sequence[tuple[str, bool | None, str]],
    facts: page.Facts,
    commands: Sequence[str],
    out: Path,
) -> Path:
    """Write ``figures.html`` to `out` and return its path.

    `verdicts` are (what was expected, whether it holds, what was found); of the `facts`, ``experiment`` is the
    page's title and ``source`` stands below it, with what is missing, ``runs``.
    """
    sections = []
    series_names = dict.fromkeys(str(row[plot.series]) for row in rows if plot.series)
    look = looks(series_names or dict.fromkeys(str(row["op"]) for row in rows))
    for op in dict.fromkeys(str(row["op"]) for row in rows):
        every = [row for row in rows if row["op"] == op]
        figures = _figures(op, every, factors, plot, look)
        notes = tuple(_seed_notes(every, factors))
        sections.append(page.Section(op, figures=figures, tables=(table(op, every, factors),), notes=notes))
    columns = (Column("expected", "expected"), Column("found", "found"))
    said = tuple((says, f"{WORDS[holds]}: {found}") for says, holds, found in verdicts)
    sections.append(page.Section("Expected", tables=(Table("What the figures must look like", columns, said),)))
    lead = ". ".join(str(facts[name]) for name in ("source", "runs") if facts.get(name))
    html = page.render(
        str(facts["experiment"]), lead, sections, facts, commands,
        answers=answers(rows, factors, verdicts),
    )  # fmt: skip
    return page.write(html, out / "figures.html")


def answers(
    rows: Sequence[PointRow], factors: Sequence[str], verdicts: Sequence[tuple[str, bool | None, str]]
) -> list[Answer]:
    """Return what stands first: what a profile gained, or whether all is as expected, how surely, and what limits."""
    shown = [row for row in rows if row.get("mb_per_s") is not None]
    counting = _counting(rows)
    varying = _varying(counting, factors)
    seeds = seednotes.number_of_seeds(shown)
    intervals = ", too few for intervals" if seednotes.too_few(shown) else " with 95 % intervals"
    how_sure = "One seed: without intervals." if seeds == "1" else f"Medians of {seeds} seeds{intervals}."
    how_sure += _said_of_what_decides(rows)
    found: list[Answer] = []
    gaining = [row for row in counting if row.get("verdict")]
    profiles = list(dict.fromkeys(str(row["profile"]) for row in counting if row.get("profile")))
    base = baseline(profiles)
    told = [name for name in profiles if any(row.get("profile") == name for row in gaining)]
    where = [one for one in varying if one != "profile"]
    of_name = {name: [(_place(row, where), row) for row in gaining if row.get("profile") == name] for name in told}
    judged = {name: [_gain(*one) for one in mine] for name, mine in of_name.items()}
    paid = {name: dict(pair for one in mine for pair in _cost(*one).items()) for name, mine in of_name.items()}
    costs = of_costs(base, judged, paid)
    for name, gains in judged.items():
        found += of_gains(name, base, gains, how_sure)
        found += costs[name]
    found = [*of_best(base, judged), *merged(found, told)] if told else []
    if verdicts:
        counts = {holds: sum(one[1] is holds for one in verdicts) for holds in WORDS}
        said = ", ".join(f"{count} {WORDS[holds]}" for holds, count in counts.items() if count)
        wrong = "".join(f"\n{WORDS[holds]}: {says} ({seen})" for says, holds, seen in verdicts if holds is not True)
        sense = -1 if counts[False] else 1 if counts[True] and not counts[None] else 0
        found.append(Answer("Is it as expected?", f"{said}.{wrong}", sense))
    if not told:
        found = [Answer("Did it help?", _compared(profiles, varying, bool(verdicts))), *found]
        found.append(Answer("How sure?", how_sure))
    bound = [row for row in shown if row.get("fraction_of_bound") is not None and row.get("bound_mb_per_s")]
    if bound:
        reached = [
            Reach(where=_place(row, varying), share=row["fraction_of_bound"], by=_bound_by(row), paced=paced(row))
            for row in bound
        ]
        whose = f"{' and '.join(told)} and what they are held against" if told else "All points"
        found.append(of_limits(whose, reached))
    return found


def _cost(where: str, row: PointRow) -> CostByPlace:
    return cost_of(where, *(row.get(key) for key in COST_KEYS))


def _bound_by(row: PointRow) -> str:
    return bound_by(row["bound_mb_per_s"], row.get("line_mb_per_s") or 0, disk=row.get("bound_by") == BY_DISK)


def _compared(profiles: Sequence[str], varying: Sequence[str], expected: bool) -> str:
    """Return what stands against what where no profile was judged."""
    names = [_words(one) for one in varying if one not in ("profile", "op")]
    by = "by what is expected of them below" if expected else "by the tables below alone"
    if len(profiles) > 1:
        return f"Cannot tell: {', '.join(profiles)}: no point was measured with two of them."
    text = f"No profile is held against another: {profiles[0]} at every point." if profiles else "No profile is told."
    return f"{text} Compared are {' and '.join(names)}, {by}." if names else text


def _said_of_what_decides(rows: Sequence[PointRow]) -> str:
    """Return which figure the verdicts are of where it is not throughput, and which way it is better."""
    figures = dict.fromkeys(decides(row) for row in rows if decides(row) != THROUGHPUT)
    words = (_label(figure).partition(", ") for figure in figures)
    return "".join(f" What decides is {what}, of which less is better." for what, _, _ in words)


def _words(factor: str) -> str:
    return _FACTOR_WORDS.get(factor, factor.replace("_", " "))


def _gain(where: str, row: PointRow) -> Gain:
    return Gain(
        where=where, verdict=str(row["verdict"]), why=str(row.get("why") or ""),
        ratio=row.get("gain"), low=row.get("gain_low"), high=row.get("gain_high"), better=better_way(decides(row)),
    )  # fmt: skip


def _counting(rows: Sequence[PointRow]) -> list[PointRow]:
    """Return the rows that tell a figure, or should: those too all of whose runs are without."""
    return [row for row in rows if row.get("mb_per_s") is not None or any(map(row.get, WITHOUT_FIGURES))]


def _place(row: PointRow, names: Sequence[str]) -> str:
    """Return a point in words, its direction first: "read at packet loss 0.1%"."""
    ways = [str(row[name]) for name in names if name == "op" and name in row]
    factors = [f"{_words(name)} {row[name]}" for name in names if name != "op" and name in row]
    return " at ".join(filter(None, [*ways, ", ".join(factors)])) or "all"


def _figures(
    op: str, every: Sequence[PointRow], factors: Sequence[str], plot: Plot, look: Mapping[str, int]
) -> tuple[page.Figure, ...]:
    """Return the drawings of one direction: one for each point of the factors that it has no place for."""
    names = [name for name in factors if name not in (plot.x, plot.series)]
    varying = [name for name in names if len({str(row.get(name)) for row in every}) > 1]
    parts: dict[str, list[PointRow]] = {}
    for row in every:
        parts.setdefault(f"{op}, {_place(row, varying)}" if varying else op, []).append(row)
    return tuple(one for title, part in parts.items() for one in _drawings(title, op, part, plot, look))


def _drawings(title: str, op: str, part: Sequence[PointRow], plot: Plot, look: Mapping[str, int]) -> list[page.Figure]:
    """Return the drawing of rows that differ in x and curve alone and, where x is a load, that of latency beside it."""
    figures = []
    for key in (plot.y, *(("p99_ms",) if plot.x in LOADS and plot.y != "p99_ms" else ())):
        mine = [row for row in part if row.get(key) is not None]
        series = _series(op, mine, attrs.evolve(plot, y=key), look)
        if not any(len(one.points) > 1 for one in series):
            continue
        heading = f"{title}: {_label(key)} over {_words(plot.x)}"
        bars = ", bars their 95 % intervals" if any(one.spans for one in series) else ""
        caption = f"{heading}. Marks are medians over the seeds{bars}."
        if key == THROUGHPUT and decides(mine[0]) == THROUGHPUT:
            limits = {(plot.x_values[str(r[plot.x])], r["bound_mb_per_s"]) for r in mine if r.get("bound_mb_per_s")}
            bound = [Series("bound", tuple(sorted(limits)), "limits", look=None)] if limits else []
            bound, said = in_sight(series, bound, _IN_SIGHT_TIMES)
            series = [*series, *_laws(mine, plot), *bound]
            caption += said
        caption += said_of_bars(series)
        chart = line_chart(heading, series, _x_axis(plot), Axis(_label(key)))
        figures.append(page.Figure(chart, caption))
    return figures


def _laws(rows: Sequence[PointRow], plot: Plot) -> list[Series]:
    """Return Sandia's curve where packets are lost: once where all curves of a drawing have it in common."""
    lossy: dict[str, list[PointRow]] = {}
    for row in rows:
        if row.get(_MATHIS) is not None:
            lossy.setdefault(str(row[plot.series]) if plot.series else "", []).append(row)
    found = {name: _power_law(_curve(mine, _MATHIS, plot)) for name, mine in lossy.items()}
    of_all = "one Reno connection (Sandia's 0.7)"
    if len(set(found.values())) < 2:
        return [Series(of_all, law, "bound", look=None) for law in set(found.values())]
    return [Series(f"{of_all}, {name}", law, "bound", look=None) for name, law in found.items()]


def _series(op: str, mine: Sequence[PointRow], plot: Plot, look: Mapping[str, int]) -> list[Series]:
    names = dict.fromkeys(str(row[plot.series]) if plot.series else op for row in mine)
    found = []
    for name in names:
        own = [row for row in mine if not plot.series or str(row[plot.series]) == name]
        # Nothing joins marks below a bound: it may bend between them.
        apart = plot.words or (plot.y == "mb_per_s" and any(row.get("bound_mb_per_s") for row in own))
        found.append(
            Series(
                _named(name, plot.series),
                _curve(own, plot.y, plot),
                "marks" if apart else "line",
                _spans(own, plot),
                look[name],
            )  # fmt: skip
        )
    return sorted(found, key=lambda one: natural(one.name))


def _named(value: str, factor: str | None) -> str:
    """Return what a legend calls the curve of this `value`: a number alone says nothing."""
    return f"{_words(factor)} {value}" if factor and value[:1].isdigit() else value


def _power_law(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the curve of a law that is a power of x through its `points`, computed densely where both are positive."""
    found = list(points[:1])
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if min(x0, y0, x1, y1) > 0:
            power = math.log(y1 / y0) / math.log(x1 / x0)
            steps = (x0 * (x1 / x0) ** (step / _STEPS) for step in range(1, _STEPS))
            found += [(x, y0 * (x / x0) ** power) for x in steps]
        found.append((x1, y1))
    return tuple(found)


def _x_axis(plot: Plot) -> Axis:
    values = {number: text for text, number in plot.x_values.items()}
    marks = tuple(sorted(values))
    return Axis(_words(plot.x), 2 if plot.log else None, lambda value: values.get(value) or tick_text(value), marks)


def _label(key: str) -> str:
    found = next((f"{c.title} {c.unit}".strip() for c in _FIGURES if c.key == key), key.replace("_", " "))
    return _FIGURE_WORDS.get(key, found)


def _curve(rows: Sequence[PointRow], y: str, plot: Plot) -> tuple[tuple[float, float], ...]:
    """Return (x, y) in rising order of x, which tells the rows of one curve apart."""
    return tuple(sorted((plot.x_values[str(row[plot.x])], float(row[y])) for row in rows))


def _spans(rows: Sequence[PointRow], plot: Plot) -> tuple[tuple[float, float, float], ...]:
    """Return (x, low, high) of the rows with an interval."""
    found = (
        (plot.x_values[str(row[plot.x])], float(row[f"{plot.y}_low"]), float(row[f"{plot.y}_high"]))
        for row in rows
        if row.get(f"{plot.y}_low") is not None
    )
    return tuple(sorted(found))
