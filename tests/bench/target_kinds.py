#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes the tables of Documentation/targets.md: what LIO and tgt reach, and what each can be given.

fabtune run target-kinds && tests/bench/target_kinds.py     # keeps the points in Documentation/target-kinds.toml
tests/bench/target_kinds.py --check                         # the page is what the kept points and the vocabulary say
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.catalog.tunable import Tunable, shipped_catalog  # noqa: E402
from fabtune.host import targets  # noqa: E402

PAGE = TOP / "Documentation/targets.md"
KEPT = TOP / "Documentation/target-kinds.toml"
MEASURED = TOP / "out/target-kinds"
# What a figure of the page is made of, besides the factors.
_KEYS = ("target", "profile", "rtt", "op", "mb_per_s", "bound_mb_per_s")
_HEADER = """\
# SPDX-License-Identifier: GPL-2.0-or-later
# What `fabtune run target-kinds` measured, kept by tests/bench/target_kinds.py."""
Point = dict[str, Any]


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def throughput(points: Sequence[Point]) -> str:
    """Return MB/s over the round trip, read / write, a column for each kind of target and profile."""
    if not points:
        return "Not measured yet on this version: the commands above fill the table in.\n"
    columns = list(dict.fromkeys((str(one["target"]), str(one["profile"])) for one in points))
    figures = {(one["target"], one["profile"], one["rtt"], one["op"]): one["mb_per_s"] for one in points}
    bounds = {one["rtt"]: one["bound_mb_per_s"] for one in points}

    def cell(target: str, profile: str, rtt: str) -> str:
        both = [figures.get((target, profile, rtt, op)) for op in ("read", "write")]
        return " / ".join("-" if one is None else f"{one:.1f}" for one in both)

    rows = [[rtt, *(cell(*column, rtt) for column in columns), f"{bound:.1f}"] for rtt, bound in bounds.items()]
    return _table(["RTT", *(f"{target}, `{profile}`" for target, profile in columns), "bound"], rows)


def _described(tunable: Tunable | None) -> str:
    if tunable is None:
        return "-"
    default = tunable.default
    value = ("Yes" if default else "No") if isinstance(default, bool) else str(default)
    return f"`{tunable.name}`, {value}"


def settable() -> str:
    """Return what a login negotiates, with the tunable and default of each kind of target."""
    known, kinds = shipped_catalog().tunables, targets.serving()
    keys = dict.fromkeys(key for kind in kinds for key in kind.offers.values())
    rows = [
        [key if key != "cmdsn_depth" else "command window",
         *(_described(known[kind.offer(key)] if key in kind.offers.values() else None) for kind in kinds)]
        for key in keys
    ]  # fmt: skip
    return _table(["of RFC 7143", *(kind.name for kind in kinds)], rows)


def only_some() -> str:
    """Return what each kind of target has besides: by scope, and how the values survive a boot."""
    rows = []
    for kind in targets.serving():
        mine = [one for one in shipped_catalog().tunables.values() if one.scope in kind.scopes]
        for scope in kind.scopes:
            names = [one.name for one in mine if one.scope == scope and one.name not in kind.offers]
            if names:
                rows.append([kind.name, scope, ", ".join(f"`{name}`" for name in names)])
        kept = sum(one.persist != "none" for one in mine)
        rows.append([kind.name, "survives a boot", f"{kept} of {len(mine)} tunables"])
    return _table(["target", "of each", "besides"], rows)


def measured_in(results: Path) -> list[Point]:
    """Return the points of every combination that `fabtune run` left below `results`, with its factors."""
    found: list[Point] = []
    for file in results.glob("*/run-1/points.json"):
        factors = dict(word.split("=", 1) for word in file.parents[1].name.split(","))
        found += [{**point, **factors} for point in json.loads(file.read_text())]
    return sorted(
        found, key=lambda one: (one["target"], one["profile"], float(one["rtt"].removesuffix("ms")), one["op"])
    )


def blocks(points: Sequence[Point]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each block of the page."""
    yield "throughput", throughput(points)
    yield "settable", settable()
    yield "besides", only_some()


def page(text: str, points: Sequence[Point]) -> str:
    """Return the page `text` with its tables made anew."""
    for name, table in blocks(points):
        before, _, rest = text.partition(f"<!-- made: {name} -->\n")
        _, _, after = rest.partition("<!-- end -->")
        text = f"{before}<!-- made: {name} -->\n{table}<!-- end -->{after}"
    return text


def main() -> int:
    """Write the page, or tell whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    parser.add_argument("results", nargs="?", type=Path, default=MEASURED, help="what `fabtune run` wrote")
    args = parser.parse_args()
    measured = [] if args.check else measured_in(args.results)
    if measured:
        lines = ("{ " + ", ".join(f"{key} = {json.dumps(one[key])}" for key in _KEYS) + " }," for one in measured)
        KEPT.write_text("\n".join([_HEADER, "points = [", *lines, "]", ""]))
    now = PAGE.read_text()
    fresh = page(now, tomllib.loads(KEPT.read_text())["points"])
    if args.check:
        return int(fresh != now)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
