#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What `fabtune tune`, told nothing, leaves a neighbour's bulk flow of a line, and how evenly four sessions share one.

Writes share.json, a row a cell.  What a guest measured of a cell is kept in OUT/share, and measured again only where
the cell, fabtune or this measurement has changed since.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import kept_cells

# Of a fair share at least, and of what the other has at most; how much less even than untouched sessions.
LEAST_OF_FAIR, MOST_OF_OTHER, EVENLY = 0.5, 2.0, 0.98
_MEASURING = ("share_guest.py", "share.guest", "tune_guest.py")
# What a full packet of 1500 bytes takes of the emulated line, and has of payload.
_WIRE, _PAYLOAD = 1514, 1448
_FIRST_SEED = 3001
_WAYS = ("untouched", "tune")
_FIGURES, _HEADINGS = ("of_fair", "of_other", "evenness"), ("of fair", "of other", "even")


@attrs.frozen
class Cell:
    """One line, and who shares it: sessions of ours, and a flow of others or none."""

    rtt_ms: float
    rate_mbit: float
    buffer_bdp: float
    op: str
    sessions: int
    cross: str
    seed: int
    loss: float = 0.0

    @property
    def name(self) -> str:
        """A name for files."""
        return f"share-{self.seed - _FIRST_SEED:02}"

    def digest(self, code: str) -> str:
        """What makes its figures what they are, with the digest `code` of what measures."""
        return kept_cells.digest(self, code)


def cells() -> list[Cell]:
    """Return every cell: a neighbour's flow of cubic first, then four sessions of one initiator; then both again.

    The second time over a queue of a quarter of the BDP, and with losses that leave cubic all of the line.
    """
    lines = [(20.0, 100.0, 1.0), (50.0, 80.0, 0.5), (100.0, 60.0, 2.0), (5.0, 100.0, 1.0)]
    rough = [((20.0, 100.0, 0.25), 0.0), ((10.0, 100.0, 1.0), 1e-4)]
    shared = [(1, "cubic"), (4, "none")]
    found = [(*line, op, *who, 0.0) for who in shared for line in lines for op in ("read", "write")]
    found += [(*line, op, *who, loss) for who in shared for line, loss in rough for op in ("read", "write")]
    return [Cell(*one[:-1], seed=_FIRST_SEED + number, loss=one[-1]) for number, one in enumerate(found)]


def code(suite: str, accel: str) -> str:
    """Return the digest of what measures, as it is now."""
    return f"{kept_cells.code(_MEASURING)} {suite} {accel}"


def measure(place: Path, suite: str, accel: str, cell: Cell) -> None:
    """Run `cell` in a guest of its own and keep what it gives in `place`.  Raises RuntimeError for one that fails."""
    kept_cells.measure_ways(
        place, cell, cell.digest(code(suite, accel)), "share.guest", attrs.asdict(cell), _WAYS,
        seed=cell.seed, suite=suite, accel=accel,
    )  # fmt: skip


def evenness(shares: Sequence[float]) -> float:
    """Return Jain's index of shares: 1 where all are alike, 1/n where one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(one * one for one in shares))


def row(cell: Cell, ways: Mapping[str, Any]) -> dict[str, Any]:
    """Return what share.json says of a cell: of a fair half, of the other's, and how evenly sessions share."""
    found: dict[str, Any] = attrs.asdict(cell)
    for way, one in ways.items():
        ours = sum(one["bytes_per_s"]) * _WIRE / _PAYLOAD
        found[f"{way}_mb_per_s"] = round(sum(one["bytes_per_s"]) / 1e6, 3)
        if cell.cross != "none":
            found[f"{way}_of_fair"] = round(ours / (cell.rate_mbit * 1e6 / 8 / 2), 3)
            found[f"{way}_of_other"] = round(ours / max(one["cross_bytes_per_s"], 1), 3)
        else:
            found[f"{way}_evenness"] = round(evenness(one["bytes_per_s"]), 4)
    return found


def missed(cell: Cell, ways: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each bar that a cell misses."""
    found, told = row(cell, ways), []
    if cell.cross != "none":
        if found["tune_of_fair"] < LEAST_OF_FAIR:
            told.append(f"{found['tune_of_fair']} of a fair share, {LEAST_OF_FAIR} demanded")
        if found["tune_of_other"] > MOST_OF_OTHER:
            told.append(f"{found['tune_of_other']} times the other's share, {MOST_OF_OTHER:g} allowed")
    elif found["tune_evenness"] < EVENLY * found["untouched_evenness"]:
        told.append(f"evenness {found['tune_evenness']}, untouched {found['untouched_evenness']}")
    told += kept_cells.not_ended_well(ways["tune"]["tune"])
    return [f"{cell.name}: {one}" for one in told]


def show(found: Sequence[tuple[Cell, Mapping[str, Any]]]) -> None:
    """Print what each has of the line."""
    rows = [["cell", "ms", "Mb/s", "BDP", "loss %", "op", "sessions", "beside", "untouched", "tune", *_HEADINGS]]
    for cell, ways in found:
        told = row(cell, ways)
        pairs = [f"{told.get(f'untouched_{name}', '-')} {told.get(f'tune_{name}', '-')}" for name in _FIGURES]
        rows.append([
            cell.name, f"{cell.rtt_ms:g}", f"{cell.rate_mbit:g}", f"{cell.buffer_bdp:g}", f"{100 * cell.loss:g}",
            cell.op, str(cell.sessions), cell.cross, f"{told['untouched_mb_per_s']:.2f}",
            f"{told['tune_mb_per_s']:.2f}", *pairs,
        ])  # fmt: skip
    print(kept_cells.table(rows))


verdicts = partial(kept_cells.verdicts, missed)


def main() -> int:
    """Measure what is missing, then judge."""
    asked = kept_cells.options(__doc__, "a neighbour's flow").parse_args()
    now = code(asked.suite, asked.accel)
    chosen, found, failures = kept_cells.gather(asked, cells(), "share", now, measure, "ways")
    kept_cells.keep_rows(asked, "share", row, missed, found, len(cells()))
    judged = [(one, found[one]) for one in chosen if one in found]
    if judged:
        show(judged)
    return kept_cells.conclude(verdicts(chosen, found) + failures, judged=len(judged))


if __name__ == "__main__":
    sys.exit(main())
