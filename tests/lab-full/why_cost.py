# SPDX-License-Identifier: GPL-2.0-or-later
"""In a guest with one tuned session: what a look takes of its throughput and of a CPU, and when it has an answer."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

(DISK,) = (path.name for path in Path("/sys/class/iscsi_session").glob("session*/device/target*/*/block/*"))
STAT = Path("/sys/block", DISK, "stat")
WAYS: dict[str, list[str]] = {"the initiator alone": [], "both ends": ["--target-netns", "target"]}


def moved_bytes() -> int:
    """Return what the disk has read."""
    return 512 * int(STAT.read_text().split()[2])


def spent_s() -> float:
    """Return the CPU time of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def asked(seconds: int, more: list[str]) -> tuple[float, float, float]:
    """Return s from the command to its end, s of CPU, and bytes/s of the load meanwhile."""
    begun, cpu, moved = time.monotonic(), spent_s(), moved_bytes()
    words = ["/usr/bin/python3", "-m", "fabtune", "why", DISK, "--for", f"{seconds}s", "--json", *more]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    took = time.monotonic() - begun
    assert json.loads(said)["devices"][0]["ways"][0]["shares"][0]["limiter"] == "line"
    return took, spent_s() - cpu, (moved_bytes() - moved) / took


def main() -> int:
    """Compare."""
    load = subprocess.Popen(
        ["fio", "--name=x", f"--filename=/dev/{DISK}", "--direct=1", "--ioengine=libaio", "--rw=randread", "--bs=256k",
         "--iodepth=32", "--size=900m", "--time_based", "--runtime=3600"], stdout=subprocess.DEVNULL,
    )  # fmt: skip
    missed = False
    try:
        time.sleep(4)
        for name, more in WAYS.items():
            begun, moved = time.monotonic(), moved_bytes()
            time.sleep(12)
            alone = (moved_bytes() - moved) / (time.monotonic() - begun)
            short, long = asked(1, more), asked(10, more)
            share, cpu = 1 - long[2] / alone, (long[1] - short[1]) / 9
            print(f"{name}: answered after {long[0]:.2f} s, {share:.2%} of {alone / 1e6:.2f} MB/s, {cpu:.2%} of a CPU "
                  f"while it looks, {long[1]:.2f} s of CPU in all")  # fmt: skip
            missed |= long[0] > 12 or share > 0.01 or cpu > 0.01
    finally:
        load.terminate()
    print("a bar is missed" if missed else "bars held")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
