# SPDX-License-Identifier: GPL-2.0-or-later
"""The linked pages of a tree of results, a page at each level: suite, experiment, combination, run.

The pages are made from the tree's indexes and link by relative paths: a tree may be moved anywhere.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

from fabtune.errors import InputError
from fabtune.measure import recordfile
from fabtune.model.results import CombinationEntry, ExperimentIndex, RunEntry, Status, SuiteIndex
from fabtune.model.units import counted
from fabtune.report import openloops, page, reasons, runs
from fabtune.report.apart import under_shown_label
from fabtune.report.page import PageLink, Section
from fabtune.report.table import Cell, Column, Table, plain

PAGE = "index.html"
# Columns that say which point a row is stand before its figures.
_FIRST = ("run", "profile", "fabric", "rtt_ms", "loss", "queue_depth", "size_bytes", "host", "op", "left_out")
# What a reader of an experiment opens first, where the run left it.
_LINK = "a link, through which no page is written"
_FIGURES = {
    "figures.html": "figures",
    "report.html": "all records",
    "summary.json": "all points as JSON",
    "testrun.xml": "all results as XML",
}


def write_suite(index: SuiteIndex, directory: Path) -> Path:
    """Write the page of the suite `index` to `directory` and return its path."""
    links = []
    for one in index.experiments:
        counts = ", ".join(f"{count} {status}" for status, count in one.runs.items() if count)
        links.append(PageLink(one.name, _href(one.directory, PAGE), f"{one.summary} ({counts})"))
    lead = f"{counted(len(links), 'experiment')}."
    section = Section("Experiments", links=tuple(links))
    return page.write(page.render(f"Suite {index.name}", lead, [section], {}, ()), directory / PAGE)


def write_experiment(index: ExperimentIndex, directory: Path, *, in_suite: bool) -> Path:
    """Write the pages of the experiment `index`, its combinations and runs below `directory`.

    Returns the experiment's page.  `in_suite` says whether a suite's page stands above it.
    """
    above = [PageLink("suite", _href("..", PAGE))] if in_suite else []
    for cell in index.combinations:
        cell_directory = directory / cell.directory
        if cell_directory.is_dir() and not cell_directory.is_symlink():
            trail = _moved(above, 1) + [PageLink(index.name, _href("..", PAGE))]
            _write_combination(index, cell, cell_directory, trail)
    links = [_link_to(cell, directory / cell.directory) for cell in index.combinations]
    files = [PageLink(what, name) for name, what in _FIGURES.items() if (directory / name).exists()]
    points = [
        {**point.unsaid(cell.factors), **point}
        for cell in index.combinations for run in cell.runs for point in run.points
    ]  # fmt: skip
    sections = [Section("Results", links=tuple(files), tables=_points("All points", points))]
    sections.append(Section("Combinations", links=tuple(links)))
    html = page.render(
        f"Experiment {index.name}", index.summary, sections,
        {"source": index.source, "clock": index.clock, "seeds": index.seeds, **index.fixed},
        index.commands, trail=above,
    )  # fmt: skip
    return page.write(html, directory / PAGE)


def _link_to(cell: CombinationEntry, directory: Path) -> PageLink:
    if directory.is_symlink():
        return PageLink(cell.name, "", _LINK)
    if not directory.is_dir():
        return PageLink(cell.name, "", "not run")
    return PageLink(cell.name, _href(cell.directory, PAGE), _statuses(cell.runs))


def _write_combination(
    index: ExperimentIndex, cell: CombinationEntry, directory: Path, trail: Sequence[PageLink]
) -> None:
    links = []
    for run in cell.runs:
        name = f"run {run.number}"
        run_directory = Path(run.directory).name
        if run.status == "not run":
            links.append(PageLink(name, "", "not run"))
            continue
        if (directory / run_directory).is_symlink():
            links.append(PageLink(name, "", _LINK))
            continue
        links.append(PageLink(name, _href(run_directory, PAGE), run.status))
        _write_run(run, directory / run_directory, _moved(trail, 1) + [PageLink(cell.name, _href("..", PAGE))], name)
    points = [{"run": run.number, **point} for run in cell.runs for point in run.points]
    sections = [Section("Runs", links=tuple(links), tables=_points("Points of all runs", points))]
    lead = f"{_statuses(cell.runs)}. {index.summary}"
    page.write(page.render(cell.name, lead, sections, cell.factors, (), trail=trail), directory / PAGE)


def _write_run(run: RunEntry, directory: Path, trail: Sequence[PageLink], name: str) -> None:
    sections = [Section("Not used", run.why)] if run.why else []
    sections += [Section("Failed before", run.failed_before)] if run.failed_before else []
    sections += [Section("Figures", tables=_points("Points", run.points))] if run.points else []
    for file in run.files:
        if file.endswith(recordfile.SUFFIX):
            sections.append(_record(file, directory / file))
    sections.append(Section("Files", links=tuple(PageLink(file, _href(file)) for file in run.files)))
    html = page.render(f"{trail[-1].text}, {name}", run.status, sections, run.settings, (), trail=trail)
    page.write(html, directory / PAGE)


def _record(name: str, path: Path) -> Section:
    try:
        taken = under_shown_label(recordfile.read(path))
    except InputError as error:
        return Section(name, notes=(str(error),))
    tables = [runs.figures(taken), runs.laws(taken), runs.proof(taken)]
    notes = () if taken.complete else (f"Incomplete: {taken.problem}",)
    said = " ".join((*(f"{one}." for one in reasons.sentences(taken)), *openloops.said(taken)))
    return Section(name, said, notes=notes, tables=tuple(table for table in tables if table.rows))


def _points(caption: str, points: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """Return one table with a column for each key of any point; none without points."""
    if not points:
        return ()
    found = dict.fromkeys(key for point in points for key in point)
    keys = [key for key in _FIRST if key in found] + [key for key in found if key not in _FIRST]
    columns = tuple(
        Column(key.replace("_", " "), key, show=plain if all(_is_number(point.get(key)) for point in points) else None)
        for key in keys
    )
    return (Table(caption, columns, tuple(tuple(_cell(point.get(key)) for key in keys) for point in points)),)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> Cell:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _statuses(found: Sequence[RunEntry]) -> str:
    counts = {status: sum(run.status == status for run in found) for status in get_args(Status)}
    return ", ".join(f"{counted(count, 'run')} {status}" for status, count in counts.items() if count)


def _moved(links: Sequence[PageLink], levels: int) -> list[PageLink]:
    """Return the links as they read from a page `levels` further down."""
    return [PageLink(link.text, "../" * levels + link.href, link.note) for link in links]


def _href(*parts: str) -> str:
    return quote("/".join(parts))
