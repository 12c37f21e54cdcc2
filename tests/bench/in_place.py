#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What `apply --reconnect` brings a mounted, busy session beside a re-login, for how long it pauses, and under faults.

Writes in-place.json: {"cases": [...], "faults": N, "faults_lost": N}, each outcome as it comes, and goes on where an
earlier run of the same code was stopped; fails when a bar is missed.
"""

import argparse
import hashlib
import itertools
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(Path(__file__).parent)]

from lab_run import lab_started  # noqa: E402

from fabtune.experiment.present import code_digest, look_anew  # noqa: E402

RTTS_MS = (0, 10, 37, 50, 100)
OPERATIONS = ("read", "write")
# Of what a re-login gives, how long a request may wait, and how much longer than the plan foretells.
SHARE, PAUSE_S, FORETOLD_BY_S = 0.97, 2.0, 0.3
# A guest boots, and retunes once to which nothing happens, before the first of them.
FAULTS_A_GUEST = 20
FILE_SYSTEMS = ("ext4", "xfs")
_GUEST = (
    "in-place.guest", "in_place_guest.py", "in_place_host.py", "in_place_faults.py", "in_place_truth.py",
    "in_place_says.py", "guest_words.py", "../vm/fsync_writer.py",
)  # fmt: skip
NEVER_ENDED = "begun, and its end never told"


def code() -> str:
    """Return the digest of what measures, as it is now: fabtune, and the guest's part of this."""
    look_anew()
    parts = [code_digest(), *((Path(__file__).parent / name).read_text() for name in _GUEST)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Kept:
    """in-place.json: what was measured by this suite and code, and each outcome as soon as it is told."""

    def __init__(self, file: Path, suite: str, digest: str) -> None:
        self._file, self._code, self._lock = file, digest, threading.Lock()
        before = json.loads(file.read_text()) if file.exists() else {}
        # What the last run left unsaid, in words; '' where all of it is still so.
        self.stale = ""
        if before and (before.get("suite"), before.get("code")) != (suite, digest):
            counts = f"{len(before.get('cases', []))} cases and {len(before.get('each_fault', []))} faults"
            self.stale = f"{counts} in {file} are of another suite or other code and are measured again"
            before = {}
        self.found: dict[str, Any] = {
            "suite": suite, "code": digest, "cases": [], "faults": 0, "faults_lost": 0, "faults_missed": 0,
            "each_fault": [], "each_missed": [], **before,
        }  # fmt: skip
        # How many faults the guests that run now are to bring.
        self._promised = 0
        self._running: list[subprocess.Popen[str]] = []
        self.stopped = False

    def take(self, kind: str, told: dict[str, Any]) -> None:
        """Keep what a guest tells: a CASE, a fault that has BEGUN, its end as a FAULT, or that it MISSED."""
        with self._lock:
            if kind == "CASE":
                self.found["cases"].append(told)
            elif kind == "BEGUN":
                # Lost until its end is told, whatever becomes of the guest.
                self.found["each_fault"].append({**told, "ended": False, "lost": True, "why": [NEVER_ENDED]})
            else:
                self._without_begun(told)
                self.found["each_missed" if kind == "MISSED" else "each_fault"].append({**told, "ended": True})
            self._write()

    def _without_begun(self, told: dict[str, Any]) -> None:
        place = told["seed"], told["number"]
        self.found["each_fault"] = [
            one for one in self.found["each_fault"] if one["ended"] or (one["seed"], one["number"]) != place
        ]

    def drop_begun(self) -> None:
        """Forget the faults that have not ended: this run is interrupted, not they."""
        with self._lock:
            self.found["each_fault"] = [one for one in self.found["each_fault"] if one["ended"]]
            self._write()

    def _write(self) -> None:
        self.found["faults"] = len(self.found["each_fault"])
        self.found["faults_lost"] = sum(one["lost"] for one in self.found["each_fault"])
        self.found["faults_missed"] = len(self.found["each_missed"])
        draft = self._file.with_suffix(".new")
        draft.write_text(json.dumps(self.found, indent=1) + "\n")
        draft.replace(self._file)

    def claim(self, wanted: int) -> tuple[int, int]:
        """Return how many faults another guest is to bring, 0 for none, and a seed that none has had."""
        with self._lock:
            count = 0 if self.stopped else min(FAULTS_A_GUEST, wanted - len(self.found["each_fault"]) - self._promised)
            used = {one["seed"] for one in (*self.found["each_fault"], *self.found["each_missed"])}
            used |= set(self.found.setdefault("seeds", []))
            seed = next(one for one in itertools.count(1) if one not in used)
            if count > 0:
                self.found["seeds"].append(seed)
                self._promised += count
            return max(count, 0), seed

    def watch(self, guest: "subprocess.Popen[str]") -> None:
        """End `guest` when all is stopped."""
        with self._lock:
            self._running.append(guest)
            if self.stopped:
                guest.terminate()

    def stop(self) -> None:
        """End the guests that run, and start none."""
        with self._lock:
            self.stopped = True
            for guest in self._running:
                guest.terminate()

    def settle(self, count: int) -> None:
        """A guest that was to bring so many has ended."""
        with self._lock:
            self._promised -= count


def listen(kept: Kept, suite: str, seed: int, *words: str) -> int:
    """Run one guest, keep what it tells as it comes, and return how many cases and faults that were."""
    count, said = 0, []
    with lab_started("in-place.guest", *words, seed=seed, suite=suite) as guest:
        assert guest.stdout is not None
        kept.watch(guest)
        for line in guest.stdout:
            kind, _, content = line.partition(" ")
            said.append(line)
            if kind in ("CASE", "BEGUN", "FAULT", "MISSED"):
                kept.take(kind, json.loads(content))
                count += kind in ("CASE", "FAULT")
                print(line, end="", flush=True)
    if guest.returncode:
        print(f"{' '.join(words)}: exit {guest.returncode}: {''.join(said)[-1000:]}", flush=True)
    return count


def measure_faults(kept: Kept, suite: str, wanted: int) -> int:
    """Run one guest after the other until `wanted` faults have struck; return how many this brought.

    Raises SystemExit for a guest that brings none.
    """
    brought = 0
    while True:
        count, seed = kept.claim(wanted)
        if not count:
            return brought
        before = kept.found["faults"]
        try:
            told = listen(kept, suite, seed, "faults", str(count), str(seed))
        finally:
            kept.settle(count)
        if not told and kept.found["faults"] == before and not kept.stopped:
            raise SystemExit(f"the guest of seed {seed} brought no fault")
        brought += told


def missed(
    found: dict[str, Any],
    rtts_ms: Sequence[int] = RTTS_MS,
    filesystems: Sequence[str] = FILE_SYSTEMS,
    faults: int = 100,
) -> list[str]:
    """Return a sentence for each bar that `found` misses, or has nothing to say of."""
    told = []
    cases = {(one["rtt_ms"], one["filesystem"], one["op"]): one for one in found["cases"]}
    for key in itertools.product(rtts_ms, filesystems, OPERATIONS):
        name = f"{key[2]} at {key[0]:g} ms on {key[1]}"
        if (case := cases.get(key)) is None:
            told.append(f"{name}: not measured")
            continue
        if case["of_relogin"] < SHARE:
            told.append(f"{name}: {case['of_relogin']:.3f} of a re-login's, {SHARE} demanded")
        if case["pause_s"] > PAUSE_S:
            told.append(f"{name}: paused {case['pause_s']} s, {PAUSE_S} allowed")
        if case["pause_s"] > case["foretold_pause_s"] + FORETOLD_BY_S:
            told.append(f"{name}: paused {case['pause_s']} s, the plan says {case['foretold_pause_s']}")
        if case["errors"] or case["bytes_wrong"]:
            told.append(f"{name}: {case['errors']} errors, {case['bytes_wrong']} bytes wrong")
        if not case["records_read"] or not case["reconnected"]:
            told.append(f"{name}: {case['records_read']} records read back, {case['reconnected']} sessions reconnected")
    told += [f"fault {one['seed']}/{one['number']} ({one['fault']}): {'; '.join(one['why'])}"
             for one in found["each_fault"] if one["lost"]]  # fmt: skip
    if found["faults_lost"]:
        told.append(f"{found['faults_lost']} of {found['faults']} faults lost something")
    if found["faults"] < faults:
        told.append(f"{found['faults']} faults, {faults} demanded")
    return told


def summary(each_fault: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line a kind of fault: how many struck, at which of apply's steps, how apply ended, what proves it."""
    told = []
    for kind, group in itertools.groupby(sorted(each_fault, key=_kind), key=_kind):
        some = list(group)
        steps, ends = (Counter(one.get(key) for one in some) for key in ("step", "status"))
        words = [f"{kind}: {len(some)}, {sum(one['lost'] for one in some)} lost"]
        words += [f"at {', '.join(f'{step} {count}' for step, count in steps.most_common())}"]
        words += [f"apply ended with {', '.join(f'{status} ({count})' for status, count in ends.most_common())}"]
        for proof in ("unanswered", "digest_errors"):
            if counts := [one[proof] for one in some if proof in one]:
                words.append(f"{proof.replace('_', ' ')} in {sum(map(bool, counts))} of {len(counts)}")
        told.append("; ".join(words))
    return told


def _kind(fault: dict[str, Any]) -> str:
    return str(fault["fault"])


def main() -> int:
    """Measure, write the result, and tell which bars are missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    parser.add_argument("--suite", default="trixie", help="which Debian's kernel and open-iscsi")
    parser.add_argument("--faults", type=int, default=100, help="how many retunes something happens to")
    parser.add_argument("--jobs", type=int, default=1, help="guests at a time")
    parser.add_argument("--rtts-ms", type=int, nargs="*", default=RTTS_MS)
    parser.add_argument("--filesystems", nargs="*", default=FILE_SYSTEMS, choices=FILE_SYSTEMS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    # Whoever ends this run keeps what has ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kept = Kept(asked.out / "in-place.json", asked.suite, code())
    if kept.stale:
        print(kept.stale, flush=True)
    measured = {(one["rtt_ms"], one["filesystem"]) for one in kept.found["cases"]}
    with ThreadPoolExecutor(asked.jobs) as guests:
        runs = [
            guests.submit(listen, kept, asked.suite, 1, "cases", str(rtt_ms), filesystem)
            for filesystem, rtt_ms in itertools.product(asked.filesystems, asked.rtts_ms)
            if (rtt_ms, filesystem) not in measured
        ]
        runs += [guests.submit(measure_faults, kept, asked.suite, asked.faults) for _ in range(asked.jobs)]
        try:
            for run in runs:
                run.result()
        except KeyboardInterrupt:
            kept.stop()
            guests.shutdown(wait=True, cancel_futures=True)
            kept.drop_begun()
            print("interrupted; what has ended is kept, and the next run goes on from there")
            return 130
    if code() != kept.found["code"]:
        print("the code was changed meanwhile: the next run measures all of this again", flush=True)
    print("\n".join(summary(kept.found["each_fault"])), flush=True)
    told = missed(kept.found, asked.rtts_ms, asked.filesystems, asked.faults)
    print("\n".join(told) or f"{len(kept.found['cases'])} cases, {kept.found['faults']} faults, all bars held")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
