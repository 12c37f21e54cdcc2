#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""How near `fabtune tune`, told nothing, comes to what each of 64 paths carries, and to the best of other ways.

Writes tune.json, a row a cell.  What a guest measured of a cell is kept in OUT/tune, and measured again only where the
cell, fabtune or this measurement has changed since; with --alone, in tune-alone.json and OUT/tune-alone.  Cells above
300 Mb/s have an MTU of 9000.
"""

import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace"), str(Path(__file__).parent)]

import kept_cells  # noqa: E402
from tune_cells import CLEAN, LOSSY, MOST_S, MOST_STEPS, PEER, Cell, cells  # noqa: E402

from fabtune.model.path import NetworkPath, bound_bytes_per_s  # noqa: E402
from fabtune.model.untouched import UNTOUCHED  # noqa: E402

TUNE = "tune"
# bpftune's daemon comes last: it leaves no untouched host behind.
PEERS = ("wan", "wan-lossy", "fasterdata", "bpftune")
WAYS = (UNTOUCHED, TUNE, *PEERS)
# It needs BPF trampolines, which User Mode Linux has not.
_NOT_ON_UML = "bpftune"
_DEPTH, _SIZE_BYTES = 32, 256 * 1024
# What is demanded of untouched meanwhile.
MEANWHILE, MOST_BELOW_S = 0.98, 2.0
_MEAN_S = 1.0
_MEASURING = ("tune_guest.py", "tune.guest")


def code(suite: str, accel: str, ways: Sequence[str]) -> str:
    """Return the digest of what measures, as it is now: fabtune, and the guest's part of this."""
    return f"{kept_cells.code(_MEASURING, *ways)} {suite} {accel}"


def ways_in(accel: str, alone: bool = False) -> list[str]:
    """Return the ways that there are in guests of this kind; `alone`: tune, and what it begins with."""
    there = (UNTOUCHED, TUNE) if alone else WAYS
    return [way for way in there if accel != "uml" or way != _NOT_ON_UML]


def bound(cell: Cell) -> float:
    """Return bytes per second that any tuning can reach: the line's, or those of a queue on its way to and fro."""
    path = NetworkPath(cell.rtt_ms / 1e3, cell.rate_mbit * 1e6 / 8, cell.mtu)
    return bound_bytes_per_s(path, _SIZE_BYTES, _DEPTH)


def measure(ways_asked: Sequence[str], place: Path, suite: str, accel: str, cell: Cell) -> None:
    """Run `cell` in a guest of its own, as each way, and keep what it gives in `place`.

    Raises RuntimeError for one that fails.
    """
    digest, told = cell.digest(code(suite, accel, ways_asked)), attrs.asdict(cell) | {"mtu": cell.mtu}
    kept_cells.measure_ways(
        place, cell, digest, "tune.guest", told, ways_asked, seed=cell.seed, suite=suite, accel=accel
    )


def row(cell: Cell, ways: dict[str, Any]) -> dict[str, Any]:
    """Return what tune.json says of a cell."""
    tuned = ways[TUNE]["bytes_per_s"]
    peers = [way for way in ways if way != TUNE]
    best = max(ways[way]["bytes_per_s"] for way in peers)
    return {
        "rtt_ms": cell.rtt_ms, "loss": cell.loss, "buffer_bdp": cell.buffer_bdp, "rate_mbit": cell.rate_mbit,
        "jitter_ms": cell.jitter_ms, "op": cell.op, "fraction_of_bound": round(tuned / bound(cell), 4),
        "fraction_of_untouched": round(tuned / ways[UNTOUCHED]["bytes_per_s"], 4),
        "fraction_of_best_peer": round(tuned / best, 4), "steps": len(ways[TUNE]["told"].get("steps", ())),
        "seeds": [cell.seed], "peers": peers, "below_untouched_s": round(below_s(ways), 2),
        "took_s": round(ways[TUNE]["took_s"], 1), "untouched_below_itself_s": round(below_s(ways, UNTOUCHED), 2),
        "below_untouched_at_its_least_s": round(below_s(ways, least=least_of(ways[UNTOUCHED])), 2),
    }  # fmt: skip


def least_of(way: dict[str, Any]) -> float:
    """Return the bytes per second of its worst second: 0 where it has stopped for one, or no second was seen."""
    moved = way["moved"]
    whole = [at_s for at_s, _ in moved if at_s - moved[0][0] >= _MEAN_S]
    return min(
        (statistics.mean(rate for at_s, rate in moved if end_s - _MEAN_S < at_s <= end_s) for end_s in whole),
        default=0.0,
    )


