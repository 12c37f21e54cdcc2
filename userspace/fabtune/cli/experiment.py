# SPDX-License-Identifier: GPL-2.0-or-later
"""`fabtune run`: an experiment's matrix, measured where it says, with table, page and summary."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from fabtune import progress
from fabtune.cli import console, table
from fabtune.cli.arguments import first_given
from fabtune.errors import ExitCode, FabtuneError, InputError, printable
from fabtune.experiment import at_once, batch, definition, earlier, fleet, inventory, measuring, publish, results
from fabtune.experiment.definition import Definition
from fabtune.experiment.expect import JudgedExpectation
from fabtune.experiment.publish import Published
from fabtune.lab.cache import using_cache
from fabtune.measure import keptrun
from fabtune.model.units import counted
from fabtune.report.figure import WORDS

_OF_AN_EXPERIMENT = ("--out", "--only", "--dry-run", "--resume", "--jobs", "--fleet", "--allow-relogin")


def run_experiment(args: argparse.Namespace) -> int:
    """Run one experiment; exit 0 when every combination was measured and the figures are as expected."""
    if args.experiment is None:
        if option := first_given(args, *_OF_AN_EXPERIMENT):
            raise InputError(f"run: {option} needs an experiment's name; `fabtune run` lists them")
        return _list(args.json)
    if args.allow_relogin and not args.fleet:
        raise InputError("run: --allow-relogin needs --fleet; a guest's sessions are logged in anew without it")
    if args.jobs and args.fleet:
        raise InputError("run: --jobs says how many guests run at a time; a fleet's hosts all take part in each run")
    wanted = definition.load(args.experiment)
    cells = wanted.combinations(args.only)
    out = args.out or Path("out") / wanted.name
    hosts = None
    if args.fleet:
        fleet.check_definition(wanted)
        hosts = inventory.load(args.fleet)
    else:
        batch.check_profiles(wanted, cells)
    runs = batch.runs_of(wanted, cells, out, hosts)
    every = batch.runs_of(wanted, wanted.combinations(), out, hosts)
    if args.dry_run:
        if args.resume:
            runs = batch.to_measure(runs, resume=True, progress=progress.for_stderr())
        return _show_plan(every[0].clock, runs, args)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is not a directory")
    with measuring.only_run_in(out):
        results.withdraw(runs, out, resume=args.resume)
        try:
            verdicts = _measure(args, wanted, runs, every, hosts, out)
        except BaseException:
            # The tree shows which runs are there and which failed; what is wrong with it must not hide why it is so.
            try:
                _write_tree(args, wanted, runs, every, hosts, out)
            except (FabtuneError, OSError) as error:
                console.say(f"fabtune: {error}")
            raise
        _write_tree(args, wanted, runs, every, hosts, out)
    return _code(verdicts)


def _measure(
    args: argparse.Namespace,
    wanted: Definition,
    runs: list[batch.Run],
    every: list[batch.Run],
    hosts: inventory.Inventory | None,
    out: Path,
) -> list[JudgedExpectation]:
    """Measure `runs`, show them beside what is there of `every` other, and return what became of what is expected."""
    show = progress.for_stderr()
    try:
        if hosts:
            fleet.run_all(wanted, runs, hosts, allow_relogin=args.allow_relogin, resume=args.resume, progress=show)
        else:
            with using_cache():
                batch.run_all(wanted, runs, resume=args.resume, progress=show, jobs=args.jobs)
        # Whatever part was asked for, what the tree has of the rest stays in view.
        points, verdicts, part = batch.summary_of(every), batch.judge(wanted, every), batch.said_of_part(runs, every)
        if hosts:
            shown = publish.of_fleet(points, part, out)
        else:
            shown = publish.of_lab(wanted, points, verdicts, part, _shown(args, runs, every), out)
        _show(shown, verdicts, args.json)
        for name in earlier.drop([run.directory for run in runs], out):
            again = f"`{shlex.join(['fabtune', 'report', str(out)])}` makes one of those that are there now"
            console.say(f"fabtune: {name} of the earlier runs is removed; {again}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_kept(runs, args, "go on")) from None
    except batch.RunsFailedError as error:
        raise FabtuneError(f"{error}\n{_kept(runs, args, 'measure the rest')}") from None
    return verdicts


def _write_tree(
    args: argparse.Namespace,
    wanted: Definition,
    runs: list[batch.Run],
    every: list[batch.Run],
    hosts: inventory.Inventory | None,
    out: Path,
) -> None:
    """Write the pages and the index of what is there now; say what is wrong with it, and what is kept of earlier."""
    for complaint in publish.write_tree(wanted, out, _shown(args, runs, every), hosts, in_suite=args.out is None):
        print(f"fabtune: {printable(complaint.said)}", file=sys.stderr)
    if kept := earlier.where_kept(out):
        print(f"fabtune: {kept}", file=sys.stderr)


def _list(as_json: bool) -> int:
    found = [(name, definition.load(name).summary) for name in definition.names()]
    if as_json:
        table.print_json({"experiments": [{"experiment": name, "summary": text} for name, text in found]})
    else:
        table.table(("experiment", "summary"), found, wrapped="summary")
    return ExitCode.DONE


def _kept(runs: list[batch.Run], args: argparse.Namespace, what: str) -> str:
    """Return what an experiment leaves that did not reach its end, and how to do `what` then."""
    measured = sum(run.state().status == "measured" for run in runs)
    how = [*(["--out", str(args.out)] if args.out else []), *(["--jobs", str(args.jobs)] if args.jobs else [])]
    go_on = shlex.join([*shlex.split(_command(args, args.only)), *how, *(["--json"] if args.json else []), "--resume"])
    return f"{measured} of {counted(len(runs), 'run')} {'is' if measured == 1 else 'are'} kept; {what} with `{go_on}`"


def _code(verdicts: list[JudgedExpectation]) -> ExitCode:
    """Return what the verdicts amount to; points that were not asked for are no doubt about the others."""
    if any(one.holds is False for one in verdicts):
        return ExitCode.FAILED
    return ExitCode.CANNOT_TELL if any(one.holds is None and one.measured for one in verdicts) else ExitCode.DONE


def _show_plan(clock: str, runs: list[batch.Run], args: argparse.Namespace) -> int:
    if args.json:
        table.print_json(
            {"runs": [{"combination": one.combination.factors, "seed": one.settings.seed} for one in runs]}
        )
    else:
        for one in runs:
            print(one.name)
    if args.fleet:
        seconds, where = sum(map(fleet.expected_s, runs)), "on the fleet, one run after another"
    else:
        seconds = len(runs) * batch.EXPECTED_RUN_S / (args.jobs or at_once.guests_at_once())
        where = "on this machine"
    print(f"{counted(len(runs), 'run')}, about {seconds / 60:.0f} minutes {where} ({clock} clock)", file=sys.stderr)
    return ExitCode.DONE


@console.reader_may_leave()
def _show(shown: Published, verdicts: Sequence[JudgedExpectation], as_json: bool) -> None:
    if as_json:
        print(keptrun.as_text(shown.points), end="")
    else:
        for one in shown.tables:
            table.report_table(one)
        for text in shown.texts:
            table.paragraph(text, after="")
    if shown.part:
        print(table.told(shown.part), file=sys.stderr if as_json else sys.stdout)
    for verdict in verdicts:
        said = f"{WORDS[verdict.holds]}: {verdict.says} ({verdict.found})"
        print(table.told(said), file=sys.stderr if as_json else sys.stdout)
    if not as_json:
        print(f"page: {shown.page}\npoints: {shown.kept}", file=sys.stderr)


def _shown(args: argparse.Namespace, runs: Sequence[batch.Run], every: Sequence[batch.Run]) -> str:
    """Return the command that makes all that is shown: with runs beside those asked for, it is that of the whole."""
    asked = {run.directory for run in runs}
    return _command(args, () if any(run.ended and run.directory not in asked for run in every) else args.only)


def _command(args: argparse.Namespace, only: Sequence[str]) -> str:
    return shlex.join(
        [
            "fabtune", "run", args.experiment, *(word for one in only for word in ("--only", one)),
            *(["--fleet", str(args.fleet)] if args.fleet else []), *(["--allow-relogin"] if args.allow_relogin else []),
        ]
    )  # fmt: skip
