# SPDX-License-Identifier: GPL-2.0-or-later
"""One self-contained HTML page from figures, tables and facts: no script, font or request from elsewhere."""

import base64
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.host import files
from fabtune.report.table import Cell, Table

# What the figures hold for (kernel, seed, image, clock, ...), shown in this order.
Facts = Mapping[str, Cell]

_TEMPLATES = Path(__file__).resolve().parent / "templates"
# A table of so many characters has room beside a drawing on the narrowest screen where page.css puts it there.
_BESIDE_CHARACTERS = 72
# Ids that the page has beside those of its sections.
_TAKEN = ("content", "made-by")
# A longer table is a fold.
FOLD_ROWS = 16


@attrs.frozen
class Figure:
    """A drawing (an ``<svg>`` element) and one sentence that says what to see in it."""

    svg: str
    caption: str


@attrs.frozen
class Detail:
    """A fold with one run's drawing and table; with scripts on, the drawing is made zoomable from the table."""

    summary: str
    figures: tuple[Figure, ...]
    table: Table


@attrs.frozen
class PageLink:
    """Another page or file, by a path relative to the page; with an empty path only its name."""

    text: str
    href: str
    note: str = ""


@attrs.frozen
class Answer:
    """What a reader asks first, and what there is to say; `sense` is +1 where it is good, -1 where it is bad.

    `whole` is the heading of the page's section that has all of it, of which the text leaves `rest` lines out.
    """

    question: str
    text: str
    sense: int = 0
    whole: str = ""
    rest: int = 0


@attrs.frozen
class Section:
    """A heading, a paragraph, figures, and the tables that hold every number drawn."""

    heading: str
    text: str = ""
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    details: tuple[Detail, ...] = ()
    links: tuple[PageLink, ...] = ()

    @property
    def side_by_side(self) -> bool:
        """Whether drawing and table share a row: one drawing, and tables that leave room for it."""
        return len(self.figures) == 1 and all(table.width <= _BESIDE_CHARACTERS for table in self.tables)


def render(
    title: str,
    lead: str,
    sections: Sequence[Section],
    facts: Facts,
    commands: Sequence[str],
    *,
    zoom: bool = False,
    trail: Sequence[PageLink] = (),
    answers: Sequence[Answer] = (),
) -> str:
    """Return the page.  The same arguments give the same bytes.

    `facts` are shown in the order given (what was measured on, with which settings);
    `commands` are those that made the figures; `zoom` puts in what makes the folds' drawings zoomable;
    `answers` stand on the first screen;
    `trail` are the pages above this one in a tree of results, the top first.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["csv_link"] = _csv_link
    environment.filters["prose"] = _prose
    anchored = list(zip(_anchors(sections), sections, strict=True))
    headings = {section.heading: anchor for anchor, section in reversed(anchored)}
    return environment.get_template("page.html.j2").render(
        title=title, lead=lead, sections=anchored, facts=facts, commands=commands, zoom=zoom, trail=trail,
        answers=answers, headings=headings, fold_rows=FOLD_ROWS,
    )  # fmt: skip


def _anchors(sections: Sequence[Section]) -> list[str]:
    """Return the id of each section within the page, numbered where headings differ in other characters alone."""
    found: list[str] = []
    for section in sections:
        plain = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-") or "section"
        names = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(2)))
        found.append(next(one for one in names if one not in (*_TAKEN, *found)))
    return found


def write(page: str, path: Path) -> Path:
    """Write `page` whole or not at all, and return `path`.  Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.keep(path, _as_utf8(page), over=True)
    return path


def _prose(text: str) -> str:
    """Return a text as HTML: commands as such, and no line ends between a number and its unit."""
    import markupsafe

    kept = re.sub(r"(?<=\d) (?=(?:%|ms|s|[KMG]i?B(?:/s)?|Mb/s)(?!\w))", "\N{NO-BREAK SPACE}", text)
    return markupsafe.Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(markupsafe.escape(kept))))


def _csv_link(table: Table) -> str:
    return "data:text/csv;base64," + base64.b64encode(_as_utf8(table.to_csv())).decode()


def _as_utf8(text: str) -> bytes:
    """Return `text` as UTF-8; what is none of a file's name stands as a terminal shows it, ``\\udce9``."""
    return text.encode(errors="backslashreplace")
