# SPDX-License-Identifier: GPL-2.0-or-later
"""The verbs ``stat`` and ``stuck``: what fabstat.ko has seen."""

import argparse
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from fabtune.errors import ExitCode, InputError
from fabtune.stat import (
    Interval,
    Snapshot,
    StuckList,
    TargetInterval,
    TargetSnapshot,
    diff,
    load,
    load_target,
    served_since_seen,
    since_seen,
    slowest,
    snapshot,
    stuck,
    target_diff,
    target_snapshot,
)

_Reading = TypeVar("_Reading", Snapshot, TargetSnapshot)


def run_stat(args: argparse.Namespace) -> int:
    """Show what happened since the module was loaded, between two readings, or as it happens."""
    if args.count and not args.watch:
        raise InputError("--count N needs --watch SECONDS")
    if args.target:
        _run_target(args)
    elif args.diff:
        before, after = map(load, args.diff)
        _show(diff(before, after), after, args)
    elif args.watch:
        _watch(args, snapshot, lambda before, after: _show(diff(before, after), after, args))
    else:
        now = snapshot()
        if args.save:
            args.save.write_text(now.text)
        else:
            _show(since_seen(now), now, args)
    return ExitCode.DONE


def _run_target(args: argparse.Namespace) -> None:
    """The same of what this host has served as a target."""
    if args.device:
        raise InputError(f"--target shows sessions of initiators, not disks such as '{args.device[0]}'; leave it out")
    if args.diff:
        before, after = map(load_target, args.diff)
        _show_target(target_diff(before, after), after, args)
    elif args.watch:
        _watch(args, target_snapshot, lambda before, after: _show_target(target_diff(before, after), after, args))
    else:
        now = target_snapshot()
        if args.save:
            args.save.write_text(now.text)
        else:
            _show_target(served_since_seen(now), now, args)


def _watch(args: argparse.Namespace, read: Callable[[], _Reading], show: Callable[[_Reading, _Reading], None]) -> None:
    """Show an interval every `args.watch` seconds until it is enough or the user interrupts."""
    before = read()
    # Intervals are laid on a fixed grid, so that printing does not stretch them.
    start = time.monotonic()
    turn = 0
    try:
        while args.count is None or turn < args.count:
            turn += 1
            time.sleep(max(0.0, start + turn * args.watch - time.monotonic()))
            after = read()
            show(before, after)
            sys.stdout.flush()
            before = after
    except KeyboardInterrupt:
        # Ctrl-C is how one stops watching.
        return


def _show_target(interval: TargetInterval, latest: TargetSnapshot, args: argparse.Namespace) -> None:
    from fabtune.cli import target_output

    if args.json:
        target_output.print_served_json(interval, latest, one_line=bool(args.watch))
    else:
        target_output.print_served(interval, latest, everything=args.all)


def _show(interval: Interval, latest: Snapshot, args: argparse.Namespace) -> None:
    from fabtune.cli import slow_output, stat_output

    chosen = stat_output.chosen_devices(interval, args.device, everything=args.all or args.json)
    # The slowest are those since a disk was first seen, of no shorter interval.
    kept = slowest() if not args.watch and not args.diff else None
    requests = kept.requests if kept else ()
    if args.json:
        stat_output.print_interval_json(interval, chosen, latest, requests, one_line=bool(args.watch))
    elif args.device and not args.watch:
        for device in chosen:
            stat_output.print_details(device)
            slow_output.print_recorded(device, requests)
    else:
        stat_output.print_table(interval, chosen, latest)


def run_stuck(args: argparse.Namespace) -> int:
    """List the requests that have been under way for too long."""
    from fabtune.cli import stat_output

    found: StuckList = stuck()
    stat_output.print_stuck(found, {device.id: device for device in snapshot().devices}, as_json=args.json)
    return ExitCode.DONE
