# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs random sequences on random hosts inside this guest: one JSON line a seed on stdout.

    drive.py --seeds 1,2,7-20 [--steps N] [--no-multipathd]
    drive.py --seeds 17 --drop 0,3                       the sequence of seed 17 without two of its steps
    drive.py --host '{"family":6}' --sequence 'apply wan --rtt 20ms --rate 1gbit; reboot; verify'

Ends with 75 when something of a host stayed behind: the remaining seeds need a fresh guest.
"""

import argparse
import json
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "userspace"))

import command  # noqa: E402
import draw  # noqa: E402
import machine  # noqa: E402
import readers  # noqa: E402
from sequence import Sequence  # noqa: E402
from shell import HostError, run  # noqa: E402

LEAK = 75
_RULES_OF_LEAKS = ("sysctl ", "link ", "qdisc ", "route ", "rule ", "record ", "lio ", "file ", "session ", "disk ")


def main() -> int:
    """Run the seeds asked for; 0 when all went well, 1 when a rule was broken, 75 when a fresh guest is needed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="", help="such as 1,2,7-20")
    parser.add_argument("--steps", type=int, default=0, help="steps a sequence (default: 3 to 8, drawn)")
    parser.add_argument("--drop", default="", help="numbers of steps to leave out, such as 0,3")
    parser.add_argument("--host", default="", help="JSON of a host, in place of the drawn one")
    parser.add_argument("--sequence", default="", help="steps, joined by semicolons, in place of the drawn ones")
    parser.add_argument("--no-multipathd", action="store_true", help="draw no host with multipathd")
    args = parser.parse_args()
    os.chdir("/")
    machine.prepare_guest()
    command.preload()
    empty = readers.snapshot()
    worst = 0
    for seed in seeds_of(args.seeds or "0"):
        host = draw.parse_host(args.host) if args.host else draw.host(seed, not args.no_multipathd)
        steps = [one.strip() for one in args.sequence.split(";")] if args.sequence else draw.steps(seed, args.steps)
        dropped = {int(number) for number in args.drop.split(",") if number}
        steps = [step for number, step in enumerate(steps) if number not in dropped]
        row = one_sequence(seed, host, steps)
        started = time.monotonic()
        row["leak"] = leak = clean(empty)
        row["clean_s"] = round(time.monotonic() - started, 2)
        print("HARM " + json.dumps(row), flush=True)
        worst = max(worst, int(bool(row["failures"])))
        if leak:
            return LEAK
    return worst


def seeds_of(text: str) -> list[int]:
    """Return the numbers that "1,2,7-20" lists."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


_current: list[machine.Machine] = []


def one_sequence(seed: int, host: draw.Host, steps: list[str]) -> dict[str, object]:
    """Build the host, run the steps; return the line of the results."""
    started = time.monotonic()
    failures: list[dict[str, object]] = []
    log: list[str] = []
    broken = ""
    one = machine.Machine(host)
    _current[:] = [one]
    built_s = 0.0
    spent: dict[str, float] = {}
    try:
        one.build()
        built_s = time.monotonic() - started
        sequence = Sequence(one)
        log = sequence.log
        try:
            sequence.run(steps)
        finally:
            failures = [asdict(failure) for failure in sequence.failures]
            spent = {"reading_s": round(sequence.reading_s, 2), "fabtune_s": round(sequence.fabtune_s, 2)}
    except HostError as error:
        broken = str(error)
    except Exception:
        broken = traceback.format_exc()
    return {
        "number": seed, "ok": not failures and not broken, "seconds": round(time.monotonic() - started, 2),
        "built_s": round(built_s, 2), **spent, "host": host.text(), "steps": steps, "failures": failures,
        "broken": broken, "log": log,
    }  # fmt: skip


def clean(empty: readers.Snapshot) -> str:
    """Take the host down; return what stayed behind, '' when nothing did."""
    try:
        _current[0].take_down()
    except (HostError, OSError) as error:
        return str(error)
    left = [name for name in readers.differing(empty, readers.snapshot()) if name.startswith(_RULES_OF_LEAKS)]
    left = [name for name in left if not name.endswith(" operstate")]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if "/run/harm/users" in line]
    mapped = [line for line in run("dmsetup", "ls", check=False).splitlines() if "No devices" not in line]
    return "; ".join([*left[:5], *mounts, *mapped])


if __name__ == "__main__":
    sys.exit(main())
