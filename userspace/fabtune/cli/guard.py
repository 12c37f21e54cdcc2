# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``guard``: a watch over what was applied, for a service or a terminal."""

import argparse
import contextlib
import json
import os
import time

from fabtune.cli import console
from fabtune.errors import ExitCode
from fabtune.guard.news import WARNING, Told
from fabtune.guard.rounds import Guard

# A look is not to take more than a share of this of one CPU.
_MOST_CPU = 1 / 20
# sd-daemon(3): what the journal takes for the grade of a line.
_PREFIX = {True: "<4>", False: "<5>"}


def run_guard(args: argparse.Namespace) -> int:
    """Watch until a signal, or for a time: then exit 3 where something is not as applied."""
    guard = Guard(heal=args.heal)
    # A stop is the usual end, and a reader who leaves ends it: nobody would hear what it tells.
    with contextlib.suppress(KeyboardInterrupt), console.reader_may_leave():
        _watch(guard, args)
    guard.end()
    return ExitCode.DRIFT if guard.uneasy else ExitCode.DONE


def _watch(guard: Guard, args: argparse.Namespace) -> None:
    """Look again and again, and tell, until the time is up."""
    ends_s = None if args.seconds is None else time.monotonic() + args.seconds
    least_s = float("inf")
    while True:
        began_s, cpu_s = time.monotonic(), time.process_time()
        for told in guard.look(console.say):
            _tell(told, as_json=args.json)
        least_s = min(least_s, time.process_time() - cpu_s)
        next_s = began_s + max(args.every_s, least_s / _MOST_CPU)
        if ends_s is not None and next_s > ends_s:
            return
        time.sleep(max(0.0, next_s - time.monotonic()))


def _tell(told: Told, *, as_json: bool) -> None:
    """Print one line: JSON, or a sentence with its grade where the journal reads."""
    if as_json:
        line = json.dumps({"time_s": time.time(), **told.as_json()})
    else:
        line = (_PREFIX[told.grade == WARNING] if "JOURNAL_STREAM" in os.environ else "") + told.text
    print(line, flush=True)
