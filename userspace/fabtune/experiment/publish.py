# SPDX-License-Identifier: GPL-2.0-or-later
"""What an experiment shows of its runs: tables and sentences for a terminal, its page, the linked pages of its tree."""

from collections.abc import Sequence
from pathlib import Path

import attrs

from fabtune.experiment import derived, left_out, results
from fabtune.experiment.definition import Axes, Definition
from fabtune.experiment.expect import JudgedExpectation
from fabtune.experiment.inventory import Inventory
from fabtune.experiment.present import images_of
from fabtune.experiment.settings import parse_settings
from fabtune.experiment.summary import Summary
from fabtune.lab.recipe import recipe_for
from fabtune.measure import resulttree
from fabtune.measure.resulttree import Complaint
from fabtune.model.judgement import Verdict, failed_of
from fabtune.model.listing import first_of
from fabtune.model.results import DECIDED_BY, FAILED, THROUGHPUT, Point, PointRow, decides, number_of_runs
from fabtune.report import answers, demo, figure, results_pages, seednotes, suite
from fabtune.report.table import Cell, Column, Table, decimals, significant, times

_FLEET = (
    Column("profile", "profile"),
    Column("op", "op"),
    Column("host", "host"),
    Column("rate", "mb_per_s", "MB/s", decimals(1)),
    Column("low", "mb_per_s_low", "MB/s", decimals(1)),
    Column("high", "mb_per_s_high", "MB/s", decimals(1)),
    Column("gain", "gain", seednotes.GAIN_UNIT, times),
    Column("verdict", "verdict"),
    Column("p50", "p50_ms", "ms", significant(3)),
    Column("p99", "p99_ms", "ms", significant(3)),
    Column("begun late", "begun_late_ms", "ms", decimals(1)),
    Column("clock off", "clock_offset_ms", "ms", decimals(2)),
)
# Which of them tell a point.
_POINT = ("profile", "op")
# So many hosts are named.
_NAMED = 3


@attrs.frozen(kw_only=True)
class Published:
    """The points of an experiment, what a terminal shows of them, and the files that were written.

    `part` says which runs were not asked for, and which are not there; empty where neither is so.
    """

    points: tuple[Point, ...]
    tables: tuple[Table, ...]
    texts: tuple[str, ...] = ()
    part: str
    page: Path
    kept: Path


def of_lab(
    wanted: Definition,
    found: Sequence[Summary],
    verdicts: Sequence[JudgedExpectation],
    part: str,
    command: str,
    out: Path,
) -> Published:
    """Write points and page of what was measured in the lab to `out`; `command` is the one that asked for it."""
    points = tuple(one.published for one in found)
    facts: dict[str, Cell] = {
        "experiment": wanted.summary,
        "source": wanted.source,
        "clock": wanted.clock,
        "seeds": wanted.seeds,
        "image": ", ".join(_images(wanted, found)),
    }
    if part:
        facts |= {"runs": part}
    kept = results.keep_points(points, out)
    rows, factors = [one.row for one in found], tuple(wanted.factors)
    if not wanted.plot and all(one.decides == THROUGHPUT for one in found) and demo.takes(points):
        return Published(
            points=points,
            tables=tuple(demo.tables(points)),
            texts=(*demo.group_notes(points), *answers.as_lines(demo.answers(points))),
            part=part,
            page=demo.write(points, facts, [command], out),
            kept=kept,
        )
    said = [(one.says, one.holds, one.found) for one in verdicts]
    first = answers.as_lines(figure.answers(rows, factors, said))
    return Published(
        points=points,
        tables=(figure.table(wanted.summary, rows, factors),),
        texts=(*figure.reasons(rows, factors), *([] if wanted.plot else first)),
        part=part,
        page=figure.write(rows, factors, _plot(wanted, rows), said, facts, [command], out),
        kept=kept,
    )


def _images(wanted: Definition, found: Sequence[Summary]) -> list[str]:
    """Return the images that roots and kernels came from, each by its name and its recipe's digest."""
    settings = [parse_settings(wanted.fixed | one.factors, str(wanted.path)) for one in found]
    return [
        f"{name} {recipe_for(name).digest}" for name in dict.fromkeys(n for one in settings for n in images_of(one))
    ]


def _plot(wanted: Definition, rows: Sequence[PointRow]) -> figure.Plot:
    """Return what the drawings show: without a word, the figure that decides."""
    axes = wanted.plot or _axes(wanted)
    y = axes.y or (decides(rows[0]) if rows else THROUGHPUT)
    if axes.x not in wanted.factors:
        return figure.Plot(axes.x, y, None, {str(row.get(axes.x)): 1.0 for row in rows}, False, True)
    numbers, words = wanted.numbers(axes.x), wanted.is_of_words(axes.x)
    return figure.Plot(axes.x, y, axes.series, numbers, min(numbers.values()) > 0 and not words, words)


