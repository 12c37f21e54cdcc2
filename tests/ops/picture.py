#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Draws some panels of the dashboard with fabtune's own charts, from what a real Prometheus returned in a guest.

picture.py out/ops/monitoring/*/panels.json > Documentation/dashboard.svg
"""

import json
import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(TOP / "tests/bench")]

import figures  # noqa: E402

from fabtune.report.chart import Axis, Series  # noqa: E402
from fabtune.report.panels import Panel, panels  # noqa: E402

UNITS = {"Total against device time, p99": ("p99, ms", 1e3), "Round trip, now and least": ("RTT, ms", 1e3)}


def main() -> None:
    found = json.loads(Path(sys.argv[1]).read_text())
    drawn = []
    for title, curves in found.items():
        label, unit = UNITS.get(title, (title, 1.0))
        # The one target's name would fill the legend.
        series = tuple(
            Series(re.sub(r"iqn\\S+ ?", "", name).strip(), tuple((x, y * unit) for x, y in points), "plain", look=look)
            for look, (name, points) in enumerate(curves.items())
        )
        drawn.append(Panel(Axis(label), series))
    css = figures.style((TOP / figures.STYLE).read_text())
    text = panels("The dashboard's panels over a session whose target takes two commands at a time", Axis("s"), drawn)
    head, _, rest = text.partition(">")
    width, height = re.findall(r"\d+", head)[-2:]
    size = f'width="{width}" height="{height}"'
    print(
        f'{head} xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
        f"<!-- SPDX-License-Identifier: GPL-2.0-or-later --><style>{css}</style>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>{rest}'
    )


if __name__ == "__main__":
    main()
