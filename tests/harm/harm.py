#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs random sequences in guests, many to a guest, and sums up; a run that was cut off goes on where it stopped.

    harm.py --sequences 1000 --seed 1 --out out/harm      seeds 1 to 1000; harm.jsonl gets a line a seed
    harm.py --sequences 1 --seed 17 --fresh               one seed again

harm.json gets the sums, those of kill.json and boots.json beside it included.  A failing sequence is printed with the
command that replays it.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
# A guest silent for this long hangs.
_SILENCE_S = 420.0
_PER_GUEST = 25
_RUN = ("setpriv", "--pdeathsig", "TERM", "/usr/bin/python3", "-m", "fabtune", "lab", "run")
_GUEST = ("--clock", "real", "--accel", "uml", "--memory-mib", "1024", "--timeout-s", "7200")


@dataclass
class Work:
    """The seeds still to run, and where their results go."""

    directory: Path
    guest: list[str]
    options: list[str]
    waiting: "queue.SimpleQueue[list[int]]" = field(default_factory=queue.SimpleQueue)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    total: int = 0

    @property
    def results(self) -> Path:
        """The file that gets a line a seed."""
        return self.directory / "harm.jsonl"

    def keep(self, row: dict[str, Any]) -> None:
        """Write one seed's result down and tell of it."""
        with self.lock:
            self.rows[row["seed"]] = row
            with self.results.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            bad = sum(not one["ok"] for one in self.rows.values())
            print(f"[{len(self.rows)}/{self.total}] seed {row['seed']}: {verdict(row)}, {row['seconds']} s; {bad} failed", flush=True)


def verdict(row: dict[str, Any]) -> str:
    """Return one word or line for how a sequence went."""
    if row["ok"]:
        return "ok"
    told: list[str] = [f"step {one['step']}: {one['rule']}: {one['detail']}" for one in row["failures"]] + [row["broken"]]
    return "FAILED " + next(text for text in told if text)[:300]


def guest(work: Work, seeds: list[int], number: int) -> list[int]:
    """Run `seeds` in one guest; return those that it did not get to."""
    out = work.directory / f"guest{number}"
    command = [*_RUN, *work.guest, "--out", str(out), str(TOP / "tests/harm/run-drive"), *work.options,
               "--seeds", ",".join(map(str, seeds))]  # fmt: skip
    left = list(seeds)
    heard = [time.monotonic()]
    process = subprocess.Popen(
        command, cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP / "userspace")}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip

    def silent() -> None:
        while process.poll() is None:
            if time.monotonic() - heard[0] > _SILENCE_S:
                process.terminate()
            time.sleep(1)

    watch = threading.Thread(target=silent, daemon=True)
    watch.start()
    told: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        heard[0] = time.monotonic()
        if line.startswith("HARM "):
            row = json.loads(line[5:])
            left.remove(row["seed"])
            work.keep(row)
        else:
            told = [*told, line.rstrip()][-20:]
    process.wait()
    if left == seeds:
        # Not one came back: the first of them ended the guest, or nothing works here.
        seed = left.pop(0)
        row = {"seed": seed, "ok": False, "seconds": 0, "failures": [], "broken": "the guest ended: " + " / ".join(told[-6:])}
        work.keep(row)
    return left


def worker(work: Work, number: int) -> None:
    """Run guests until no seed is left."""
    while True:
        try:
            seeds = work.waiting.get_nowait()
        except queue.Empty:
            return
        while seeds:
            seeds = guest(work, seeds, number)


def replay(row: dict[str, Any], options: list[str]) -> str:
    """Return what to type to see a failing sequence again."""
    words = " ".join([*_RUN[4:], *_GUEST, "tests/harm/run-drive", *options, "--seeds", str(row["seed"])])
    shown = [f"seed {row['seed']}: {verdict(row)}", f"  PYTHONPATH=userspace python3 {words}"]
    if "host" in row:
        shown += [f"  host: {row['host']}", f"  sequence: {'; '.join(row['steps'])}"]
    return "\n".join(shown)


def merged(directory: Path, rows: dict[int, dict[str, Any]]) -> dict[str, int]:
    """Return the sums of sequences, kill points and boots."""
    sums = {"sequences": len(rows), "failed": sum(not row["ok"] for row in rows.values()),
            "kill_points": 0, "kill_failed": 0, "boots": 0, "boots_failed": 0}  # fmt: skip
    for name in ("kill.json", "boots.json"):
        path = directory / name
        if path.exists():
            sums |= {key: int(value) for key, value in json.loads(path.read_text()).items() if key in sums}
    return sums


def main() -> int:
    """Run what is missing and return 0 when no sequence failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=0, help="steps a sequence (default: 3 to 8)")
    parser.add_argument("--suite", default="trixie")
    parser.add_argument("--guests", type=int, default=2, help="guests at once")
    parser.add_argument("--fresh", action="store_true", help="run every seed again instead of only those without a result")
    parser.add_argument("--no-multipathd", action="store_true")
    parser.add_argument("--out", type=Path, default=TOP / "out/harm")
    args = parser.parse_args()
    options = ["--steps", str(args.steps)] * bool(args.steps) + ["--no-multipathd"] * args.no_multipathd
    args.out.mkdir(parents=True, exist_ok=True)
    work = Work(args.out.resolve(), [*_GUEST, "--suite", args.suite], options, total=args.sequences)
    wanted = list(range(args.seed, args.seed + args.sequences))
    if args.fresh:
        work.results.unlink(missing_ok=True)
    elif work.results.exists():
        known = (json.loads(line) for line in work.results.read_text().splitlines() if line.endswith("}"))
        work.rows = {row["seed"]: row for row in known if row["seed"] in wanted}
    left = [seed for seed in wanted if seed not in work.rows]
    per_guest = max(1, min(_PER_GUEST, -(-len(left) // args.guests)))
    for start in range(0, len(left), per_guest):
        work.waiting.put(left[start : start + per_guest])
    threads = [threading.Thread(target=worker, args=(work, number)) for number in range(args.guests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, row in sorted(work.rows.items()):
        if not row["ok"]:
            print(replay(row, options))
    sums = merged(work.directory, work.rows)
    (work.directory / "harm.json").write_text(json.dumps(sums, indent=2) + "\n")
    print(", ".join(f"{value} {key}" for key, value in sums.items()))
    return int(bool(sums["failed"] or sums["sequences"] < args.sequences))


if __name__ == "__main__":
    sys.exit(main())
