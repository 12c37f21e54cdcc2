# SPDX-License-Identifier: GPL-2.0-or-later
"""Several small line charts one above the other over the same x axis, as one inline SVG."""

from collections.abc import Sequence

import attrs

from fabtune.report.chart import WIDTH, Axis, Scale, Series, curve, make_scale, num, svg_open, text_element

_PLOT, _LEGEND, _GAP, _BOTTOM, _LEFT, _RIGHT, _LETTER = 92, 22, 12, 44, 56, 24, 7


@attrs.frozen
class Panel:
    """What shares one y axis."""

    axis: Axis
    series: tuple[Series, ...]


@attrs.frozen
class Marks:
    """What is marked through all panels, in units of x: spans that do not count, events, moments of resending."""

    shaded: tuple[tuple[float, float], ...] = ()
    events: tuple[tuple[float, str], ...] = ()
    resent: tuple[float, ...] = ()


def panels(title: str, x: Axis, parts: Sequence[Panel], marks: Marks = Marks()) -> str:
    """Return the drawing; every panel's y axis begins at zero."""
    above = _LEGEND * (len(marks.events) + bool(marks.resent))
    height = above + len(parts) * (_LEGEND + _PLOT + _GAP) + _BOTTOM
    points = [px for part in parts for one in part.series for px, _ in one.points]
    x_scale = make_scale(x, points, _LEFT, WIDTH - _RIGHT)
    said = "; ".join(f"{part.axis.label}: {', '.join(one.name for one in part.series)}" for part in parts)
    drawn = [svg_open(title, f"Over {x.label}. {said}", height)]
    drawn += _marked(marks, x_scale, above, height - _BOTTOM - _GAP)
    for index, part in enumerate(parts):
        top = above + index * (_LEGEND + _PLOT + _GAP) + _LEGEND
        values = [py for one in part.series for _, py in one.points]
        y_scale = make_scale(part.axis, values, top + _PLOT, top, from_zero=True)
        drawn += _frame(x_scale, y_scale, last=index + 1 == len(parts))
        left = float(_LEFT)
        for one in part.series:
            drawn.append(curve(one, x_scale, y_scale))
            drawn.append(f'<g class="{one.drawn_as}"><path class="line" d="M{num(left)} {top - 10}h24"/></g>')
            drawn.append(f'<g class="legend">{text_element(left + 30, top - 6, one.name)}</g>')
            left += 50 + _LETTER * len(one.name)
    return "\n".join([*drawn, "</svg>"])


def _marked(marks: Marks, x: Scale, top: int, bottom: int) -> list[str]:
    """Return shades, events with their words in a line each, and moments of resending; the page's script reads them."""
    parts = []
    for begin, end in marks.shaded:
        place = f"M{num(x.at(begin))} {top}H{num(x.at(min(end, x.high)))}V{bottom}H{num(x.at(begin))}z"
        parts.append(f'<path class="ramp" data-from="{begin:.3f}" data-to="{end:.3f}" d="{place}"/>')
    for line, (at, what) in enumerate(marks.events):
        y = _LEGEND * (line + 1) - 6
        # To the right wherever it fits: there no earlier event's line goes through it.
        fits = x.at(at) + 4 + _LETTER * len(what) <= WIDTH
        anchor, beside = ("start", 4) if fits else ("end", -4)
        parts.append(f'<path class="event" data-at="{at:.3f}" d="M{num(x.at(at))} {y - 10}V{bottom}"/>')
        words = text_element(x.at(at) + beside, y, what)
        parts.append(f'<g class="legend" text-anchor="{anchor}">{words}</g>')
    if marks.resent:
        y = top - 6
        ticks = "".join(f"M{num(x.at(at))} {y - 9}v9" for at in marks.resent)
        moments = " ".join(f"{at:.3f}" for at in marks.resent)
        parts.append(f'<path class="resent" data-at="{moments}" d="{ticks}"/>')
        parts.append(f'<g class="legend" text-anchor="end">{text_element(x.start - 6, y, "resent")}</g>')
    return parts


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
