# SPDX-License-Identifier: GPL-2.0-or-later
"""One table, three views: terminal, HTML page and CSV."""

import csv
import io
import math
from collections.abc import Callable

import attrs

Cell = str | float | int | None

MISSING = "–"
# Where two significant digits take more than so many behind the point, an exponent is written: nobody counts the zeros.
_MOST_PLACES = 5


def decimals(digits: int) -> Callable[[float], str]:
    """Return a formatter with `digits` digits after the point."""
    return lambda value: f"{value:.{digits}f}"


def significant(digits: int) -> Callable[[float], str]:
    """Return a formatter with `digits` significant digits, without an exponent."""
    return lambda value: _to_place(value, digits - 1 - _magnitude(value))


def within(low: float, high: float) -> Callable[[float], str]:
    """Return a formatter for a figure between `low` and `high`: its last two digits are what they leave open.

    At most four significant digits are written: no interval of a few runs says more.  At least two are, of every
    value: an interval may span several powers of ten, and its lower end, or the figure itself, is no zero then.
    """
    places = min(1 - _magnitude((high - low) / 2) if high > low else math.inf, 3 - _magnitude(max(abs(low), abs(high))))
    return lambda value: _to_two_at_least(value, places)


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def _to_place(value: float, places: float) -> str:
    """Return `value` rounded to so many digits after the point, or before it where `places` is negative."""
    return f"{round(value, int(places)):.{max(0, int(places))}f}" if math.isfinite(value) else f"{value}"


def _to_two_at_least(value: float, places: float) -> str:
    """Return `value` rounded as `_to_place` does, but not to less than two significant digits."""
    two = 1 - _magnitude(value) if value else places
    return f"{value:.1e}" if two > max(places, _MOST_PLACES) else _to_place(value, max(places, two))


def percent(value: float) -> str:
    """Return a fraction of one as a percentage."""
    return f"{value * 100:.1f} %"


def whole_percent(value: float) -> str:
    """Return a fraction of one as a percentage, without a digit after the point."""
    return f"{value * 100:.0f} %"


def times(value: float) -> str:
    """Return a ratio as a multiple: two digits below 10, fewer above."""
    return f"{value:.2f}×" if value < 10 else f"{value:.1f}×"


def times_within(ratio: float, low: float, high: float) -> str:
    """Return a ratio as a multiple with its interval, as many digits of each as the interval leaves open."""
    show = within(low, high)
    return f"{show(ratio)}× [{show(low)}, {show(high)}]"


def plain(value: float) -> str:
    """Return a number with no digits that say nothing."""
    return f"{value:g}"


@attrs.frozen
class Column:
    """A column's heading, its unit and how its numbers are written; `show` is None for text.

    `key` names the column in CSV, with the unit in the name.
    """

    title: str
    key: str
    unit: str = ""
    show: Callable[[float], str] | None = None


@attrs.frozen
class Table:
    """Rows of cells, one for each column; None stands for "not measured"."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    # Leading columns whose repeated values are left blank where a person reads them.
    group_by: int = 0

    def shown(self) -> list[list[str]]:
        """Return the cells as text for reading, with repeated group cells blank."""
        shown: list[list[str]] = []
        before: tuple[Cell, ...] | None = None
        spans = self._spans()
        for row in self.rows:
            cells = [_text(column, cell) for column, cell in zip(self.columns, row, strict=True)]
            for figure, low, high in spans:
                self._show_within(row, cells, figure, low, high)
            for index in range(self.group_by):
                if before is not None and row[: index + 1] == before[: index + 1]:
                    cells[index] = ""
            shown.append(cells)
            before = row
        return shown

    def _show_within(self, row: tuple[Cell, ...], cells: list[str], *places: int) -> None:
        """Write a figure and the ends of its interval with the digits that the interval leaves open."""
        _, low, high = (row[at] for at in places)
        if isinstance(low, int | float) and isinstance(high, int | float):
            show = within(low, high)
            for at in places:
                value, unit = row[at], "×" if self.columns[at].show is times else ""
                cells[at] = f"{show(value)}{unit}" if isinstance(value, int | float) else cells[at]

    def _spans(self) -> list[tuple[int, int, int]]:
        """Return where figures stand that have their interval beside them, in columns with ``_low`` and ``_high``."""
        places = {column.key: at for at, column in enumerate(self.columns)}
        ends = ((at, places.get(f"{key}_low"), places.get(f"{key}_high")) for key, at in places.items())
        return [(at, low, high) for at, low, high in ends if low is not None and high is not None]

    @property
    def width(self) -> int:
        """The characters of its widest row, with one between two columns."""
        lines = [[max(column.title, column.unit, key=len) for column in self.columns], *self.shown()]
        return sum(1 + max(len(line[at]) for line in lines) for at in range(len(self.columns)))

    def to_csv(self) -> str:
        """Return the whole table as CSV, unrounded, one header line of keys."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.key for column in self.columns])
        writer.writerows(self.rows)
        return text.getvalue()


def _text(column: Column, cell: Cell) -> str:
    if cell is None:
        return MISSING
    if isinstance(cell, str) or column.show is None:
        return str(cell)
    return column.show(cell)
