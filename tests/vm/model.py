#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Random load and random trouble, counted by the module and by a model that blktrace feeds, on each kind of stack.

One guest a stack, on the virtual clock.  Writes model.json into DIR: `requests` and `differences` in all, and by stack.
A stack that DIR has, of this module, model and seed and with as many requests, is not measured again.
Exits 1 for any difference.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.lab.module import source_digest  # noqa: E402

STACKS = ("scsi_debug", "multipath", "iscsi", "nvme-tcp")
TIMEOUT_S = 4 * 3600
_GUEST = TOP / "tests/vm/model_guest.py"


def digest(seed: int) -> str:
    """Return what names the module, the model and the draw."""
    return hashlib.sha256(f"{source_digest()} {_GUEST.read_text()} {seed}".encode()).hexdigest()


def kept(file: Path, requests: int, of: str) -> dict[str, Any] | None:
    """Return the row of a stack in `file` that need not be measured again, if there is one."""
    row: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return row if row.get("digest") == of and row["requests"] >= requests else None


def measure(stack: str, requests: int, seed: int, directory: Path, of: str) -> bool:
    """Run the guest of `stack`, and keep its row in `directory`; return whether it ended well."""
    # What an earlier guest left there is not this one's.
    (directory / "model.json").unlink(missing_ok=True)
    done = subprocess.run(
        ["/usr/bin/python3", "-m", "fabtune", "lab", "run", "--suite", "trixie", "--clock", "virtual",
         "--memory-mib", "3072", "--timeout-s", str(TIMEOUT_S), "--out", str(directory),
         str(_GUEST), stack, str(requests), str(seed)],
        cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP / "userspace")}, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode:
        print(f"{stack}: the guest ended with exit {done.returncode} (see {directory})", file=sys.stderr)
        return False
    file = directory / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"digest": of}))
    return True


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
    out, of = args.out.resolve(), digest(args.seed)
    places = {stack: out / stack / "model.json" for stack in STACKS}
    for stack in args.stacks or STACKS:
        if kept(places[stack], args.requests, of):
            print(f"{stack}: kept from an earlier run")
        elif not measure(stack, args.requests, args.seed, out / stack, of):
            return 1
    rows = {stack: row for stack, file in places.items() if (row := kept(file, args.requests, of))}
    missing = [stack for stack in STACKS if stack not in rows]
    total = {key: sum(row[key] for row in rows.values()) for key in ("requests", "differences")}
    document = total | {"seed": args.seed, "missing": missing, "stacks": list(rows.values())}
    (out / "model.json").write_text(json.dumps(document, indent=2) + "\n")
    print(f"{total['requests']} requests, {total['differences']} differences")
    if missing:
        print(f"not measured yet: {', '.join(missing)}")
    return 1 if total["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
