#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs fuzzed profiles, journals, facts, records and host texts behind a guard and writes fuzz.json.

    tests/fuzz/fuzz.py --cases 1000000 --out out/fuzz         every failure's first cases land in out/fuzz/failures/
    tests/fuzz/fuzz.py --replay out/fuzz/failures/FILE.json   runs one of them again

A case is drawn from its kind, the seed and its number, so the same seed gives the same cases.
"""

import argparse
import json
import mmap
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from guard import COMMAND  # noqa: E402

# Of 100 cases; in the order of worker.kinds.
SHARES = {
    "profile": 22, "tunables": 10, "formula": 11, "journal": 20, "plan": 15, "facts": 12, "record": 6, "ip and tc": 2,
    "host text": 2,
}  # fmt: skip
# Of CPU time: a busy machine is no hang.  Waiting for what never comes takes none, so there is a limit to that too;
# a process that could run and does not get to is not counted as waiting.
HANG_S = 2.0
WAIT_S = 20.0
_LOOK_S = 0.25
_KEPT_PER_PLACE = 3
# Kind, number, and the CPU time at which the case began.
_PROGRESS = struct.Struct("=qqd")


@dataclass
class Tally:
    """What all workers found so far."""

    out: Path
    seed: int
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    places: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, line: dict[str, Any]) -> None:
        """Add one worker's counts of one kind."""
        with self.lock:
            kind = self.kinds.setdefault(
                line["kind"], {"cases": 0, "accepted": 0, "failed": 0, "slowest_ms": 0.0, "cpu_s": 0.0}
            )
            for name in ("cases", "accepted", "failed", "cpu_s"):
                kind[name] += line[name]
            kind["slowest_ms"] = max(kind["slowest_ms"], line["slowest_ms"])

    def failure(self, line: dict[str, Any]) -> None:
        """Keep one failure: the first few of each place as replay files."""
        with self.lock:
            place = f"{line['failure']['kind']}: {line['place']}"
            self.places[place] += 1
            self.examples.setdefault(place, line["happened"].strip().splitlines()[-1][:300])
            if self.places[place] > _KEPT_PER_PLACE:
                return
            directory = self.out / "failures"
            directory.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^a-zA-Z0-9.]+", "-", place).strip("-")[:80]
            text = json.dumps(line["failure"] | {"happened": line["happened"]}, indent=1)
            (directory / f"{name}-{line['failure']['number']}.json").write_text(text + "\n")


