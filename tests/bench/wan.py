#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Throughput over RTT of the WAN profiles, beside the untouched default and other tuners, and the bars they must pass.

One guest a profile, on the virtual clock; every point is a login of its own, tuned by `fabtune apply` on both ends or
by the other tuner's own files or daemon.  Prints tables, writes wan.json, and fails when a bar is missed.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.experiment.peers import PEERS  # noqa: E402
from fabtune.report.demo import print_table  # noqa: E402

RTTS = ("0ms", "10ms", "20ms", "50ms", "100ms", "150ms")
_LONG = {"rate": "1gbit", "ramp": "6s", "runtime": "3s"}
# Requests of 100 ms and more come in waves: 3 s hold too few of them.
_FAR = {"100ms": {"runtime": "10s"}, "150ms": {"runtime": "10s"}}
# With offloads off, so that single packets are lost, the guest's CPU must not be the limit.
_LOSSY = {"rtt": "50ms", "rate": "200mbit", "ramp": "6s", "runtime": "10s"}
LOSSES = ("0%", "0.01%", "0.1%")


def over_rtt(profile: str) -> list[dict[str, str]]:
    """Return the points of `profile` at every round trip."""
    return [{**_LONG, "profile": profile, "rtt": rtt, **_FAR.get(rtt, {})} for rtt in RTTS]


# One guest each: its name and the points it measures, of one profile.
GUESTS: dict[str, list[dict[str, str]]] = {
    **{name: over_rtt(name) for name in ("wan", "wan-measured", *PEERS)},
    "wan-deep": [{**_LONG, "profile": "wan", "rtt": "150ms", "depth": "128", "ramp": "8s"}],
    "wan-satellite": [
        {**_LONG, "profile": "wan-satellite", "rtt": rtt, "depth": "128", "ramp": "30s", "runtime": "5s"}
        for rtt in ("300ms", "600ms")
    ],
    "wan-loss": [{**_LOSSY, "profile": "wan", "loss": loss} for loss in LOSSES],
    "wan-lossy": [{**_LOSSY, "profile": "wan-lossy", "loss": loss} for loss in LOSSES],
}  # fmt: skip
Point = dict[str, Any]
# Two runs of the same settings differ by this share: less is no difference.
NOISE = 0.002


@dataclass(frozen=True)
class Bar:
    """One demand: what was measured, what it had to reach, both in MB/s."""

    name: str
    measured: float
    demanded: float
    remark: str = ""
    tolerance: float = 0.0

    @property
    def met(self) -> bool:
        """Whether the figure reaches the demand."""
        return self.measured >= self.demanded * (1 - self.tolerance)


def find(points: Sequence[Point], **wanted: Any) -> list[Point]:
    """Return the points whose values are those of `wanted`."""
    return [point for point in points if all(point[key] == value for key, value in wanted.items())]


def unpassable(point: Point) -> float:
    """Return MB/s of requests that each take one round trip and their own time on the wire: no tuning passes it."""
    line = point["rate_mbit"] / 8 * 1448 / 1514
    in_flight_mb = point["queue_depth"] * point["size_bytes"] / 1e6
    request_s = point["rtt_ms"] / 1e3 + point["size_bytes"] / 1e6 / line
    return min(line, in_flight_mb / request_s)


