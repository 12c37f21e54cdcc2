#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Throughput over RTT of the WAN profiles, beside untouched and other tuners, and the bars they must pass.

Runs the shipped experiments on WANs; every point is a login of its own, tuned by `fabtune apply` on both ends or by the
other tuner's own files or daemon.  Prints tables, writes wan.json, and fails when a bar is missed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.cli.table import report_table  # noqa: E402
from fabtune.experiment import definition  # noqa: E402
from fabtune.model import results  # noqa: E402
from fabtune.model.untouched import UNTOUCHED  # noqa: E402
from fabtune.report.demo import tables  # noqa: E402

# All shipped ones over a WAN; their definitions say what is measured.
EXPERIMENTS = tuple(name for name in definition.names() if name.startswith("wan-"))
Point = dict[str, Any]
# Of what a path has apart from round trip, rate and loss: no bar is for it, the experiments' own expectations are.
APART = ("buffer", "cross", "jitter", "sessions")
# What `fabtune run` ends with where an interval is too wide for a verdict; the bars below say it too.
CANNOT_TELL = 5
# Two runs of the same settings differ by this share: less is no difference.
NOISE = 0.002
# Of what netem counts of full packets at an MTU of 1500, what TCP carries.
LINE_SHARE = 1448 / 1514


@dataclass(frozen=True)
class Bar:
    """One demand: the point that must reach it, and what it had to reach in MB/s."""

    name: str
    point: Point
    demanded: float
    remark: str = ""
    tolerance: float = 0.0

    @property
    def met(self) -> bool | None:
        """Whether the whole interval over the seeds reaches the demand; None where only a part of it does."""
        least = self.demanded * (1 - self.tolerance)
        ends = (self.point.get(f"mb_per_s{end}") for end in ("_low", "_high"))
        low, high = (self.point["mb_per_s"] if end is None else end for end in ends)
        return True if low >= least else None if high >= least else False


def find(points: Sequence[Point], **wanted: Any) -> list[Point]:
    """Return the points whose values are those of `wanted`."""
    return [point for point in points if all(point[key] == value for key, value in wanted.items())]


def bars_of(points: Sequence[Point]) -> list[Bar]:
    """Return every bar that `points` can answer."""
    points = [point for point in points if not any(point.get(name) for name in APART)]
    clean = [
        point for point in points if point["loss"] == 0 and point["queue_depth"] == 32 and point["rate_mbit"] == 1000
    ]
    bars = []
    for point in find(clean, profile="wan") + find(clean, profile="wan-measured"):
        where = f"{point['profile']} {point['rtt_ms']:g} ms {point['op']}"
        bound = point["bound_mb_per_s"]
        # Where the queue is the limit nothing but the path's own delay is in the way.
        share = 0.99 if bound < 0.99 * point["rate_mbit"] / 8 * LINE_SHARE else 0.98
        remark = f"{point['mb_per_s'] / bound:.1%} of the bound"
        bars.append(Bar(f"{100 * share:.0f} % of the bound, {where}", point, share * bound, remark))
        for peer in find(clean, rtt_ms=point["rtt_ms"], op=point["op"]):
            is_peer = not peer["profile"].startswith("wan")
            if is_peer and (peer["profile"] == UNTOUCHED or point["rtt_ms"] >= 10):
                bars.append(Bar(f"not below {peer['profile']}, {where}", point, peer["mb_per_s"], tolerance=NOISE))
    for point in find(points, profile="wan", queue_depth=128):
        where = f"{point['rtt_ms']:g} ms {point['op']}, queue depth 128"
        bars.append(Bar(f"98 % of the line, {where}", point, 0.98 * point["bound_mb_per_s"]))
    for point in find(points, profile="wan-satellite"):
        where = f"{point['rtt_ms']:g} ms {point['op']}"
        bound = point["bound_mb_per_s"]
        remark = f"{point['mb_per_s'] / bound:.1%}"
        bars.append(Bar(f"95 % of the bound after 30 s, {where}", point, 0.95 * bound, remark))
    for point in find(points, profile="wan-lossy"):
        cubic = find(points, profile="wan", loss=point["loss"], op=point["op"], rate_mbit=point["rate_mbit"])
        free = find(points, profile="wan-lossy", loss=0, op=point["op"])
        if point["loss"] and cubic and free:
            demanded = min(3 * cubic[0]["mb_per_s"], 0.8 * free[0]["mb_per_s"])
            remark = f"wan {cubic[0]['mb_per_s']:.1f}, without loss {free[0]['mb_per_s']:.1f}"
            bars.append(Bar(f"loss {point['loss']:.2%}, {point['op']}", point, demanded, remark))
    return bars


def measure(name: str, out: Path) -> bool:
    """Run experiment `name` with its results in `out`/name, keeping what is there; return whether it ended well."""
    command = [sys.executable, "-m", "fabtune", "run", name, "--resume", "--out", str(out / name)]
    done = subprocess.run(command, cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP / "userspace")}, check=False)
    return done.returncode in (0, CANNOT_TELL)


def read_points(out: Path) -> list[Point]:
    """Return every point that stands below `out`, in the order of EXPERIMENTS, one told path once."""
    points = []
    for name in EXPERIMENTS:
        file, fixed = out / name / "summary.json", definition.load(name).fixed
        # What does not vary a point does not tell, and points of several experiments stand side by side.
        beside = {key: fixed[key] for key in APART if key in fixed}
        points += [beside | point for point in json.loads(file.read_text())] if file.exists() else []
    # wan at the usual round trips is in two experiments, with the same settings and therefore the same figures.
    return list({json.dumps(point, sort_keys=True): point for point in points}.values())


def print_bars(bars: Sequence[Bar]) -> None:
    """Print what was demanded and what was reached."""
    width = max(len(bar.name) for bar in bars)
    print(f"\n{'bar':<{width}}{'MB/s':>8}{'wanted':>8}")
    for bar in bars:
        verdict = {True: "met", False: "MISSED", None: "cannot tell"}[bar.met]
        print(
            f"{bar.name:<{width}}{bar.point['mb_per_s']:>8.1f}{bar.demanded:>8.1f}  {verdict:<12}{bar.remark}".rstrip()
        )


def main() -> int:
    """Measure, print, write; return 1 when a guest failed or a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument(
        "--only", action="append", choices=EXPERIMENTS, help="run this experiment only; others keep their points"
    )
    args = parser.parse_args()
    out: Path = args.out.resolve() / "wan"
    out.mkdir(parents=True, exist_ok=True)
    # Each runs as many guests at a time as there are cores.
    failures = [name for name in args.only or EXPERIMENTS if not measure(name, out)]
    points = read_points(out)
    (out.parent / "wan.json").write_text(json.dumps(points, indent=1, sort_keys=True) + "\n")
    if points:
        for one in tables([results.Point(point) for point in points]):
            report_table(one)
    bars = bars_of(points)
    if bars:
        print_bars(bars)
    missed = [bar for bar in bars if bar.met is False]
    unclear = [bar for bar in bars if bar.met is None]
    print(f"{len(bars)} bars, {len(missed)} missed, {len(unclear)} unclear; points in {out.parent / 'wan.json'}")
    for name in failures:
        print(f"{name}: a run failed, or its figures are not as expected", file=sys.stderr)
    return 1 if missed or failures else CANNOT_TELL if unclear else 0


if __name__ == "__main__":
    sys.exit(main())