@dataclass
class Worker:
    """One process behind the guard, with its order and its progress."""

    order: dict[str, Any]

    def __post_init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="fabtune-fuzz-")
        fd = os.memfd_create("progress")
        os.ftruncate(fd, _PROGRESS.size)
        self.progress = mmap.mmap(fd, _PROGRESS.size)
        self.progress[:] = _PROGRESS.pack(0, -1, 0.0)
        self.process = subprocess.Popen(
            [*COMMAND, sys.executable, str(HERE / "worker.py"), str(fd)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=(fd,),
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        os.close(fd)
        assert self.process.stdin
        self.process.stdin.write(json.dumps(self.order | {"scratch": self.directory.name}) + "\n")
        self.process.stdin.close()
        self.errors, self.stopped = "", False
        self._drain = threading.Thread(target=self._read_errors)
        self._drain.start()

    def _read_errors(self) -> None:
        assert self.process.stderr
        self.errors = self.process.stderr.read()[-4000:]

    def running(self) -> tuple[int, int]:
        """Return kind and number of the case under way; number -1 for none."""
        kind, number, _ = _PROGRESS.unpack_from(self.progress)
        return kind, number

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.stopped = True
        self.process.kill()

    def used_s(self) -> float:
        """Return the CPU time of the case under way, 0 where there is none."""
        _, number, begin_s = _PROGRESS.unpack_from(self.progress)
        try:
            # clock_getcpuclockid(3): the CPU time of another process.
            return float(time.clock_gettime((~self.process.pid << 3) | 2) - begin_s) if number >= 0 else 0.0
        except OSError:
            return 0.0

    def waits(self) -> bool:
        """Tell whether a case is under way and could not go on if it had a CPU."""
        try:
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return self.running()[1] >= 0 and state != "R"

    def end(self) -> int:
        """Wait for the process and return its status."""
        status = self.process.wait()
        self._drain.join()
        self.directory.cleanup()
        return status


def run_alone(replay: dict[str, Any]) -> dict[str, Any]:
    """Run one case in a worker of its own; return its last line, or what became of the worker."""
    worker = Worker({"replay": replay})
    stop = threading.Event()
    watchdog = threading.Thread(target=_watch, args=(worker, stop))
    watchdog.start()
    assert worker.process.stdout
    result: dict[str, Any] = {}
    for line in worker.process.stdout:
        result |= json.loads(line)
    stop.set()
    watchdog.join()
    status = worker.end()
    if not result.get("done"):
        place = "hang" if worker.stopped else f"death, status {status}"
        result |= {"place": place, "happened": f"{place}: {worker.errors or 'no word'}"}
    return result


def attend(order: dict[str, Any], tally: Tally, names: list[str]) -> None:
    """Run one worker's share; a case that hangs or kills the worker is looked at alone, and the rest goes on."""
    while True:
        worker = Worker(order)
        stop = threading.Event()
        watchdog = threading.Thread(target=_watch, args=(worker, stop))
        watchdog.start()
        done = False
        assert worker.process.stdout
        for text in worker.process.stdout:
            line = json.loads(text)
            if "failure" in line:
                tally.failure(line)
            elif "kind" in line:
                tally.count(line)
            done = done or "done" in line
        stop.set()
        watchdog.join()
        kind, number = worker.running()
        worker.end()
        if done:
            return
        if number < 0:
            tally.broken.append(f"a worker did not start: {worker.errors}")
            return
        _judge_alone(names, kind, number, order, tally)
        order = order | {"from": [kind, number + order["workers"]]}


def _judge_alone(names: list[str], kind: int, number: int, order: dict[str, Any], tally: Tally) -> None:
    """Run the case at which a worker ended by itself, and count it."""
    result = run_alone({"kind": names[kind], "seed": order["seed"], "number": number})
    failed = bool(result["happened"])
    if failed:
        failure = result.get("failure", {"kind": names[kind], "seed": order["seed"], "number": number})
        tally.failure({"failure": failure, "place": result["place"], "happened": result["happened"]})
    # Its worker's counts of this kind went with it.
    first = order["from"][1] if order["from"][0] == kind else order["worker"]
    cases = len(range(first, number, order["workers"])) + 1
    tally.count(
        {"kind": names[kind], "cases": cases, "accepted": 0, "failed": int(failed), "slowest_ms": 0.0, "cpu_s": 0.0}
    )


def _watch(worker: Worker, stop: threading.Event) -> None:
    """Kill `worker` when one case takes too long.  Seen twice: what is read while it is being written is nothing."""
    seen, waited = b"", 0
    while not stop.wait(_LOOK_S):
        now = worker.progress[:]
        waited = waited + 1 if now == seen and worker.waits() else 0
        if now == seen and (worker.used_s() > HANG_S or waited * _LOOK_S > WAIT_S):
            worker.stop()
            return
        seen = now


def fuzz(cases: int, seed: int, out: Path, workers: int) -> dict[str, Any]:
    """Run `cases` cases and return what fuzz.json says."""
    started = time.monotonic()
    names = list(SHARES)
    counts = {name: max(1, cases * share // 100) for name, share in SHARES.items()}
    counts[names[0]] += cases - sum(counts.values())
    tally = Tally(out, seed)
    orders = [
        {"seed": seed, "kinds": counts, "worker": number, "workers": workers, "from": [0, number]}
        for number in range(workers)
    ]
    threads = [threading.Thread(target=attend, args=(order, tally, names)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if tally.broken:
        raise SystemExit("\n".join(tally.broken))
    return {
        "cases": sum(kind["cases"] for kind in tally.kinds.values()),
        "failed": sum(tally.places.values()),
        "seed": seed,
        "kinds": tally.kinds,
        "places": dict(tally.places.most_common()),
        "examples": tally.examples,
        "took_s": round(time.monotonic() - started, 1),
    }


def main() -> int:
    """Parse the command line, run, write and show the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "out/fuzz")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run the case of one failure again")
    args = parser.parse_args()
    if args.replay:
        result = run_alone(json.loads(args.replay.read_text()))
        print(result["happened"] or f"holds; took {result['took_s']:.3f} s")
        return int(bool(result["happened"]))
    result = fuzz(args.cases, args.seed, args.out, args.workers)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "fuzz.json").write_text(json.dumps(result, indent=2) + "\n")
    for name, kind in result["kinds"].items():
        print(
            f"{name}: {kind['cases']} cases, {kind['accepted']} accepted, {kind['failed']} failed, "
            f"{kind['cpu_s'] / max(1, kind['cases']) * 1e3:.2f} ms a case, slowest {kind['slowest_ms']} ms"
        )
    for place, count in result["places"].items():
        print(f"FAILED {count} x {place}: {result['examples'][place]}")
    print(f"{result['cases']} cases, {result['failed']} failed, {result['took_s']} s: {args.out / 'fuzz.json'}")
    return int(result["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
