# SPDX-License-Identifier: GPL-2.0-or-later
"""The verbs ``compare`` and ``ab``."""

import argparse
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fabtune.cli import measure as measure_cli
from fabtune.errors import FabtuneError, InputError
from fabtune.model.units import parse_percent

# The name that stands for "nothing applied".
UNTOUCHED = "default"
# How long a LUN may take to come back after a re-login.
_RETURN_S = 30.0


def configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the arguments of `verb`."""
    parser.add_argument(
        "--practical",
        type=measure_cli.quantity(parse_percent),
        default=0.02,
        metavar="PERCENT",
        help="a smaller difference does not matter (2%%)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    if verb == "compare":
        parser.add_argument("a", type=Path, metavar="A", help="a run record, or a directory of them")
        parser.add_argument("b", type=Path, metavar="B", help="the same, to hold against A")
        parser.set_defaults(handler=_compare)
        return
    parser.add_argument("a", metavar="PROFILE_A", help=f"a profile, or '{UNTOUCHED}' for nothing applied")
    parser.add_argument("b", metavar="PROFILE_B", help="the same, to hold against it")
    parser.add_argument("workload", metavar="WORKLOAD", help="one of `fabtune workloads`, or the path of a file")
    measure_cli.add_load_arguments(parser)
    parser.add_argument("--pairs", type=int, default=10, help="runs of each, interleaved in ABBA blocks (10)")
    parser.add_argument("--calibrate", type=int, default=6, metavar="PAIRS", help="pairs of A against A before (6)")
    parser.add_argument("--settle", type=measure_cli.quantity(_seconds), default=2.0, metavar="TIME",
                        help="wait this long after each switch (2s)")  # fmt: skip
    parser.add_argument("--switch", metavar="COMMAND", help="run COMMAND PROFILE to switch, on all hosts concerned")
    parser.add_argument("--seed", type=int, default=1, help="decides the order within each block (1)")
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="keep the records in DIR (runs)")
    parser.add_argument("--until-decided", action="store_true", help="refused; the message says why")
    parser.set_defaults(handler=_ab)


def _seconds(text: str) -> float:
    from fabtune.model.units import parse_ms

    return parse_ms(text) / 1e3


def _load(path: Path) -> list[dict[str, Any]]:
    from fabtune.measure import record

    paths = record.find(path) if path.is_dir() else [path]
    return [record.read(one) | {"file": str(one)} for one in paths]


def _compare(args: argparse.Namespace) -> int:
    from fabtune.report import compare

    outcome = compare.compare(_load(args.a), _load(args.b), practical=args.practical)
    _show(outcome, args.json)
    return outcome.exit_code


def _show(outcome: Any, as_json: bool) -> None:
    from fabtune.report import compare
    from fabtune.report.table import Column, Table

    if as_json:
        print(json.dumps(compare.as_json(outcome), indent=2))
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(compare.table(outcome).to_rich())
    for note in outcome.notes:
        console.print(note)
    if outcome.invalid:
        reasons = (Column("not used", "record"), Column("why", "why"))
        console.print(Table("Runs that are not valid", reasons, outcome.invalid).to_rich())
    if outcome.differences:
        columns = (Column("differs", "what"), Column(outcome.a, "a"), Column(outcome.b, "b"))
        console.print(Table("What else differed", columns, outcome.differences).to_rich())


def _ab(args: argparse.Namespace) -> int:
    from fabtune.measure import interleave, record, run
    from fabtune.report import compare

    if args.until_decided:
        raise InputError(
            "--until-decided: stopping as soon as the result looks decided finds differences that are not there; "
            "choose the number of runs before with --pairs"
        )
    for option, value in (("--pairs", args.pairs), ("--calibrate", args.calibrate)):
        if value % interleave.PAIRS_PER_BLOCK or value < 0:
            raise InputError(f"{option} {value}: expected an even number of pairs, since they come in ABBA blocks")
    if args.pairs < 2:
        raise InputError(f"--pairs {args.pairs}: expected 2 or more; a verdict needs 6")
    load, first = measure_cli.prepare(args)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    path = [f"--rtt={args.rtt:g}ms"] if args.rtt is not None else []
    path += [f"--rate={args.rate:.0f}bit"] if args.rate is not None else []
    kept: dict[str, list[dict[str, Any]]] = {}
    started = time.monotonic()
    session_id = time.strftime("%Y%m%dT%H%M%S", time.gmtime())

    def switch(profile: str) -> None:
        _switch(profile, args.switch, path)
        time.sleep(args.settle)

    def take(part: str, side: str, profile: str, pair: int) -> None:
        done = sum(len(records) for records in kept.values())
        total = 2 * (args.calibrate + args.pairs)
        left = f", about {(time.monotonic() - started) / done * (total - done) / 60:.0f} min left" if done else ""
        measure_cli.say(f"{part}: pair {pair + 1}, {side} = {profile} (run {done + 1} of {total}{left})")
        place = _returned(args.on, first.wwid)
        turn = {"id": f"{session_id}-{part}", "pair": pair, "side": side}
        interrupted = False
        try:
            result = run.measure(
                load,
                place,
                label=profile,
                path=measure_cli.path_of(args),
                runtime_s=args.runtime,
                ramp_s=args.ramp,
                environment=measure_cli.environment(),
                keep_files=args.keep_files,
            )
        except run.IncompleteError as error:
            result = error.record
            measure_cli.say(str(error))
            interrupted = isinstance(error, run.RunInterruptedError)
        file = args.out / part / f"{pair:02d}-{side}-{measure_cli.record_name(result)}"
        record.write(result | {"session": turn}, file)
        if interrupted:
            raise KeyboardInterrupt
        kept.setdefault(f"{part}-{side}", []).append(result | {"session": turn, "file": str(file)})

    noise: dict[tuple[str, str], float] = {}
    notes: tuple[str, ...] = ("No A/A calibration: what the set-up itself varies by is not known.",)
    try:
        if args.calibrate:
            interleave.session(
                args.calibrate, args.seed, lambda _: switch(args.a),
                lambda turn: take("calibration", turn.side, args.a, turn.pair),
            )  # fmt: skip
            same = compare.compare(kept["calibration-A"], kept["calibration-B"], practical=args.practical)
            noise, notes = compare.noise_of(same), tuple(compare.calibration_notes(same))
        profiles = {"A": args.a, "B": args.b}
        interleave.session(
            args.pairs, args.seed, lambda side: switch(profiles[side]),
            lambda turn: take("pairs", turn.side, profiles[turn.side], turn.pair),
        )  # fmt: skip
    finally:
        measure_cli.say(f"back to {UNTOUCHED}")
        _switch(UNTOUCHED, args.switch, path)
    outcome = compare.compare(kept["pairs-A"], kept["pairs-B"], practical=args.practical, noise=noise)
    outcome = compare.with_names(outcome, args.a, args.b, notes)
    _show(outcome, args.json)
    measure_cli.say(f"records are in {args.out}; see them with: fabtune report {args.out}")
    return outcome.exit_code


def _switch(profile: str, command: str | None, path: Sequence[str]) -> None:
    """Make `profile` the one in force: take back what is applied, then apply and log in anew.

    `path` are the options that tell apply about the network.

    Raises FabtuneError with the words of what failed.
    """
    fabtune = [sys.executable, "-m", "fabtune"]
    if command:
        steps = [[*shlex.split(command), profile]]
    else:
        steps = [[*fabtune, "revert", "--allow-relogin"]]
        if profile != UNTOUCHED:
            steps.append([*fabtune, "apply", profile, "--allow-relogin", *path])
    for step in steps:
        # Ctrl-C must not reach a half-done switch; this process waits for its end.
        done = subprocess.run(step, capture_output=True, text=True, check=False, start_new_session=True)
        if done.returncode != 0:
            words = (done.stderr or done.stdout).strip().splitlines()[-3:]
            raise FabtuneError(f"switching to '{profile}' failed: {shlex.join(step)}: {' '.join(words)}")


def _returned(on: str, wwid: str) -> Any:
    """Return the target once it is there again, checked to be the same.  Raises FabtuneError."""
    from fabtune.measure import target

    deadline = time.monotonic() + _RETURN_S
    while True:
        try:
            place = target.find(on)
            break
        except InputError as error:
            if time.monotonic() > deadline:
                raise FabtuneError(f"{on} did not come back after the switch: {error}") from None
            time.sleep(0.1)
    if place.wwid != wwid:
        raise FabtuneError(
            f"{on} is another device after the switch (WWID {place.wwid}, was {wwid}); give a by-id path"
        )
    return place
