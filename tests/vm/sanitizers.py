#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs every suite of the module on the debug kernels, and counts what their sanitizers report.

A report that names no function of fabstat's is the kernel's own: it is shown, and decides nothing.  It goes on where
it stopped: DIR/results.json keeps what came of each suite on each kernel, and a suite is run again when the module,
the suite, what it loads, its guest or the kernel is another one since, or with --again.  Whatever was asked for,
summary.json has by kernel what is kept: `suites`, `failed`, `reports`, `foreign`, and the suites that are `missing`,
where some are.  Exits 1 for a suite that failed and for each report.

A suite with a line `# guest-sanitizers: OPTIONS` runs at full length, in such a guest.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import run

sys.path.insert(0, str(run.TOP / "userspace"))

from fabtune.lab.debug_kernel import directory_of  # noqa: E402
from fabtune.lab.module import source_digest  # noqa: E402

KERNELS = ("kasan", "kcsan", "rt", "scsi-builtin")
# At full length, with KASAN, on a busy computer.
LONGEST_S = 8 * run.TIMEOUT_S
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


# By kernel and suite what came of it, and the digest of all that it depends on.
Results = dict[str, dict[str, dict[str, Any]]]
Digests = Mapping[str, Mapping[str, str]]


def to_run(kept: Results, digests: Digests) -> list[tuple[str, str]]:
    """Return the kernels and suites of `digests` that nothing is kept of, or only a result of other code."""
    return [
        (kernel, suite)
        for kernel, suites in digests.items()
        for suite, digest in suites.items()
        if kept.get(kernel, {}).get(suite, {}).get("digest") != digest
    ]


def summary_of(kept: Results, digests: Digests) -> dict[str, dict[str, Any]]:
    """Return by kernel the sum of what is kept of the code that `digests` names."""
    still_to_run = to_run(kept, digests)
    summary: dict[str, dict[str, Any]] = {}
    for kernel, suites in digests.items():
        missing = [suite for suite in suites if (kernel, suite) in still_to_run]
        results = [kept[kernel][suite] for suite in suites if suite not in missing]
        summary[kernel] = {
            "suites": len(results), "failed": sum(one["failed"] > 0 for one in results),
            "reports": sum(len(one["reports"]) for one in results),
            "foreign": sum(len(one["foreign"]) for one in results),
            **({"missing": missing} if missing else {}),
        }  # fmt: skip
    return summary


def files_of(suite: Path) -> list[Path]:
    """Return `suite` and the files beside it that it loads, starts or imports, those that these name included."""
    found = [suite, suite.parent / "run-bats"]
    for file in found:
        text = file.read_text()
        named = [f"{name}.bash" for name in re.findall(r"^\s*load (\w+)", text, re.MULTILINE)]
        named += [f"{name}.py" for name in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)]
        named += re.findall(r"\b\w+\.(?:py|bash|toml)\b", text)
        more = {suite.parent / name for name in named} - set(found)
        found += sorted(path for path in more if path.exists())
    return found


def digest_of(kernel: str, job: run.Job) -> str:
    """Return a digest of all that decides what comes of `job`, other than fabtune's own reader."""
    parts = [source_digest(), directory_of(kernel).name, *job.options]
    parts += [f"{path.name} {path.read_text()}" for path in files_of(job.file)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def job_of(file: Path, kernel: str, smp: int) -> tuple[run.Job, str]:
    """Return how `file` runs on `kernel`, and at which length."""
    wanted = re.search(r"^# guest-sanitizers: (.*)$", file.read_text(), re.MULTILINE)
    guest = wanted[1] if wanted else ONE_CPU if smp == 1 else CPUS.format(smp=smp)
    return run.Job(file, (*guest.split(), "--kernel-suite", kernel)), "full" if wanted else "short"


def failed_tests(failed: int, tap: str) -> int:
    """Return how many tests failed: a guest that ends badly for a report alone has not, whosever report it is."""
    return failed - len(re.findall(r"^not ok - the kernel complained", tap, re.MULTILINE))


def measure(job: run.Job, length: str, out: Path) -> dict[str, Any]:
    """Run `job` and return what came of it."""
    log = out / job.name / "dmesg.txt"
    # What an earlier guest left is no word of one that dies.
    log.unlink(missing_ok=True)
    result = run.run(job, out, length, LONGEST_S)
    tap = (out / job.name / "tap.log").read_text(errors="replace")
    ours, others = reports_in(log.read_text(errors="replace")) if log.exists() else ([], [])
    failed = failed_tests(result.failed, tap) or int(not log.exists())
    return {
        "passed": result.passed, "failed": failed, "skipped": result.skipped, "seconds": round(result.seconds),
        "cpu_s": round(result.cpu_s), "reports": ours, "foreign": others,
    }  # fmt: skip


def say(kernel: str, job: run.Job, found: Mapping[str, Any], out: Path) -> None:
    """Print what came of `job`."""
    counts = f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped"
    took = f"{found['seconds']} s, {found['cpu_s']} s of CPU"
    print(f"{kernel} {job.file.stem}: {counts}, {len(found['reports'])} reports, {took}", flush=True)
    for report in found["reports"]:
        print("    " + report.replace("\n", "\n    "), flush=True)
    if found["failed"]:
        print(run.last_lines(out / job.name / "tap.log"), flush=True)


def write(path: Path, document: object) -> None:
    """Write `document` to `path`, whole or not at all."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(document, indent=1) + "\n")
    draft.replace(path)


def main() -> int:
    """Run the suites that are to be run; return 0 when all that are kept are green and nothing was reported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=run.TOP / "out/sanitizers", metavar="DIR")
    parser.add_argument("--kernel", action="append", choices=KERNELS, help="only this one (may be repeated)")
    parser.add_argument(
        "--smp",
        type=int,
        default=2,
        metavar="N",
        help="CPUs where they run side by side (default: 2); what was measured with another number is measured again",
    )
    parser.add_argument("--again", action="store_true", help="run what is asked for, whatever is kept of it")
    parser.add_argument("suites", nargs="*", type=Path, help="only these (default: all of the module)")
    args = parser.parse_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.json"
    kept: Results = json.loads(results.read_text()) if results.exists() else {}
    files = {file.name: file for file in sorted((run.TOP / "tests/vm").glob("fabstat*.bats"))}
    jobs = {kernel: {name: job_of(file, kernel, args.smp) for name, file in files.items()} for kernel in KERNELS}
    digests = {kernel: {name: digest_of(kernel, job) for name, (job, _) in of.items()} for kernel, of in jobs.items()}
    names = [file.name for file in args.suites] or list(files)
    if unknown := set(names) - set(files):
        parser.error(f"no suite of the module: {', '.join(sorted(unknown))}")
    asked = [(kernel, name) for kernel in args.kernel or KERNELS for name in names]
    for kernel, name in asked:
        job, length = jobs[kernel][name]
        if args.again or (kernel, name) in to_run(kept, digests):
            found = measure(job, length, out)
            say(kernel, job, found, out)
            kept.setdefault(kernel, {})[name] = {"digest": digests[kernel][name], **found}
            write(results, kept)
    summary = summary_of(kept, digests)
    write(out / "summary.json", summary)
    for kernel, row in summary.items():
        print(f"{kernel}: {json.dumps(row)}")
    return 1 if any(row["failed"] or row["reports"] for row in summary.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
