#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What `fabtune lint` and `fabtune tune` make of 30 paths that were told wrongly on purpose, and what that costs.

Writes told.json, a row a cell.  What a guest measured of a cell is kept in OUT/told, and measured again only where the
cell, fabtune or this measurement has changed since.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import kept_cells
from lab_run import lab_run
from told_cells import RATE, RTT, Cell, cells

from fabtune.lint.rules import told_paths

TOP = Path(__file__).resolve().parents[2]
# What is demanded of untouched, at each step that stays and at the end, and of tune's time.
UNTOUCHED, MOST_STEPS = 0.95, 8
_MEASURING = ("told_guest.py", "told.guest", "tune_guest.py")
_FOUND = "FOUND"
# What tune says of what was told and is contradicted (why.summing_up, autotune.view, .told and .climb), and of others,
# of whom there are none here.
_SAYS = {
    RTT: ("was planned for a round trip of",),
    RATE: ("judged without it", "it is not the line's rate", "held to a pace below what the line carries"),
    "others": ("others use the line",),
}
_RULES = {
    RTT: {one.id for one in (told_paths.path_longer_than_told, told_paths.path_shorter_than_told)},
    RATE: {told_paths.rate_above_nic.id},
}


def measure(place: Path, suite: str, accel: str, cell: Cell) -> None:
    """Run `cell` in a guest of its own and keep what it gives in `place`.  Raises RuntimeError for one that fails."""
    said, digest = place / f"{cell.name}.log", cell.digest(code(suite, accel))
    with said.open("w") as log:
        told = json.dumps(attrs.asdict(cell))
        done = lab_run("told.guest", told, seed=cell.seed, suite=suite, log=log, accel=accel)
    lines = (line.partition(" ") for line in said.read_text(errors="replace").splitlines())
    found = [json.loads(content) for kind, _, content in lines if kind == _FOUND]
    if done.returncode or len(found) != 1:
        raise RuntimeError(f"{cell.name}: exit {done.returncode}; what its guest said is in {said}")
    document = {"digest": digest, "cell": attrs.asdict(cell), "found": found[0]}
    (place / f"{cell.name}.json").write_text(json.dumps(document) + "\n")


def code(suite: str, accel: str) -> str:
    """Return the digest of what measures, as it is now."""
    return f"{kept_cells.code(_MEASURING)} {suite} {accel}"


def lint_named(found: Mapping[str, Any]) -> set[str]:
    """Return what lint said is wrong of what was told."""
    return {what for what, rules in _RULES.items() if rules.intersection(found["lint"])}


def tune_named(found: Mapping[str, Any]) -> set[str]:
    """Return what tune said is contradicted of what was told."""
    remarks = found["tune"]["told"].get("remarks", ())
    return {what for what, says in _SAYS.items() if any(text in one for one in remarks for text in says)}


def _steps(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return tune's steps; what failed before one has told of none."""
    return found["tune"]["told"].get("steps", ())  # type: ignore[no-any-return]


def fraction(found: Mapping[str, Any]) -> float:
    """Return the least share of untouched at any step that stays, and at the end."""
    held = [one["after_bytes_per_s"] for one in _steps(found) if one["kept"]]
    return float(min([*held, found["end"]["bytes_per_s"]]) / found["untouched"]["bytes_per_s"])


def row(cell: Cell, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what told.json says of a cell."""
    return {
        "rtt_ms": cell.rtt_ms, "rate_mbit": cell.rate_mbit, "told_rtt_ms": cell.told_rtt_ms,
        "told_rate_mbit": cell.told_rate_mbit, "told": cell.told, "op": cell.op,
        "lint_noticed": bool(lint_named(found)), "tune_noticed": bool(tune_named(found)),
        "fraction_of_untouched": round(fraction(found), 4),
        "fraction_before_tune": round(found["told"]["bytes_per_s"] / found["untouched"]["bytes_per_s"], 4),
        "steps": len(_steps(found)), "seeds": [cell.seed],
    }  # fmt: skip


def missed(cell: Cell, found: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each bar that a cell misses: what the rules promise to notice, and no harm."""
    told, one = [], row(cell, found)
    by_tool = (
        ("lint", cell.for_lint(found["nic_mbit"]), lint_named(found)),
        ("tune", cell.for_tune, tune_named(found)),
    )
    for name, expected, named in by_tool:
        told += [f"{name} does not name the {what} that was told" for what in sorted(expected - named)]
        # Nobody is accused where nothing is wrong, or can be seen.
        told += [f"{name} names the {what}" for what in sorted(named - expected)]
    if one["fraction_of_untouched"] < UNTOUCHED:
        told.append(f"{one['fraction_of_untouched']:.3f} of untouched, {UNTOUCHED} demanded")
    if one["steps"] > MOST_STEPS:
        told.append(f"{one['steps']} steps, {MOST_STEPS} allowed")
    told += kept_cells.not_ended_well(found["tune"])
    return [f"{cell.name} ({cell.told}): {text}" for text in told]


def shown(found: Mapping[Cell, Mapping[str, Any]]) -> str:
    """Return a table of what each cell gave, in MB/s."""
    rows = [["cell", "told", "ms", "Mb/s", "told ms", "told Mb/s", "op", "lint", "tune", "untouched", "told", "end",
             "of untouched", "steps", "s"]]  # fmt: skip
    for cell, one in found.items():
        told = row(cell, one)
        rows.append([
            cell.name, cell.told, f"{cell.rtt_ms:g}", f"{cell.rate_mbit:g}", f"{cell.told_rtt_ms:g}",
            f"{cell.told_rate_mbit:g}", cell.op,
            *("yes" if told[f"{who}_noticed"] else "no" for who in ("lint", "tune")),
            *(f"{one[when]['bytes_per_s'] / 1e6:.2f}" for when in ("untouched", "told", "end")),
            f"{told['fraction_of_untouched']:.3f}", str(told["steps"]), f"{one['tune']['took_s']:.0f}",
        ])  # fmt: skip
    return kept_cells.table(rows)


verdicts = partial(kept_cells.verdicts, missed)


def main() -> int:
    """Measure what is missing, then judge."""
    asked = kept_cells.options(__doc__, "each kind comes early").parse_args()
    now = code(asked.suite, asked.accel)
    chosen, found, failures = kept_cells.gather(asked, cells(), "told", now, measure, "found")
    kept_cells.keep_rows(asked, "told", row, missed, found, len(cells()))
    judged = {one: found[one] for one in chosen if one in found}
    if judged:
        print(shown(judged))
    return kept_cells.conclude(verdicts(chosen, found) + failures, judged=len(judged))


if __name__ == "__main__":
    sys.exit(main())
