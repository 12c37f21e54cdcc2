# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs numbered cases in guests, many to a guest, and keeps a line a case: a cut-off run goes on where it stopped.

A case's script in the guest prints one line of JSON a case, behind a word of its own, with at least "number" and "ok".
Lines of another tree, or of other options, do not count: each carries a digest of both.
"""

import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
RUN = ("setpriv", "--pdeathsig", "TERM", "/usr/bin/python3", "-m", "fabtune", "lab", "run")
GUEST = ("--clock", "real", "--accel", "uml", "--memory-mib", "1024", "--timeout-s", "7200")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TOP / "userspace")}
# A guest silent for this long hangs.
_SILENCE_S = 420.0
# So many guests in a row that bring nothing back are enough: what they were to run has no result then.
_IN_VAIN = 3
# What a result depends on.
_PLACES = ("userspace", "tunables", "profiles", "tests/harm", "tests/vm")

Row = dict[str, Any]


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)


def digest(words: Iterable[str]) -> str:
    """Return a short name for this tree's contents and the options `words`."""
    found = hashlib.sha256("\0".join(words).encode())
    for place in _PLACES:
        for directory, subdirectories, names in os.walk(TOP / place):
            subdirectories[:] = sorted(set(subdirectories) - {"__pycache__"})
            for path in (Path(directory, name) for name in sorted(names)):
                found.update(f"{path.relative_to(TOP)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


@dataclass
class Work:
    """Cases of one kind: the script that runs them, what is wanted, and the results so far."""

    results: Path
    guest: Sequence[str]
    script: Sequence[str]
    word: str
    wanted: Sequence[int]
    per_guest: int
    verdict: Callable[[Row], str]
    rows: dict[int, Row] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: "queue.SimpleQueue[list[int]]" = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self.tree = digest([*self.guest, *self.script])

    def run(self, guests: int) -> dict[int, Row]:
        """Run what has no result yet, in so many guests at once; return all results by number."""
        self._load()
        left = [number for number in self.wanted if number not in self.rows]
        if self.rows:
            say(f"{self.results.name}: {len(self.rows)} of {len(self.wanted)} are there already, of this very tree")
        per_guest = max(1, min(self.per_guest, -(-len(left) // guests)))
        for start in range(0, len(left), per_guest):
            self.waiting.put(left[start : start + per_guest])
        threads = [threading.Thread(target=self._worker, args=(number,)) for number in range(guests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.rows

    def _load(self) -> None:
        for line in self.results.read_text().splitlines() if self.results.exists() else []:
            try:
                row = json.loads(line)
            except ValueError:
                # The end of a run that was cut off.
                continue
            if row["tree"] == self.tree and row["number"] in self.wanted:
                self.rows[row["number"]] = row

    def _keep(self, row: Row) -> None:
        with self.lock:
            row["tree"] = self.tree
            self.rows[row["number"]] = row
            with self.results.open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            bad = sum(not one["ok"] for one in self.rows.values())
            told = f"{self.results.stem} {row['number']}: {self.verdict(row)}, {row['seconds']} s"
            say(f"[{len(self.rows)}/{len(self.wanted)}] {told}; {bad} failed")

    def _worker(self, place: int) -> None:
        while True:
            try:
                left = self.waiting.get_nowait()
            except queue.Empty:
                return
            in_vain = 0
            while left and in_vain < _IN_VAIN:
                left, came = self._guest(left, place)
                in_vain = 0 if came else in_vain + 1

    def _guest(self, numbers: list[int], place: int) -> tuple[list[int], bool]:
        """Run `numbers` in one guest; return those that it did not get to, and whether any came back."""
        command = [
            *RUN,
            *self.guest,
            "--out",
            str(self.results.parent / f"{self.results.stem}{place}"),
            *self.script,
            ",".join(map(str, numbers)),
        ]
        left, told, heard = list(numbers), [""], [time.monotonic()]
        process = subprocess.Popen(
            command, cwd=TOP, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip

        def watch() -> None:
            while process.poll() is None:
                if time.monotonic() - heard[0] > _SILENCE_S:
                    process.terminate()
                time.sleep(1)

        threading.Thread(target=watch, daemon=True).start()
        assert process.stdout is not None
        for line in process.stdout:
            heard[0] = time.monotonic()
            if line.startswith(f"{self.word} "):
                row = json.loads(line[len(self.word) :])
                left.remove(row["number"])
                self._keep(row)
            else:
                told = [*told, line.rstrip()][-6:]
        process.wait()
        came = left != numbers
        if not came:
            # The first of them ended the guest, or nothing works here.
            self._keep(
                {"number": left.pop(0), "ok": False, "seconds": 0, "broken": "the guest ended: " + " / ".join(told)}
            )
        return left, came
