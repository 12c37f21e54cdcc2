#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a plan of 64 sessions, other verbs beside them and the start of the program cost, and their bars.

The host is a copied tree with 64 sessions and records; the commands run as users run them.  CPU time decides, since a
machine that does other work stretches the rest; on an idle one both are the same.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/unit"), str(TOP / "userspace")]

import hosttree  # noqa: E402

SESSIONS, REPETITIONS = 64, 9
BARS = (
    (("plan", "wan", "--rtt", "50ms", "--rate", "1gbit"), 0.5),
    (("plan", "wan-satellite", "--rtt", "300ms", "--rate", "1gbit", "--json"), 0.5),
    (("--version",), 0.15),
    (("show",), 0.5),
    (("lint",), 0.5),
    (("verify",), 0.5),
)


def seconds(words: tuple[str, ...], environment: dict[str, str]) -> tuple[float, float]:
    """Return CPU and wall seconds of one run of fabtune with its children."""
    before, started = os.times(), time.monotonic()
    command = ["/usr/bin/python3", "-m", "fabtune", *words]
    silent = subprocess.DEVNULL
    ended = subprocess.run(command, env=environment, stdout=silent, stderr=silent, check=False).returncode
    after = os.times()
    # 3: lint has found something.
    assert ended in (0, 3), f"{command}: exit {ended}"
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu_s, time.monotonic() - started


def main() -> int:
    """Measure, print, and return 1 when a bar is missed."""
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        root = hosttree.make(Path(name), SESSIONS, 1)
        environment = os.environ | {
            "FABTUNE_ROOT": str(root), "FABTUNE_STATE_DIR": str(root / "state"), "PYTHONPATH": str(TOP / "userspace"),
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        }  # fmt: skip
        # What is installed is compiled already; a checkout compiles in its first run, which is not counted.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        print(f"{'command':<56}{'CPU s':>8}{'wall s':>8}{'bar s':>8}")
        for words, bar_s in BARS:
            seconds(words, environment)
            runs = [seconds(words, environment) for _ in range(REPETITIONS)]
            cpu_s, wall_s = (statistics.median(column) for column in zip(*runs, strict=True))
            missed += cpu_s > bar_s
            print(f"{'fabtune ' + ' '.join(words):<56}{cpu_s:>8.3f}{wall_s:>8.3f}{bar_s:>8.2f}")
    print(f"{SESSIONS} sessions, medians of {REPETITIONS}, {missed} bars missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
