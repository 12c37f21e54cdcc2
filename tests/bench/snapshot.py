#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a reading of 1,000 disks takes: the kernel's part in instructions, and parsing its text on this machine.

The text comes from a guest on the virtual clock, whose time counts instructions; they are taken for those of a CPU of
2 GHz that retires one a cycle, which is slow today.  The guest has one CPU, and the kernel sums over CPUs: for two its
part is counted twice.  Prints both parts, writes snapshot.json, and fails when the bar is missed.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.stat import load  # noqa: E402

BAR_S = 0.1
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


def parse_s(path: Path) -> tuple[float, int]:
    """Return the CPU seconds that reading `path` back takes here, the best of seven, and how many disks it has."""
    costs = []
    for _ in range(7):
        started = time.process_time()
        snapshot = load(path)
        costs.append(time.process_time() - started)
    return min(costs), sum(device.disk.startswith("sd") for device in snapshot.devices)


def main() -> int:
    """Measure, print, write; return 1 when the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/bench")
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    directory = guest(out)
    instructions = CPUS * json.loads((directory / "read.json").read_text())["read_instructions"]
    read_s = instructions / INSTRUCTIONS_PER_S
    parsing_s, disks = parse_s(directory / "stats.txt")
    result = {
        "disks": disks, "text_bytes": (directory / "stats.txt").stat().st_size, "read_instructions": instructions,
        "read_s": read_s, "parse_s": parsing_s, "snapshot_s": read_s + parsing_s, "bar_s": BAR_S,
    }  # fmt: skip
    (out / "snapshot.json").write_text(json.dumps(result, indent=2) + "\n")
    missed = disks != 1000 or read_s + parsing_s > BAR_S
    print(
        f"{disks} disks, {result['text_bytes'] / 1e6:.2f} MB: kernel {instructions / 1e6:.0f} M instructions, "
        f"{read_s * 1e3:.1f} ms; parsing {parsing_s * 1e3:.1f} ms here; together {(read_s + parsing_s) * 1e3:.1f} ms, "
        f"bar {BAR_S * 1e3:.0f} ms{' MISSED' if missed else ''}"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
