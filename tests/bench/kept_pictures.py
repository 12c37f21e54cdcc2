# SPDX-License-Identifier: GPL-2.0-or-later
"""Pictures of Documentation: the drawings of fabtune's pages, as files that need nothing else."""

import re
from collections.abc import Sequence

from kept_file import Point

from fabtune.model import results
from fabtune.report import chart, demo

STYLE = "userspace/fabtune/report/templates/page.css"


def style(css: str) -> str:
    """Return the page's rules for drawings in light colours, without variables: not every viewer knows them."""
    known = dict(re.findall(r"(--[a-z0-9]+): ([^;]+);", re.findall(r":root \{(.*?)\}", css, re.DOTALL)[0]))
    rules = re.findall(r"^(\.chart [^{]+?) \{ (.*) \}$", css, re.MULTILINE)
    looks = {selector: dict(re.findall(r"(--[cd]): ([^;]+);", body)) for selector, body in rules if "--c:" in body}
    found = []
    for selector, body in rules:
        if selector in looks:
            continue
        wanted = looks if "var(--c)" in body else {".chart": {}}
        for look, own in wanted.items():
            text = body
            for name in ("--c", "--d"):
                text = re.sub(rf"var\({name}(?:, none)?\)", own.get(name, "none"), text)
            text = re.sub(r"var\((--[a-z0-9]+)\)", lambda match: str(known[match[1]]), text)
            found.append(f"{look}{selector.removeprefix('.chart')} {{ {text} }}")
    return "\n".join(found)


def standalone(drawings: Sequence[str], css: str) -> str:
    """Return charts side by side as one file."""
    width, height = chart.WIDTH, chart.HEIGHT
    placed = [
        drawn.replace("<svg ", f'<svg x="{place * width}" width="{width}" height="{height}" ', 1)
        for place, drawn in enumerate(drawings)
    ]
    wide = len(drawings) * width
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {height}" width="{wide}" '
        f'height="{height}" font-family="sans-serif" font-size="13">',
        "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->",
        f'<style>\n{style(css)}\n</style>\n<rect width="100%" height="100%" fill="#ffffff"/>',
        *placed,
        "</svg>\n",
    ])  # fmt: skip


def picture(points: Sequence[Point], css: str) -> str:
    """Return reads and writes over the round trip side by side, as a drawing that needs nothing else."""
    shown = [results.Point(point) for point in points]
    return standalone([demo.chart(heading, op, shown) for op, heading in demo.OPS.items()], css)
