#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes two tables of Documentation/targets.md from the vocabulary: what LIO and tgt each can be given.

tests/bench/target_kinds.py --check         # the page is what the vocabulary says

What each reaches is measured: `fabtune run target-kinds`, then tests/bench/figures.py --keep out/target-kinds.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "userspace"))

from fabtune.catalog.tunable import Tunable, shipped_catalog  # noqa: E402
from fabtune.host import targets  # noqa: E402

PAGE = TOP / "Documentation/targets.md"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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


def blocks() -> Iterator[tuple[str, str]]:
    """Yield name and text of each block of the page."""
    yield "settable", settable()
    yield "besides", only_some()


def page(text: str) -> str:
    """Return the page `text` with its tables made anew."""
    for name, table in blocks():
        before, _, rest = text.partition(f"<!-- made: {name} -->\n")
        _, _, after = rest.partition("<!-- end -->")
        text = f"{before}<!-- made: {name} -->\n{table}<!-- end -->{after}"
    return text


def main() -> int:
    """Write the page, or tell whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    args = parser.parse_args()
    now = PAGE.read_text()
    fresh = page(now)
    if args.check:
        return int(fresh != now)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
