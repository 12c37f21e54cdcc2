#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs tests/lab/*.bats on this host and tests/vm/*.bats each in fresh guests, some files at a time, and sums up.

A file says in comments which guests it wants, one line a guest:  # guest: --suite trixie --clock real --smp 2
The words are options of `fabtune lab run`; where --accel uml does not work, an emulated CPU stands in for it.
A line `# guest-full: ...` wants a guest in the full run alone,
and tests may go further there: they find `short` or `full` in $LENGTH.
The short run keeps to the first guest of a file: what another kernel does otherwise is the full run's to find, which
builds the images that such guests need.
Files with the same line `# together: NAME` share a guest in the short run, one after the other, because its start takes
much of a guest's time: each leaves it as it found it.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# More than the cores of the smallest host that runs them: guests on the real clock often wait.
JOBS_AT_ONCE = 3
# Of the real clock, for a guest that hangs: on a loaded computer a slow one takes half an hour.
TIMEOUT_S = 3600
# What sees the real clock is not to be late for other work of this host's: it gets 9 times the share of a neighbour.
AHEAD = ("nice", "-n", "-10")
# So many files that fail on the real clock are run again, alone.
MOST_UNSTEADY = 3


@dataclass(frozen=True)
class Job:
    """One bats file in one kind of guest; one without options starts its guests itself, from this host.

    `beside` are further files for the same guest, which is called `shared` then.
    """

    file: Path
    options: tuple[str, ...] = ()
    shared: str = ""
    beside: tuple[Path, ...] = ()

    @property
    def on_host(self) -> bool:
        return self.file.parent.name == "lab"

    @property
    def steady(self) -> bool:
        """Whether it sees no clock but a virtual one, and so does the same whatever else the computer does."""
        return not self.on_host and "virtual" in self.options

    @property
    def name(self) -> str:
        words = [word.strip("-").replace(" ", "-") for word in self.options if word not in ("--suite", "--clock")]
        return "-".join([self.shared or self.file.stem, *words])


def jobs_of(file: Path, full: bool, instead: str | None) -> list[Job]:
    """Return the guests that `file` wants, the first alone unless `full`, or the one of `instead`; none is an error."""
    if Job(file).on_host:
        return [Job(file)]
    if instead is not None:
        return [Job(file, tuple(shlex.split(instead)))]
    wanted = re.findall(r"^# guest(-full)?: (.*)$", file.read_text(), re.MULTILINE)
    if not wanted:
        raise SystemExit(f"{file}: no '# guest: ...' line says which guest it runs in")
    kept = wanted if full else [one for one in wanted if not one[0]][:1]
    return [Job(file, tuple(shlex.split(words))) for _, words in kept]


def sharing(jobs: list[Job]) -> list[Job]:
    """Return `jobs` with those joined that may share a guest."""
    found: dict[tuple[str, tuple[str, ...]], Job] = {}
    for job in jobs:
        said = re.search(r"^# together: (.*)$", job.file.read_text(), re.MULTILINE)
        key = (said[1] if said else str(job.file), job.options)
        first = found.get(key)
        found[key] = job if first is None else replace(first, shared=key[0], beside=(*first.beside, job.file))
    return list(found.values())


LAB_RUN = ("/usr/bin/python3", "-m", "fabtune", "lab", "run")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TOP / "userspace")}


