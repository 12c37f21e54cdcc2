# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``report``."""

import argparse
import json
import sys
from pathlib import Path

from fabtune.errors import ExitCode


def run_report(args: argparse.Namespace) -> int:
    """Write the page of all records below a directory; exit 1 when one cannot be read."""
    from fabtune.report import page, runs, suite

    if args.tree:
        return _tree(args.directory)
    records, unreadable, remarks = suite.load(args.directory)
    for _, why in unreadable:
        print(f"fabtune: not used: {why}", file=sys.stderr)
    for why in remarks:
        print(f"fabtune: {why}", file=sys.stderr)
    code = ExitCode.FAILED if unreadable else ExitCode.DONE
    if args.json:
        print(json.dumps([{"file": one.file} | runs.as_json(one) for one in records], indent=2))
        return code
    html = suite.render(records, unreadable, remarks, ["fabtune", "report", str(args.directory)])
    print(page.write(html, args.out or args.directory / "report.html"))
    return code


def _tree(directory: Path) -> int:
    """Write the pages of all experiments below `directory` anew, and the suite's; exit 1 when a run is not used."""
    from fabtune.experiment import results
    from fabtune.measure import resulttree
    from fabtune.report import results_pages as pages

    index = results.keep_suite(directory)
    complaints = resulttree.check(directory)
    for one in index.experiments:
        below = directory / one.directory
        read = resulttree.read_experiment(below / resulttree.INDEX)
        read = resulttree.without_refused(read, complaints, Path(one.directory))
        pages.write_experiment(read, below, in_suite=True)
    for complaint in complaints:
        print(f"fabtune: {'' if complaint.usable else 'not used: '}{complaint.why}", file=sys.stderr)
    print(pages.write_suite(index, directory))
    return ExitCode.DONE if all(one.usable for one in complaints) else ExitCode.FAILED
