# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``compare``, and how a comparison is shown."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fabtune.cli import console
from fabtune.errors import InputError

if TYPE_CHECKING:
    from fabtune.model.runrecord import RunRecord
    from fabtune.report.compare import Comparison


def _load(path: Path) -> "list[RunRecord]":
    from fabtune.measure import failedruns, keptrun, recordfile, resulttree
    from fabtune.report.apart import under_shown_label

    if not path.is_dir():
        if (path.parent / keptrun.NOTE).exists():
            # One record of an experiment's run is not to be believed where the run as a whole is not.
            keptrun.read(path.parent)
        return [under_shown_label(recordfile.read(path))]
    for complaint in resulttree.check(path):
        if not complaint.usable:
            raise InputError(f"{complaint.why}; `fabtune report {path}` shows the others")
        print(f"fabtune: {complaint.why}", file=sys.stderr)
    return list(map(under_shown_label, [*map(recordfile.read, recordfile.find(path)), *failedruns.stand_ins(path)]))


def _refuse_clocks(a: Path, b: Path) -> None:
    """Raise InputError where one side is known to have been measured by another clock than the other."""
    from fabtune.measure import resulttree

    clocks = [sorted({one.clock for one in resulttree.origins_at(side).values()}) for side in (a, b)]
    if all(clocks) and clocks[0] != clocks[1]:
        ours, theirs = (" and ".join(names) for names in clocks)
        raise InputError(
            f"{a} was measured by the {ours} clock, {b} by the {theirs} one: times of one say nothing about times of "
            "the other; measure both by one (`clock` in the experiment's definition)"
        )


def run_compare(args: argparse.Namespace) -> int:
    """Hold records against records; the exit code says how it went."""
    from fabtune.report import compare

    _refuse_clocks(args.a, args.b)
    outcome = compare.compare_sets(_load(args.a), _load(args.b), practical=args.practical)
    with console.reader_may_leave():
        show(outcome, args.json)
    return outcome.exit_code


def show(outcome: "Comparison", as_json: bool) -> None:
    from fabtune.cli.table import paragraph, report_table
    from fabtune.report import verdict_table
    from fabtune.report.table import Column, Table

    if as_json:
        print(verdict_table.as_json(outcome))
        return
    # What decides stays beside its figure; what explains it goes below.
    for one in verdict_table.verdict_tables(outcome):
        report_table(one, fold=("step", "unit", ""))
    for note in verdict_table.notes(outcome):
        paragraph(note)
    if outcome.invalid:
        reasons = (Column("not used", "record"), Column("why", "why"))
        report_table(Table("Runs that are not valid", reasons, outcome.invalid))
        # The table names them; what can be done about it stands below.
        for note in verdict_table.not_used(outcome)[1:]:
            paragraph(note)
    if outcome.differences:
        columns = (Column("differs", "what"), Column(outcome.a, "a"), Column(outcome.b, "b"))
        report_table(Table("What else differed", columns, outcome.differences))
