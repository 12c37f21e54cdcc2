# SPDX-License-Identifier: GPL-2.0-or-later
"""Several small line charts one above the other over the same x axis, as one inline SVG."""

from collections.abc import Sequence

import attrs

from fabtune.report.chart import WIDTH, Axis, Scale, Series, curve, make_scale, num, svg_open, text_element

_PLOT, _LEGEND, _GAP, _BOTTOM, _LEFT, _RIGHT = 92, 22, 12, 44, 56, 24


@attrs.frozen
class Panel:
    """What shares one y axis."""

    axis: Axis
    series: tuple[Series, ...]


def panels(title: str, x: Axis, parts: Sequence[Panel]) -> str:
    """Return the drawing; every panel's y axis begins at zero."""
    height = len(parts) * (_LEGEND + _PLOT + _GAP) + _BOTTOM
    points = [px for part in parts for one in part.series for px, _ in one.points]
    x_scale = make_scale(x, points, _LEFT, WIDTH - _RIGHT)
    said = "; ".join(f"{part.axis.label}: {', '.join(one.name for one in part.series)}" for part in parts)
    drawn = [svg_open(title, f"Over {x.label}. {said}", height)]
    number = 0
    for index, part in enumerate(parts):
        top = index * (_LEGEND + _PLOT + _GAP) + _LEGEND
        values = [py for one in part.series for _, py in one.points]
        y_scale = make_scale(part.axis, values, top + _PLOT, top, from_zero=True)
        drawn += _frame(x_scale, y_scale, last=index + 1 == len(parts))
        left = float(_LEFT)
        for one in part.series:
            look = f"s{number % 6}"
            number += 1
            drawn.append(curve(one, look, x_scale, y_scale))
            drawn.append(f'<g class="{look}"><path class="line" d="M{num(left)} {top - 10}h24"/></g>')
            drawn.append(f'<g class="legend">{text_element(left + 30, top - 6, one.name)}</g>')
            left += 50 + 7 * len(one.name)
    return "\n".join([*drawn, "</svg>"])


def _frame(x: Scale, y: Scale, *, last: bool) -> list[str]:
    """Return grid and labels; the x axis is written below the last panel alone."""
    ticks, marks = y.ticks(3), x.ticks()
    grid = "".join(f"M{num(x.start)} {num(y.at(tick))}H{num(x.end)}" for tick in ticks)
    grid += "".join(f"M{num(x.at(mark))} {num(y.end)}V{num(y.start)}" for mark in marks)
    parts = [f'<g class="grid"><path d="{grid}"/></g><g class="tick" text-anchor="end">']
    parts += [text_element(x.start - 6, y.at(tick) + 4, y.axis.show(tick)) for tick in ticks]
    parts.append('</g><g class="label" text-anchor="middle">')
    middle = (y.start + y.end) / 2
    parts.append(f'<text transform="translate(13 {num(middle)}) rotate(-90)">{y.axis.label}</text></g>')
    if last:
        parts.append('<g class="tick" text-anchor="middle">')
        parts += [text_element(x.at(mark), y.start + 16, x.axis.show(mark)) for mark in marks]
        label = text_element((x.start + x.end) / 2, y.start + 36, x.axis.label)
        parts.append(f'</g><g class="label" text-anchor="middle">{label}</g>')
    return parts
