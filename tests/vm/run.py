#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs tests/lab/*.bats on this host and tests/vm/*.bats each in fresh guests, two files at a time, and sums up.

A file says in comments which guests it wants, one line a guest:  # guest: --suite trixie --clock real --smp 2
The words are options of `fabtune lab run`; where --accel uml does not work, an emulated CPU stands in for it.
A line `# guest-full: ...` wants a guest in the full run alone,
and tests may go further there: they find `short` or `full` in $LENGTH.
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
JOBS_AT_ONCE = 2
TIMEOUT_S = 1800


@dataclass(frozen=True)
class Job:
    """One bats file in one kind of guest; one without options starts its guests itself, from this host."""

    file: Path
    options: tuple[str, ...] = ()

    @property
    def on_host(self) -> bool:
        return self.file.parent.name == "lab"

    @property
    def name(self) -> str:
        words = [word.strip("-").replace(" ", "-") for word in self.options if word not in ("--suite", "--clock")]
        return "-".join([self.file.stem, *words])


def jobs_of(file: Path, full: bool, instead: str | None) -> list[Job]:
    """Return the guests that `file` wants, or the one of `instead`; one that names none is an error."""
    if Job(file).on_host:
        return [Job(file)]
    if instead is not None:
        return [Job(file, tuple(shlex.split(instead)))]
    wanted = re.findall(r"^# guest(-full)?: (.*)$", file.read_text(), re.MULTILINE)
    if not wanted:
        raise SystemExit(f"{file}: no '# guest: ...' line says which guest it runs in")
    return [Job(file, tuple(shlex.split(words))) for only_full, words in wanted if full or not only_full]


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


def run(job: Job, out: Path, length: str) -> tuple[int, int, int, bool, float]:
    """Run `job`; return passed, failed, skipped, whether the guest itself ended well, and the seconds it took."""
    directory = out / job.name
    directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    log = directory / "tap.log"
    command = [
        *LAB_RUN, "--timeout-s", str(TIMEOUT_S), "--out", str(directory), *job.options,
        str(TOP / "tests/vm/run-bats"), str(job.file.relative_to(TOP)), length,
    ]  # fmt: skip
    if job.on_host:
        command = ["bats", "--formatter", "tap", str(job.file)]
    with log.open("wb") as sink:
        status = subprocess.run(
            command, cwd=TOP, env=ENVIRONMENT,
            stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
    text = log.read_text(errors="replace")
    plan = sum(int(count) for count in re.findall(r"^1\.\.(\d+)$", text, re.MULTILINE))
    skipped = len(re.findall(r"^ok \d+ .*# skip", text, re.MULTILINE | re.IGNORECASE))
    passed = len(re.findall(r"^ok \d+", text, re.MULTILINE)) - skipped
    failed = len(re.findall(r"^not ok", text, re.MULTILINE))
    # Tests that the plan promised and nobody reported died with their guest.
    failed += max(0, plan - passed - skipped - failed)
    return passed, failed, skipped, status == 0 and plan > 0, time.monotonic() - started


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
    if any("uml" in job.options for job in jobs) and not uml_boots():
        jobs = [replace(job, options=tuple("auto" if word == "uml" else word for word in job.options)) for job in jobs]
    totals = [0, 0, 0]
    broken = 0
    # One guest image at a time is built, each by the first job that wants it.
    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        started = {pool.submit(run, job, args.out.resolve(), "full" if args.full else "short"): job for job in jobs}
        for count, future in enumerate(as_completed(started), 1):
            job = started[future]
            passed, failed, skipped, well, seconds = future.result()
            totals = [total + more for total, more in zip(totals, (passed, failed, skipped), strict=True)]
            verdict = "ok" if well and not failed else "FAILED"
            print(f"[{count}/{len(jobs)}] {job.name}: {verdict}, {passed} passed, {failed} failed, {skipped} skipped, "
                  f"{seconds:.0f} s", flush=True)  # fmt: skip
            if verdict == "FAILED":
                broken += not failed
                text = (args.out / job.name / "tap.log").read_text(errors="replace")
                print("\n".join(f"    {line}" for line in text.splitlines()[-60:]), flush=True)
    print(f"{totals[0]} passed, {totals[1] + broken} failed, {totals[2]} skipped")
    return 1 if totals[1] or broken else 0


if __name__ == "__main__":
    sys.exit(main())
