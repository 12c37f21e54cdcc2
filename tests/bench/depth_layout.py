#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What it costs that all CPUs of a device with one limit share one word for its depth: a model on this machine's CPUs.

Compiles depth_layout.c, which does what kmod/depth.h does with a request, to one word that all threads share and to one
word a thread, on 1, 2, 4 ... CPUs up to all.  A round has each layout in turn, and is of the time alone in which its
threads all ran; of each run of the program the medians over its rounds are taken, in cycles of the time-stamp counter a
request.  Prints a table and writes depth-layout.json.  There is no bar: the figures are the machine's.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_suffix(".c")
# A round takes less than a millisecond: of a longer one another program has a part.
REQUESTS, ROUNDS = 8_000, 61
# The price of a line differs between runs: where a hypervisor lets its CPUs run is not told.
RUNS = 15
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")
LAYOUTS = ("own", "shared")


class Cost(NamedTuple):
    """What a request takes with one layout on so many CPUs, in cycles: the median of the runs, their least and most."""

    cpus: int
    layout: str
    cycles: float
    least: float
    most: float


def counts(cpus: int) -> list[int]:
    """Return on how many CPUs it is measured: the powers of two, and all."""
    return sorted({1 << power for power in range(cpus.bit_length())} | {cpus})


def measured(texts: Sequence[str], cpus: int) -> list[Cost]:
    """Return the costs beyond the loop's own in what each run of the program printed."""
    added: dict[str, list[float]] = {layout: [] for layout in LAYOUTS}
    for text in texts:
        cycles: dict[str, list[float]] = {layout: [] for layout in ("none", *LAYOUTS)}
        for line in text.splitlines():
            layout, value = line.split(" ")
            cycles[layout].append(float(value))
        for layout, found in added.items():
            found.append(round(statistics.median(cycles[layout]) - statistics.median(cycles["none"]), 1))
    return [Cost(cpus, layout, statistics.median(found), min(found), max(found)) for layout, found in added.items()]


def show(costs: list[Cost]) -> None:
    """Print a row for each number of CPUs."""
    print(f"{'CPUs':>4}{'own':>8}{'(runs)':>14}{'shared':>8}{'(runs)':>14}{'ratio':>7}")
    for cpus in sorted({one.cpus for one in costs}):
        own, shared = (next(one for one in costs if (one.cpus, one.layout) == (cpus, layout)) for layout in LAYOUTS)
        shown = "".join(f"{one.cycles:>8.1f}{f'{one.least:.1f}..{one.most:.1f}':>14}" for one in (own, shared))
        print(f"{cpus:>4}{shown}{shared.cycles / own.cycles:>7.1f}")
    print("cycles of the time-stamp counter a request, without the loop's own: the runs' median, least and most")


def main() -> int:
    """Compile, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=SOURCE.parents[2] / "out/bench")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of each thread and round (a multiple of 8)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--runs", type=int, default=RUNS)
    args = parser.parse_args()
    if platform.machine() != "x86_64":
        print("the time-stamp counter is x86's: nothing is measured here", file=sys.stderr)
        return 1
    out: Path = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    load_before, costs = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as directory:
        program = f"{directory}/depth_layout"
        subprocess.run(["gcc", *FLAGS, "-o", program, str(SOURCE)], check=True)
        for threads in counts(len(os.sched_getaffinity(0))):
            words = [program, str(threads), str(args.requests), str(args.rounds)]
            ran = [subprocess.run(words, check=True, capture_output=True, text=True) for _ in range(args.runs)]
            costs += measured([one.stdout for one in ran], threads)
    show(costs)
    print(f"load of the machine before it began: {load_before:.1f} on {os.cpu_count()} CPUs")
    document = {
        "requests": args.requests, "rounds": args.rounds, "runs": args.runs,
        "load_before": load_before, "cpus": os.cpu_count(),
        "costs": [one._asdict() for one in costs],
    }  # fmt: skip
    (out / "depth-layout.json").write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
