#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs every suite of the module on the debug kernels, and counts what their sanitizers report.

Every report counts, whomever it names, except the known ones of the kernel's own that reports.py lists: those are
`foreign`, and decide nothing.  It goes on where it stopped: DIR/results.json keeps what came of each suite on each
kernel, and a suite is run again when the module, the suite, what it loads, its guest or the kernel is another one
since, or with --again.  What its kernel wrote is kept, too, and read anew for each summary: a report that is understood
since needs no guest.  Whatever was asked for, summary.json has by kernel what is kept: `suites`, `failed`, `reports`,
`foreign`, and where there are some the tests that were `skipped` and the suites that are `missing`.  Exits 1 for a
suite that failed and for each report.

--keep writes what is known of today's code into Documentation/results/sanitizers, with the page's table, which counts
what is kept only as long as it is of today's code.  --go-on begins with what another computer has kept there of the
same code, rather than with nothing.

A suite with a line `# guest-sanitizers: OPTIONS` runs at full length, in such a guest; one for some kernels alone is
`# guest-sanitizers KERNEL...: OPTIONS`.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import reports
import run
import sanitizers_kept
from sanitizers_kept import Complaints, Digests, Results

from fabtune.lab.debug_kernel import directory_of  # noqa: E402
from fabtune.lab.module import source_digest  # noqa: E402

KERNELS = ("kasan", "kcsan", "rt", "scsi-builtin")
# At full length, with KASAN, on a busy computer.
LONGEST_S = 8 * run.TIMEOUT_S
# One CPU has the virtual clock, which leaves nothing to chance; several have the real one.
ONE_CPU, CPUS = "--suite trixie --clock virtual", "--suite trixie --clock real --smp {smp}"
CPUS_ABREAST = 2
# By kernel and suite how it runs, and at which length.
Jobs = Mapping[str, Mapping[str, tuple[run.Job, str]]]
# More words for a kernel's command line: KASAN goes on after its first report, and kernels without it fence and poison
# what they allocate.
APPENDED = {"kasan": "kasan_multi_shot", "rt": "slub_debug=FZP", "scsi-builtin": "slub_debug=FZP"}


def to_run(kept: Results, digests: Digests, complaints: Complaints) -> list[tuple[str, str]]:
    """Return the kernels and suites of `digests` that nothing is kept of, or only a result of other code."""
    return [
        (kernel, suite)
        for kernel, suites in digests.items()
        for suite, digest in suites.items()
        if kept.get(kernel, {}).get(suite, {}).get("digest") != digest or (kernel, suite) not in complaints
    ]


