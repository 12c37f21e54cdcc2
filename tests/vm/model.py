#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Random load and random trouble, counted by the module and by a model that blktrace feeds, on each kind of stack.

Guests of so many requests each, on the virtual clock, until each stack has its requests.  Writes model.json into DIR:
`requests` and `differences` in all, and by stack, with the `highest` number of requests in flight at once, the `errors`
and how often each of the `troubles` took place.  What DIR has of this module, model and seed is not measured again: a
run goes on where it was stopped.  Exits 1 for any difference, and where a stack lacked what it can do (`lacking`).
"""

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.lab.module import source_digest  # noqa: E402

STACKS = ("scsi_debug", "multipath", "iscsi", "nvme-tcp")
PIECE = 200_000
TIMEOUT_S = 4 * 3600
_GUEST = TOP / "tests/vm/model_guest.py"
# What a run must have had in flight at once, and what must have taken place, where the stack can do it.
LEAST_DEPTH = 16
_ALWAYS = ("refusals", "errors", "resets", "depths", "passthrough", "removals")
_LOCAL = (*_ALWAYS, "timeouts", "flushes", "discards")
TROUBLES = {
    "scsi_debug": _LOCAL, "multipath": (*_LOCAL, "fail_overs"), "iscsi": _ALWAYS, "nvme-tcp": (*_ALWAYS, "flushes"),
}  # fmt: skip
Row = dict[str, Any]


def digest(seed: str) -> str:
    """Return what names the module, the model and the draw."""
    texts = [file.read_text() for file in sorted((*_GUEST.parent.glob("model_*.py"), *_GUEST.parent.glob("books.py")))]
    return hashlib.sha256(f"{source_digest()} {texts} {seed}".encode()).hexdigest()


def kept(file: Path, of: str) -> Row | None:
    """Return what a guest left in `file` if it need not be run again."""
    row: Row = json.loads(file.read_text()) if file.exists() else {}
    return row if row.get("digest") == of else None


def measure(stack: str, requests: int, seed: str, directory: Path) -> Row | None:
    """Run a guest of `stack`; return what it counted, which `directory` keeps, or None when it did not end well."""
    file, of = directory / "model.json", digest(seed)
    # What an earlier guest left there is not this one's.
    file.unlink(missing_ok=True)
    done = subprocess.run(
        ["/usr/bin/python3", "-m", "fabtune", "lab", "run", "--suite", "trixie", "--clock", "virtual",
         "--memory-mib", "3072", "--timeout-s", str(TIMEOUT_S), "--out", str(directory),
         str(_GUEST), stack, str(requests), seed],
        cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP / "userspace")}, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode:
        print(f"{stack}: the guest ended with exit {done.returncode} (see {directory})", file=sys.stderr)
        return None
    row: Row = json.loads(file.read_text()) | {"digest": of}
    file.write_text(json.dumps(row))
    return row


def pieces(stack: str, requests: int, seed: int, out: Path, anew: bool) -> Iterator[Row]:
    """Yield what each guest of a stack counted until it has so many requests; those that are not kept run if `anew`."""
    left = requests
    for number in itertools.count(1):
        if left <= 0:
            return
        directory, one = out / stack / str(number), f"{seed}.{number}"
        piece = kept(directory / "model.json", digest(one))
        if piece is None and anew:
            piece = measure(stack, min(PIECE, left), one, directory)
        if piece is None:
            return
        left -= piece["requests"]
        yield piece


def total(stack: str, requests: int, seed: int, out: Path, anew: bool = False) -> Row:
    """Return what the guests of a stack counted together."""
    row: Row = {"stack": stack, "requests": 0, "differences": 0, "rounds": 0, "errors": 0, "found": []}
    troubles: Counter[str] = Counter()
    highest = 0
    for piece in pieces(stack, requests, seed, out, anew):
        row |= {key: row[key] + piece[key] for key in ("requests", "differences", "rounds", "errors", "found")}
        troubles.update(piece["troubles"])
        highest = max(highest, piece["highest"])
    return row | {"highest": highest, "troubles": troubles}


def lacking(row: Row) -> list[str]:
    """Return what a stack that has been measured can do, and what did not take place."""
    found = [name for name in TROUBLES[row["stack"]] if not row["troubles"][name]]
    return found + ([f"{LEAST_DEPTH} in flight at once"] if row["highest"] < LEAST_DEPTH else [])


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
    asked = args.stacks or STACKS
    rows = [total(stack, args.requests, args.seed, out, anew=stack in asked) for stack in STACKS]
    whole: Row = {key: sum(row[key] for row in rows) for key in ("requests", "differences")}
    missing = [row["stack"] for row in rows if row["requests"] < args.requests]
    idle = {row["stack"]: lacking(row) for row in rows if row["stack"] not in missing and lacking(row)}
    document = whole | {"seed": args.seed, "missing": missing, "lacking": idle, "stacks": rows}
    (out / "model.json").write_text(json.dumps(document, indent=2) + "\n")
    print(f"{whole['requests']} requests, {whole['differences']} differences")
    if missing:
        print(f"not all are measured: {', '.join(missing)}")
    for stack, found in idle.items():
        print(f"{stack} was not tried: without {', '.join(found)}; ask for more --requests")
    return 1 if whole["differences"] or idle or set(missing) & set(asked) else 0


if __name__ == "__main__":
    sys.exit(main())
