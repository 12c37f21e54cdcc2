# SPDX-License-Identifier: GPL-2.0-or-later
"""What median and interval cannot show of a rate: seeds that fall into two groups, and one that differs alone."""

from collections.abc import Iterable

from fabtune.model.results import PointRow

GROUPS, APART = "mb_per_s_groups", "mb_per_s_apart"


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
