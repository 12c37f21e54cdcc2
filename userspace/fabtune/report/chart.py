# SPDX-License-Identifier: GPL-2.0-or-later
"""Line charts as inline SVG: axes, curves, bounds, legend.

The bytes depend on the data alone.  Colours come from the page's CSS variables by class, so
that one drawing serves light, dark and paper; each series also has its own marker and dash,
because colour alone tells some readers nothing.
"""

import math
from collections.abc import Callable, Sequence
from html import escape

import attrs

# Small enough that text of 13 units stays readable where a phone shows it 360 pixels wide.
WIDTH = 440
HEIGHT = 300
_LEFT, _RIGHT, _BOTTOM = 56, 24, 46
_LEGEND_LINE = 18
# A bar is drawn up to so many times the highest mark or bound.
_BAR_TIMES = 2
GLYPH = 6.6  # mean advance of a 12-unit sans-serif glyph

Point = tuple[float, float]


def tick_text(value: float) -> str:
    """Return a tick label with no digits that say nothing, thousands as k."""
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:g}"


def binary_size(value: float) -> str:
    """Return bytes as ``4 KiB`` or ``1 MiB``."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value:g} B"


@attrs.frozen
class Axis:
    """What one axis shows; `base` is None for linear, 2 or 10 for logarithmic.

    `marks` are where its ticks stand, none for round values.
    """

    label: str
    base: int | None = None
    show: Callable[[float], str] = tick_text
    marks: tuple[float, ...] = ()


@attrs.frozen
class Series:
    """One curve in the palette's colour, dash and mark number `look`.

    `style` is ``line`` (marked points), ``plain`` (many points), ``step``, ``marks`` (points that nothing joins),
    ``bound`` (theory, computed densely) or ``limits`` (theory where it is known at single points alone).
    `spans` are intervals to draw as bars, (x, low, high) each.  Theory has a `look` where it is that of one set alone.
    """

    name: str
    points: tuple[Point, ...]
    style: str = "line"
    spans: tuple[tuple[float, float, float], ...] = ()
    look: int | None = 0

    @property
    def drawn_as(self) -> str:
        """Its class in a drawing: theory without a look of its own is the bound of all."""
        if self.style in THEORY:
            return "bound" if self.look is None else f"s{self.look} theory"
        return f"s{self.look or 0}"


@attrs.frozen
class Scale:
    """Maps data to drawing units along one axis."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the coordinate of `value`."""
        if self.axis.base:
            span = math.log(self.high / self.low)
            return self.start + (self.end - self.start) * math.log(value / self.low) / span
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    def ticks(self, about: int = 6) -> list[float]:
        """Return the axis' own marks, or round values within it, about `about` of them."""
        if self.axis.marks:
            return list(self.axis.marks)
        if self.axis.base:
            powers = _powers(self.low, self.high, self.axis.base)
            stride = math.ceil(len(powers) / about) or 1
            return powers[::stride]
        step = _round_step((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(index * step, 12) for index in range(first, last + 1)]


def _powers(low: float, high: float, base: int) -> list[float]:
    """Return the powers of `base` from `low` to `high`; within a few decades 2 and 5 times them too."""
    first = math.floor(math.log(low, base) + 1e-9)
    last = math.ceil(math.log(high, base) - 1e-9)
    steps = (1, 2, 5) if base == 10 and last - first < 3 else (1,)
    marks = [factor * float(base) ** power for power in range(first, last + 1) for factor in steps]
    return [mark for mark in marks if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]


def _log_limits(low: float, high: float, base: int) -> tuple[float, float]:
    """Return the round values at or outside `low` and `high`, two different ones."""
    marks = _powers(low / base / base, high * base * base, base)
    outer_low = max(mark for mark in marks if mark <= low * (1 + 1e-9))
    outer_high = min(mark for mark in marks if mark >= high * (1 - 1e-9) and mark > outer_low)
    return outer_low, outer_high


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step - 1e-12)


def make_scale(axis: Axis, values: Sequence[float], start: float, end: float, *, from_zero: bool = False) -> Scale:
    """Return a scale that holds every finite value; `from_zero` starts a linear axis at zero.

    On a logarithmic axis values of zero or less cannot be shown and are left out.
    """
    usable = [value for value in values if math.isfinite(value) and (not axis.base or value > 0)]
    low, high = (min(usable), max(usable)) if usable else (1.0, 2.0)
    if axis.base:
        return Scale(axis, *_log_limits(low, high, axis.base), start, end)
    if from_zero:
        low = min(low, 0.0)
    if low == high:
        high = low + (abs(low) or 1.0)
    step = _round_step((high - low) / 6)
    high = math.ceil(high / step - 1e-9) * step
    low = math.floor(low / step + 1e-9) * step
    return Scale(axis, low, high, start, end)


