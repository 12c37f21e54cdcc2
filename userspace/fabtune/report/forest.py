# SPDX-License-Identifier: GPL-2.0-or-later
"""A forest plot: one row a figure, its ratio with interval, beside the line of no difference."""

from collections.abc import Sequence
from html import escape

import attrs

from fabtune.report.chart import WIDTH, Axis, make_scale, num, svg_open, text_element
from fabtune.report.table import times_within

_ROW, _TOP, _BOTTOM, _LEFT, _RIGHT = 34, 12, 44, 24, 24


@attrs.frozen
class Spread:
    """One row: what it is, the ratio and its interval, and whether it means better (+1), worse (-1) or neither."""

    name: str
    ratio: float
    low: float
    high: float
    sense: int


def forest_plot(title: str, rows: Sequence[Spread], practical: float, axis: str) -> str:
    """Return the drawing; the shaded band is what makes no practical difference."""
    height = _TOP + _ROW * len(rows) + _BOTTOM
    bottom = height - _BOTTOM
    edges = [value for row in rows for value in (row.low, row.high)]
    reach = [1 - practical, 1 + practical, *edges]
    wide = max(reach) / min(reach) > 4
    scale = make_scale(Axis(axis, 2 if wide else None), reach, _LEFT, WIDTH - _RIGHT)
    low, high = (scale.at(min(max(v, scale.low), scale.high)) for v in (1 / (1 + practical), 1 + practical))
    parts = [svg_open(title, f"{axis}, with intervals: " + ", ".join(row.name for row in rows), height)]
    parts.append(f'<path class="band" d="M{num(low)} {_TOP}H{num(high)}V{num(bottom)}H{num(low)}z"/>')
    parts.append('<g class="grid">')
    parts += [f'<path d="M{num(scale.at(tick))} {_TOP}V{num(bottom)}"/>' for tick in scale.ticks()]
    parts.append(f'</g><path class="unity" d="M{num(scale.at(1))} {_TOP}V{num(bottom)}"/>')
    parts.append('<g class="tick" text-anchor="middle">')
    parts += [
        text_element(scale.at(tick), bottom + 16, f"{tick:.2g}×" if wide else f"{tick:g}×") for tick in scale.ticks()
    ]
    parts.append(f'</g><g class="label" text-anchor="middle">{text_element(WIDTH / 2, bottom + 36, axis)}</g>')
    for index, row in enumerate(rows):
        y = _TOP + _ROW * index + 24
        look = {1: "good", -1: "bad", 0: "even"}[row.sense]
        hint = f"{row.name}: {times_within(row.ratio, row.low, row.high)}"
        parts.append(f'<g class="{look}"><title>{escape(hint)}</title>')
        parts.append(f'<path class="line" d="M{num(scale.at(row.low))} {y}H{num(scale.at(row.high))}"/>')
        parts.append(f'<path class="mark" d="M{num(scale.at(row.ratio))} {y - 5}l5 5l-5 5l-5 -5z"/></g>')
        parts.append(f'<g class="legend">{text_element(_LEFT, y - 9, row.name)}</g>')
    parts.append("</svg>")
    return "\n".join(parts)
