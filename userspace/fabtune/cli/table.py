# SPDX-License-Identifier: GPL-2.0-or-later
"""The one printer of tables and texts: fits any terminal without breaking a figure, and loses nothing."""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from fabtune.report.table import Table

_PIPE_WIDTH = 160
_MOST_DIGITS = 6
_LEAST_WRAP_WIDTH = 32
_GAP = "  "
_MOST_INDENTED = 500
# A number and its unit stay on one line.
_FIGURE = re.compile(
    r"(?<=\d) (?=(?:[KMGT]i?B|bytes|[KMG]?b/s|[KMG]i?B/s|IOPS|[mun]?s|min|s/GB|%)(?:\W|$))|(?<=[KMGT]iB) (?=\(\d)"
)


# So do the ends of an interval.
_INTERVAL = re.compile(r"[\[(][^\s\[\]()]+(?:,| to| and) [^\s\[\]()]+[\])]")


def print_json(data: object, *, one_line: bool = False) -> None:
    """Print `data` as JSON, on one line for a stream of them, else indented; each record of a long list on a line."""
    # Indenting the forty thousand records of a thousand sessions would take as long as finding them out.
    if one_line or not isinstance(data, dict) or not any(map(_is_long, data.values())):
        text = json.dumps(data, indent=None if one_line else 2)
    else:
        text = "{\n" + ",\n".join(f"  {json.dumps(key)}: {_json(value)}" for key, value in data.items()) + "\n}"
    # In one go: json.dump writes each word by itself.
    sys.stdout.write(text + "\n")


def _is_long(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list) and len(value) > _MOST_INDENTED


def _json(value: object) -> str:
    """Return what stands for `value` of a key of the outermost object."""
    if _is_long(value):
        # The encoder itself: json.dumps would ask for each record whether it is to be another one.
        return "[\n    " + ",\n    ".join(map(json.JSONEncoder().encode, value)) + "\n  ]"
    return json.dumps(value, indent=2).replace("\n", "\n  ")


def room() -> int:
    """Return how many columns there are to print in: without a terminal those that COLUMNS asks for, if it does."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdecimal() and len(asked) < _MOST_DIGITS and int(asked) else _PIPE_WIDTH


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    wrapped: str | None = None,
    fold: Sequence[str] = (),
    right: Collection[str] = (),
    details: Sequence[Sequence[str]] = (),
) -> None:
    """Print rows under headers, each row on one line; a header may have several.

    Column `wrapped` alone may take several lines beside the others; where they leave too little
    room to read it, it stands below its row.  Columns that do not fit follow it there, each with
    its heading: those in `fold` first, then the last.  Columns in `right` are of figures.  The
    `details` of each row stand below it, a line or more each.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, [*heading.split("\n"), *column])) for heading, *column in zip(headers, *cells, strict=True)]
    column = headers.index(wrapped) if wrapped else -1
    shown, below = _folded([index for index in range(len(headers)) if index != column], headers, widths, fold)
    if wrapped:
        left = room() - sum(widths[index] + len(_GAP) for index in shown)
        if left >= min(_LEAST_WRAP_WIDTH, widths[column]):
            shown = sorted([*shown, column])
            widths[column] = min(left, widths[column])
        else:
            below.append(column)
    for line in zip_longest(*(headers[index].split("\n") for index in shown), fillvalue=""):
        _print_line(line, shown, headers, widths, right)
    _print_line(["-" * widths[index] for index in shown], shown, headers, widths, right)
    for number, row in enumerate(cells):
        beside = [_wrap(row[index], widths[index]) if index == column else [row[index]] for index in shown]
        for parts in zip_longest(*beside, fillvalue=""):
            _print_line(parts, shown, headers, widths, right)
        left_over = [index for index in below if index != column and row[index].strip("-–")]
        titles = [headers[index].replace("\n", " ") for index in left_over]
        named = [f"{title}: {row[index]}".removeprefix(": ") for title, index in zip(titles, left_over, strict=True)]
        more = details[number] if details else ()
        for text in filter(None, ["; ".join(named), row[column] if column in below else "", *more]):
            text_below(text)


