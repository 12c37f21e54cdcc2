# SPDX-License-Identifier: GPL-2.0-or-later
"""`fabtune run --fleet`: an experiment on the hosts of an Ansible inventory."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fabtune import progress
from fabtune.experiment import fleet, inventory, results
from fabtune.experiment.batch import Run, summary_of
from fabtune.experiment.definition import Definition
from fabtune.measure.keptrun import as_text
from fabtune.model.results import Point
from fabtune.report.table import Column, Table, decimals


def prepare(wanted: Definition, path: Path) -> inventory.Inventory:
    """Return the fleet, after everything that can be refused has been checked.  Raises InputError."""
    fleet.check_definition(wanted)
    return inventory.load(path)


def measure(
    args: argparse.Namespace, wanted: Definition, hosts: inventory.Inventory, runs: Sequence[Run], out: Path
) -> None:
    """Run the experiment on `hosts`; leave ``summary.json`` and the report of all records in `out`."""
    from fabtune.cli.table import report_table
    from fabtune.report import page, suite

    fleet.run_all(
        wanted, runs, hosts, allow_relogin=args.allow_relogin, resume=args.resume, progress=progress.for_stderr()
    )
    points = [one.published for one in summary_of(runs)]
    kept = results.keep_points(points, out)
    html = page.write(suite.render(*suite.load(out), ["fabtune", "report", str(out)]), out / "report.html")
    if args.json:
        print(as_text(points), end="")
        return
    report_table(_table(points))
    print(f"page: {html}\npoints: {kept}", file=sys.stderr)


def _table(points: Sequence[Point]) -> Table:
    columns = (
        Column("profile", "profile"),
        Column("op", "op"),
        Column("host", "host"),
        Column("rate", "mb_per_s", "MB/s", decimals(1)),
        Column("low", "mb_per_s_low", "MB/s", decimals(1)),
        Column("high", "mb_per_s_high", "MB/s", decimals(1)),
        Column("verdict", "verdict"),
        Column("p50", "p50_ms", "ms", decimals(2)),
        Column("p99", "p99_ms", "ms", decimals(2)),
        Column("begun late", "begun_late_ms", "ms", decimals(1)),
        Column("clock off", "clock_offset_ms", "ms", decimals(2)),
    )
    rows = tuple(tuple(point.get(column.key) for column in columns) for point in points)
    return Table("All initiators at once", columns, rows, group_by=2)