def uml_boots() -> bool:
    """Tell whether a guest of User Mode Linux boots here and ends well; a machine may forbid it what it needs."""
    probe = [*LAB_RUN, "--clock", "real", "--accel", "uml", "--timeout-s", "60", "/bin/true"]
    done = subprocess.run(
        probe, cwd=TOP, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no word"])[0]
        print(f"no User Mode Linux here ({why}): emulated guests instead, several times as slow", flush=True)
    return done.returncode == 0


@dataclass(frozen=True)
class Result:
    """What came of one job: counts of tests, whether the guest itself ended well, and what it took."""

    passed: int
    failed: int
    skipped: int
    well: bool
    seconds: float
    cpu_s: float

    @property
    def ok(self) -> bool:
        return self.well and not self.failed


@dataclass(frozen=True)
class Counts:
    """How many tests a TAP says were planned, and what came of them."""

    plan: int
    passed: int
    failed: int
    skipped: int


def counts_in(tap: str) -> Counts:
    """Count the tests of `tap`; what failed besides them, as a kernel that complained, is a failure more."""
    plan = sum(int(count) for count in re.findall(r"^1\.\.(\d+)$", tap, re.MULTILINE))
    skipped = len(re.findall(r"^ok \d+ .*# skip", tap, re.MULTILINE | re.IGNORECASE))
    reported = len(re.findall(r"^(?:not )?ok \d+", tap, re.MULTILINE))
    passed = len(re.findall(r"^ok \d+", tap, re.MULTILINE)) - skipped
    # Tests that the plan promised and nobody reported died with their guest.
    failed = len(re.findall(r"^not ok", tap, re.MULTILINE)) + max(0, plan - reported)
    return Counts(plan, passed, failed, skipped)


def run(job: Job, out: Path, length: str, timeout_s: int = TIMEOUT_S) -> Result:
    """Run `job` once; its TAP goes to tap.log in a directory of `out`."""
    directory = out / job.name
    directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    log = directory / "tap.log"
    command = [
        *LAB_RUN, "--timeout-s", str(timeout_s), "--out", str(directory), *job.options,
        str(TOP / "tests/vm/run-bats"), length, *(str(file.relative_to(TOP)) for file in (job.file, *job.beside)),
    ]  # fmt: skip
    if job.on_host:
        command = ["bats", "--formatter", "tap", str(job.file)]
    if not job.steady:
        command = [*AHEAD, *command]
    environment = {**ENVIRONMENT, "LENGTH": length}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=TOP, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
        # Its processes' CPU time shows what a job costs, however busy the computer is.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    counts = counts_in(log.read_text(errors="replace"))
    well = process.returncode == 0 and counts.plan > 0
    seconds = time.monotonic() - started
    return Result(counts.passed, counts.failed, counts.skipped, well, seconds, usage.ru_utime + usage.ru_stime)


def lost_its_kernel(job: Job, out: Path) -> bool:
    """Tell whether the User Mode Linux under `job` crashed: a kernel that few use, and never what is tested there."""
    text = (out / job.name / "tap.log").read_text(errors="replace")
    return "uml" in job.options and "the guest's process ended with exit -" in text


def run_well(job: Job, out: Path, length: str) -> Result:
    """Run `job`, once more where its kernel died under it; the dead guest's log is printed and kept as tap.died.log."""
    result = run(job, out, length)
    if not lost_its_kernel(job, out):
        return result
    died = (out / job.name / "tap.log").rename(out / job.name / "tap.died.log")
    print(f"{job.name}: the guest's kernel died; once more\n{last_lines(died)}", flush=True)
    return run(job, out, length)


def run_all(jobs: list[Job], out: Path, length: str) -> dict[Job, Result]:
    """Run `jobs`, some at a time, and say of each what came of it."""
    results = {}
    # One guest image at a time is built, each by the first job that wants it.
    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        started = {pool.submit(run_well, job, out, length): job for job in jobs}
        for count, future in enumerate(as_completed(started), 1):
            job, result = started[future], future.result()
            results[job] = result
            say(f"[{count}/{len(jobs)}]", job, result, out)
    return results


def say(count: str, job: Job, result: Result, out: Path) -> None:
    """Print what came of `job`, and its log's end where it failed."""
    counts = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped"
    took = f"{result.seconds:.0f} s, {result.cpu_s:.0f} s of CPU"
    print(f"{count} {job.name}: {'ok' if result.ok else 'FAILED'}, {counts}, {took}", flush=True)
    if not result.ok:
        print(last_lines(out / job.name / "tap.log"), flush=True)


def once_more(job: Job, out: Path, length: str) -> Result:
    """Run a `job` that failed on the real clock again, with nothing beside it; its first log is kept and said."""
    failed = (out / job.name / "tap.log").rename(out / job.name / "tap.unsteady.log")
    result = run_well(job, out, length)
    say("[again, alone]", job, result, out)
    if result.ok:
        print(f"UNSTEADY: {job.name} failed beside others and passes alone: a defect, of the test or not; see {failed}")
    return result


def last_lines(log: Path) -> str:
    """Return the end of `log`, indented."""
    return "\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-60:])


def main() -> int:
    """Run the files named (default: all) and return 0 when every test passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/check")
    parser.add_argument("--full", action="store_true", help="also in the guests of '# guest-full:' lines")
    parser.add_argument("--guest", metavar="OPTIONS", help="one such guest instead of what the files want")
    parser.add_argument("files", nargs="*", type=Path)
    args = parser.parse_args()
    files = [file.resolve() for file in args.files] or [
        *sorted((TOP / "tests/lab").glob("*.bats")), *sorted((TOP / "tests/vm").glob("*.bats"))
    ]  # fmt: skip
    jobs = [job for file in files for job in jobs_of(file, args.full, args.guest)]
    jobs = jobs if args.full or args.guest else sharing(jobs)
    # The longest files first: what starts last should end soon.
    jobs.sort(key=lambda job: sum(file.stat().st_size for file in (job.file, *job.beside)), reverse=True)
    if any("uml" in job.options for job in jobs) and not uml_boots():
        jobs = [replace(job, options=tuple("auto" if word == "uml" else word for word in job.options)) for job in jobs]
    out, length = args.out.resolve(), "full" if args.full else "short"
    results = run_all(jobs, out, length)
    unsteady = [job for job, result in results.items() if not result.ok and not job.steady]
    # Where much fails, that is no matter of what ran beside it.
    for job in unsteady if len(unsteady) <= MOST_UNSTEADY else []:
        results[job] = once_more(job, out, length)
    ended = results.values()
    passed, skipped, cpu_s = (sum(getattr(one, name) for one in ended) for name in ("passed", "skipped", "cpu_s"))
    # A guest that ended badly though each of its tests passed counts as one.
    failed = sum(one.failed or int(not one.well) for one in ended)
    print(f"{passed} passed, {failed} failed, {skipped} skipped; {cpu_s / 60:.0f} min of CPU")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
