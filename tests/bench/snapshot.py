#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a reading of 1,000 disks takes, typed and as text: the kernel's part in instructions, the reader's here.

The readings come from a guest on the virtual clock, whose time counts instructions; they are taken for those of a CPU
of 2 GHz that retires one a cycle, which is slow today.  The guest has one CPU, and the kernel sums over CPUs: for two
its part is counted twice.  Prints both parts, writes snapshot.json, and fails when a bar is missed.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.stat import Snapshot, parse, parse_typed  # noqa: E402

BARS_S = {"typed": 0.025, "text": 0.1}
CPUS = 2
INSTRUCTIONS_PER_S = 2e9


def guest(out: Path) -> Path:
    """Run the guest part and return the directory of its results."""
    directory = out / "snapshot"
    subprocess.run(
        [sys.executable, "-m", "fabtune", "lab", "run", "--suite", "trixie", "--clock", "virtual",
         "--memory-mib", "3072", "--timeout-s", "1800", "--out", str(directory),
         str(TOP / "tests/bench/snapshot_guest.py")],
        cwd=TOP, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin", "PYTHONPATH": str(TOP / "userspace")},
        check=True, stdout=sys.stderr,
    )  # fmt: skip
    return directory


def parse_s(read: Callable[[], Snapshot]) -> tuple[float, int]:
    """Return the CPU seconds that a reading takes to `read` here, the best of 15, and how many disks it has."""
    costs, disks = [], 0
    for _ in range(15):
        started = time.process_time()
        snapshot = read()
        costs.append(time.process_time() - started)
        disks = sum(device.disk.startswith("sd") for device in snapshot.devices)
        # The next one's time is not to have the end of this one in it.
        del snapshot
    return min(costs), disks


def measured(name: str, size: int, instructions: int, read: Callable[[], Snapshot]) -> dict[str, float]:
    """Return, and print, what a reading of `size` bytes takes: the kernel's `instructions`, and to `read` it."""
    read_s = instructions / INSTRUCTIONS_PER_S
    parsing_s, disks = parse_s(read)
    took_s, bar_s = read_s + parsing_s, BARS_S[name]
    missed = disks != 1000 or took_s > bar_s
    print(
        f"{disks} disks, {name}, {size / 1e6:.2f} MB: kernel {instructions / 1e6:.0f} M instructions, "
        f"{read_s * 1e3:.1f} ms; parsing {parsing_s * 1e3:.1f} ms here; together {took_s * 1e3:.1f} ms, "
        f"bar {bar_s * 1e3:.0f} ms{' MISSED' if missed else ''}"
    )
    return {
        "disks": disks, "bytes": size, "read_instructions": instructions, "read_s": read_s, "parse_s": parsing_s,
        "snapshot_s": took_s, "bar_s": bar_s, "missed": missed,
    }  # fmt: skip


def main() -> int:
    """Measure, print, write; return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    directory = guest(out)
    counted = {key: CPUS * value for key, value in json.loads((directory / "read.json").read_text()).items()}
    typed, text = (directory / "stats.bin").read_bytes(), (directory / "stats").read_text()
    result = {
        "typed": measured("typed", len(typed), counted["typed_instructions"], lambda: parse_typed(typed)),
        "text": measured("text", len(text), counted["read_instructions"], lambda: parse(text)),
    }
    (out / "snapshot.json").write_text(json.dumps(result, indent=2) + "\n")
    return any(one["missed"] for one in result.values())


if __name__ == "__main__":
    sys.exit(main())
