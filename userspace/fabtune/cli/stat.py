# SPDX-License-Identifier: GPL-2.0-or-later
"""The verbs ``stat`` and ``stuck``: what fabstat.ko has seen."""

import argparse
import math
import sys
import time
from pathlib import Path

from fabtune.cli.arguments import count
from fabtune.errors import ExitCode, InputError
from fabtune.stat import Interval, Snapshot, StuckList, diff, load, since_seen, snapshot, stuck


def configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the arguments of `verb`."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    if verb == "stuck":
        parser.set_defaults(handler=_stuck)
        return
    parser.add_argument("device", nargs="*", metavar="DEV", help="only this disk, in detail, such as sda")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--watch", type=_seconds, metavar="SECONDS", help="show what happens, again and again")
    mode.add_argument("--diff", nargs=2, type=Path, metavar=("A", "B"), help="compare two saved readings")
    mode.add_argument("--save", type=Path, metavar="FILE", help="keep this reading for --diff")
    parser.add_argument("--count", type=count, metavar="N", help="with --watch: stop after N times")
    parser.add_argument("--all", action="store_true", help="idle devices and removed ones too")
    parser.set_defaults(handler=_stat)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.05 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"'{text}': expected seconds from 0.05 to 86400, such as 1")
    return value


def _stat(args: argparse.Namespace) -> int:
    if args.count and not args.watch:
        raise InputError("--count N goes with --watch SECONDS")
    if args.diff:
        before, after = map(load, args.diff)
        _show(diff(before, after), after, args)
    elif args.watch:
        _watch(args)
    else:
        now = snapshot()
        if args.save:
            args.save.write_text(now.text)
        else:
            _show(since_seen(now), now, args)
    return ExitCode.DONE


def _watch(args: argparse.Namespace) -> None:
    """Print an interval every `args.watch` seconds until it is enough or the user interrupts."""
    before = snapshot()
    # Intervals are laid on a fixed grid, so that printing does not stretch them.
    start = time.monotonic()
    turn = 0
    try:
        while args.count is None or turn < args.count:
            turn += 1
            time.sleep(max(0.0, start + turn * args.watch - time.monotonic()))
            after = snapshot()
            _show(diff(before, after), after, args)
            sys.stdout.flush()
            before = after
    except KeyboardInterrupt:
        # Ctrl-C is how one stops watching.
        return


def _show(interval: Interval, latest: Snapshot, args: argparse.Namespace) -> None:
    from fabtune.cli import stat_output

    chosen = stat_output.choose(interval, args.device, everything=args.all or args.json)
    if args.json:
        stat_output.print_interval_json(interval, chosen, latest, one_line=bool(args.watch))
    elif args.device and not args.watch:
        for device in chosen:
            stat_output.print_details(device)
    else:
        stat_output.print_table(interval, chosen, latest)


def _stuck(args: argparse.Namespace) -> int:
    from fabtune.cli import stat_output

    found: StuckList = stuck()
    stat_output.print_stuck(found, {device.id: device for device in snapshot().devices}, as_json=args.json)
    return ExitCode.DONE
