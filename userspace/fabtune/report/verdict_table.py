# SPDX-License-Identifier: GPL-2.0-or-later
"""A comparison as people and programs read it: a row a figure, the reasons, and what the verdicts rest on."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from fabtune.model.judgement import ALPHA, ALPHA_BIAS, Judgement, Verdict
from fabtune.model.statistics import groups_in, one_apart
from fabtune.model.units import counted
from fabtune.report.compare import Comparison, FigureRow
from fabtune.report.sample import listed
from fabtune.report.table import Cell, Column, Table, decimals, significant, within

_COLUMNS = (
    Column("step", "step"),
    Column("figure", "figure"),
    Column("unit", "unit"),
    Column("A", "a"),
    Column("B", "b"),
    Column("B against A", "change"),
    Column("", "significance"),
    Column("verdict", "verdict"),
)


def change(found: Judgement) -> str:
    """Return the ratio with its interval: per cent near 1, a multiple where that says more; nothing if not judged."""
    if found.ratio is None or found.interval is None:
        return ""
    return _ratio(found.ratio, *found.interval)


def _ratio(value: float, *interval: float) -> str:
    values = (value, *interval)
    as_multiple = max(values) > 2 or min(values) < 0.5
    shown = values if as_multiple else tuple((one - 1) * 100 for one in values)
    if as_multiple:
        show = within(shown[1], shown[2]) if interval else significant(3)
    else:
        # A tenth of a per cent is of no use to anybody.
        show = decimals(0 if interval and shown[2] - shown[1] > 20 else 1)
    said = [("" if as_multiple or one < 0 else "+") + show(one) for one in shown]
    return said[0] + ("×" if as_multiple else "%") + (f" [{', '.join(said[1:])}]" if interval else "")


def _number(value: float) -> str:
    """Return a figure in six characters or so, which leaves room for the verdict beside it."""
    if value >= 1:
        return f"{value:.4g}" if value < 1e4 else f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.1 else f"{value:.2g}"


def verdict_tables(outcome: Comparison) -> list[Table]:
    """Return one row a figure: first the figures that decide, then those that were looked at beside them."""
    heading = f"{_of_side(outcome.b, 'B')} against {_of_side(outcome.a, 'A')}"
    families = (("the primary figures, which decide", True), ("other figures, which do not decide", False))
    found = [
        (f"{heading}: {said}", [one for one in outcome.rows if one.primary is wanted]) for said, wanted in families
    ]
    return [Table(caption, _COLUMNS, tuple(map(_cells, rows)), group_by=1) for caption, rows in found if rows]


def _of_side(name: str, side: str) -> str:
    """Return a set's name with its side, which two of one name have already."""
    return name if name.endswith(f" ({side})") else f"{name} ({side})"


def _cells(row: FigureRow) -> tuple[Cell, ...]:
    found, (a, b) = row.judgement, row.medians
    ratio = change(found) or (_ratio(b / a) if a and b else None)
    significance = None
    if found.p is not None:
        significance = f"{f'p={found.p:.3f}' if found.p >= 0.001 else 'p<0.001'} n={found.n}"
    shown = (None if median is None else _number(median) for median in (a, b))
    return row.step, row.metric.title, row.metric.unit, *shown, ratio, significance, found.verdict.value


def reasons(outcome: Comparison) -> list[str]:
    """Return each reason for which a verdict cannot be given, with the figures that it holds for."""
    found = _where(outcome, [row.judgement.why for row in outcome.rows])
    return [f"{Verdict.CANNOT_TELL.value}: {why}" + (f" ({where})" if where else "") for why, where in found]


def _where(outcome: Comparison, said: Sequence[str]) -> list[tuple[str, str]]:
    """Return once what is said of figures, in their order, and of which; nothing where it is said of all."""
    found: dict[str, list[str]] = {}
    for row, text in zip(outcome.rows, said, strict=True):
        if text:
            found.setdefault(text, []).append(_called(row))
    return [(text, "" if len(where) == len(outcome.rows) else listed(where)) for text, where in found.items()]


def _called(row: FigureRow) -> str:
    return row.metric.title if row.metric.title.startswith(row.step) else f"{row.step}, {row.metric.title}"


def notes(outcome: Comparison) -> list[str]:
    """Return what the verdicts rest on: reasons, groups, unlike runs and sides, pairing, test, looks, A against A."""
    return [
        *reasons(outcome),
        *_apart(outcome),
        *outcome.unlike,
        *outcome.between,
        *_pairing(outcome),
        *_method(outcome),
        *_looks(outcome),
        *(_calibration(outcome.same) if outcome.same else []),
    ]


