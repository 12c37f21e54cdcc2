# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``report``."""

import argparse
import sys
from pathlib import Path

from fabtune.cli import console
from fabtune.cli.arguments import first_given
from fabtune.cli.table import print_json
from fabtune.errors import ExitCode, InputError, printable


def run_report(args: argparse.Namespace) -> int:
    """Write the page of all records below a directory; exit 1 when one cannot be read."""
    from fabtune.experiment import derived
    from fabtune.report import runs, suite

    if args.tree and (option := first_given(args, "--json", "--out")):
        raise InputError(f"report: --tree writes DIR/index.html; it cannot be combined with {option}")
    if args.json and first_given(args, "--out"):
        raise InputError("report: --json prints the figures; it cannot be combined with --out")
    if args.tree:
        return _tree(args.directory)
    records, unreadable, remarks = suite.load(args.directory)
    remarks += [one.why for one in derived.remarks(args.directory)]
    for _, why in unreadable:
        print(f"fabtune: not used: {printable(why)}", file=sys.stderr)
    if unreadable:
        print("fabtune: runs of an experiment that are not used are measured again by `run --resume`", file=sys.stderr)
    for why in remarks:
        print(f"fabtune: {printable(why)}", file=sys.stderr)
    code = ExitCode.FAILED if unreadable else ExitCode.DONE
    with console.reader_may_leave():
        if args.json:
            print_json([{"file": one.file} | runs.as_json(one) for one in records])
        else:
            command = ["fabtune", "report", str(args.directory)]
            print(suite.write(records, unreadable, remarks, command, args.out or args.directory / "report.html"))
    return code


def _tree(directory: Path) -> int:
    """Write the pages of all experiments below `directory` anew, and the suite's; exit 1 when a run is not used."""
    from fabtune.experiment import publish

    written, complaints = publish.write_suite_tree(directory)
    for complaint in complaints:
        print(f"fabtune: {printable(complaint.said)}", file=sys.stderr)
    with console.reader_may_leave():
        print(written)
    return ExitCode.DONE if all(one.usable for one in complaints) else ExitCode.FAILED
