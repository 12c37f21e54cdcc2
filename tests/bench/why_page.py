# SPDX-License-Identifier: GPL-2.0-or-later
"""What Documentation/why.md shows of the bench: how right the verdicts are, and how far predictions are off."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kept_pictures
import kept_tables
from kept_file import document_of
from why_judge import UNKNOWN, Truth, predictions, score, share_error_points, summed

from fabtune.report import chart

TOP = Path(__file__).resolve().parents[2]
PAGE, DRAWING = TOP / "Documentation/why.md", TOP / "Documentation/why-predictions.svg"
KEPT = TOP / "Documentation/results/why/bench.json"
_LICENCE = "SPDX-License-Identifier: GPL-2.0-or-later"
_MB = 1e6


def result(truths: Sequence[Truth]) -> dict[str, Any]:
    """Return what is kept of the runs: figures, verdicts case by case, predictions lift by lift."""
    steady = [truth for truth in truths if truth.duty is None]
    return {
        "licence": _LICENCE,
        "figures": summed(truths),
        "cases": [_case(truth) for truth in steady],
        "shares": [
            {"case": truth.name, "points": round(points, 1)}
            for truth in truths
            if (points := share_error_points(truth)) is not None
        ],
        "predictions": [
            {
                "case": one.case, "lift": one.lift, "before_mb_per_s": round(one.before / _MB, 2),
                "measured_mb_per_s": round(one.measured / _MB, 2),
                "foretold_mb_per_s": None if one.foretold is None else round(one.foretold / _MB, 2),
            }
            for truth in steady
            for one in predictions(truth)
        ],
    }  # fmt: skip


def _case(truth: Truth) -> dict[str, Any]:
    both, alone = (score(truth.lifts, truth.base, one_end=one_end) for one_end in (False, True))
    return {
        "case": truth.name, "double": truth.is_double, "truth": both[1], "lifts": list(truth.lifts),
        "both_ends": both[2], "both_ends_right": both[0], "one_end": alone[2], "one_end_right": alone[0],
    }  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """Return what is kept.  Raises ValueError for a file without it."""
    kept = document_of(path)
    if lacks := [name for name in ("figures", "cases", "predictions") if name not in kept]:
        raise ValueError(f"{path}: no {', '.join(lacks)}; tests/bench/why.py --document makes it anew")
    return kept


def tables(kept: Mapping[str, Any]) -> str:
    """Return the part of the page that is made from `kept`."""
    figures = kept["figures"]
    lines = ["| figure | |", "|---|---|"]
    lines += [f"| `{name}` | {'not run' if value is None else value} |" for name, value in figures.items()]
    for heading, end in (("From both ends", "both_ends"), ("From the initiator alone", "one_end")):
        lines += ["", f"{heading}, what was said of each truth (runs):", "", *_matrix(kept["cases"], end)]
    return "\n".join([*lines, ""])


def _matrix(cases: Sequence[Mapping[str, Any]], end: str) -> list[str]:
    counts = Counter((case["truth"], case[end], case[f"{end}_right"]) for case in cases)
    rows = ["| truth | said | runs | |", "|---|---|---|---|"]
    words = {1.0: "right", 0.5: "half right", 0.0: "wrong"}
    for (truth, said, points), count in sorted(counts.items()):
        named = ", ".join(case["case"] for case in cases if (case["truth"], case[end]) == (truth, said))
        what = "counts as wrong" if truth == UNKNOWN else words[points]
        rows.append(f"| {truth} | {said} | {count} | {what}{'' if points == 1 else f': {named}'} |")
    return rows


def with_tables(text: str, kept: Mapping[str, Any]) -> str:
    """Return the page with the tables of `kept` between its marks."""
    return kept_tables.between_marks(text, "bench-why", tables(kept))


def drawing(kept: Mapping[str, Any]) -> str:
    """Return the picture: what was foretold over what came, both logarithmic, and where they are the same."""
    points = {double: [] for double in (False, True)}  # type: dict[bool, list[tuple[float, float]]]
    doubles = {case["case"]: case["double"] for case in kept["cases"]}
    for one in kept["predictions"]:
        if one["foretold_mb_per_s"]:
            points[doubles[one["case"]]].append((one["measured_mb_per_s"], one["foretold_mb_per_s"]))
    every = [value for pair in (*points[False], *points[True]) for value in pair] or [1.0, 10.0]
    ends = min(every), max(every)
    series = [
        chart.Series(name, tuple(sorted(points[double])), "marks", look=int(double))
        for double, name in ((False, "one limiter"), (True, "two at once"))
        if points[double]
    ]
    series.append(chart.Series("as foretold", tuple((end, end) for end in ends), "bound", look=None))
    axes = (chart.Axis("measured MB/s after the change", 10), chart.Axis("foretold MB/s", 10))
    drawn = chart.line_chart("Foretold beside measured", series, *axes, from_zero=False)
    return kept_pictures.standalone([drawn], (TOP / kept_pictures.STYLE).read_text())


def keep(found: Mapping[str, Any]) -> None:
    """Keep what the runs show, and make page and picture anew."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(found, indent=1) + "\n")
    kept = read(KEPT)
    PAGE.write_text(with_tables(PAGE.read_text(), kept))
    DRAWING.write_text(drawing(kept))
