#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots one guest after the other on the same disk, each reset in the middle of an apply or a revert.

    reset_cases.py COUNT DIRECTORY

Prints what each boot found and a sum; exit 1 when a value did not come back, or too few resets hit anything.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DISK_BYTES = 256 << 20


def boot(case: int, last: int, disk: Path, out: Path) -> str:
    """Boot once; return what the guest said.  Ends the program when it died otherwise than by its own reset."""
    # On the real clock: the virtual one's recording mode does not take a disk.
    command = [
        "/usr/bin/python3", "-m", "fabtune", "lab", "run", "--clock", "real", "--timeout-s", "900",
        "--out", str(out / f"boot-{case}"),
        "--device", f"-drive file={disk},format=raw,if=none,id=keep,cache=writeback",
        "--device", "-device virtio-blk-pci,drive=keep",
        str(TOP / "tests/lab-full/reset_guest.py"), str(case), str(last),
    ]  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(TOP / "userspace")}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    meant = case < last and f"case {case + 1}: reset " in done.stdout and "without handing over" in done.stderr
    if done.returncode != 0 and not meant:
        sys.exit(f"boot {case}: exit {done.returncode}: {done.stdout[-3000:]} {done.stderr[-3000:]}")
    return done.stdout


def main() -> int:
    """Run all boots and print how many values did not come back."""
    count, directory = int(sys.argv[1]), Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    disk = directory / "keep.img"
    with disk.open("wb") as stream:
        stream.truncate(DISK_BYTES)
    said = []
    for case in range(count + 1):
        text = boot(case, count, disk, directory)
        print(text, end="", flush=True)
        said.append(text)
    everything = "".join(said)
    back = len(re.findall(r"^case \d+: .*all as before$", everything, re.MULTILINE))
    hit = len(re.findall(r"^case \d+: (?:interrupted|in force) with [1-9]\d* values", everything, re.MULTILINE))
    print(f"{count} resets, {hit} with values written, {count + 1 - back} failed")
    return int(back != count + 1 or 3 * hit < count)


if __name__ == "__main__":
    sys.exit(main())
