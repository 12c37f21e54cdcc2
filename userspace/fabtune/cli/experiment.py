# SPDX-License-Identifier: GPL-2.0-or-later
"""`fabtune run`: an experiment's matrix, measured where it says, with table, page and summary."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from fabtune import progress
from fabtune.cli import table
from fabtune.errors import ExitCode, InputError
from fabtune.experiment import batch, definition, results
from fabtune.experiment.definition import Definition
from fabtune.experiment.expect import JudgedExpectation
from fabtune.experiment.summary import Summary
from fabtune.lab.recipe import SUITES, recipe_for
from fabtune.measure import keptrun, resulttree
from fabtune.model.units import counted


def run_experiment(args: argparse.Namespace) -> int:
    """Run one experiment; exit 0 when every combination was measured and the figures are as expected."""
    if args.experiment is None:
        found = [(name, definition.load(name).summary) for name in definition.names()]
        table.table(("experiment", "summary"), found, wrapped="summary")
        return ExitCode.DONE
    wanted = definition.load(args.experiment)
    cells = wanted.combinations(args.only)
    out = args.out or Path("out") / wanted.name
    hosts = None
    if args.fleet:
        from fabtune.cli import fleet

        hosts = fleet.prepare(wanted, args.fleet)
    named = hosts.initiators if hosts else ()
    runs = batch.runs_of(wanted, cells, out, named)
    if args.dry_run:
        if args.resume:
            runs = batch.to_measure(runs, resume=True, progress=progress.for_stderr())
        return _show_plan(wanted, runs, args.jobs or os.cpu_count() or 1)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is not a directory")
    out.mkdir(parents=True, exist_ok=True)
    code = ExitCode.DONE
    try:
        if hosts:
            fleet.measure(args, wanted, hosts, runs, out)
        else:
            batch.run_all(wanted, runs, resume=args.resume, progress=progress.for_stderr(), jobs=args.jobs)
            verdicts = batch.judge(wanted, runs)
            _write(wanted, batch.summary_of(runs), verdicts, out, args)
            code = _code(verdicts)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept(runs, args)) from None
    finally:
        # After a failure or Ctrl-C too: the tree shows which runs are there and which failed.
        _write_tree(wanted, out, args, named)
    return code


def _kept(runs: list[batch.Run], args: argparse.Namespace) -> str:
    """Return what an interrupted experiment leaves, and how to go on with it."""
    measured = sum(run.state().status == "measured" for run in runs)
    go_on = shlex.join([*shlex.split(_command(args)), *(["--out", str(args.out)] if args.out else []), "--resume"])
    return f"{measured} of {counted(len(runs), 'run')} {'is' if measured == 1 else 'are'} kept; go on with `{go_on}`"


def _code(verdicts: list[JudgedExpectation]) -> ExitCode:
    """Return what the verdicts amount to; points that were not asked for are no doubt about the others."""
    if any(one.holds is False for one in verdicts):
        return ExitCode.FAILED
    return ExitCode.CANNOT_TELL if any(one.holds is None and one.measured for one in verdicts) else ExitCode.DONE


def _show_plan(wanted: Definition, runs: list[batch.Run], at_once: int) -> int:
    for one in runs:
        print(one.name)
    seconds = len(runs) * batch.EXPECTED_RUN_S / at_once
    print(f"{len(runs)} runs, about {seconds / 60:.0f} minutes on this machine ({wanted.clock} clock)", file=sys.stderr)
    return ExitCode.DONE


def _write(
    wanted: Definition,
    rows: list[Summary],
    verdicts: list[JudgedExpectation],
    out: Path,
    args: argparse.Namespace,
) -> None:
    points = [one.published for one in rows]
    kept = results.keep_points(points, out)
    meta: dict[str, object] = {
        "experiment": wanted.summary,
        "source": wanted.source,
        "commands": [_command(args)],
        "clock": wanted.clock,
        "seeds": wanted.seeds,
        "image": f"{SUITES[0]} {recipe_for(SUITES[0]).digest}",
    }
    if args.json:
        print(keptrun.as_text(points), end="")
    page = _figures(wanted, rows, verdicts, meta, out, quiet=args.json)
    from fabtune.report.figure import WORDS

    for one in verdicts:
        print(table.told(f"{WORDS[one.holds]}: {one.says} ({one.found})"), file=sys.stderr if args.json else sys.stdout)
    if not args.json:
        print(f"page: {page}\npoints: {kept}", file=sys.stderr)


def _figures(
    wanted: Definition, found: list[Summary], verdicts: list[JudgedExpectation],
    meta: dict[str, object], out: Path, *, quiet: bool,
) -> Path:  # fmt: skip
    """Print the table unless `quiet`, write the page, return its path."""
    if not wanted.plot:
        from fabtune.report import answers, demo

        points = [one.published for one in found]
        if not quiet:
            for one in demo.tables(points):
                table.report_table(one)
            for text in (*demo.group_notes(points), *answers.as_lines(demo.answers(points))):
                table.paragraph(text, after="")
        return demo.write(points, meta, out)
    from fabtune.report import figure

    rows = [one.row for one in found]
    if not quiet:
        table.report_table(figure.table(wanted.summary, rows, tuple(wanted.factors)))
        for why in figure.reasons(rows):
            table.paragraph(why)
    x = wanted.plot.x
    numbers, words = wanted.numbers(x), wanted.is_of_words(x)
    plot = figure.Plot(
        x,
        wanted.plot.y,
        wanted.plot.series,
        numbers,
        min(numbers.values()) > 0 and not words,
        words,
    )
    said = [(one.says, one.holds, one.found) for one in verdicts]
    return figure.write(rows, tuple(wanted.factors), plot, said, meta, out)


def _write_tree(wanted: Definition, out: Path, args: argparse.Namespace, hosts: tuple[str, ...]) -> None:
    """Write the pages and indexes of the experiment; those of the suite above where the directory is the usual one.

    What stands in the directory and is not to be used is said.
    """
    from fabtune.report import results_pages as pages

    index = results.keep_index(wanted, out, _command(args), hosts)
    for complaint in resulttree.check(out):
        print(f"fabtune: {'' if complaint.usable else 'not used: '}{complaint.why}", file=sys.stderr)
    pages.write_experiment(index, out, in_suite=args.out is None)
    if args.out is None:
        pages.write_suite(results.keep_suite(out.parent), out.parent)


def _command(args: argparse.Namespace) -> str:
    return shlex.join(
        [
            "fabtune", "run", args.experiment, *(word for only in args.only for word in ("--only", only)),
            *(["--fleet", str(args.fleet)] if args.fleet else []), *(["--allow-relogin"] if args.allow_relogin else []),
        ]
    )  # fmt: skip
