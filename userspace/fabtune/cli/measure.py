# SPDX-License-Identifier: GPL-2.0-or-later
"""The verbs ``measure`` and ``workloads``."""

import argparse
import contextlib
import json
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from fabtune import progress
from fabtune.cli import table
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.measure import workload

if TYPE_CHECKING:
    from fabtune.model.runrecord import PathTold, RunRecord

# Drawing the bar takes about a millisecond: ten times a second that would be a per cent of a CPU, taken from the load.
REDRAWS_PER_S = 0.5


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


def path_of(args: argparse.Namespace) -> "PathTold":
    """Return what the user said about the network path."""
    from fabtune.model.runrecord import PathTold

    rtt_s = None if args.rtt is None else args.rtt / 1e3
    return PathTold(rtt_s, None if args.rate is None else args.rate / 8, args.mtu)


def expected_s(args: argparse.Namespace, load: workload.Workload) -> float:
    """Return about how long one run of `load` takes."""
    runtime_s = load.time.runtime_s if args.runtime is None else args.runtime
    ramp_s = load.time.ramp_s if args.ramp is None else args.ramp
    steps = len(list(load.combinations())) * len(load.steps)
    return float(steps * (runtime_s + ramp_s if runtime_s else 20.0))


def prepare(args: argparse.Namespace) -> tuple[workload.Workload, Any]:
    """Return the workload and target, after everything that can be refused has been checked.

    Raises InputError.
    """
    from fabtune.measure import run, target

    if not args.on:
        raise InputError(f"measuring '{args.workload}' needs --on with a block device or a directory")
    load = workload.load(args.workload).with_parameters(args.set)
    place = target.find(args.on)
    run.check_target(load, place)
    if writes(load, place):
        confirm = args.confirm
        if confirm is None and place.kind == "device" and sys.stdin.isatty() and not target.in_use(place):
            found = ", ".join(target.signatures(place)) or "no signatures found"
            print(f"This overwrites {target.describe(place)} ({found}).", file=sys.stderr)
            print(f"Type {place.path.name} to go on: ", end="", file=sys.stderr, flush=True)
            confirm = sys.stdin.readline().strip()
        target.check_writable(place, confirm)
    return load, place


def writes(load: workload.Workload, place: Any) -> bool:
    """Return whether any step of `load` changes what `place` holds."""
    where = workload.Place(place.path, place.path, place.size_bytes)
    return any(step.writes for step in workload.expand(load, where, runtime_s=None, ramp_s=0))


def run_measure(args: argparse.Namespace) -> int:
    """Run a workload and keep its record; exit 3 when the wire shows something else than was claimed."""
    from fabtune.measure import run

    # A service manager's stop is handled like Ctrl-C: the load ends, the record stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = ExitCode.DONE
    try:
        result = _net(args) if args.workload == "net" else _load(args)
    except run.IncompleteError as error:
        result = error.record
        code = ExitCode.INTERRUPTED if isinstance(error, run.RunInterruptedError) else ExitCode.FAILED
        print(f"fabtune: {error}", file=sys.stderr)
    return _keep(args, result, code)


def _net(args: argparse.Namespace) -> "RunRecord":
    from fabtune.measure import network

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


def _load(args: argparse.Namespace) -> "RunRecord":
    from fabtune.measure import capture, pcp, run

    load, place = prepare(args)
    claims = capture.claims(args.claim)
    if args.capture:
        capture.check(place)
    show = _progress()
    around = environment()
    archive = pcp.Archive(args.out / time.strftime(f"%Y%m%dT%H%M%S-{load.name}.pcp", time.gmtime()))
    try:
        with contextlib.ExitStack() as stack:
            if pcp.available():
                stack.enter_context(archive)
            result = run.measure(
                load,
                place,
                label=args.label,
                path=path_of(args),
                runtime_s=args.runtime,
                ramp_s=args.ramp,
                environment=around,
                keep_files=args.keep_files,
                begin_unix_s=args.at,
                show=show,
            )
    except run.IncompleteError as error:
        error.record = attrs.evolve(error.record, pcp_archive=archive.name)
        raise
    finally:
        if archive.problem:
            say(archive.problem)
    result = attrs.evolve(result, pcp_archive=archive.name)
    if args.capture:
        try:
            with show.step("capturing a short load of the same kind"):
                result = capture.prove(result, load, place, claims)
        except KeyboardInterrupt:
            raise run.RunInterruptedError("capture interrupted; the measured part is whole", result) from None
        except FabtuneError as error:
            raise run.IncompleteError(f"no proof from the wire: {error}", result) from error
    return result


def _progress() -> progress.Progress:
    return progress.for_stderr(REDRAWS_PER_S)


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"fabtune: {text}", file=sys.stderr, flush=True)


def _keep(args: argparse.Namespace, result: "RunRecord", code: ExitCode) -> int:
    """Write the record, show its figures and return the exit code.

    3 when the capture contradicts a claim, or a workload that judges by it saw a request stuck.
    """
    from fabtune.measure import proof
    from fabtune.report import cells, runs, throughput

    result = attrs.evolve(result, command=("fabtune", *sys.argv[1:]))
    kept, code = _write(result, args.out / record_name(result), code)
    if args.json:
        print(json.dumps(runs.as_json(result) | {"record": str(kept)}, indent=2))
    else:
        table.report_table(runs.figures(result))
        for sentence in throughput.balanced(cells.cells([result])):
            table.paragraph(sentence)
        for one in (runs.network(result), runs.proof(result), runs.laws(result, only_failed=True)):
            if one.rows:
                table.report_table(one)
    said = "kept" if result.complete else "kept what was measured, marked incomplete"
    say(f"{said}: {kept}; see it with: fabtune report {kept.parent}")
    failed = any(claim.verdict == proof.NOT_AS_CONFIGURED for claim in result.proof)
    failed |= any(step.stuck.requests for step in result.steps if step.stuck)
    return ExitCode.DRIFT if code == ExitCode.DONE and failed else code


def _write(result: "RunRecord", path: Path, code: ExitCode) -> tuple[Path, ExitCode]:
    """Write the record to `path`, or where that cannot be to the system's directory for temporary files.

    Return where it is and the exit code: what took hours to measure is not lost to a full disk, but it has failed.
    """
    from fabtune.measure import record

    try:
        return record.write(result, path), code
    except (FabtuneError, OSError) as error:
        print(f"fabtune: {error}", file=sys.stderr)
        return record.write(result, Path(tempfile.gettempdir()) / path.name), code or ExitCode.FAILED


def record_name(result: "RunRecord") -> str:
    """Return a file name that sorts by time: start, workload, label."""
    start = result.started_unix_s
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(start)) + f".{int(start % 1 * 1000):03d}"
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", result.label)
    return "-".join(part for part in (stamp, result.workload.name, label) if part) + ".run.json.gz"


def environment() -> dict[str, Any]:
    """Return every tunable of this host, read back, as ``name of device`` -> value."""
    from fabtune.catalog.tunable import shipped_catalog
    from fabtune.facts.collect import collect

    readings = collect(shipped_catalog().tunables.values()).readings
    return {f"{one.tunable} of {one.device.label}": one.value for one in readings if one.value is not None}
