#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make bench-connection` came to, kept in the tree, and the tables of Documentation/wan.md that show it.

connection_kept.py out/bench/connection.json keeps what was measured, of several files the range over their seeds;
`make figures` then puts it on the page.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "userspace")]

import kept_against  # noqa: E402
import kept_file  # noqa: E402
import kept_tables  # noqa: E402
from kept_file import Point  # noqa: E402

FILE = TOP / "Documentation/results/bench/connection.json"
PAGE = TOP / "Documentation/wan.md"
# A figure is least and most over the seeds; its columns by what was measured, each with its digits.
_COLUMNS: dict[str, dict[str, tuple[str, int]]] = {
    "wan": {"read_mb_per_s": ("read MB/s", 1), "write_mb_per_s": ("write MB/s", 1)},
    "beside": {
        "bulk_mbit_per_s": ("another flow of the NIC, Mb/s", 0),
        "idle_p99_us": ("p99 of its round trips, storage idle, µs", 1),
        "busy_p99_us": ("the same beside 20 MB/s of storage", 0),
    },
    "shared": {
        "read": ("four read MB/s", 1), "read_slowest": ("the slowest", 1),
        "write": ("four write MB/s", 1), "write_slowest": ("the slowest", 1),
        "dropped": ("packets dropped", 0), "alone": ("one alone, MB/s", 1),
    },
}  # fmt: skip


def points_of(measured: Sequence[Mapping[str, Any]]) -> list[Point]:
    """Return what files like connection.json, a seed each, have: a point for each thing measured and way of pacing."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for case in (one for document in measured for one in document["cases"]):
        mine = found.setdefault((case["what"], case["way"]), {})
        for name, figure in _figures(case):
            mine.setdefault(name, []).append(figure)
    return [
        {
            "what": what,
            "way": way,
            "seeds": len(measured),
            **{name: [min(all_), max(all_)] for name, all_ in mine.items()},
        }
        for (what, way), mine in found.items()
    ]


def _figures(case: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    if case["what"] == "wan":
        return [(name, case[name]) for name in _COLUMNS["wan"]]
    if case["what"] == "beside":
        place = "idle" if case["storage"] == "idle" else "busy"
        return [("bulk_mbit_per_s", case["bulk_mbit_per_s"]), (f"{place}_p99_us", case["p99_us"])]
    each, op = case["mb_per_s"], case["op"]
    if len(each) == 1:
        return [("alone", each[0])]
    return [(op, case["sum_mb_per_s"]), (f"{op}_slowest", min(each)), ("dropped", sum(case["drops"].values()))]


def table(points: Sequence[Point], what: str) -> str:
    """Return a row a way of pacing, with the figures that are known of it."""
    columns = _COLUMNS[what]
    rows = [
        (f"`{one['way']}`", *(_span(one.get(name), digits) for name, (_, digits) in columns.items()))
        for one in points
        if one["what"] == what
    ]
    return kept_tables.table(("paced by", *(title for title, _ in columns.values())), rows)


def _span(ends: Sequence[float] | None, digits: int) -> str:
    return " to ".join(dict.fromkeys(f"{end:,.{digits}f}" for end in ends)) if ends else "–"


def with_tables(text: str, path: Path = FILE) -> str:
    """Return a page of Documentation with the tables of what is kept between their marks."""
    kept = kept_file.read(path)
    # All ways but one are of this profile, or of a part of it.
    since = kept_against.profiles_apart(replace(kept, points=[{"profile": "wan"}]))
    said = "".join(f" {why}." for why in since)
    for what in _COLUMNS:
        seeds = {int(one["seeds"]) for one in kept.points if one["what"] == what}
        of = "One seed." if seeds == {1} else f"Least and most of {' or '.join(map(str, sorted(seeds)))} seeds."
        block = f"{table(kept.points, what)}\n{of}{said} {kept.origin}.\n"
        text = kept_tables.between_marks(text, f"connection-{what}", block)
    return text


def main() -> int:
    """Keep what files have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    points = points_of([json.loads(path.read_text()) for path in parser.parse_args().files])
    made = time.strftime("%Y-%m-%d", time.gmtime())
    kept_file.write(FILE, points, f"`make bench-connection`, kernel 6.12, made {made}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
