# SPDX-License-Identifier: GPL-2.0-or-later
"""What is told of the paths of steps: of several that have no apply beside them, one alone is watched."""

from collections.abc import Sequence

from fabtune.guard.news import NOTICE, Figure, Told, of_path, path_name
from fabtune.model.listing import first_of
from fabtune.tune.journal import Transaction

_MOST_NAMED = 3


def of_watched(step: Transaction, others: Sequence[Transaction]) -> Told:
    """Return what says which path is watched, that of `step`, and that those of the `others` are not."""
    not_watched = first_of(list(map(_place, others)), _MOST_NAMED)
    text = f"of the steps' paths the longest alone is watched, {_place(step)}; not {not_watched}"
    about = of_path(step, **_figures(step), not_watched=list(map(_figures, others)))
    return Told("watched", NOTICE, f"{path_name(step)}: {text}", about)


def _figures(step: Transaction) -> dict[str, Figure]:
    header = step.header
    ends = [{"local": one.local, "remote": one.remote} for one in header.ends]
    return {"planned_rtt_ms": header.rtt_ms, "ends": ends}


def _place(step: Transaction) -> str:
    ends = [f"{one.local} to {one.remote}" for one in step.header.ends]
    return f"{step.header.rtt_ms or 0.0:.1f} ms ({first_of(ends, _MOST_NAMED)})"
