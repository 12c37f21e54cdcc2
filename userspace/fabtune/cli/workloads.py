# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``workloads``: what can be measured with."""

import argparse
import json

import attrs

from fabtune.cli import table
from fabtune.errors import ExitCode
from fabtune.measure import workload


def run_workloads(args: argparse.Namespace) -> int:
    """List the workloads, or show one."""
    return show_workloads(args.name, args.json)


def show_workloads(name: str | None, as_json: bool) -> int:
    """Print the list of workloads, or one in full, and return the exit code."""
    known = [workload.load(one) for one in ([name] if name else workload.names())]
    if as_json:
        keys = ("name", "summary", "source", "description", "target", "parameters")
        rows = [{key: getattr(one, key) for key in keys} | attrs.asdict(one.time) for one in known]
        print(json.dumps(rows, indent=2))
    elif name:
        print(workload.explain(known[0]))
    else:
        table.table(("workload", "summary"), [(one.name, one.summary) for one in known], wrapped="summary")
    return ExitCode.DONE