def below_s(ways: dict[str, Any], way: str = TUNE, least: float | None = None) -> float:
    """Return the longest time for which `way` was below untouched, or `least`, by the mean of each second's readings.

    One reading alone says little: requests come in bursts, and one burst does not make up for seconds without.  A
    reading is below where each second is that has it, so that a stop is as long as it was, not a second longer; or
    where nothing moved, whatever did before and behind.
    """
    least = MEANWHILE * (ways[UNTOUCHED]["bytes_per_s"] if least is None else least)
    moved = ways[way]["moved"]
    below = [True] * len(moved)
    for last, (at_s, _) in enumerate(moved):
        second = [place for place in range(last + 1) if moved[place][0] > at_s - _MEAN_S]
        if statistics.mean(moved[place][1] for place in second) >= least:
            for place in second:
                below[place] = False
    if not least:
        return 0.0
    longest, since_s = 0.0, 0.0
    for (at_s, rate), low in zip(moved, below, strict=True):
        since_s = since_s if low or not rate else at_s
        longest = max(longest, at_s - since_s)
    return longest


def missed(cell: Cell, ways: dict[str, Any]) -> list[str]:
    """Return a sentence for each bar that a cell misses."""
    told, found = [], row(cell, ways)
    least = LOSSY if cell.loss else CLEAN
    if found["fraction_of_bound"] < least:
        told.append(f"{found['fraction_of_bound']:.3f} of the bound, {least} demanded")
    if found["fraction_of_best_peer"] < PEER:
        best = max((way for way in ways if way != TUNE), key=lambda way: float(ways[way]["bytes_per_s"]))
        told.append(f"{found['fraction_of_best_peer']:.3f} of {best}, {PEER} demanded")
    if found["steps"] > MOST_STEPS or ways[TUNE]["took_s"] > MOST_S:
        told.append(f"{found['steps']} steps in {ways[TUNE]['took_s']:.0f} s, {MOST_STEPS} in {MOST_S:g} s allowed")
    # Untouched has its own ups and downs: a longer one of tune's is what counts, or one that is deeper.
    allowed_s = max(MOST_BELOW_S, found["untouched_below_itself_s"])
    if found["below_untouched_s"] > allowed_s:
        told.append(f"below untouched for {found['below_untouched_s']:.1f} s, {allowed_s:g} allowed")
    elif found["below_untouched_at_its_least_s"] > MOST_BELOW_S:
        deep_s = found["below_untouched_at_its_least_s"]
        told.append(f"below untouched's worst second for {deep_s:.1f} s, {MOST_BELOW_S:g} allowed")
    told += kept_cells.not_ended_well(ways[TUNE])
    return [f"{cell.name}: {one}" for one in told]


def show(found: Sequence[tuple[Cell, dict[str, Any]]]) -> None:
    """Print what each way gave in each cell, in MB/s."""
    shown = [way for way in WAYS if all(way in ways for _, ways in found)]
    headers = ["cell", "ms", "loss %", "BDP", "Mb/s", "op", "bound", *shown]
    headers += ["of bound", "of best", "steps", "s", "below s"]
    rows = [headers]
    for cell, ways in found:
        told = row(cell, ways)
        rows.append([
            cell.name, f"{cell.rtt_ms:g}", f"{100 * cell.loss:g}", f"{cell.buffer_bdp:g}", f"{cell.rate_mbit:g}",
            cell.op, f"{bound(cell) / 1e6:.2f}", *(f"{ways[way]['bytes_per_s'] / 1e6:.2f}" for way in shown),
            f"{told['fraction_of_bound']:.3f}", f"{told['fraction_of_best_peer']:.3f}", str(told["steps"]),
            f"{ways[TUNE]['took_s']:.0f}", f"{below_s(ways):.1f}",
        ])  # fmt: skip
    print(kept_cells.table(rows))
    for name in ("fraction_of_bound", "fraction_of_untouched", "fraction_of_best_peer"):
        values = [row(cell, ways)[name] for cell, ways in found]
        print(f"{name}: median {statistics.median(values):.3f}, least {min(values):.3f}")


def all_held(count: int, accel: str, alone: bool = False) -> str:
    """Return what is said of so many cells without a fault, and beside which ways nothing was measured."""
    held = f"{count} cells, all bars held"
    if alone:
        return f"{held}, beside {UNTOUCHED} alone: no other way was asked for (--alone)"
    lacks = ", ".join(way for way in WAYS if way not in ways_in(accel))
    return f"{held}, not beside {lacks}: it is not there on {accel} (--accel tcg)" if lacks else held


verdicts = partial(kept_cells.verdicts, missed)


def main() -> int:
    """Measure what is missing, then judge."""
    parser = kept_cells.options(__doc__, "they fill the space, too")
    parser.add_argument("--alone", action="store_true", help=f"beside {UNTOUCHED} alone, a third of the time")
    asked = parser.parse_args()
    ways = ways_in(asked.accel, asked.alone)
    now = code(asked.suite, asked.accel, ways)
    name = f"{TUNE}-alone" if asked.alone else TUNE
    chosen, found, failures = kept_cells.gather(asked, cells(), name, now, partial(measure, ways), "ways")
    kept_cells.keep_rows(asked, name, row, missed, found, len(cells()))
    judged = [(one, found[one]) for one in chosen if one in found]
    if judged:
        show(judged)
    held = partial(all_held, accel=asked.accel, alone=asked.alone)
    return kept_cells.conclude(verdicts(chosen, found) + failures, held, judged=len(judged))


if __name__ == "__main__":
    sys.exit(main())
