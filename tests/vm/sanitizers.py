#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs every suite of the module on the debug kernels, and counts what their sanitizers report.

A report that names no function of fabstat's is the kernel's own: it is shown, and decides nothing.  Writes
summary.json into DIR: by kernel `suites`, `failed`, `reports`, `foreign`.  Exits 1 for a suite that failed and for
each report.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import run

KERNELS = ("kasan", "kcsan", "rt", "scsi-builtin")
# One CPU has the virtual clock, which leaves nothing to chance; several have the real one.
ONE_CPU, CPUS = "--suite trixie --clock virtual", "--suite trixie --clock real --smp {smp}"
_BEGINS = re.compile(
    r"BUG: |WARNING: |UBSAN: |INFO: (task|rcu|possible)|INVALID|kernel BUG at|unreferenced object|Oops|ODEBUG: "
)
# Lines that a report may take behind its title, and what ends it before.
_LINES = 60
_ENDS = re.compile(r"={20}|---\[ end trace|^\s*$")
_STAMP = re.compile(r"^\[ *\d+\.\d+\](\[ *[TC]\d+\])? ?")


def reports_in(text: str) -> tuple[list[str], list[str]]:
    """Return the reports in a kernel log, those that name fabstat and the others."""
    lines = [_STAMP.sub("", line) for line in text.splitlines()]
    ours: list[str] = []
    foreign: list[str] = []
    number = 0
    while number < len(lines):
        if not _BEGINS.search(lines[number]):
            number += 1
            continue
        end = number + 1
        while end < min(len(lines), number + _LINES) and not (_ENDS.search(lines[end]) or _BEGINS.search(lines[end])):
            end += 1
        report = "\n".join(lines[number:end])
        (ours if re.search(r"fabstat", report) else foreign).append(report)
        number = end
    return ours, foreign


def main() -> int:
    """Run the suites; return 0 when all are green and nothing was reported."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=run.TOP / "out/sanitizers")
    parser.add_argument("--kernel", action="append", choices=KERNELS, help="only this one (may be repeated)")
    parser.add_argument("--smp", type=int, default=2, metavar="N", help="CPUs where they run side by side (default: 2)")
    parser.add_argument("suites", nargs="*", type=Path, help="only these (default: all of the module)")
    args = parser.parse_args()
    files = [file.resolve() for file in args.suites] or sorted((run.TOP / "tests/vm").glob("fabstat*.bats"))
    summary = {}
    for kernel in args.kernel or KERNELS:
        failed: list[str] = []
        reports: list[str] = []
        foreign: list[str] = []
        for file in files:
            guest = ONE_CPU if args.smp == 1 else CPUS.format(smp=args.smp)
            job = run.Job(file, (*guest.split(), "--kernel-suite", kernel))
            result = run.run(job, args.out.resolve(), "short")
            log = args.out / job.name / "dmesg.txt"
            ours, others = reports_in(log.read_text(errors="replace")) if log.exists() else ([], [])
            reports += ours
            foreign += others
            # A guest that ends badly for a report that is not ours has not failed.
            if result.failed or not log.exists():
                failed.append(file.name)
            counts = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped, {len(ours)} reports"
            print(f"{kernel} {file.stem}: {counts}, {result.seconds:.0f} s", flush=True)
            for report in ours:
                print("    " + report.replace("\n", "\n    "), flush=True)
            if result.failed:
                print(run.last_lines(args.out / job.name / "tap.log"), flush=True)
        summary[kernel] = {
            "suites": len(files), "failed": len(failed), "reports": len(reports), "foreign": len(foreign),
        }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return 1 if any(row["failed"] or row["reports"] for row in summary.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
