# SPDX-License-Identifier: GPL-2.0-or-later
"""A forest plot: one row a figure, its ratio with interval, beside the line of no difference."""

import textwrap
from collections.abc import Sequence
from html import escape

import attrs

from fabtune.report.chart import GLYPH, WIDTH, Axis, Scale, make_scale, num, svg_open, text_element
from fabtune.report.table import times_within

_TOP, _BOTTOM, _SIDE = 4, 44, 24
# A line of a row's name, and the strip below the name: the lines of the scale stand there alone.
_LINE, _STRIP = 17, 18


@attrs.frozen
class Spread:
    """One row: what it is, the ratio and its interval, and whether it means better (+1), worse (-1) or neither."""

    name: str
    ratio: float
    low: float
    high: float
    sense: int

    @property
    def lines(self) -> list[str]:
        """The name in lines that the drawing has room for."""
        return textwrap.wrap(self.name, int((WIDTH - 2 * _SIDE) / GLYPH))


def forest_plot(title: str, rows: Sequence[Spread], practical: float, axis: str) -> str:
    """Return the drawing; the shaded band is what makes no practical difference."""
    edges = [value for row in rows for value in (row.low, row.high)]
    band = 1 / (1 + practical), 1 + practical
    reach = [*band, *edges]
    wide = max(reach) / min(reach) > 4
    scale = make_scale(Axis(axis, 2 if wide else None), reach, _SIDE, WIDTH - _SIDE)
    names, strips = [], []
    y = _TOP
    for row in rows:
        names += [text_element(_SIDE, y + _LINE * (at + 1) - 5, line) for at, line in enumerate(row.lines)]
        y += _LINE * len(row.lines) + _STRIP
        strips.append(y - _STRIP)
    parts = [svg_open(title, f"{axis}, with intervals: " + ", ".join(row.name for row in rows), y + _BOTTOM)]
    parts += _scale_lines(scale, band, strips)
    parts.append('<g class="tick" text-anchor="middle">')
    parts += [text_element(scale.at(tick), y + 16, f"{tick:.2g}×" if wide else f"{tick:g}×") for tick in scale.ticks()]
    parts.append(f'</g><g class="label" text-anchor="middle">{text_element(WIDTH / 2, y + 36, axis)}</g>')
    parts.append(f'<g class="legend">{"".join(names)}</g>')
    parts += [_marks(row, scale, strip + _STRIP // 2) for row, strip in zip(rows, strips, strict=True)]
    parts.append("</svg>")
    return "\n".join(parts)


def _scale_lines(scale: Scale, edges: tuple[float, float], strips: Sequence[int]) -> list[str]:
    """Return band, grid and the line at 1, within the strips: no name is crossed by any of them."""

    def down(at: float) -> str:
        return "".join(f"M{num(at)} {strip}v{_STRIP}" for strip in strips)

    low, high = (scale.at(min(max(v, scale.low), scale.high)) for v in edges)
    band = "".join(f"M{num(low)} {strip}H{num(high)}v{_STRIP}H{num(low)}z" for strip in strips)
    grid = "".join(f'<path d="{down(scale.at(tick))}"/>' for tick in scale.ticks())
    return [f'<path class="band" d="{band}"/><g class="grid">{grid}</g><path class="unity" d="{down(scale.at(1))}"/>']


def _marks(row: Spread, scale: Scale, y: int) -> str:
    look = {1: "good", -1: "bad", 0: "even"}[row.sense]
    hint = f"{row.name}: {times_within(row.ratio, row.low, row.high)}"
    line = f'<path class="line" d="M{num(scale.at(row.low))} {y}H{num(scale.at(row.high))}"/>'
    mark = f'<path class="mark" d="M{num(scale.at(row.ratio))} {y - 5}l5 5l-5 5l-5 -5z"/>'
    return f'<g class="{look}"><title>{escape(hint)}</title>{line}{mark}</g>'
