# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``compare``, and how a comparison is shown."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fabtune.cli import console
from fabtune.errors import ExitCode, InputError, printable

if TYPE_CHECKING:
    from fabtune.model.runrecord import RunRecord
    from fabtune.report.compare import Comparison


def _load(path: Path) -> "tuple[list[RunRecord], list[str]]":
    """Return the records at `path`, and what must be said of them.

    Raises InputError where one is not to be used: nobody may take the others for all there are.
    """
    from fabtune.experiment import derived
    from fabtune.measure import failedruns, recordfile, resulttree
    from fabtune.report.apart import under_shown_label

    # One record of an experiment's run is not to be believed where the run as a whole is not.
    complaints = derived.complaints(path) if path.is_dir() else resulttree.check_record(path)
    for one in complaints:
        if not one.usable:
            raise InputError(f"{one.why}; `fabtune report` of the directory with all of them shows the others")
    remarks = [one.why for one in complaints]
    if not path.is_dir():
        return resulttree.with_clocks([under_shown_label(recordfile.read(path))], path), remarks
    # Of a combination that failed whole these stand for all.
    failed = failedruns.stand_ins(path)
    found = failedruns.records_below(path) if failed else failedruns.records_at(path)
    records = [under_shown_label(one) for one in (*map(recordfile.read, found), *failed)]
    return resulttree.with_clocks(records, path), remarks


def _refuse_clocks(a: Path, ours: "list[RunRecord]", b: Path, theirs: "list[RunRecord]") -> None:
    """Raise InputError where one side was measured by another clock than the other, or nothing says by which."""
    from fabtune.measure import keptrun
    from fabtune.report.sample import said_clocks

    clocks = [{one.clock for one in side if one.complete} for side in (ours, theirs)]
    if len(clocks[0] | clocks[1]) > 1:
        said = said_clocks(clocks[0], "clock"), said_clocks(clocks[1], "one")
        raise InputError(
            f"{a} was measured {said[0]}, {b} {said[1]}: times of one say nothing about times of the other; measure "
            "both by one (`clock` in the experiment's definition), and give records of the lab with the "
            f"{keptrun.NOTE} that names theirs"
        )


def run_compare(args: argparse.Namespace) -> int:
    """Hold records against records; the exit code says how it went."""
    from fabtune.report import compare

    if args.b is None:
        return _sessions(args.a, args.practical, as_json=args.json)
    if args.a.resolve() == args.b.resolve():
        raise InputError(
            f"{args.a}: the same path twice; `fabtune compare {args.a}` judges the sessions of `fabtune ab` in it"
        )
    (a, of_a), (b, of_b) = _load(args.a), _load(args.b)
    _say([*of_a, *of_b])
    _refuse_clocks(args.a, a, args.b, b)
    outcome = compare.compare_sets(a, b, practical=args.practical)
    with console.reader_may_leave():
        show(outcome, args.json)
    return outcome.exit_code


def _say(remarks: Sequence[str]) -> None:
    for why in dict.fromkeys(remarks):
        print(f"fabtune: {printable(why)}", file=sys.stderr)


def _sessions(place: Path, practical: float | None, *, as_json: bool) -> int:
    """Hold B against A of each interleaved session at `place`; the gravest says how it went."""
    from fabtune.cli.table import paragraph
    from fabtune.model.units import counted
    from fabtune.report import compare, verdict_table

    records, remarks = _load(place)
    _say(remarks)
    found = compare.compare_sessions(records, practical=practical)
    if not found:
        raise InputError(
            f"{place}: no session of `fabtune ab` with runs of both sides; give two paths to hold one against the other"
        )
    if loose := sum(not one.session for one in records):
        _say([f"{place}: {counted(loose, 'run')} of no session took no part; `fabtune report {place}` judges all"])
    with console.reader_may_leave():
        if as_json and len(found) > 1:
            print(f"[{', '.join(verdict_table.as_json(one) for _, one in found)}]")
        else:
            for name, outcome in found:
                if len(found) > 1:
                    paragraph(f"Session {name}")
                show(outcome, as_json)
    codes = [outcome.exit_code for _, outcome in found]
    return next((code for code in (ExitCode.DRIFT, ExitCode.CANNOT_TELL) if code in codes), ExitCode.DONE)


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