def line_chart(title: str, series: Sequence[Series], x: Axis, y: Axis, *, from_zero: bool = True) -> str:
    """Return one chart as an ``<svg>`` element; `title` is what a screen reader says first.

    Two marked points are not joined: a straight line says what nobody measured.
    """
    series = [
        attrs.evolve(one, style="marks") if one.style == "line" and len(one.points) < 3 else one for one in series
    ]
    rows = _legend_rows([one.name for one in series])
    top = 10 + _LEGEND_LINE * len(rows)
    x_scale = make_scale(x, [px for one in series for px, _ in one.points], _LEFT, WIDTH - _RIGHT)
    heights = [py for one in series for _, py in one.points]
    heights += [min(end, _most(series)) for one in series for _, *ends in one.spans for end in ends]
    y_scale = make_scale(y, heights, HEIGHT - _BOTTOM, top, from_zero=from_zero)
    parts = [svg_open(title, f"{y.label} over {x.label}: " + ", ".join(one.name for one in series))]
    parts += draw_axes(x_scale, y_scale)
    for index, one in enumerate(series):
        parts.append(curve(one, x_scale, y_scale))
        parts.append(_legend_entry(one, rows, index))
    parts.append("</svg>")
    return "\n".join(parts)


def _most(series: Sequence[Series]) -> float:
    """Return up to where bars are drawn: an interval of few runs may have powers of ten, and would flatten the rest."""
    return _BAR_TIMES * max((y for one in series for _, y in one.points), default=0.0) or math.inf


def said_of_bars(series: Sequence[Series]) -> str:
    """Return what stands below a drawing of which a bar does not end within it; nothing where all do."""
    beyond = any(high > _most(series) for one in series for *_, high in one.spans)
    return " A bar that ends in an arrow goes on beyond the drawing: the table has its end." if beyond else ""


def in_sight(measured: Sequence[Series], bounds: Sequence[Series], times: float) -> tuple[list[Series], str]:
    """Return those of `bounds` that are at most so many `times` what was `measured`, and what is said of the others.

    Both are in MB/s.  A bound further above would press the marks to the ground.
    """
    highest = times * max(y for one in measured for _, y in one.points)
    tops = {one: max(y for _, y in one.points) for one in bounds}
    said = "".join(
        f" The {one.name}, up to {top:.4g} MB/s, lies far above the drawing."
        for one, top in tops.items()
        if top > highest
    )
    return [one for one, top in tops.items() if top <= highest], said


def svg_open(title: str, description: str, height: int = HEIGHT) -> str:
    """Return the opening of an accessible drawing `WIDTH` units wide."""
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    )


def draw_axes(x: Scale, y: Scale) -> list[str]:
    """Return grid, tick labels and axis labels."""
    bottom, top, left, right = y.start, y.end, x.start, x.end
    parts = ['<g class="grid">']
    parts += [f'<path d="M{num(left)} {num(y.at(tick))}H{num(right)}"/>' for tick in y.ticks()]
    parts += [f'<path d="M{num(x.at(tick))} {num(top)}V{num(bottom)}"/>' for tick in x.ticks()]
    parts.append('</g><g class="tick" text-anchor="end">')
    parts += [text_element(left - 6, y.at(tick) + 4, y.axis.show(tick)) for tick in y.ticks()]
    parts.append('</g><g class="tick" text-anchor="middle">')
    for tick in x.ticks():
        label = x.axis.show(tick)
        # A long word below the last mark stays within the drawing.
        parts.append(text_element(min(x.at(tick), WIDTH - GLYPH * len(label) / 2), bottom + 16, label))
    parts.append('</g><g class="label" text-anchor="middle">')
    parts.append(text_element((left + right) / 2, bottom + 36, x.axis.label))
    middle = (top + bottom) / 2
    parts.append(f'<text transform="translate(13 {num(middle)}) rotate(-90)">{escape(y.axis.label)}</text></g>')
    return parts


