#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What `apply --reconnect` brings a mounted, busy session beside a re-login, for how long it pauses, and under faults.

Writes in-place.json: {"cases": [...], "faults": N, "faults_lost": N} and goes on where an earlier run was
stopped; fails when a bar is missed.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab_run import TOP, lab_run

RTTS_MS = (0, 10, 37, 50, 100)
# Of what a re-login gives, and how long a request may wait.
SHARE, PAUSE_S = 0.97, 2.0
FAULTS_A_GUEST = 10
FILE_SYSTEMS = ("ext4", "xfs")


def _lines(suite: str, seed: int, *words: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a guest prints, kind and content."""
    done = lab_run("in-place.guest", *words, seed=seed, suite=suite)
    for line in done.stdout.splitlines():
        kind, _, content = line.partition(" ")
        if kind in ("CASE", "FAULT"):
            yield kind, json.loads(content)
            print(line, flush=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}: {done.stdout[-1000:]}")


def missed(found: dict[str, Any]) -> list[str]:
    """Return a sentence for each bar that `found` misses."""
    told = []
    for case in found["cases"]:
        name = f"{case['op']} at {case['rtt_ms']:g} ms on {case['filesystem']}"
        if case["of_relogin"] < SHARE:
            told.append(f"{name}: {case['of_relogin']:.3f} of a re-login's, {SHARE} demanded")
        if case["pause_s"] > PAUSE_S:
            told.append(f"{name}: paused {case['pause_s']} s, {PAUSE_S} allowed")
        if case["errors"] or case["bytes_wrong"]:
            told.append(f"{name}: {case['errors']} errors, {case['bytes_wrong']} bytes wrong")
    if found["faults_lost"]:
        told.append(f"{found['faults_lost']} of {found['faults']} faults lost something")
    return told


def main() -> int:
    """Measure, write the result, and tell which bars are missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument("--suite", default="trixie", help="which Debian's kernel and open-iscsi")
    parser.add_argument("--faults", type=int, default=100, help="how many retunes something happens to")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rtts-ms", type=int, nargs="*", default=RTTS_MS)
    parser.add_argument("--filesystems", nargs="*", default=FILE_SYSTEMS, choices=FILE_SYSTEMS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "in-place.json"
    found: dict[str, Any] = {"suite": asked.suite, "cases": [], "faults": 0, "faults_lost": 0, "each_fault": []}
    if kept.exists() and (before := json.loads(kept.read_text()))["suite"] == asked.suite:
        found = before
    for filesystem in asked.filesystems:
        for rtt_ms in asked.rtts_ms:
            if (rtt_ms, filesystem) not in [(one["rtt_ms"], one["filesystem"]) for one in found["cases"]]:
                found["cases"] += [one for _, one in _lines(asked.suite, asked.seed, "cases", str(rtt_ms), filesystem)]
                kept.write_text(json.dumps(found, indent=1) + "\n")
    for first in range(0, asked.faults, FAULTS_A_GUEST):
        count, seed = min(FAULTS_A_GUEST, asked.faults - first), asked.seed + first
        if seed not in [one["seed"] for one in found["each_fault"]]:
            found["each_fault"] += [one for _, one in _lines(asked.suite, seed, "faults", str(count), str(seed))]
            found["faults"] = len(found["each_fault"])
            found["faults_lost"] = sum(one["lost"] for one in found["each_fault"])
            kept.write_text(json.dumps(found, indent=1) + "\n")
    told = missed(found)
    print("\n".join(told) or "all bars held")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
