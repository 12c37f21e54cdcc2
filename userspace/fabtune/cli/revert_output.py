# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints what a revert did, or would do."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fabtune.cli.output import pending_json, reconnect_in_words, show_pending, show_reconnected
from fabtune.cli.table import one_line, paragraph, print_json, table, text_below

# Only what is printed is imported.
if TYPE_CHECKING:
    from fabtune.tune.outcome import StepOutcome
    from fabtune.tune.undo import Report
    from fabtune.tune.would_revert import WouldRevert

# What would become of a value, by the state that a revert would report.
_WOULD = {
    "restored": "to go back",
    "already": "back already",
    "passed-on": "passed on",
    "gone": "gone",
    "waiting": "waiting",
    "foreign": "left alone",
    "held": "held",
    "failed": "not to be told",
}
_NOTHING = "nothing to take back"


def _counts(outcomes: "Iterable[StepOutcome]") -> dict[str, int]:
    """Return how many values there are of each state."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[str(outcome.state)] = counts.get(str(outcome.state), 0) + 1
    return dict(sorted(counts.items()))


def show_revert(report: "Report", as_json: bool) -> None:
    """Print what revert did."""
    if as_json:
        steps = [one.as_json() for one in report.outcomes]
        pending = pending_json(report.pending)
        again = [one.as_json() for one in report.reconnected]
        print_json(
            {"steps": steps, "relogged": report.relogged, "reconnected": again, "brought_up": report.brought_up,
             "pending": pending,
             "problems": report.problems}
        )  # fmt: skip
        return
    for problem in report.problems:
        paragraph(problem)
    for outcome in report.outcomes:
        if outcome.note:
            step = outcome.step
            values = [("old", step.old), ("wrote", step.wrote), ("found", outcome.found)]
            paragraph(f"{outcome.state}: {step.tunable} of {step.device.label}")
            text_below(", ".join(f"{word} {one_line(value)}" for word, value in values if value is not None))
            text_below(outcome.note)
    counts = _counts(report.outcomes)
    paragraph(", ".join(f"{count} {state}" for state, count in counts.items()) or _NOTHING)
    show_reconnected(report.reconnected)
    for label in report.brought_up:
        paragraph(f"{label} was down since a reconnect, and is back with the values of its record")
    for label in report.relogged:
        paragraph(f"logged in again: {label}")
    show_pending(report.pending)


def show_would_revert(found: "WouldRevert", as_json: bool) -> None:
    """Print what revert would do, a table for each transaction."""
    report = found.report
    if as_json:
        steps = [one.as_json() | {"transaction": owner.name} for owner, outcomes in found.values for one in outcomes]
        print_json(
            {"dry_run": True, "steps": steps, "beside": found.beside, "pending": pending_json(report.pending),
             "reconnect": found.reconnect.as_json() if found.reconnect else None,
             "problems": report.problems}
        )  # fmt: skip
        return
    for problem in report.problems:
        paragraph(problem)
    for transaction, outcomes in found.values:
        if outcomes:
            paragraph(f"transaction {transaction.name} ({transaction.profile})")
            table(
                ("tunable", "device", "now", "old", "would be", "why"),
                [_row(one) for one in outcomes],
                wrapped="why",
                fold=("device",),
            )
    counts = ", ".join(f"{count} {_WOULD[state]}" for state, count in _counts(report.outcomes).items())
    paragraph(f"{counts}; nothing was written" if counts else _NOTHING)
    for text in found.beside:
        paragraph(text)
    show_pending(report.pending, "due afterwards")
    if found.reconnect:
        paragraph(reconnect_in_words(found.reconnect))
    if found.exit_code:
        paragraph(f"`fabtune revert` would end with exit code {found.exit_code}, as far as that can be told before")


def _row(outcome: "StepOutcome") -> tuple[str, ...]:
    step, now = outcome.step, "-" if outcome.found is None else one_line(outcome.found) or "(empty)"
    return step.tunable, step.device.label, now, one_line(step.old) or "(empty)", _WOULD[outcome.state], outcome.note