def not_used(outcome: Comparison) -> list[str]:
    """Return sentences that name the runs that took no part, why, and what can be done about it."""
    if not outcome.invalid:
        return []
    said = [f"Not used: {listed([f'{record} ({why})' for record, why in outcome.invalid])}."]
    if outcome.paired == "session":
        said.append("A pair is not measured again alone: `fabtune ab` makes a whole session.")
    return said


def _apart(outcome: Comparison) -> Iterable[str]:
    """Say which primary figures fall into two groups, and of which one run alone differs."""
    for row in outcome.primary:
        for called, side in ((outcome.a, row.sides.a), (outcome.b, row.sides.b)):
            unit = row.metric.unit
            if len(found := groups_in(side, row.metric.rounded)) > 1:
                said = " and ".join(f"{len(one)} near {_number(one[len(one) // 2])} {unit}" for one in found)
                yield f"{_called(row)} of {called} falls into two groups: {said}; its median stands for neither."
            if (alone := one_apart(side, row.metric.rounded)) is not None:
                yield f"{_called(row)} of {called}: one of {len(side)} runs differs, {_number(alone)} {unit}."


def _pairing(outcome: Comparison) -> Iterable[str]:
    if outcome.shared:
        runs = f"{counted(outcome.shared, 'run')} of {outcome.b} {'is' if outcome.shared == 1 else 'are'}"
        yield f"{runs} among those of {outcome.a} too."
    remarks = _where(outcome, [row.remark for row in outcome.rows])
    if not outcome.paired and not remarks:
        yield "The runs were not interleaved: drift between the two sets counts as a difference here."
    if outcome.paired == "seed":
        yield "Runs with the same seed are paired."
    for remark, where in remarks:
        yield f"{where}: {remark[0].lower()}{remark[1:]}" if where else remark
    if outcome.paired == "session" and not outcome.same:
        yield "No A/A calibration: whether the set-up itself favours a side is not known."


def _method(outcome: Comparison) -> Iterable[str]:
    judged = [row.judgement for row in outcome.rows if row.judgement.method]
    if not judged:
        return
    said = f"Judged by {' and '.join(dict.fromkeys(one.method for one in judged))}"
    families = outcome.families
    of_all = f" of all that is held against {outcome.a}" if sum(families) > len(outcome.rows) else ""
    if max(families) > 1:
        said += (
            f"; the {families[0]} primary and the {families[1]} other figures{of_all} are a family each: the "
            f"intervals of a family are so wide that at most {_level(outcome.rules.level)} of sessions call any equal "
            "figure of it different (Holm)"
        )
    yield f"{said}."


def _level(level: float) -> str:
    return f"{100 * level:.2g} %"


def _looks(outcome: Comparison) -> Iterable[str]:
    for one in outcome.looked:
        if not one.taken:
            continue
        which = f"Session {one.session}: looked" if len(outcome.looked) > 1 else "Looked"
        said = (
            f"{which} at after {', '.join(map(str, one.taken))} of at most {one.looks[-1]} pairs: each look judges at "
            f"{_level(outcome.rules.level)}, so that all {len(one.looks)} together err in {_level(ALPHA)} of sessions."
        )
        if one.pairs > one.taken[-1]:
            said += f" The session ended after {one.pairs}, between two looks: those after the last look do not count."
        yield said


def _calibration(same: Comparison) -> Iterable[str]:
    words = {
        Verdict.SAME: f"equivalent within {_level(same.rules.practical)}",
        Verdict.CANNOT_TELL: "cannot tell whether the set-up is biased",
    }
    for row in same.primary:
        said = words.get(row.judgement.verdict, "the set-up is biased: it favours one side")
        found = change(row.judgement) or row.judgement.why
        yield f"A against A, {same.point(row)}: {found}: {said} ({_level(1 - ALPHA_BIAS)} interval)."


def as_json(outcome: Comparison) -> str:
    """Return the outcome as JSON under stable keys."""
    found = {
        "a": outcome.a,
        "b": outcome.b,
        "rules": attrs.asdict(outcome.rules),
        "rows": [_row_json(row) for row in outcome.rows],
        "a_against_a": [_row_json(row) for row in outcome.same.rows] if outcome.same else None,
        "invalid": [{"record": record, "why": why} for record, why in outcome.invalid],
        "differences": [{"what": what, "a": a, "b": b} for what, a, b in outcome.differences],
        "notes": notes(outcome),
    }
    return json.dumps(found, indent=2)


def _row_json(row: FigureRow) -> dict[str, Any]:
    medians: Sequence[float | None] = row.medians
    return {
        "step": row.step,
        "figure": row.metric.key,
        "unit": row.metric.unit,
        "primary": row.primary,
        "a_median": medians[0],
        "b_median": medians[1],
        **attrs.asdict(row.judgement),
        "verdict": row.judgement.verdict.value,
        "paired": row.sides.paired,
        "a_values": row.sides.a,
        "b_values": row.sides.b,
    }
