#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Draws some panels of the dashboard with fabtune's own charts, from what a real Prometheus returned in a guest.

picture.py out/ops/monitoring/*/panels.json writes Documentation/dashboard.svg, and keeps a digest of it.
"""

import json
import re
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(TOP / "tests/bench")]

import kept_drawings  # noqa: E402
import kept_pictures  # noqa: E402

from fabtune.report.chart import Axis, Series  # noqa: E402
from fabtune.report.panels import Panel, panels  # noqa: E402

DRAWING = TOP / "Documentation/dashboard.svg"
# What a panel's axis is called, and what one of its units is of the query's.
AXES = {
    "Total against device time, p99": ("p99, ms", 1e3), "Requests a second": ("requests/s", 1.0),
    "Mean depth": ("mean depth", 1.0), "Refused commands a second": ("refused/s", 1.0),
    "Round trip, now and least": ("RTT, ms", 1e3),
}  # fmt: skip


def main() -> None:
    """Draw, and keep the digest."""
    found = json.loads(Path(sys.argv[1]).read_text())
    drawn = []
    for title, (label, unit) in AXES.items():
        # The one target's name, and the host's, would fill the legend.
        curves = {re.sub(r"(iqn|127)\S+ ?", "", name).strip(): points for name, points in found[title].items()}
        unwanted = ("other", "write ") if label.startswith("p99") else ("other",)
        curves = {name: points for name, points in curves.items() if not name.startswith(unwanted)}
        series = tuple(
            Series(name, tuple((x, y * unit) for x, y in points), "plain", look=look)
            for look, (name, points) in enumerate(curves.items())
        )
        drawn.append(Panel(Axis(label), series))
    css = kept_pictures.style((TOP / kept_pictures.STYLE).read_text())
    text = panels("The dashboard's panels over a session whose target takes two commands at a time", Axis("s"), drawn)
    head, _, rest = text.partition(">")
    width, height = re.findall(r"\d+", head)[-2:]
    size = f'width="{width}" height="{height}"'
    DRAWING.write_text(
        f'{head} xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
        f"<!-- SPDX-License-Identifier: GPL-2.0-or-later --><style>{css}</style>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>{rest}\n'
    )
    kept_drawings.keep(DRAWING, f"`make check-ops OPS=monitoring`, made {time.strftime('%Y-%m-%d', time.gmtime())}")


if __name__ == "__main__":
    main()
