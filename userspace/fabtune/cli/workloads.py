# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``workloads``: what can be measured with."""

import argparse
import re

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
        table.print_json(rows)
    elif name:
        print(_explained(known[0]))
    else:
        table.table(("workload", "summary"), [(one.name, one.summary) for one in known], wrapped="summary")
    return ExitCode.DONE


def _explained(shown: workload.Workload) -> str:
    """Return what the workload is, where it comes from and what may be set, as text for a terminal."""
    time = shown.time
    runtime = f"{time.runtime_s:g} s after {time.ramp_s:g} s of ramp" if time.runtime_s else "until all is moved"
    target = "a block device or a directory" if shown.target == "any" else f"a {shown.target}"
    lines = [f"{shown.name}: {shown.summary}", "", shown.description, "", f"Source   {shown.source}"]
    lines += [f"Runs on  {target}", f"Each step runs {runtime}", "", "Parameters (--set NAME=VALUE[,VALUE...]):"]
    lines += [f"  {name} = {','.join(map(str, values))}" for name, values in shown.parameters.items()]
    lines += [
        "",
        "Steps:",
        *(
            "  " + re.sub(r"\$\{(\w+)\}", r"<\1>", step.name) + (f" ({step.cache})" if step.cache else "")
            for step in shown.steps
        ),
    ]
    return "\n".join(lines)
