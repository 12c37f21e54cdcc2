#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Random load and random trouble, counted by the module and by a model that blktrace feeds, on each kind of stack.

Guests of so many requests each, on the virtual clock, until each stack has its requests.  Each round of a guest leaves
its traces and readings in DIR/STACK/GUEST, and these are compared anew each time; what DIR has of this module, seed and
measuring is not measured again: a run goes on where it was stopped.  Writes model.json into DIR: `requests` of the
devices that are loaded, and `differences`, in all and by stack, with the `highest` number of requests in flight at
once, the `errors` and how often each of the `troubles` took place.  Exits 1 for any difference, for a guest that did
not end well, where rounds were measured with different kernels or labs, and where a stack lacked what it can do.
"""

import argparse
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(TOP / "tests/vm")]

import model_kept  # noqa: E402
from model_judge import judged  # noqa: E402

from fabtune.lab.module import source_digest  # noqa: E402

STACKS = ("scsi_debug", "multipath", "iscsi", "nvme-tcp")
PIECE = 200_000
# Of a round as it is meant to be; where I/Os are merged it has fewer requests, and fewer troubles.
ROUND = 20_000
TIMEOUT_S = 4 * 3600
_VM = TOP / "tests/vm"
# What measures, in the guest; all else compares.
_MEASURES = ("model_guest.py", "model_stacks.py", "model_troubles.py", "model_answers.py", "model_kept.py")
# The two look a moment apart.  In some rounds that is as long as it takes to end another request, in most it is not.
MOST_APART_NS = 1000
# What a run must have had in flight at once, and what must have taken place how often in a round, where the stack can.
LEAST_DEPTH = 16
_ALWAYS = {"sent back": 1.0, "errors": 1.0, "resets": 1.0, "depths": 1.0, "passthrough": 1.0, "removals": 0.5}
_LIMITS = {"reached limits": 0.1}
_LOCAL = _ALWAYS | _LIMITS | {"refusals": 1.0, "timeouts": 0.5, "flushes": 1.0, "discards": 1.0}
TROUBLES: dict[str, dict[str, float]] = {
    "scsi_debug": _LOCAL, "multipath": _LOCAL | {"fail_overs": 1.0}, "iscsi": _ALWAYS | _LIMITS | {"refusals": 1.0},
    "nvme-tcp": _ALWAYS | _LIMITS | {"flushes": 1.0},
}  # fmt: skip
Row = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What is asked for of each stack; what is `old`, by other code, is compared as well if nothing is measured."""

    out: Path
    requests: int
    seed: int
    judge_only: bool = False


def digest(seed: str) -> str:
    """Return what names the module, what measures it, and the draw."""
    texts = [(_VM / name).read_text() for name in _MEASURES]
    return hashlib.sha256(f"{source_digest()} {texts} {seed}".encode()).hexdigest()


def lab_digest() -> str:
    """Return 16 hex digits that name the lab, and the reader of the module."""
    files = sorted(path for part in ("lab", "stat") for path in (TOP / "userspace/fabtune" / part).rglob("*.py"))
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()[:16]


def measure(stack: str, requests: int, seed: str, directory: Path) -> None:
    """Run a guest of `stack`, which leaves a file of each round in `directory`, and the guest's own, guest.json."""
    for stale in directory.glob("*.json.gz"):
        # What an earlier guest left there is not this one's.
        stale.unlink()
    directory.mkdir(parents=True, exist_ok=True)
    guest: Row = {"stack": stack, "digest": digest(seed), "lab": lab_digest(), "exit": None}
    (directory / "guest.json").write_text(json.dumps(guest))
    done = subprocess.run(
        ["/usr/bin/python3", "-m", "fabtune", "lab", "run", "--suite", "trixie", "--clock", "virtual",
         "--memory-mib", "3072", "--timeout-s", str(TIMEOUT_S), "--out", str(directory),
         str(_VM / "model_guest.py"), stack, str(requests), seed],
        cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP / "userspace")}, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    (directory / "guest.json").write_text(json.dumps(guest | {"exit": done.returncode}))


def kept(directory: Path, stack: str, of: str | None) -> Row | None:
    """Return what a guest has left in `directory`, compared, if it need not be run again; None as `of`: any guest."""
    file = directory / "guest.json"
    guest: Row = json.loads(file.read_text()) if file.exists() else {}
    rounds = sorted(directory.glob("*.json.gz"), key=lambda path: int(path.name.split(".")[0]))
    # Of a guest that was interrupted before its end, there is nothing.
    if not guest or of not in (None, guest["digest"]) or not (rounds or guest["exit"]):
        return None
    row: Row = {
        "requests": 0, "differences": 0, "rounds": 0, "errors": 0, "found": [], "highest": 0, "troubles": Counter(),
        "aborted": [], "measured_with": [], "apart_ns": [],
    }  # fmt: skip
    if guest["exit"]:
        row["aborted"].append(f"{directory.parent.name}/{directory.name}: exit {guest['exit']}")
    for path in rounds:
        add(row, model_kept.read(path), stack, guest)
    return row