def summary_of(kept: Results, digests: Digests, complaints: Complaints) -> dict[str, dict[str, Any]]:
    """Return by kernel the sum of what is kept of the code that `digests` names."""
    still_to_run = to_run(kept, digests, complaints)
    summary: dict[str, dict[str, Any]] = {}
    for kernel, suites in digests.items():
        missing = [suite for suite in suites if (kernel, suite) in still_to_run]
        results = {suite: kept[kernel][suite] for suite in suites if suite not in missing}
        wrote = [complaints[kernel, suite] for suite in results]
        skipped = [f"{suite}: {test}" for suite, one in results.items() for test in one["skipped"]]
        summary[kernel] = {
            "suites": len(results), "failed": sum(one["failed"] > 0 for one in results.values()),
            "reports": sum(len(one.ours) + len(one.others) for one in wrote),
            "foreign": sum(len(one.known) for one in wrote),
            **({"skipped": skipped} if skipped else {}), **({"missing": missing} if missing else {}),
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
    """Return a digest of all that decides what comes of `job`, other than fabtune's own reader.

    What is a report decides no test: the log is read anew.
    """
    parts = [source_digest(), directory_of(kernel).name, *job.options]
    files = (path for path in files_of(job.file) if path.name != Path(reports.__file__).name)
    parts += [f"{path.name} {path.read_text()}" for path in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def job_of(file: Path, kernel: str, smp: int) -> tuple[run.Job, str]:
    """Return how `file` runs on `kernel`, and at which length."""
    said = re.findall(r"^# guest-sanitizers((?: [\w-]+)*): (.*)$", file.read_text(), re.MULTILINE)
    wanted = {name: options for names, options in said for name in names.split() or [""]}
    guest = wanted.get(kernel) or wanted.get("") or (ONE_CPU if smp == 1 else CPUS.format(smp=smp))
    more = ("--append", APPENDED[kernel]) if kernel in APPENDED else ()
    return run.Job(file, (*guest.split(), "--kernel-suite", kernel, *more)), "full" if wanted else "short"


def jobs_of(smp: int = CPUS_ABREAST) -> Jobs:
    """Return by kernel and name how each suite of the module runs, and at which length."""
    files = sorted((run.TOP / "tests/vm").glob("fabstat*.bats"))
    return {kernel: {file.name: job_of(file, kernel, smp) for file in files} for kernel in KERNELS}


def digests_of(jobs: Jobs) -> Digests:
    """Return what a result of each of `jobs` depends on, as it is today."""
    return {kernel: {name: digest_of(kernel, job) for name, (job, _) in of.items()} for kernel, of in jobs.items()}


def complaints_in(tap: str) -> int:
    """Return how often a guest ended badly for what its kernel wrote."""
    return len(re.findall(r"^not ok - the kernel complained", tap, re.MULTILINE))


def failed_tests(failed: int, tap: str) -> int:
    """Return how many tests failed: a guest that ends badly for a report alone has not, the report counts itself."""
    return failed - complaints_in(tap)


def measure(job: run.Job, length: str, out: Path) -> dict[str, Any]:
    """Run `job` and return what came of it."""
    log = out / job.name / "dmesg.txt"
    # What an earlier guest left is no word of one that dies.
    log.unlink(missing_ok=True)
    result = run.run(job, out, length, LONGEST_S)
    tap = (out / job.name / "tap.log").read_text(errors="replace")
    died = not log.exists() or not (result.well or complaints_in(tap))
    # One that died wrote nothing to be read.
    log.touch()
    return {
        "passed": result.passed, "failed": failed_tests(result.failed, tap) or int(died),
        "skipped": re.findall(r"^ok \d+ (.*?) # skip", tap, re.MULTILINE | re.IGNORECASE),
        "seconds": round(result.seconds), "cpu_s": round(result.cpu_s),
    }  # fmt: skip


def complained(log: Path) -> reports.Reports | None:
    """Return what the guest's `log` complains of, None where it is not kept."""
    return reports.reports_in(log.read_text(errors="replace")) if log.exists() else None


def complaints_of(jobs: Jobs, out: Path) -> Complaints:
    """Return what each guest of `jobs` whose log is kept in `out` complained of."""
    logs = {
        (kernel, name): out / job.name / "dmesg.txt" for kernel, of in jobs.items() for name, (job, _) in of.items()
    }
    return {where: found for where, log in logs.items() if (found := complained(log)) is not None}


def take_over(
    results: Results, missing: Sequence[tuple[str, str]], digests: Digests
) -> dict[tuple[str, str], reports.Reports]:
    """Put what the tree keeps of the `missing` ones into `results`, and return what their kernels complained of."""
    kept, complaints = sanitizers_kept.read(sanitizers_kept.FILE)
    still_to_run = to_run(kept, digests, complaints)
    found = [where for where in missing if where not in still_to_run]
    for kernel, name in found:
        results.setdefault(kernel, {})[name] = kept[kernel][name]
    return {where: complaints[where] for where in found}


def keep(results: Results, digests: Digests, complaints: Complaints) -> None:
    """Keep what is known of today's code in the tree, and make the page's table anew."""
    still_to_run = to_run(results, digests, complaints)
    known: Results = {
        kernel: {name: results[kernel][name] for name in suites if (kernel, name) not in still_to_run}
        for kernel, suites in digests.items()
    }
    sanitizers_kept.write(sanitizers_kept.FILE, known, complaints, source_digest())
    page = sanitizers_kept.PAGE
    page.write_text(sanitizers_kept.with_table(page.read_text(), sanitizers_kept.FILE, digests))


def say(kernel: str, job: run.Job, found: Mapping[str, Any], out: Path) -> None:
    """Print what came of `job`."""
    counts = f"{found['passed']} passed, {found['failed']} failed, {len(found['skipped'])} skipped"
    took = f"{found['seconds']} s, {found['cpu_s']} s of CPU"
    wrote = complained(out / job.name / "dmesg.txt") or reports.Reports()
    count = len(wrote.ours) + len(wrote.others)
    print(f"{kernel} {job.file.stem}: {counts}, {count} reports, {took}", flush=True)
    titled = ((wrote.ours, "names fabstat"), (wrote.others, "does not name fabstat, and is no known one"))
    for found_reports, title in titled:
        for report in found_reports:
            print(f"  A report that {title}:\n    " + report.replace("\n", "\n    "), flush=True)
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
        default=CPUS_ABREAST,
        metavar="N",
        help=f"CPUs where they run side by side (default: {CPUS_ABREAST}); what "
        "was measured with another number is measured again",
    )
    parser.add_argument("--again", action="store_true", help="run what is asked for, whatever is kept of it")
    parser.add_argument("--go-on", action="store_true", help="begin with what the tree keeps of the same code")
    parser.add_argument("--keep", action="store_true", help="keep all that is known of this code in the tree")
    parser.add_argument("suites", nargs="*", type=Path, help="only these (default: all of the module)")
    args = parser.parse_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.json"
    kept: Results = json.loads(results.read_text()) if results.exists() else {}
    jobs = jobs_of(args.smp)
    digests = digests_of(jobs)
    all_names = list(jobs[KERNELS[0]])
    names = [file.name for file in args.suites] or all_names
    if unknown := set(names) - set(all_names):
        parser.error(f"no suite of the module: {', '.join(sorted(unknown))}")
    asked = [(kernel, name) for kernel in args.kernel or KERNELS for name in names]
    missing = to_run(kept, digests, complaints_of(jobs, out))
    taken = take_over(kept, missing, digests) if args.go_on else {}
    for kernel, name in asked:
        job, length = jobs[kernel][name]
        if args.again or (kernel, name) in set(missing) - set(taken):
            found = measure(job, length, out)
            say(kernel, job, found, out)
            kept.setdefault(kernel, {})[name] = {"digest": digests[kernel][name], **found}
            taken.pop((kernel, name), None)
            write(results, kept)
    complaints = {**complaints_of(jobs, out), **taken}
    summary = summary_of(kept, digests, complaints)
    write(out / "summary.json", summary)
    if args.keep:
        keep(kept, digests, complaints)
    for kernel, row in summary.items():
        print(f"{kernel}: {json.dumps(row)}")
    return 1 if any(row["failed"] or row["reports"] for row in summary.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
