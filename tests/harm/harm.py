#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Random sequences on random hosts, kill points and boots, all in guests, with one sum.

    harm.py --sequences 1000 --seed 1 --out out/harm      seeds 1 to 1000, 500 kill points, 20 boots
    harm.py --parts sequences --sequences 1 --seed 17     one seed

harm.jsonl and kill.jsonl get a line a case; run again, it goes on where it stopped, as long as the tree is the same.
harm.json gets the sums; a part that did not run has null there, and makes the exit code 1.  A failing sequence is
printed with the command that replays it.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from guests import ENVIRONMENT, GUEST, RUN, TOP, Row, Work, digest, say

PARTS = ("sequences", "kill", "boots")
_SUMS = {
    "sequences": ("sequences", "failed"),
    "kill": ("kill_points", "kill_failed"),
    "boots": ("boots", "boots_failed"),
}
_SEQUENCES_PER_GUEST, _KILLS_PER_GUEST = 25, 50


def verdict(row: Row) -> str:
    """Return one word or line for how a case went."""
    if row["ok"]:
        return "ok"
    told: list[str] = [f"step {one['step']}: {one['rule']}: {one['detail']}" for one in row.get("failures", [])]
    return "FAILED " + next((text for text in [*told, row["broken"]] if text), "")[:300]


def replay(row: Row, work: Work) -> str:
    """Return what to type to see a failing case again."""
    words = " ".join(
        [*RUN[6:], *work.guest, *(word.removeprefix(f"{TOP}/") for word in work.script), str(row["number"])]
    )
    shown = [f"{work.results.stem} {row['number']}: {verdict(row)}", f"  userspace/bin/fabtune {words}"]
    if "host" in row:
        shown += [f"  host: {row['host']}", f"  sequence: {'; '.join(row['steps'])}"]
    return "\n".join(shown)


def in_guests(work: Work, guests: int) -> tuple[int, int]:
    """Run the cases of `work`; return how many there are results of, and how many failed."""
    rows = work.run(guests)
    bad = [row for _, row in sorted(rows.items()) if not row["ok"]]
    for row in bad:
        print(replay(row, work))
    return len(rows), len(bad)


def boots(args: argparse.Namespace) -> tuple[int, int] | None:
    """Boot a host again and again; return how many boots there were and how many failed, None if unknown."""
    script, result = TOP / "tests/harm/boots.py", args.out / "boots.json"
    tree = digest((str(args.boots),))
    try:
        known = json.loads(result.read_text())
    except (OSError, ValueError):
        known = {}
    if known.get("tree") != tree or known.get("boots") != args.boots:
        result.unlink(missing_ok=True)
        words = ["/usr/bin/python3", str(script), str(args.boots), "--out", str(args.out)]
        status = subprocess.run(
            words, cwd=TOP, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
        ).returncode
        try:
            known = json.loads(result.read_text())
        except (OSError, ValueError) as error:
            say(f"boots: exit {status}, no result: {error}")
            return None
        if status and not known["boots_failed"]:
            say(f"boots: exit {status}, though no boot failed: not counted")
            return None
        result.write_text(json.dumps(known | {"tree": tree}) + "\n")
    return known["boots"], known["boots_failed"]


def ran(part: str, args: argparse.Namespace) -> tuple[int, int] | None:
    """Run one part; return its number of cases and of failures, None where nothing is known."""
    guest = [*GUEST, "--suite", args.suite]
    if part == "boots":
        return boots(args)
    if part == "kill":
        script = [str(TOP / "tests/harm/run-kill"), str(args.kill_points)]
        work = Work(
            args.out / "kill.jsonl", guest, script, "KILL", range(1, args.kill_points + 1), _KILLS_PER_GUEST, verdict
        )
    else:
        options = ["--steps", str(args.steps)] * bool(args.steps) + ["--no-multipathd"] * args.no_multipathd
        script = [str(TOP / "tests/harm/run-drive"), *options, "--seeds"]
        seeds = range(args.seed, args.seed + args.sequences)
        work = Work(args.out / "harm.jsonl", guest, script, "HARM", seeds, _SEQUENCES_PER_GUEST, verdict)
    if args.fresh:
        work.results.unlink(missing_ok=True)
    return in_guests(work, args.guests)


def main() -> int:
    """Run what is missing; return 0 when all parts ran whole and nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=0, help="steps a sequence (default: 3 to 8)")
    parser.add_argument("--no-multipathd", action="store_true")
    parser.add_argument("--kill-points", type=int, default=500)
    parser.add_argument("--boots", type=int, default=20)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"which of {', '.join(PARTS)}; the others are not run")
    parser.add_argument("--suite", default="trixie")
    parser.add_argument("--guests", type=int, default=2, help="guests at once")
    parser.add_argument(
        "--fresh", action="store_true", help="run every case again instead of only those without a result"
    )
    parser.add_argument("--out", type=Path, default=TOP / "out/harm")
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    parts = args.parts.split(",")
    if set(parts) - set(PARTS):
        parser.error(f"--parts {args.parts}: allowed are {', '.join(PARTS)}")
    if args.fresh:
        (args.out / "boots.json").unlink(missing_ok=True)
    wanted = {"sequences": args.sequences, "kill": args.kill_points, "boots": args.boots}
    sums: dict[str, int | None] = {}
    well = True
    for part in PARTS:
        count, failed = (ran(part, args) if part in parts else None) or (None, None)
        sums |= dict(zip(_SUMS[part], (count, failed), strict=True))
        well = well and count == wanted[part] and failed == 0
        # Written after each part: a run that is cut off leaves no older run's sums behind.
        rest = {name: None for names in _SUMS.values() for name in names}
        (args.out / "harm.json").write_text(json.dumps(rest | sums, indent=2) + "\n")
    print(", ".join(f"{'not run:' if value is None else value} {key}" for key, value in sums.items()))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
