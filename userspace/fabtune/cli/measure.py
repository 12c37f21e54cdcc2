# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``measure``."""

import argparse
import sys
import time

import attrs

from fabtune import progress
from fabtune.cli import console, table
from fabtune.cli.arguments import first_given
from fabtune.errors import ExitCode, InputError
from fabtune.measure import beat, capture, measurement, network, proof, recordfile, replay, workload_run
from fabtune.measure.measurement import Measurement, Runnable
from fabtune.measure.replay import Replay
from fabtune.model.runrecord import PathTold, RunRecord
from fabtune.report import cells, openloops, reasons, runs, throughput

# Drawing the bar takes about a millisecond: ten times a second that would be a per cent of a CPU, taken from the load.
REDRAWS_PER_S = 0.5


def path_of(args: argparse.Namespace) -> PathTold:
    """Return what the user said about the network path, after saying what of it gives no bound.

    Raises InputError for what is of no use alone.
    """
    missing = [option for option, value in (("--rtt", args.rtt), ("--rate", args.rate)) if value is None]
    if missing and first_given(args, "--mtu"):
        raise InputError(f"--mtu {args.mtu}: the bound needs --rtt and --rate as well")
    if len(missing) == 1:
        given = "--rate" if missing == ["--rtt"] else "--rtt"
        _say(f"no bound is computed: {given} needs {missing[0]} as well")
    rtt_s = None if args.rtt is None else args.rtt / 1e3
    return PathTold(rtt_s, None if args.rate is None else args.rate / 8, args.mtu)


# What a test of the network makes nothing of, what only that does, and what a replay has from its trace.
_NOT_OF_NET = (
    "--on", "--set", "--ramp", "--rtt", "--rate", "--mtu", "--confirm", "--keep-files", "--at", "--capture", "--claim",
    "--trace",
)  # fmt: skip
_OF_NET = ("--peer", "--port", "--windows", "--streams")
_NOT_OF_A_REPLAY = ("--runtime", "--ramp", "--set", "--capture", "--claim", "--keep-files")


def _refuse_unused(args: argparse.Namespace) -> None:
    """Raise InputError for an option that nothing would be done with."""
    if args.workload == "net":
        if option := first_given(args, *_NOT_OF_NET):
            raise InputError(f"measure net: measures just the network; it cannot be combined with {option}")
        return
    if option := first_given(args, *_OF_NET):
        raise InputError(f"measure {args.workload}: needs `measure net`: {option}")
    if args.workload != "replay":
        if first_given(args, "--trace"):
            raise InputError(f"measure {args.workload}: needs `measure replay`: --trace")
        if args.claim and not args.capture:
            raise InputError(f"measure {args.workload}: --claim needs --capture, which it is checked against")
    if args.at is not None and (ago_s := time.time() - args.at) > beat.FAR_S:
        raise InputError(f"--at {args.at:.10g}: {ago_s:.0f} s ago by this host's clock; expected an instant to come")


def asked_of(args: argparse.Namespace) -> Measurement:
    """Return what is to be measured, after everything that can be refused has been checked.  Raises InputError."""
    asked = attrs.evolve(
        measurement.of(args.workload, args.on, args.set, path_of(args)),
        runtime_s=args.runtime, ramp_s=args.ramp, keep_files=args.keep_files,
    )  # fmt: skip
    asked.check(args.confirm, console.ask_for_name if sys.stdin.isatty() else None)
    return asked


def _replay_of(args: argparse.Namespace) -> Replay:
    """Return the replay asked for, after everything that can be refused has been checked.  Raises InputError."""
    if args.trace is None:
        raise InputError("measuring 'replay' needs --trace with a file that blktrace made")
    if option := first_given(args, *_NOT_OF_A_REPLAY):
        raise InputError(f"{option} cannot be given with a replay, whose requests and times are the trace's")
    asked = replay.of(args.trace, args.on, path_of(args))
    asked.check(args.confirm, console.ask_for_name if sys.stdin.isatty() else None)
    return asked


def _runnable(args: argparse.Namespace) -> Runnable:
    if args.workload == "replay":
        return _replay_of(args)
    return asked_of(args)


def run_measure(args: argparse.Namespace) -> int:
    """Run a workload and keep its record; exit 3 when the wire shows something else than was claimed."""
    _refuse_unused(args)
    code = ExitCode.DONE
    try:
        result = _net(args) if args.workload == "net" else _load(args)
    except workload_run.IncompleteError as error:
        result = error.record
        code = ExitCode.INTERRUPTED if isinstance(error, workload_run.RunInterruptedError) else ExitCode.FAILED
        _say(str(error))
    return _keep(args, result, code)


def _net(args: argparse.Namespace) -> RunRecord:
    if not args.peer:
        raise InputError("measuring the network needs --peer HOST, where iperf3 --server runs")
    test_s = 5.0 if args.runtime is None else args.runtime
    return network.measure(
        args.peer,
        port=args.port,
        seconds=test_s,
        windows=args.windows,
        streams=args.streams,
        label=args.label,
        show=_progress(),
    )


def _load(args: argparse.Namespace) -> RunRecord:
    asked = _runnable(args)
    claims = capture.claims(args.claim)
    return measurement.measure_whole(
        asked, args.label, args.out, claims if args.capture else None, args.at, _progress(), _say
    )


def _progress() -> progress.Progress:
    return progress.for_stderr(REDRAWS_PER_S)


def _say(text: str) -> None:
    console.say(f"fabtune: {text}")


def _keep(args: argparse.Namespace, result: RunRecord, code: ExitCode) -> int:
    """Write the record, show its figures and return the exit code.

    3 when the capture contradicts a claim, or a workload that judges by it saw a request stuck.
    """
    result = attrs.evolve(result, command=("fabtune", *sys.argv[1:]))
    kept, problem = recordfile.keep(result, args.out)
    if problem:
        _say(problem)
        code = code or ExitCode.FAILED
    with console.reader_may_leave():
        if args.json:
            table.print_json(runs.as_json(result) | {"record": str(kept)})
        else:
            _show(result)
    said = "kept" if result.complete else "kept what was measured, marked incomplete"
    _say(f"{said}: {kept}; see it with: fabtune report {kept.parent}")
    failed = any(claim.verdict == proof.NOT_AS_CONFIGURED for claim in result.proof)
    failed |= any(step.stuck.requests for step in result.steps if step.stuck)
    return ExitCode.DRIFT if code == ExitCode.DONE and failed else code


def _show(result: RunRecord) -> None:
    table.report_table(runs.figures(result))
    balanced = throughput.balanced(cells.cells([result]))
    for sentence in (*reasons.sentences(result), *openloops.said(result), *balanced):
        table.paragraph(sentence)
    for one in (
        runs.untold_figures(result),
        runs.network(result),
        runs.proof(result),
        runs.laws(result, only_failed=True),
    ):
        if one.rows:
            table.report_table(one)
