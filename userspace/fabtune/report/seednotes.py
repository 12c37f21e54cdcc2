# SPDX-License-Identifier: GPL-2.0-or-later
"""Of how many seeds rows are, and what median and interval cannot show of a rate: two groups of seeds, one apart."""

from collections.abc import Iterable, Sequence

from fabtune.model.judgement import LEAST
from fabtune.model.results import PointRow

# What a gain is: not the ratio of the medians beside it.
GAIN_UNIT = "by seed"
GROUPS, APART = "mb_per_s_groups", "mb_per_s_apart"


def number_of_seeds(rows: Sequence[PointRow]) -> str:
    """Return of how many seeds `rows` are, as a number or from the least to the most: "3", "1 to 5"."""
    counts = {int(row.get("seeds") or 1) for row in rows} or {1}
    return " to ".join(dict.fromkeys((str(min(counts)), str(max(counts)))))


def too_few(rows: Sequence[PointRow]) -> bool:
    """Tell whether `rows` are of several seeds, and none of enough for an interval."""
    return 1 < max((int(row.get("seeds") or 1) for row in rows), default=1) < LEAST


def said_of_seeds(places: Iterable[tuple[str, PointRow]]) -> list[str]:
    """Return what must be said beside a table, of each row by its place in words."""
    found = []
    for where, row in places:
        if row.get(GROUPS):
            groups = row[GROUPS].replace(", ", " and ")
            said = f"{groups} MB/s (number of seeds); low and high are their ends"
            found.append(f"{where}: the seeds fall into two groups, {said}")
        elif row.get(APART) is not None:
            apart, others = row[APART], int(row["seeds"]) - 1
            found.append(f"{where}: one seed differs, {apart:.4g} MB/s, from the other {others}; one alone is no group")
    return found
