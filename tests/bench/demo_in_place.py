#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Draws what happens to the writing of a file while its session is tuned in place: OUT/in-place.svg, and the numbers.

One run in a guest on the virtual clock: ext4 on a session over 50 ms and 200 Mb/s, 256 KiB requests, 32 at once.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from lab_run import TOP, lab_run

sys.path.insert(0, str(TOP / "userspace"))

from kept_pictures import style  # noqa: E402

from fabtune.report.chart import Axis, Series  # noqa: E402
from fabtune.report.panels import Marks, Panel, panels  # noqa: E402

# What 200 Mb/s of Ethernet leave for iSCSI's payload at MTU 1500, in MB/s.
BOUND_MB_PER_S = 23.9
# A plan takes the guest's one CPU from fio, and the new connection finds its window.
_SETTLED_S = 2.0


def _measured(seed: int) -> dict[str, Any]:
    done = lab_run("demo-in-place.guest", seed=seed, timeout_s=1800)
    lines = [line.removeprefix("CURVE ") for line in done.stdout.splitlines() if line.startswith("CURVE ")]
    if done.returncode or not lines:
        raise SystemExit(f"exit {done.returncode}: {done.stdout[-1000:]}")
    found: dict[str, Any] = json.loads(lines[0])
    return found


def still(points: list[tuple[float, float]], begun_s: float, ended_s: float) -> tuple[float, float]:
    """Return from when to when nothing was written, the longest such time between `begun_s` and `ended_s`."""
    step = points[1][0] - points[0][0]
    longest, first = (begun_s, begun_s), None
    for at, speed in points:
        first = None if speed or not begun_s <= at <= ended_s else at - step if first is None else first
        if first is not None and at - first > longest[1] - longest[0]:
            longest = first, at
    return longest


def drawing(found: dict[str, Any], css: str) -> str:
    """Return the picture."""
    points = [(at, speed) for at, speed in found["points"]]
    last = points[-1][0]
    series = (
        Series("a file being written", tuple(points), "plain", look=1),
        Series("bound", ((0.0, BOUND_MB_PER_S), (last, BOUND_MB_PER_S)), "bound", look=None),
    )
    begin, end = still(points, found["apply_s"], found["done_s"])
    marks = Marks(
        shaded=((begin, end),),
        events=(
            (found["apply_s"], "fabtune apply wan --reconnect"),
            (end, f"{found['pause_s']:.1f} s later: same session"),
        ),
    )
    axis = Axis("seconds")
    drawn = panels("Writing a file while its session is tuned", axis, [Panel(Axis("MB/s"), series)], marks)
    ground = f'<style>\n{style(css)}\n</style>\n<rect width="100%" height="100%" fill="#ffffff"/>'
    font = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13"'
    return drawn.replace("<svg ", f"<svg {font} ", 1).replace(">", f">\n{ground}", 1) + "\n"


def main() -> int:
    """Measure, draw and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/demo")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = _measured(asked.seed)
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "in-place.json").write_text(json.dumps(found, indent=1) + "\n")
    css = (TOP / "userspace/fabtune/report/templates/page.css").read_text()
    (asked.out / "in-place.svg").write_text(drawing(found, css))
    _, paused_s = still(found["points"], found["apply_s"], found["done_s"])
    before = [speed for at, speed in found["points"] if at <= found["apply_s"] - _SETTLED_S]
    after = [speed for at, speed in found["points"] if at > paused_s + _SETTLED_S]
    pause = f"after a pause of {found['pause_s']:.1f} s"
    print(f"A file was written at {statistics.mean(before):.1f} MB/s; tuned in place, {pause}, at", end=" ")
    print(f"{statistics.mean(after):.1f} MB/s of {BOUND_MB_PER_S}: {asked.out / 'in-place.svg'}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # Of one run there is nothing to be kept, and beside others nothing to be said of it.
        sys.exit(130)
