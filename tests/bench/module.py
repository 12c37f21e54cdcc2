#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What fabstat.ko costs a request, in instructions, beside the BPF tools that answer part of the same question.

One guest a kernel on the virtual clock, where one instruction is one nanosecond: the figures are exact and repeat on
any computer.  Prints tables, writes module.json, and fails when a bar is missed.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace")]

import module_kept  # noqa: E402

from fabtune.lab.module import source_digest  # noqa: E402

# What one tracer costs on one device, as the guest writes it, and the bar beside it.
Row = dict[str, Any]
SUITES = ("trixie", "bookworm", "sid")
# Instructions that fabstat may add to a request: as it is loaded, with enabled=N, with detail=Y, without memory for
# histograms, without any memory, and where the kernel's clock is not the CPU's counter.  With target=Y, what a command
# at the target adds to that, and with target_parts=Y, what the parts of its time add to this: kprobes tell them.
BARS = {
    ("null_blk", "fabstat"): 200,
    ("scsi_debug", "fabstat"): 280,
    ("lio_loop", "fabstat"): 280,
    ("lio_loop", "target"): 220,
    ("lio_loop", "target-parts"): 700,
    ("null_blk", "off"): 20,
    ("scsi_debug", "off"): 20,
    ("lio_loop", "off"): 20,
    ("null_blk", "detail"): 300,
    ("scsi_debug", "detail"): 300,
    ("null_blk", "ceiling"): 250,
    ("null_blk", "detail-ceiling"): 300,
    ("null_blk", "no-books"): 250,
}
TIMEKEEPER_BAR = 350
OF_TIMEKEEPER = ("null_blk", "scsi_debug")
# What a tracer's figure is compared with, unless it is the bare request.
BESIDE = {"target": "fabstat", "target-parts": "target"}


def measure(out: Path, suite: str) -> list[Row]:
    """Run the guest part on `suite`'s kernel; return its rows, with what each tracer adds to the bare request.

    The target's half adds to what fabstat as it is loaded takes.
    """
    # The userspace is always trixie's, which has the BPF tools.
    directory, module = out / f"module-{suite}", source_digest()
    subprocess.run(
        [sys.executable, "-m", "fabtune", "lab", "run", "--suite", "trixie", "--kernel-suite", suite,
         "--clock", "virtual", "--timeout-s", "7200", "--out", str(directory),
         str(TOP / "tests/bench/module_guest.py")],
        cwd=TOP, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin", "PYTHONPATH": str(TOP / "userspace")},
        check=True, stdout=sys.stderr,
    )  # fmt: skip
    rows: list[Row] = json.loads((directory / "rows.json").read_text())
    # What is compared runs by the same clock: reading it is part of the load, too.
    found = {(*kind(row), row["tracer"]): row["instructions_per_request"] for row in rows}
    added = {
        (device, depth, clock, tracer): taken - found[device, depth, clock, BESIDE.get(tracer, "none")]
        for (device, depth, clock, tracer), taken in found.items()
    }
    for row in rows:
        row["added"] = round(added[*kind(row), row["tracer"]], 1)
        ours = added[*kind(row), "fabstat"]
        row["ratio_to_fabstat"] = round(row["added"] / ours, 1) if ours else None
        row["bar"] = BARS.get((row["device"], row["tracer"]))
        row["module"] = module
        if row["clocksource"] != "tsc":
            barred = row["device"] in OF_TIMEKEEPER and row["tracer"] == "fabstat"
            row["bar"] = TIMEKEEPER_BAR if barred else None
    return rows


def kind(row: Row) -> tuple[str, int, str]:
    """Return what a row is compared within."""
    return row["device"], row["depth"], row["clocksource"]


def show(rows: list[Row]) -> bool:
    """Print the rows of one kernel; return whether a bar was missed."""
    print(f"kernel {rows[0]['kernel']}; 4 KiB random read; instructions")
    head = f"{'device':<12}{'depth':>5} {'clock':<10}{'tracer':<26}{'a request':>10}"
    print(f"{head}{'added':>8}{'x fabstat':>11}{'bar':>6}")
    missed = False
    for row in rows:
        compared = row["tracer"] not in ("none", "off", *BESIDE) and row["ratio_to_fabstat"] is not None
        ratio = f"{row['ratio_to_fabstat']:.1f}" if compared else ""
        verdict = ""
        if row["bar"] is not None:
            over = bool(row["added"] > row["bar"])
            missed |= over
            verdict = f"{row['bar']:>6}" + (" MISSED" if over else "")
        print(
            f"{row['device']:<12}{row['depth']:>5} {row['clocksource']:<10}{row['tracer']:<26}"
            f"{row['instructions_per_request']:>10.0f}"
            f"{row['added']:>8.0f}{ratio:>11}{verdict}"
        )
    return missed


def main() -> int:
    """Measure on each kernel, print, write; return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument(
        "--suite", action="append", choices=SUITES, help="Debian suite of the kernel; may be repeated (default: each)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="measure nothing: keep what module.json has for Documentation"
    )
    args = parser.parse_args()
    out = args.out.resolve()
    if args.keep:
        module_kept.keep(json.loads((out / "module.json").read_text()), len(SUITES))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    everything = []
    missed = False
    for suite in args.suite or SUITES:
        rows = measure(out, suite)
        missed |= show(rows)
        everything += rows
        # Written after each kernel: what is measured is not lost when the next one fails.
        (out / "module.json").write_text(json.dumps(everything, indent=2) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