def text_element(x: float, y: float, words: str) -> str:
    """Return one text element."""
    return f'<text x="{num(x)}" y="{num(y)}">{escape(words)}</text>'


def num(value: float) -> str:
    """Return a coordinate with at most one digit after the point."""
    return f"{value:.1f}".removesuffix(".0")


def _circle(x: float, y: float) -> str:
    return f"M{num(x - 4)} {num(y)}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"


def _square(x: float, y: float) -> str:
    return f"M{num(x - 3.5)} {num(y - 3.5)}h7v7h-7z"


def _triangle(x: float, y: float) -> str:
    return f"M{num(x)} {num(y - 5)}l4.6 8.4h-9.2z"


def _diamond(x: float, y: float) -> str:
    return f"M{num(x)} {num(y - 5)}l5 5l-5 5l-5 -5z"


def _down(x: float, y: float) -> str:
    return f"M{num(x)} {num(y + 5)}l4.6 -8.4h-9.2z"


def _cross(x: float, y: float) -> str:
    return f"M{num(x - 4)} {num(y - 1.4)}h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z"


# Styles whose points are marked, those that nothing joins, and those of what was computed and not measured.
MARKED = ("line", "marks")
_APART = ("marks", "limits")
THEORY = ("bound", "limits")
# One for each colour of the page's palette, in the same order.
MARKERS: tuple[Callable[[float, float], str], ...] = (_circle, _square, _triangle, _diamond, _down, _cross)


def curve(one: Series, x: Scale, y: Scale) -> str:
    """Return one curve as its style says, with the intervals of its points."""
    # A logarithmic axis has no place for zero.
    points = [(px, py) for px, py in one.points if not (x.axis.base and px <= 0 or y.axis.base and py <= 0)]
    spots = [(x.at(px), y.at(py)) for px, py in points]
    joint = "H{0}V{1}" if one.style == "step" else "L{0} {1}"
    path = "".join(
        (joint.format(num(px), num(py)) if index else f"M{num(px)} {num(py)}") for index, (px, py) in enumerate(spots)
    )
    if one.style in _APART:
        path = "".join(f"M{num(px - 8)} {num(py)}h16" for px, py in spots) if one.style == "limits" else ""
    drawn = f'<g class="{one.drawn_as}">' + (f'<path class="line" d="{path}"/>' if path else "")
    for px, low, high in one.spans:
        if x.axis.base and px <= 0 or y.axis.base and low <= 0:
            continue
        opened, end = (" open", "m-3 4l3 -4l3 4") if high > y.high else ("", "m-3 0h6")
        low, high = min(low, y.high), min(high, y.high)
        left, bottom, tall = num(x.at(px) - 3), num(y.at(low)), num(y.at(high) - y.at(low))
        drawn += f'<path class="span{opened}" d="M{left} {bottom}h6m-3 0v{tall}{end}"/>'
    if one.style in MARKED:
        marker = MARKERS[one.look or 0]
        for (px, py), (data_x, data_y) in zip(spots, points, strict=True):
            hint = f"{one.name}, {x.axis.label} {x.axis.show(data_x)}: {y.axis.label} {data_y:.4g}"
            drawn += f'<path class="mark" d="{marker(px, py)}"><title>{escape(hint)}</title></path>'
    return drawn + "</g>"


def _legend_rows(names: Sequence[str]) -> list[list[tuple[int, float]]]:
    """Return, row by row, which name stands at which x; a row is filled before the next begins."""
    rows: list[list[tuple[int, float]]] = [[]]
    x = float(_LEFT)
    for index, name in enumerate(names):
        width = 34 + GLYPH * len(name) + 12
        if rows[-1] and x + width > WIDTH:
            rows.append([])
            x = float(_LEFT)
        rows[-1].append((index, x))
        x += width
    return rows


def _legend_entry(one: Series, rows: list[list[tuple[int, float]]], index: int) -> str:
    row, x = next((number, x) for number, entries in enumerate(rows) for at, x in entries if at == index)
    y = 14 + _LEGEND_LINE * row
    mark = f'<path class="mark" d="{MARKERS[one.look or 0](x + 14, y - 4)}"/>' if one.style in MARKED else ""
    line = "" if one.style == "marks" else f'<path class="line" d="M{num(x)} {num(y - 4)}h28"/>'
    return f'<g class="{one.drawn_as}">{line}{mark}</g><g class="legend">{text_element(x + 34, y, one.name)}</g>'