def bars_of(points: Sequence[Point]) -> list[Bar]:
    """Return every bar that `points` can answer."""
    clean = [
        point for point in points if point["loss"] == 0 and point["queue_depth"] == 32 and point["rate_mbit"] == 1000
    ]
    bars = []
    for point in find(clean, profile="wan") + find(clean, profile="wan-measured"):
        where = f"{point['profile']} {point['rtt_ms']:g} ms {point['op']}"
        bound = point["bound_mb_per_s"]
        ceiling = unpassable(point)
        remark = f"{point['mb_per_s'] / bound:.1%} of the bound; no tuning passes {ceiling / bound:.1%}"
        if ceiling < 0.98 * bound:
            bars.append(Bar(f"99 % of the ceiling, {where}", point["mb_per_s"], 0.99 * ceiling, remark))
        else:
            bars.append(Bar(f"98 % of the bound, {where}", point["mb_per_s"], 0.98 * bound, remark))
        for peer in find(clean, rtt_ms=point["rtt_ms"], op=point["op"]):
            is_peer = not peer["profile"].startswith("wan")
            if is_peer and (peer["profile"] == "default" or point["rtt_ms"] >= 10):
                bars.append(
                    Bar(f"not below {peer['profile']}, {where}", point["mb_per_s"], peer["mb_per_s"], tolerance=NOISE)
                )
    for point in find(points, profile="wan", queue_depth=128):
        where = f"{point['rtt_ms']:g} ms {point['op']}, queue depth 128"
        bars.append(Bar(f"98 % of the line, {where}", point["mb_per_s"], 0.98 * point["bound_mb_per_s"]))
    for point in find(points, profile="wan-satellite"):
        where = f"{point['rtt_ms']:g} ms {point['op']}"
        bound = point["bound_mb_per_s"]
        remark = f"{point['mb_per_s'] / bound:.1%}"
        bars.append(Bar(f"95 % of the bound after 30 s, {where}", point["mb_per_s"], 0.95 * bound, remark))
    for point in find(points, profile="wan-lossy"):
        cubic = find(points, profile="wan", loss=point["loss"], op=point["op"], rate_mbit=point["rate_mbit"])
        free = find(points, profile="wan-lossy", loss=0, op=point["op"])
        if point["loss"] and cubic and free:
            demanded = min(3 * cubic[0]["mb_per_s"], 0.8 * free[0]["mb_per_s"])
            remark = f"wan {cubic[0]['mb_per_s']:.1f}, without loss {free[0]['mb_per_s']:.1f}"
            bars.append(Bar(f"loss {point['loss']:.2%}, {point['op']}", point["mb_per_s"], demanded, remark))
    return bars


def measure(name: str, out: Path) -> str:
    """Run guest `name`; its points.json goes below `out`.  Returns what it said when it failed."""
    command = [sys.executable, "-m", "fabtune", "lab", "run", "--clock", "virtual", "--timeout-s", "3600"]
    done = subprocess.run(
        [*command, "--out", str(out / name), str(TOP / "tests/bench/wan_guest.py"), json.dumps(GUESTS[name])],
        cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP / "userspace")}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return ""
    output = out / name / "output.log"
    said = output.read_text(errors="replace") if output.exists() else done.stderr
    return f"{name}: exit {done.returncode}: {said.strip()[-600:]}"


def read_points(out: Path) -> list[Point]:
    """Return every point that stands below `out`, in the order of GUESTS."""
    files = [out / name / "points.json" for name in GUESTS]
    return [point for file in files if file.exists() for point in json.loads(file.read_text())]


def print_bars(bars: Sequence[Bar]) -> None:
    """Print what was demanded and what was reached."""
    width = max(len(bar.name) for bar in bars)
    print(f"\n{'bar':<{width}}{'MB/s':>8}{'wanted':>8}")
    for bar in bars:
        verdict = "met" if bar.met else "MISSED"
        print(f"{bar.name:<{width}}{bar.measured:>8.1f}{bar.demanded:>8.1f}  {verdict:<7}{bar.remark}".rstrip())


def main() -> int:
    """Measure, print, write; return 1 when a guest failed or a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument(
        "--only", action="append", choices=GUESTS, help="measure this guest only; others keep their points"
    )
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="guests at a time")
    args = parser.parse_args()
    out: Path = args.out.resolve() / "wan"
    out.mkdir(parents=True, exist_ok=True)
    failures = []
    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        started = {pool.submit(measure, name, out): name for name in args.only or GUESTS}
        for number, future in enumerate(as_completed(started), 1):
            print(
                f"{number}/{len(started)} {started[future]} {'failed' if future.result() else 'done'}", file=sys.stderr
            )
            failures += [future.result()] if future.result() else []
    points = read_points(out)
    (out.parent / "wan.json").write_text(json.dumps(points, indent=1, sort_keys=True) + "\n")
    if points:
        print_table(points)
    bars = bars_of(points)
    if bars:
        print_bars(bars)
    missed = [bar for bar in bars if not bar.met]
    print(f"{len(bars)} bars, {len(missed)} missed; points in {out.parent / 'wan.json'}")
    print("\n".join(failures), file=sys.stderr, end="\n" if failures else "")
    return 1 if missed or failures else 0


if __name__ == "__main__":
    sys.exit(main())
