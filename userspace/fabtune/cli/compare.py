# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``compare``, and how a comparison is shown."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabtune.cli import console
from fabtune.cli import measure as measure_cli
from fabtune.model.units import parse_percent

if TYPE_CHECKING:
    from fabtune.model.runrecord import RunRecord


def configure(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the arguments."""
    add_judging_arguments(parser)
    parser.add_argument("a", type=Path, metavar="A", help="a run record, or a directory of them")
    parser.add_argument("b", type=Path, metavar="B", help="the same, to hold against A")
    parser.set_defaults(handler=_compare)


def add_judging_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says how a difference is judged and shown."""
    parser.add_argument(
        "--practical",
        type=measure_cli.quantity(parse_percent),
        default=0.02,
        metavar="PERCENT",
        help="a smaller difference does not matter (2%%)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _load(path: Path) -> "list[RunRecord]":
    from fabtune.measure import record

    paths = record.find(path) if path.is_dir() else [path]
    return [record.read(one) for one in paths]


def _compare(args: argparse.Namespace) -> int:
    from fabtune.report import compare

    outcome = compare.compare(_load(args.a), _load(args.b), practical=args.practical)
    with console.reader_may_leave():
        show(outcome, args.json)
    return outcome.exit_code


def show(outcome: Any, as_json: bool) -> None:
    from fabtune.cli.table import paragraph, report_table
    from fabtune.report import compare
    from fabtune.report.table import Column, Table

    if as_json:
        print(json.dumps(compare.as_json(outcome), indent=2))
        return
    # What decides stays beside its figure; what explains it goes below.
    report_table(compare.table(outcome), fold=("", "step"))
    for note in (*compare.reasons(outcome), *outcome.notes):
        paragraph(note)
    if outcome.invalid:
        reasons = (Column("not used", "record"), Column("why", "why"))
        report_table(Table("Runs that are not valid", reasons, outcome.invalid))
    if outcome.differences:
        columns = (Column("differs", "what"), Column(outcome.a, "a"), Column(outcome.b, "b"))
        report_table(Table("What else differed", columns, outcome.differences))
