# SPDX-License-Identifier: GPL-2.0-or-later
"""The verbs ``measure`` and ``workloads``."""

import argparse
import json
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabtune.errors import ExitCode, InputError
from fabtune.measure import workload
from fabtune.model.units import parse_bit_per_s, parse_ms


def configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the arguments of `verb`."""
    if verb == "workloads":
        parser.add_argument("name", nargs="?", metavar="WORKLOAD", help="show this one in full")
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(handler=_workloads)
        return
    parser.add_argument("workload", metavar="WORKLOAD", help="one of `fabtune workloads`, or the path of a file")
    add_load_arguments(parser)
    parser.add_argument("--label", default="", help="what is being compared, such as the profile in force")
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="keep the record in DIR (runs)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(handler=_measure)


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says where and how a workload runs."""
    parser.add_argument("--on", required=True, metavar="DEVICE|DIR", help="block device or directory to load")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE[,VALUE]", help="change a parameter")
    parser.add_argument("--runtime", type=_seconds, metavar="TIME", help="measure each step this long, such as 30s")
    parser.add_argument("--ramp", type=_seconds, metavar="TIME", help="let the load run this long before, such as 6s")
    parser.add_argument("--rtt", type=_ms, metavar="TIME", help="round trip of the path, for the bound")
    parser.add_argument(
        "--rate", type=_bit_per_s, metavar="RATE", help="rate of the path, for the bound, such as 1gbit"
    )
    parser.add_argument("--mtu", type=int, default=1500, help="MTU of the path, for the bound (1500)")
    parser.add_argument("--confirm", metavar="NAME", help="allow overwriting this device, such as sdb")
    parser.add_argument(
        "--keep-files", action="store_true", help="leave the files of a directory workload for the next run"
    )


def quantity(parse: Callable[[str], float]) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            return parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


_seconds = quantity(lambda text: parse_ms(text) / 1e3)
_ms = quantity(parse_ms)
_bit_per_s = quantity(parse_bit_per_s)


def _workloads(args: argparse.Namespace) -> int:
    names = [args.name] if args.name else workload.names()
    known = [workload.load(name) for name in names]
    if args.json:
        keys = ("name", "summary", "source", "description", "target", "parameters", "runtime_s", "ramp_s")
        print(json.dumps([{key: getattr(one, key) for key in keys} for one in known], indent=2))
    elif args.name:
        print(workload.explain(known[0]))
    else:
        width = max(len(one.name) for one in known)
        for one in known:
            print(f"{one.name:<{width}}  {one.summary}")
    return ExitCode.DONE


def path_of(args: argparse.Namespace) -> dict[str, float]:
    """Return what the user said about the network path."""
    path: dict[str, float] = {"mtu": args.mtu}
    if args.rtt is not None:
        path["rtt_ms"] = args.rtt
    if args.rate is not None:
        path["rate_bytes_per_s"] = args.rate / 8
    return path


def prepare(args: argparse.Namespace) -> tuple[workload.Workload, Any]:
    """Return the workload and target, after everything that can be refused has been checked.

    Raises InputError.
    """
    from fabtune.measure import target

    load = workload.load(args.workload).with_parameters(args.set)
    place = target.find(args.on)
    if _writes(load, place):
        confirm = args.confirm
        if confirm is None and place.kind == "device" and sys.stdin.isatty() and not target.in_use(place):
            found = ", ".join(target.signatures(place)) or "no signatures found"
            print(f"This overwrites {target.describe(place)} ({found}).", file=sys.stderr)
            print(f"Type {place.path.name} to go on: ", end="", file=sys.stderr, flush=True)
            confirm = sys.stdin.readline().strip()
        target.check_writable(place, confirm)
    return load, place


def _writes(load: workload.Workload, place: Any) -> bool:
    where = workload.Place(place.path, place.path, place.size_bytes)
    return any(step.writes for step in workload.expand(load, where, runtime_s=None, ramp_s=0))


def _measure(args: argparse.Namespace) -> int:
    from rich.console import Console

    from fabtune.measure import record, run
    from fabtune.report import runs

    load, place = prepare(args)
    # A service manager's stop is handled like Ctrl-C: the load ends, the record stays.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = ExitCode.DONE
    try:
        result = run.measure(
            load,
            place,
            label=args.label,
            path=path_of(args),
            runtime_s=args.runtime,
            ramp_s=args.ramp,
            environment=environment(),
            keep_files=args.keep_files,
            say=lambda text: print(f"fabtune: {text}", file=sys.stderr, flush=True),
        )
    except run.IncompleteError as error:
        result = error.record
        code = ExitCode.INTERRUPTED if isinstance(error, run.RunInterruptedError) else ExitCode.FAILED
        print(f"fabtune: {error}", file=sys.stderr)
    kept = record.write(result, args.out / record_name(result))
    if args.json:
        print(json.dumps(runs.as_json(result) | {"record": str(kept)}, indent=2))
    else:
        console = Console(highlight=False)
        console.print(runs.figures(result).to_rich())
        broken = runs.laws(result, only_failed=True)
        if broken.rows:
            console.print(broken.to_rich())
    said = "kept" if result["complete"] else "kept what was measured, marked incomplete"
    print(f"fabtune: {said}: {kept}; see it with: fabtune report {args.out}", file=sys.stderr)
    return code


def record_name(result: dict[str, Any]) -> str:
    """Return a file name that sorts by time: start, workload, label."""
    start = result["started_unix_s"]
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(start)) + f".{int(start % 1 * 1000):03d}"
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", result["label"])
    return "-".join(part for part in (stamp, result["workload"]["name"], label) if part) + ".run.json.gz"


def environment() -> dict[str, Any]:
    """Return every tunable that this host has, read back."""
    return {}
