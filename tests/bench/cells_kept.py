# SPDX-License-Identifier: GPL-2.0-or-later
"""What the benches of many cells came to, kept in the tree, and the tables of Documentation/tuning.md that show it."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import kept_file
import kept_tables
from kept_file import Point

from fabtune.experiment.present import code_digest

TOP = Path(__file__).resolve().parents[2]
DIRECTORY, PAGE = TOP / "Documentation/results/bench", TOP / "Documentation/tuning.md"


def file_of(bench: str, directory: Path = DIRECTORY) -> Path:
    """Return where the rows of `bench` are kept."""
    return directory / f"{bench}.json"


def measured_by(suite: str, accel: str) -> str:
    """Return in words what measures today on such guests."""
    return f"{suite}, {accel}, code {code_digest()[:16]}"


def keep(bench: str, rows: Sequence[Point], cells: int, by: str, directory: Path = DIRECTORY) -> None:
    """Keep the rows of all `cells`, and in words what measured them.

    Raises ValueError where some are missing, or Documentation has no table for them.
    """
    if bench not in _TABLES:
        raise ValueError(f"not kept: Documentation has no table for {bench}, only for {', '.join(_TABLES)}")
    if len(rows) != cells:
        raise ValueError(f"not kept: {len(rows)} of {cells} cells are measured by today's code; measure the rest")
    made = time.strftime("%Y-%m-%d", time.gmtime())
    kept_file.write(file_of(bench, directory), rows, f"`make bench-{bench}`, {by}, made {made}")


def with_tables(text: str, directory: Path = DIRECTORY) -> str:
    """Return a page of Documentation with a table for each bench that something is kept of, between its marks."""
    for bench, table in _TABLES.items():
        if file_of(bench, directory).exists():
            kept = kept_file.read(file_of(bench, directory))
            block = f"{table(kept.points)}\n{_missed(kept.points)}One seed each. {kept.origin}.\n"
            text = kept_tables.between_marks(text, f"bench-{bench}", block)
        elif f"<!-- bench-{bench} -->" in text:
            raise ValueError(f"no results are kept for the table 'bench-{bench}'")
    return text


def _missed(points: Sequence[Point]) -> str:
    """Return in words how many rows hold all bars, and a line for each of the others with what it missed."""
    held = sum(not one["missed"] for one in points)
    if held == len(points):
        return f"All {held} hold all bars. "
    lines = []
    for one in points:
        if one["missed"]:
            name, _, _ = one["missed"][0].partition(": ")
            told = "; ".join(text.removeprefix(f"{name}: ") for text in one["missed"])
            lines.append(f"- {name}{_path_of(one)}: {told}\n")
    return f"{held} of {len(points)} hold all bars; the others:\n\n{''.join(lines)}\n"


def _path_of(one: Point) -> str:
    if "loss" not in one:
        return ""
    return f" ({_line(one)}, {100 * one['loss']:g} % lost, {one['op']})"


def _line(one: Point) -> str:
    return f"{one['rtt_ms']:g} ms, {one['rate_mbit']:g} Mb/s, {one['buffer_bdp']:g} BDP"


def _tune(points: Sequence[Point]) -> str:
    # Which imports what keeps the rows.
    import tune_cells

    rows = []
    for says, least, mine in (
        ("without loss", tune_cells.CLEAN, [one for one in points if not one["loss"]]),
        ("with loss", tune_cells.LOSSY, [one for one in points if one["loss"]]),
    ):
        bound = [one["fraction_of_bound"] for one in mine]
        quick = sum(one["steps"] <= tune_cells.MOST_STEPS and one["took_s"] <= tune_cells.MOST_S for one in mine)
        rows.append((
            says, str(len(mine)), f"{least:g}", f"{sum(one >= least for one in bound)}",
            f"{statistics.median(bound):.3f}, {min(bound):.3f}",
            f"{sum(one['fraction_of_best_peer'] >= tune_cells.PEER for one in mine)}", str(quick),
        ))  # fmt: skip
    of_peer = f"{tune_cells.PEER:g} of the best other way"
    quickly = f"{tune_cells.MOST_STEPS} steps and {tune_cells.MOST_S:g} s at most"
    titles = ("cells", "number", "of the bound demanded", "held by", "median, least", of_peer, quickly)
    return kept_tables.table(titles, rows)


def _share(points: Sequence[Point]) -> str:
    def pair(one: Point, figure: str) -> str:
        return f"{one[f'untouched_{figure}']:.2f}, {one[f'tune_{figure}']:.2f}" if f"tune_{figure}" in one else "–"

    rows = [
        (
            _line(one), f"{100 * one['loss']:g} %", one["op"], str(one["sessions"]), one["cross"],
            *(pair(one, name) for name in _SHARED),
        )
        for one in points
    ]  # fmt: skip
    titles = ("line", "loss", "op", "sessions", "beside", *(f"{said}: untouched, tune" for said in _SHARED.values()))
    return kept_tables.table(titles, rows)


_SHARED = {"of_fair": "of a fair half", "of_other": "times the other's", "evenness": "evenness"}


def _told(points: Sequence[Point]) -> str:
    rows = []
    for told in dict.fromkeys(one["told"] for one in points):
        mine = [one for one in points if one["told"] == told]
        least = min(one["fraction_of_untouched"] for one in mine)
        before = min(one["fraction_before_tune"] for one in mine)
        noticed = (str(sum(one[f"{who}_noticed"] for one in mine)) for who in ("lint", "tune"))
        rows.append((told, str(len(mine)), *noticed, f"{before:.3f}", f"{least:.3f}"))
    least_titles = ("least of untouched before tune", "and with it")
    return kept_tables.table(("told", "cells", "lint names it", "tune names it", *least_titles), rows)


def _latency(points: Sequence[Point]) -> str:
    def pair(one: Point, figure: str, digits: int) -> str:
        ways = ("untouched", "untouched_again", "tune")
        return ", ".join(f"{one[f'{way}_{figure}']:.{digits}f}" for way in ways)

    rows = [
        (
            _line(one), one["op"], str(one["depth"]), pair(one, "p50_ms", 1), pair(one, "p99_ms", 1),
            pair(one, "stream_mb_per_s", 2), str(one["tune_kept_steps"]),
        )
        for one in points
    ]  # fmt: skip
    figures = ("p50 ms", "p99 ms", "the stream's MB/s")
    twice = (f"{one}: untouched twice, tune" for one in figures)
    titles = ("line", "stream", "short requests at a time", *twice, "steps kept")
    return kept_tables.table(titles, rows)


def _guard(points: Sequence[Point]) -> str:
    rows = [
        (
            one["op"], f"{one['told_mbit']:g} Mb/s", f"{one['rtt_ms']:g} ms",
            "never" if one.get("again_s") is None else f"{one['again_s']:.1f} s", f"{one['hold_s']:g} s",
        )
        for one in points
    ]  # fmt: skip
    return kept_tables.table(("op", "told", "the path steps to", "its line again after", "at rest at the end"), rows)


_TABLES: Mapping[str, Callable[[Sequence[Point]], str]] = {
    "tune": _tune, "share": _share, "latency": _latency, "told": _told, "guard": _guard,
}  # fmt: skip
