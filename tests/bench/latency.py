#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""How long short requests take beside a bulk stream before `fabtune tune` and behind it: their p99, by fio's own clock.

Writes latency.json, a row a cell.  What a guest measured of a cell is kept in OUT/latency, and measured again only
where the cell, fabtune or this measurement has changed since.  `--goal latency` needs fabstat's histograms, which User
Mode Linux has not: --accel tcg measures it as well.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import kept_cells

UNTOUCHED, TUNE, GOAL = "untouched", "tune", "goal-latency"
# Measured last, over connections made anew as tune's steps make them: which of two has more of a line goes by chance.
AGAIN = "untouched-again"
# Of what they waited before at most, where a step was kept: with nothing in force chance alone tells the two apart.
# fio tells a percentile to 1/64.  And what a goal of short requests may cost.
MOST_P99, LEAST_STREAM = 1 + 1 / 64, 0.9
_MEASURING = ("latency_guest.py", "latency.guest", "tune_guest.py")
_FIRST_SEED = 5001
# Round trip in ms, rate in Mb/s, queue in BDP: an untouched stream fills the first line by itself, and of the others
# no more than its windows hold.
_LINES = ((2.0, 100.0, 2.0), (20.0, 100.0, 1.0), (50.0, 100.0, 1.0), (100.0, 60.0, 0.5))
_DEPTHS = (1, 8)


@attrs.frozen
class Cell:
    """One line, the direction of the stream, and how many short requests there are at a time beside it."""

    rtt_ms: float
    rate_mbit: float
    buffer_bdp: float
    op: str
    depth: int
    seed: int

    @property
    def name(self) -> str:
        """A name for files."""
        return f"latency-{self.seed - _FIRST_SEED:02}"

    def digest(self, code: str) -> str:
        """What makes its figures what they are, with the digest `code` of what measures."""
        return kept_cells.digest(self, code)


def cells() -> list[Cell]:
    """Return every cell."""
    found = product(_LINES, ("read", "write"), _DEPTHS)
    return [Cell(*line, op, depth, _FIRST_SEED + number) for number, (line, op, depth) in enumerate(found)]


def ways_in(accel: str) -> list[str]:
    """Return the ways that there are in guests of this kind."""
    return [UNTOUCHED, TUNE, *[GOAL] * (accel != "uml"), AGAIN]


def code(suite: str, accel: str) -> str:
    """Return the digest of what measures, as it is now."""
    return f"{kept_cells.code(_MEASURING, *ways_in(accel))} {suite} {accel}"


def measure(place: Path, suite: str, accel: str, cell: Cell) -> None:
    """Run `cell` in a guest of its own and keep what it gives in `place`.  Raises RuntimeError for one that fails."""
    kept_cells.measure_ways(
        place, cell, cell.digest(code(suite, accel)), "latency.guest", attrs.asdict(cell), ways_in(accel),
        seed=cell.seed, suite=suite, accel=accel,
    )  # fmt: skip


def kept_steps(way: Mapping[str, Any]) -> int:
    """Return how many steps of a tune were kept, and are in force while the short requests are measured."""
    return sum(one["kept"] for one in way["tune"]["told"].get("steps", ()))


def row(cell: Cell, ways: Mapping[str, Any]) -> dict[str, Any]:
    """Return what latency.json says of a cell: of each way the short requests' p99 and median, and the stream."""
    found: dict[str, Any] = attrs.asdict(cell)
    for way, one in ways.items():
        key = way.replace("-", "_")
        found |= {f"{key}_{name}": round(one[name], 3) for name in ("p50_ms", "p99_ms")}
        found |= {f"{key}_requests": one["requests"], f"{key}_stream_mb_per_s": round(one["bytes_per_s"] / 1e6, 3)}
        if "tune" in one:
            found[f"{key}_kept_steps"] = kept_steps(one)
    return found


def missed(cell: Cell, ways: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each bar that a cell misses: of untouched the longer p99 and the slower stream count."""
    told, untouched = list[str](), (ways[UNTOUCHED], ways[AGAIN])
    p99_ms, stream = max(one["p99_ms"] for one in untouched), min(one["bytes_per_s"] for one in untouched)
    for way in set(ways) - {UNTOUCHED, AGAIN}:
        now = ways[way]
        if now["p99_ms"] > MOST_P99 * p99_ms and kept_steps(now):
            told.append(f"{way}: p99 of {now['p99_ms']:.1f} ms, untouched {p99_ms:.1f} ms")
        if way == GOAL and now["bytes_per_s"] < LEAST_STREAM * stream:
            told.append(f"{way}: the stream has {now['bytes_per_s'] / stream:.2f} of what it had")
        told += [f"{way}: {one}" for one in kept_cells.not_ended_well(now["tune"])]
    return [f"{cell.name}: {one}" for one in sorted(told)]


def _figures(way: Mapping[str, Any]) -> str:
    figures = f"{way['p99_ms']:.1f}, {way['bytes_per_s'] / 1e6:.2f}"
    return f"{figures}, {kept_steps(way)} kept" if "tune" in way else figures


def show(found: Sequence[tuple[Cell, Mapping[str, Any]]]) -> None:
    """Print p99 and stream of each way."""
    shown = [way for way in (UNTOUCHED, AGAIN, TUNE, GOAL) if all(way in ways for _, ways in found)]
    rows = [["cell", "ms", "Mb/s", "BDP", "stream", "at once", *(f"{way} p99 ms, MB/s" for way in shown)]]
    for cell, ways in found:
        figures = (_figures(ways[way]) for way in shown)
        rows.append([
            cell.name, f"{cell.rtt_ms:g}", f"{cell.rate_mbit:g}", f"{cell.buffer_bdp:g}", cell.op, str(cell.depth),
            *figures,
        ])  # fmt: skip
    print(kept_cells.table(rows))


verdicts = partial(kept_cells.verdicts, missed)


def main() -> int:
    """Measure what is missing, then judge."""
    asked = kept_cells.options(__doc__, "shorter paths").parse_args()
    now = code(asked.suite, asked.accel)
    chosen, found, failures = kept_cells.gather(asked, cells(), "latency", now, measure, "ways")
    kept_cells.keep_rows(asked, "latency", row, missed, found, len(cells()))
    judged = [(one, found[one]) for one in chosen if one in found]
    if judged:
        show(judged)
    return kept_cells.conclude(verdicts(chosen, found) + failures, judged=len(judged))


if __name__ == "__main__":
    sys.exit(main())
