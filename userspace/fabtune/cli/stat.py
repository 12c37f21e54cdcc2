# SPDX-License-Identifier: GPL-2.0-or-later
"""The verbs ``stat`` and ``stuck``: what fabstat.ko has seen."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fabtune.cli import console
from fabtune.cli.arguments import first_given
from fabtune.errors import ExitCode, FabtuneError, InputError
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
    text_snapshot,
    unsent,
    with_around,
)

_Reading = TypeVar("_Reading", Snapshot, TargetSnapshot)
_Counted = TypeVar("_Counted", Interval, TargetInterval)


def run_stat(args: argparse.Namespace) -> int:
    """Show what happened since the module was loaded, between two readings, or as it happens."""
    if args.count and not args.watch:
        raise InputError("--count N needs --watch SECONDS")
    if args.save and (option := first_given(args, "DEV", "--all", "--json")):
        raise InputError(f"stat: --save keeps the whole reading; it cannot be combined with {option}")
    if not args.target:
        # A reading is kept as text, which every fabtune reads.
        _run(args, text_snapshot if args.save else snapshot, with_around, load, diff, since_seen, _show)
    elif args.device:
        raise InputError(f"--target shows sessions of initiators, not disks such as '{args.device[0]}'; leave it out")
    else:
        _run(args, target_snapshot, _text, load_target, target_diff, served_since_seen, _show_target)
    return ExitCode.DONE


def _text(reading: TargetSnapshot) -> str:
    return reading.text


def _run(
    args: argparse.Namespace, read: Callable[[], _Reading], to_save: Callable[[_Reading], str],
    load_saved: Callable[[Path], _Reading], between: Callable[[_Reading, _Reading], _Counted],
    since: Callable[[_Reading], _Counted],
    show: Callable[[_Counted, _Reading, argparse.Namespace], None],
) -> None:  # fmt: skip
    """Do it for one kind of reading."""
    if args.diff:
        before, after = map(load_saved, args.diff)
        show(between(before, after), after, args)
    elif args.watch:
        _watch(args, read, lambda before, after: show(between(before, after), after, args))
    else:
        now = read()
        if args.save:
            args.save.write_text(to_save(now), encoding="utf-8")
        else:
            show(since(now), now, args)


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
    from fabtune.cli import slow_output, stat_output, unseen_output

    chosen = stat_output.chosen_devices(interval, args.device, everything=args.all or args.json)
    # The slowest are of all the time in which details were recorded, not of an interval.
    slow = slowest() if not args.watch and not args.diff else None
    if args.json:
        stat_output.print_interval_json(interval, chosen, latest, slow, one_line=bool(args.watch))
    elif args.device and not args.watch:
        unseen_output.print_unseen(interval, chosen, latest)
        for device in chosen:
            stat_output.print_details(device)
            slow_output.print_recorded(device, slow, asked=latest.module.get("detail") == "1")
    else:
        stat_output.print_table(interval, chosen, latest)


def run_stuck(args: argparse.Namespace) -> int:
    """List the requests that have been under way for too long, and those that have waited for as long to be sent."""
    from fabtune.cli import stat_output, waiting_output

    try:
        found: StuckList = stuck()
        latest = snapshot()
    except FabtuneError as error:
        # A host that hangs may load no module any more.
        if (waits := unsent()).requests and args.json:
            console.show_beside(error, waiting_output.alone_json(waits))
        elif waits.requests:
            waiting_output.print_waiting(waits)
        raise
    stat_output.print_stuck(found, latest, unsent(found.threshold_ns, found.requests), as_json=args.json)
    return ExitCode.DONE if latest.counting else ExitCode.CANNOT_TELL