def _axes(wanted: Definition) -> Axes:
    """Return what the drawings of a definition that says nothing of them are over."""
    others = [name for name in wanted.factors if name != "profile"]
    x = "rtt" if "rtt" in others else next(iter(others), "profile")
    return Axes(x=x, series="profile" if "profile" in wanted.factors and x != "profile" else None)


def of_fleet(found: Sequence[Summary], part: str, out: Path) -> Published:
    """Write points and report of what a fleet's hosts measured to `out`."""
    points = tuple(one.published for one in found)
    kept = results.keep_points(points, out)
    return Published(
        points=points,
        tables=(_fleet_table(found),),
        texts=tuple(_fleet_notes(found)),
        part=part,
        page=suite.write(*suite.load(out), ["fabtune", "report", str(out)], out / "report.html"),
        kept=kept,
    )


def _fleet_table(found: Sequence[Summary]) -> Table:
    """Return what each host reached at each point: what varies beside profile and op has a column, too."""
    names = [name for name in dict.fromkeys(name for one in found for name in one.factors) if name not in _POINT]
    by = [Column("decided by", DECIDED_BY)] if any(DECIDED_BY in one.point for one in found) else []
    columns = (*_FLEET[: len(_POINT)], *(Column(name, name) for name in names), *_FLEET[len(_POINT) :], *by)
    rows = ({**one.published, **{name: one.factors.get(name) for name in names}} for one in found)
    return Table(
        "All initiators at once", columns, tuple(tuple(row.get(column.key) for column in columns) for row in rows),
        group_by=len(_POINT) + len(names),
    )  # fmt: skip


def _fleet_notes(found: Sequence[Summary]) -> list[str]:
    """Return what the table of a fleet cannot show: why nothing is told, runs that failed, and seeds that differ.

    What is so of several hosts is said once.
    """
    hosts: dict[tuple[str, str], list[str]] = {}
    for one in found:
        for said in _untold(one):
            hosts.setdefault((_place(one), said), []).append(str(one.point["host"]))
    untold = [f"{place}, {_named(names)}: {said}" for (place, said), names in hosts.items()]
    rows = [Point({name: value for name, value in one.row.items() if name != FAILED}) for one in found]
    factors = dict.fromkeys(name for one in found for name in one.factors)
    return [*untold, *figure.reasons(rows, (*factors, "host"))]


def _place(one: Summary) -> str:
    return ", ".join([*(f"{name} {text}" for name, text in one.factors.items()), str(one.point["op"])])


def _untold(one: Summary) -> list[str]:
    if one.point.get("verdict") == Verdict.CANNOT_TELL.value:
        return [f"cannot tell: {one.point['why']}"]
    failed = int(one.point.number(FAILED))
    return [failed_of(failed, number_of_runs(one.point), str(one.point["profile"]))] if failed else []


def _named(hosts: Sequence[str]) -> str:
    return first_of(hosts, _NAMED)


def write_tree(
    wanted: Definition, out: Path, command: str, fleet: Inventory | None, *, in_suite: bool
) -> list[Complaint]:
    """Write the index and the pages of the experiment in `out`, those of the suite above too where it is in one.

    Returns what is wrong with what stands there.
    """
    index = results.keep_index(wanted, out, command, fleet)
    results_pages.write_experiment(left_out.marked(index, out), out, in_suite=in_suite)
    if not in_suite:
        return resulttree.check(out)
    suite_index, wrong = results.keep_suite(out.parent)
    results_pages.write_suite(suite_index, out.parent)
    return [*resulttree.check(out), *wrong]


def write_suite_tree(directory: Path) -> tuple[Path, list[Complaint]]:
    """Write the pages of all experiments below `directory` anew, and the suite's.

    Returns the suite's page and what is wrong with what stands there; runs not to be used are in no page.
    """
    index, wrong = results.keep_suite(directory)
    unread = [one.place for one in wrong]
    complaints = [*(one for one in derived.complaints(directory) if one.place not in unread), *wrong]
    for one in index.experiments:
        below = directory / one.directory
        read = resulttree.read_experiment(below / resulttree.INDEX)
        read = resulttree.without_refused(read, complaints, Path(one.directory))
        results_pages.write_experiment(left_out.marked(read, below), below, in_suite=True)
    return results_pages.write_suite(index, directory), complaints
