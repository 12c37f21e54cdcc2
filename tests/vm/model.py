#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Random load and random trouble, counted by the module and by a model that blktrace feeds, on each kind of stack.

One guest a stack, on the virtual clock.  Writes model.json into DIR: `requests` and `differences` in all, and by stack.
Exits 1 for any difference.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
STACKS = ("scsi_debug", "multipath", "iscsi", "nvme-tcp")
TIMEOUT_S = 4 * 3600


def main() -> int:
    """Run the guests one after the other; return 0 when no count differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/model")
    parser.add_argument("--requests", type=int, default=1_000_000, help="so many on each stack (default: 1000000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("stacks", nargs="*", metavar="STACK", help=f"only these, of: {', '.join(STACKS)}")
    args = parser.parse_args()
    if unknown := set(args.stacks) - set(STACKS):
        parser.error(f"{', '.join(sorted(unknown))}: expected {', '.join(STACKS)}")
    out = args.out.resolve()
    rows = []
    for stack in args.stacks or STACKS:
        directory = out / stack
        done = subprocess.run(
            ["/usr/bin/python3", "-m", "fabtune", "lab", "run", "--suite", "trixie", "--clock", "virtual",
             "--memory-mib", "3072", "--timeout-s", str(TIMEOUT_S), "--out", str(directory),
             str(TOP / "tests/vm/model_guest.py"), stack, str(args.requests), str(args.seed)],
            cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP / "userspace")}, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode:
            print(f"{stack}: the guest ended with exit {done.returncode} (see {directory})", file=sys.stderr)
            return 1
        rows.append(json.loads((directory / "model.json").read_text()))
    total = {key: sum(row[key] for row in rows) for key in ("requests", "differences")}
    (out / "model.json").write_text(json.dumps(total | {"seed": args.seed, "stacks": rows}, indent=2) + "\n")
    print(f"{total['requests']} requests, {total['differences']} differences")
    return 1 if total["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
