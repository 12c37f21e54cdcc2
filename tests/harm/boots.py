#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots hosts again and again, with an administrator's own files on them, and fabtune's between them.

    boots.py 20 --seed 1        seeds 1 to 20, a pair of boots each, on each suite in turn
    boots.py 1 --seed 17        one seed again

A pair is the boot after `fabtune apply --persist` of a random profile, or after a power cut within it, and the boot
after `fabtune revert`.  Each checks names, MTUs, sysctls, sessions, queues and /etc.  Prints a line a pair, with what
is wrong, and writes {"boots": PAIRS, "boots_failed": M, ...} to boots.json.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
SUITES = ("trixie", "bookworm")
TIMEOUT_S = 600
# Every third pair; the cut comes at a random moment of the writes.
CUT_EVERY, CUT_WITHIN_S = 3, 2.5
CUT_MARK = "applying"
# What does not belong to the test and would cost each boot time, or tune the host itself.
_MASKED = (
    "getty.target", "tuned.service", "bpftune.service", "chrony.service", "ssh.service", "multipathd.service",
    "multipathd.socket", "e2scrub_reap.service", "nvmf-autoconnect.service",
)  # fmt: skip
# The transports are never opened: the NICs are there to be named and set up.
_NICS = tuple(f"vec{n}:transport=tap,ifname=none{n},mac=52:54:00:00:00:0{n + 1}" for n in range(2))


@dataclass
class Tally:
    """What all suites' pairs came to."""

    out: Path
    pairs: int = 0
    cuts: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, suite: str, seed: int, wrong: str, seconds: float) -> None:
        """Count one pair and print how it went; `wrong` is what is wrong, '' for nothing."""
        with self.lock:
            self.pairs += 1
            verdict = f"{'FAILED' if wrong else 'ok'}, {seconds:.0f} s"
            print(f"{suite}, seed {seed}{', power cut' * is_cut(seed)}: {verdict}", flush=True)
            self.cuts += is_cut(seed)
            if wrong:
                lines = wrong.strip().splitlines()[-40:]
                self.failures.append({"suite": suite, "seed": str(seed), "why": "\n".join(lines)})
                print("\n".join(f"    {line}" for line in lines), flush=True)


def is_cut(seed: int) -> bool:
    """Tell whether the power fails within the apply of this pair."""
    return seed % CUT_EVERY == 0


def boot(suite: str, state: Path, out: Path, *step: str, cut_after_s: float | None = None) -> tuple[bool, str]:
    """Boot the host for one step; return whether all was as it should be, and what it printed.

    With `cut_after_s` its power is cut so long after apply began.
    """
    out.mkdir(parents=True, exist_ok=True)
    words = [*(f"systemd.mask={unit}" for unit in _MASKED), *_NICS]
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "/usr/bin/python3", "-m", "fabtune", "lab", "run", "--clock", "real",
         "--accel", "uml", "--suite", suite, "--memory-mib", "1024", "--append", " ".join(words),
         "--state", str(state), "--timeout-s", str(TIMEOUT_S), "--out", str(out),
         str(TOP / "tests/harm/boots_guest.py"), *step],
        env={**os.environ, "PYTHONPATH": str(TOP / "userspace")}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if cut_after_s is not None and line.strip() == CUT_MARK:
            time.sleep(cut_after_s)
            # The guest dies with it, and what its kernel had not written yet is lost.
            process.kill()
    status = process.wait()
    with (out / "steps.log").open("a") as log:
        log.write(f"--- {' '.join(step)}: {status}\n{''.join(lines)}")
    return (status == 0 if cut_after_s is None else CUT_MARK in map(str.strip, lines)), "".join(lines)


def copy(state: Path, target: Path) -> Path:
    """Copy a host's state, holes as holes."""
    subprocess.run(["cp", "--sparse=always", state, target], check=True)
    return target


def pair(suite: str, seed: int, base: Path, out: Path) -> str:
    """Make one pair of boots on a copy of the host `base`; return what is wrong, '' for nothing."""
    cut_after_s = random.Random(seed).uniform(0, CUT_WITHIN_S) if is_cut(seed) else None
    with tempfile.TemporaryDirectory(prefix="pair-", dir=base.parent) as name:
        state = copy(base, Path(name) / "state")
        for step in ("apply", "revert-after-cut" if is_cut(seed) else "revert", "check"):
            well, text = boot(suite, state, out, step, str(seed), cut_after_s=cut_after_s if step == "apply" else None)
            if not well:
                return f"{step}:\n{text}"
    return ""


def lane(suite: str, seeds: list[int], directory: Path, tally: Tally) -> None:
    """Set one host up and boot it for all of `seeds`."""
    base = directory / f"{suite}.state"
    broken = ""
    for step in ("setup", "record"):
        well, text = (False, "") if broken else boot(suite, base, tally.out / f"boots-{suite}", step, "0")
        broken = broken or ("" if well else f"the host cannot be made ({step})\n{text}")
    for seed in seeds:
        started = time.monotonic()
        wrong = broken or pair(suite, seed, base, tally.out / f"boots-{suite}-{seed}")
        tally.tell(suite, seed, wrong, time.monotonic() - started)


def main() -> int:
    """Make COUNT pairs and return 0 when each boot was as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=20, help="pairs of boots (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="the first pair's")
    parser.add_argument("--suite", choices=SUITES, help="only this one (default: each in turn)")
    parser.add_argument("--out", type=Path, default=TOP / "out/harm")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tally = Tally(args.out.resolve())
    suites = [args.suite] if args.suite else list(SUITES)
    seeds = range(args.seed, args.seed + args.count)
    with tempfile.TemporaryDirectory(prefix="fabtune-boots-") as name, ThreadPoolExecutor(len(suites)) as pool:
        lanes = [
            pool.submit(lane, suite, mine, Path(name), tally)
            for place, suite in enumerate(suites)
            # Two neighbours go to one suite, so that each gets pairs with a cut.
            if (mine := [seed for seed in seeds if seed // 2 % len(suites) == place])
        ]
        for one in lanes:
            one.result()
    sums = {
        "boots": tally.pairs, "boots_failed": len(tally.failures), "power_cuts": tally.cuts, "seed": args.seed,
        "failures": tally.failures,
    }  # fmt: skip
    (args.out / "boots.json").write_text(json.dumps(sums, indent=1) + "\n")
    print(f"{tally.pairs} pairs of boots, {tally.cuts} with a power cut, {len(tally.failures)} failed")
    return 1 if tally.failures or tally.pairs < args.count else 0


if __name__ == "__main__":
    sys.exit(main())
