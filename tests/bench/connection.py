#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What pacing by connection brings storage, costs another flow of the same NIC, and does to four sessions on one line.

Writes connection.json: {"cases": [...]}; fails when a bar is missed.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lab_run import TOP, lab_run

RUNS = {"wan": ("wan", "37", "622mbit"), "beside": ("beside",), "shared": ("shared", "37", "311mbit")}
# What 622 and 311 Mb/s of Ethernet leave for iSCSI's payload at MTU 1500, in MB/s.  Where a queue drops packets the lab
# handles each on its own: its one CPU reads no more than 59 MB/s then, whatever the line carries and whoever paces.
BOUND_MB_PER_S, SHARED_MB_PER_S = 74.4, 37.2
WAN, BULK, P99, LINE, SHARE, SESSIONS = 0.97, 0.99, 1.01, 0.95, 0.5, 4
# A guest that is busier than this while fio starts, ramps and measures, measures its CPU, not the line.
MOST_BUSY = 0.9
OURS, UNTOUCHED = "wan", "untouched"


def _cases(words: tuple[str, ...], seed: int) -> list[dict[str, Any]]:
    done = lab_run("connection.guest", *words, seed=seed)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}")
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return [json.loads(content) for kind, _, content in lines if kind == "CASE"]


def missed(cases: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each bar that `cases` miss."""
    told = []
    alone = {case["storage"]: case for case in cases if case["what"] == "beside" and case["way"] == UNTOUCHED}
    for case in cases:
        if case["way"] != OURS:
            continue
        if case["what"] == "wan":
            told += [f"{key}: {case[key]} of {BOUND_MB_PER_S}" for key in ("read_mb_per_s", "write_mb_per_s")
                     if case[key] < WAN * BOUND_MB_PER_S]  # fmt: skip
        elif case["what"] == "beside":
            before, name = alone[case["storage"]], f"another flow beside storage ({case['storage']})"
            if case["bulk_mbit_per_s"] < BULK * before["bulk_mbit_per_s"]:
                told.append(f"{name}: {case['bulk_mbit_per_s']} Mb/s, was {before['bulk_mbit_per_s']}")
            if case["p99_us"] > P99 * before["p99_us"]:
                told.append(f"{name}: p99 {case['p99_us']} us, was {before['p99_us']}")
        else:
            told += _missed_by_sessions(case)
    return told


def _missed_by_sessions(case: dict[str, Any]) -> list[str]:
    """Return what four busy sessions miss on the line that they share; one alone has no bar of its own."""
    each, line = case["mb_per_s"], case["sum_mb_per_s"]
    if len(each) < SESSIONS:
        return []
    told = []
    if case["cpu_busy"] > MOST_BUSY:
        told.append(
            f"four sessions, {case['op']}: the guest's CPU was busy for {case['cpu_busy']:.0%}, and may be what limits"
        )
    if line < LINE * SHARED_MB_PER_S or min(each) < SHARE * line / len(each):
        told.append(f"four sessions, {case['op']}: {each} MB/s, of {SHARED_MB_PER_S}")
    return told


def main() -> int:
    """Measure, write the result, and tell which bars are missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", choices=[*RUNS, []], help="which of them (default: all)")
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ways", nargs="*", default=[], help="who paces (default: everybody of connection_guest.py)")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "connection.json"
    runs = asked.runs or list(RUNS)
    # What was not asked for stays as it was found before.
    cases = [one for one in json.loads(kept.read_text())["cases"] if one["what"] not in runs] if kept.exists() else []
    for name in runs:
        cases += _cases((*RUNS[name], *asked.ways), asked.seed)
        kept.write_text(json.dumps({"cases": cases}, indent=1) + "\n")
    told = missed(cases)
    print("\n".join(told) or "all bars held")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
