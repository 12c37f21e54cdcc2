# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``report``."""

import argparse
import json
import sys
from pathlib import Path

from fabtune.errors import ExitCode


def configure(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the arguments."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the run records are")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the page here (DIR/report.html)")
    parser.add_argument(
        "--tree",
        action="store_true",
        help="DIR holds experiments of `fabtune run`: link them as one suite (DIR/index.html)",
    )
    parser.add_argument("--json", action="store_true", help="print the figures of every run as JSON; write no page")
    parser.set_defaults(handler=_report)


def _report(args: argparse.Namespace) -> int:
    from fabtune.report import page, runs, suite

    if args.tree:
        return _tree(args.directory)
    records, unreadable = suite.load(args.directory)
    for file, why in unreadable:
        print(f"fabtune: not read: {file}: {why}", file=sys.stderr)
    code = ExitCode.FAILED if unreadable else ExitCode.DONE
    if args.json:
        print(json.dumps([{"file": one.file} | runs.as_json(one) for one in records], indent=2))
        return code
    html = suite.render(records, unreadable, ["fabtune", "report", str(args.directory)])
    print(page.write(html, args.out or args.directory / "report.html"))
    return code


def _tree(directory: Path) -> int:
    """Write the pages of all experiments below `directory` anew, and the suite's."""
    from fabtune.experiment import results
    from fabtune.report import tree as pages

    index = results.of_suite(directory)
    for one in index["experiments"]:
        below = directory / one["directory"]
        pages.write_experiment(results.read(below / results.INDEX), below, in_suite=True)
    results.write(index, directory)
    print(pages.write_suite(index, directory))
    return ExitCode.DONE