def add(row: Row, told: Row, stack: str, guest: Row) -> None:
    """Add what a round's file tells, compared, to its guest's row."""
    result = judged(told)
    if {told["stack"], guest["stack"]} != {stack}:
        result.found.append(f"a round of {told['stack']} among those of {stack}")
    row |= {
        "requests": row["requests"] + result.requests, "rounds": row["rounds"] + 1,
        "errors": row["errors"] + result.errors, "differences": row["differences"] + len(result.found),
        "found": row["found"] + result.found, "highest": max(row["highest"], result.highest),
        "measured_with": sorted({*row["measured_with"], f"kernel {told['kernel']}, lab {guest['lab']}"}),
    }  # fmt: skip
    row["troubles"].update(result.troubles)
    row["apart_ns"] += result.apart_ns


def pieces(stack: str, asked: Asked, anew: bool) -> Iterator[Row]:
    """Yield what each guest of a stack has left until it has so many requests; the others are run if `anew`."""
    left = asked.requests
    for number in itertools.count(1):
        if left <= 0 and not asked.judge_only:
            return
        directory, one = asked.out / stack / str(number), f"{asked.seed}.{number}"
        of = None if asked.judge_only else digest(one)
        piece = kept(directory, stack, of)
        if piece is None and anew:
            measure(stack, min(PIECE, left), one, directory)
            piece = kept(directory, stack, of)
        if piece is None:
            return
        left -= piece["requests"]
        yield piece
        if not piece["requests"]:
            # The next guest would do no better.
            return


def total(stack: str, asked: Asked, anew: bool = False) -> Row:
    """Return what the guests of a stack counted together."""
    row: Row = {
        "stack": stack,
        "requests": 0,
        "differences": 0,
        "rounds": 0,
        "errors": 0,
        "found": [],
        "aborted": [],
        "apart_ns": [],
    }
    troubles: Counter[str] = Counter()
    highest, measured_with = 0, set[str]()
    for piece in pieces(stack, asked, anew):
        summed = ("requests", "differences", "rounds", "errors", "found", "aborted", "apart_ns")
        row |= {key: row[key] + piece[key] for key in summed}
        troubles.update(piece["troubles"])
        highest = max(highest, piece["highest"])
        measured_with |= {*piece["measured_with"]}
    distances_ns: list[float] = [abs(one) for one in row["apart_ns"]]
    apart_ns = round(statistics.median(distances_ns)) if distances_ns else 0
    if apart_ns > MOST_APART_NS:
        row["differences"] += 1
        row["found"].append(f"device_ns: {apart_ns} ns a request in the middle of all rounds, expected {MOST_APART_NS}")
    return row | {
        "apart_ns": apart_ns,
        "highest": highest,
        "troubles": troubles,
        "measured_with": sorted(measured_with),
    }


def lacking(row: Row) -> list[str]:
    """Return what a stack that has been measured can do, and what did not take place, or too seldom."""
    found = [
        f"{name} ({row['troubles'][name]} in {row['requests']} requests)"
        for name, least in TROUBLES[row["stack"]].items()
        if row["troubles"][name] < max(1, least * row["requests"] / ROUND)
    ]
    return found + ([f"{LEAST_DEPTH} in flight at once"] if row["highest"] < LEAST_DEPTH else [])


def tell(document: Row) -> None:
    """Print what was found."""
    print(f"{document['requests']} requests, {document['differences']} differences")
    if document["missing"]:
        print(f"not all are measured: {', '.join(document['missing'])}")
    for row in document["stacks"]:
        for line in row["found"][:20]:
            print(f"{row['stack']}: {line}")
        for line in row["aborted"]:
            print(f"a guest did not end well: {line}; what it has left counts, delete it to have it run again")
    for stack, found in document["lacking"].items():
        print(f"{stack} was not tried: without {', '.join(found)}; ask for more --requests")
    if len(document["measured_with"]) > 1:
        print(f"measured with different things: {'; '.join(document['measured_with'])}")


def main() -> int:
    """Run the guests one after the other; return 0 when no count differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TOP / "out/model")
    parser.add_argument("--requests", type=int, default=1_000_000, help="so many on each stack (default: 1000000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judge-only", action="store_true", help="run no guest: compare what is kept, however old")
    parser.add_argument("stacks", nargs="*", metavar="STACK", help=f"only these, of: {', '.join(STACKS)}")
    args = parser.parse_args()
    if unknown := set(args.stacks) - set(STACKS):
        parser.error(f"{', '.join(sorted(unknown))}: expected {', '.join(STACKS)}")
    asked = Asked(args.out.resolve(), args.requests, args.seed, args.judge_only)
    chosen = args.stacks or STACKS
    rows = [total(stack, asked, anew=stack in chosen and not args.judge_only) for stack in STACKS]
    missing = [row["stack"] for row in rows if row["requests"] < args.requests]
    idle = {row["stack"]: lacking(row) for row in rows if row["stack"] not in missing and lacking(row)}
    measured_with = sorted({one for row in rows for one in row["measured_with"]})
    document: Row = {key: sum(row[key] for row in rows) for key in ("requests", "differences")}
    document |= {"seed": args.seed, "missing": missing, "lacking": idle, "measured_with": measured_with, "stacks": rows}
    (asked.out / "model.json").write_text(json.dumps(document, indent=2) + "\n")
    tell(document)
    aborted = any(row["aborted"] for row in rows)
    bad = document["differences"] or idle or aborted or len(measured_with) > 1 or set(missing) & set(chosen)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
