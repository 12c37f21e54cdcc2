#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""How soon a load has its line again under `fabtune guard --heal` when its path steps from 5 to 150 and to 20 ms.

Writes path-steps.json, a row a step, and says whether guard came to rest (--hold 3600 for an hour of it).  The rate
told is the line's, or ten times that: then the load's own queue is there to be taken for a path.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(Path(__file__).parent)]

import cells_kept  # noqa: E402
from lab_run import ACCELS, lab_run  # noqa: E402

from fabtune.model.path import NetworkPath, bound_bytes_per_s  # noqa: E402

LINE_MBIT, DEPTH, SIZE_BYTES = 100, 32, 256 * 1024
# What is demanded: of the bound, again within this or so many round trips, by the mean of a second or four of them.
BOUND, WITHIN_S, WITHIN_RTTS = 0.95, 5.0, 20
_MEAN_S, _MEAN_RTTS = 1.0, 4
STEPS = 2
# How long guard is to leave a path alone that rests.
REST_S = 3600.0


def again_s(step: dict[str, Any]) -> float | None:
    """Return how long after a step throughput was there again for good, None where it was not."""
    rtt_s = step["rtt_ms"] / 1e3
    least = BOUND * bound_bytes_per_s(NetworkPath(rtt_s, LINE_MBIT * 1e6 / 8), SIZE_BYTES, DEPTH)
    mean_s, recent, since = max(_MEAN_S, _MEAN_RTTS * rtt_s), list[tuple[float, float]](), None
    for at_s, rate in step["moved"]:
        recent = [one for one in [*recent, (at_s, rate)] if one[0] > at_s - mean_s]
        if statistics.mean(one for _, one in recent) < least:
            since = None
        elif since is None:
            # It was there from where this mean begins.
            since = max(0.0, recent[0][0] - step["changed_s"])
    return since


def missed(steps: Sequence[dict[str, Any]], told: dict[str, Any]) -> list[str]:
    """Return a sentence for each bar that is missed, or that nothing was seen for."""
    found = [f"{len(steps)} of {STEPS} steps were seen"] * (len(steps) != STEPS)
    for one in steps:
        took_s, allowed_s = again_s(one), max(WITHIN_S, WITHIN_RTTS * one["rtt_ms"] / 1e3)
        if took_s is None or took_s > allowed_s:
            took = "never" if took_s is None else f"after {took_s:.1f} s"
            found.append(f"{one['rtt_ms']:g} ms: {BOUND} of the bound {took}, {allowed_s:g} s allowed")
    later = [one for one in told["lines"] if one["kind"] == "followed" and one["time_s"] > told["settled_s"]]
    return found + [f"followed once more when the path rested: {one['text']}" for one in later]


def all_held(hold_s: float) -> str:
    """Return what is said without a fault where the path rested for so long at its end."""
    rest = f" but rest for an hour: the path rested for {hold_s:g} s (--hold {REST_S:g})"
    return "all bars held" + rest * (hold_s < REST_S)


def main() -> int:
    """Measure each direction, told the rate and ten times that, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument("--suite", default="trixie")
    parser.add_argument("--hold", type=float, default=60.0, help="how long the path rests at the end, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--accel", default="uml", choices=ACCELS, help="User Mode Linux, or an emulated CPU")
    parser.add_argument("--keep", action="store_true", help="once all is measured, keep it for Documentation")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    rows, problems = [], []
    for op in ("read", "write"):
        for told_mbit in (LINE_MBIT, 10 * LINE_MBIT):
            words = (op, str(told_mbit), str(asked.hold))
            done = lab_run(
                "path-steps.guest", *words,
                seed=asked.seed, suite=asked.suite, timeout_s=20000, accel=asked.accel,
            )  # fmt: skip
            lines = [line.partition(" ") for line in done.stdout.splitlines()]
            steps = [json.loads(content) for kind, _, content in lines if kind == "STEP"]
            told = [json.loads(content) for kind, _, content in lines if kind == "TOLD"]
            name = f"{op}, told {told_mbit} Mb/s"
            if done.returncode or not told:
                problems.append(f"{name}: exit {done.returncode}: {done.stdout[-2000:]}")
                continue
            # For a rate that was told wrongly nothing is promised but rest.
            bars = [one for one in missed(steps, told[0]) if told_mbit == LINE_MBIT or "once more" in one]
            problems += (of_pass := [f"{name}: {one}" for one in bars])
            rows += [{"op": op, "told_mbit": told_mbit, "rtt_ms": one["rtt_ms"], "again_s": again_s(one),
                      "hold_s": asked.hold, "missed": of_pass * (one is steps[-1])} for one in steps]  # fmt: skip
    (asked.out / "path-steps.json").write_text(json.dumps(rows, indent=1) + "\n")
    for one in rows:
        print(json.dumps(one))
    if asked.keep:
        try:
            cells_kept.keep("guard", rows, 4 * STEPS, cells_kept.measured_by(asked.suite, asked.accel))
        except ValueError as error:
            problems.append(str(error))
    print("\n".join(problems) or all_held(asked.hold))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
