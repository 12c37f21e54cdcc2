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


def _load(path: Path) -> "tuple[list[RunRecord], list[str]]":
    """Return the records at `path`, and what must be said of them.

    Raises InputError where one is not to be used: nobody may take the others for all there are.
    """
    from fabtune.experiment import derived
    from fabtune.measure import failedruns, recordfile, resulttree

    # One record of an experiment's run is not to be believed where the run as a whole is not.
    complaints = derived.complaints(path) if path.is_dir() else resulttree.check_record(path)
    for one in complaints:
        if not one.usable:
            raise InputError(f"{one.why}; `fabtune report` of the directory with all of them shows the others")
    remarks = [one.why for one in complaints]
    if not path.is_dir():
        return [recordfile.read(path)], remarks
    return [recordfile.read(one) for one in recordfile.find(path)] + failedruns.stand_ins(path), remarks


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
    (a, of_a), (b, of_b) = _load(args.a), _load(args.b)
    for why in dict.fromkeys([*of_a, *of_b]):
        print(f"fabtune: {why}", file=sys.stderr)
    outcome = compare.compare_sets(a, b, practical=args.practical)
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