def report_table(found: "Table", fold: Sequence[str] = ()) -> None:
    """Print a report's table under its caption; units stand below their titles where that makes it fit."""
    # A caption, and a column's title, may be a label or a name that others gave.
    print(_harmless(found.caption))
    shown = found.shown()
    titles = [(_harmless(column.title), _harmless(column.unit)) for column in found.columns]
    headers = [" ".join(title).strip() for title in titles]
    if sum(max(map(len, column)) + len(_GAP) for column in zip(headers, *shown, strict=True)) - len(_GAP) > room():
        headers = ["\n".join(title).strip() for title in titles]
    right = [header for header, column in zip(headers, found.columns, strict=True) if column.show]
    table(headers, shown, fold=fold, right=right)


def _folded(
    shown: list[int], headers: Sequence[str], widths: Sequence[int], fold: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Return the columns that fit side by side, and those that do not."""
    leaving = [headers.index(name) for name in fold]
    leaving += [index for index in reversed(shown) if index not in leaving]
    below = []
    while len(shown) > 1 and sum(widths[index] + len(_GAP) for index in shown) - len(_GAP) > room():
        index = leaving.pop(0)
        shown = [one for one in shown if one != index]
        below.append(index)
    return shown, sorted(below)


def _print_line(
    parts: Sequence[str], shown: Sequence[int], headers: Sequence[str], widths: Sequence[int], right: Collection[str]
) -> None:
    padded = [
        part.rjust(widths[index]) if headers[index] in right else part.ljust(widths[index])
        for index, part in zip(shown, parts, strict=True)
    ]
    print(_GAP.join(padded).rstrip())


def one_line(text: str) -> str:
    """Return `text` without what would break a row or steer a terminal; a file's content by its length alone."""
    if text.count("\n") > 1:
        return f"({len(text.splitlines())} lines)"
    return _harmless(text)


def _harmless(text: str) -> str:
    """Return `text`, which may quote what others wrote, without what steers a terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " if one.isspace() else f"\\x{ord(one):02x}" for one in text)


def _wrap(text: str, width: int, indent: str = "", after: str = "") -> list[str]:
    """Return the lines of `text`, figures and their units kept together."""
    kept = _FIGURE.sub("\u00a0", _harmless(text))
    kept = _INTERVAL.sub(lambda found: found[0].replace(" ", "\u00a0"), kept)
    lines = textwrap.wrap(kept, width, initial_indent=indent, subsequent_indent=after, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines] or [""]


def paragraph(text: str, indent: str = "", after: str = "    ") -> None:
    """Print one text, wrapped; its first line after `indent`, the others after `after`."""
    print(told(text, indent, after))


def told(text: str, indent: str = "", after: str = "    ") -> str:
    """Return one text wrapped as `paragraph` prints it, for those who print it elsewhere."""
    return "\n".join(_wrap(text, room(), indent, after))


def text_below(text: str) -> None:
    """Print what belongs to the row above."""
    paragraph(text, "    ", "    ")


def labelled(label: str, text: str, width: int) -> None:
    """Print ``label: text``, text wrapped beside its label."""
    paragraph(f"{f'{label}:':{width}}{text}", after=" " * width)


def number(native: str | None, unit: str) -> str:
    """Return a value as people read it: bytes in binary units, with the exact number where that rounds it."""
    if native is None:
        return "-"
    if unit == "bytes" and native.isdecimal():
        value = int(native)
        for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size:
                text = f"{value / size:.1f}".removesuffix(".0")
                return f"{text} {name}" + ("" if float(text) * size == value else f" ({value})")
    return f"{native} {unit}".strip() if native else "(empty)"


def rate(bit_per_s: float) -> str:
    """Return a rate as people write it, - if unknown."""
    if not bit_per_s:
        return "-"
    return f"{bit_per_s / 1e9:g} Gb/s" if bit_per_s >= 1e9 else f"{bit_per_s / 1e6:g} Mb/s"
