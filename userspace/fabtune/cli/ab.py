# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``ab``: two profiles in interleaved runs, calibrated against A itself, and a verdict."""

import argparse
import contextlib
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs

from fabtune import progress
from fabtune.cli import compare as compare_cli
from fabtune.cli import console
from fabtune.cli import measure as measure_cli
from fabtune.errors import FabtuneError, InputError
from fabtune.host.run import require
from fabtune.model.untouched import UNTOUCHED, refuse_default
from fabtune.tune import signals
from fabtune.tune.switch import Ends, switch, target_values

if TYPE_CHECKING:
    from fabtune.model.runrecord import RunRecord

# How long a LUN may take to come back after a re-login.
_RETURN_S = 30.0
# What a switch takes, for the time left.
_SWITCH_S = 10.0

CALIBRATION, PAIRS = "calibration", "pairs"


def _check(args: argparse.Namespace) -> None:
    from fabtune.catalog.profile import load_profile
    from fabtune.catalog.tunable import shipped_catalog
    from fabtune.measure.interleave import PAIRS_PER_BLOCK

    for option, value in (("--pairs", args.pairs), ("--calibrate", args.calibrate)):
        if value % PAIRS_PER_BLOCK or value < 0:
            raise InputError(f"{option} {value}: expected an even number of pairs, since they come in ABBA blocks")
    if args.pairs < 2:
        raise InputError(f"--pairs {args.pairs}: expected 2 or more; a verdict needs 6")
    if args.switch and (args.target_host or args.target_netns):
        raise InputError("--switch replaces apply and revert: it cannot go with --target-host or --target-netns")
    if args.switch:
        _check_command(args.switch)
    if args.target_host:
        require("ssh", "openssh-client")
        if args.target_host.startswith("-"):
            raise InputError(f"--target-host {args.target_host}: expected the name or address of a host")
    for profile in (args.a, args.b):
        refuse_default(profile, f"ab {profile}")
        if profile != UNTOUCHED and not args.switch:
            load_profile(profile, shipped_catalog())


def _check_command(command: str) -> None:
    """Raise InputError for a --switch that cannot be run."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--switch {command}: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise InputError(f"--switch {command}: no such program; expected a command that takes a profile's name")


def run_ab(args: argparse.Namespace) -> int:
    """Measure two profiles in interleaved runs; the exit code says what came of it."""
    from fabtune.measure import interleave
    from fabtune.report import compare

    _check(args)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    session = _Session(args, *measure_cli.prepare(args))
    noise: dict[tuple[str, str], float] = {}
    notes: tuple[str, ...] = ("No A/A calibration: what the set-up itself varies by is not known.",)
    try:
        if args.calibrate:
            session.run(CALIBRATION, interleave.order(args.calibrate, args.seed), {"A": args.a, "B": args.a})
            same = compare.compare(*session.sides(CALIBRATION), practical=args.practical)
            noise, notes = compare.noise_of(same), tuple(compare.calibration_notes(same))
        session.run(PAIRS, interleave.order(args.pairs, args.seed), {"A": args.a, "B": args.b})
    except BaseException:
        if any(session.sides(CALIBRATION) + session.sides(PAIRS)):
            session.say(f"records so far are in {args.out}")
        with contextlib.suppress(FabtuneError):
            session.end()
        raise
    session.end()
    outcome = compare.compare(*session.sides(PAIRS), practical=args.practical, noise=noise)
    outcome = compare.with_names(outcome, args.a, args.b, notes)
    with console.reader_may_leave():
        compare_cli.show(outcome, args.json)
    session.say(f"records are in {args.out}; see them with: fabtune report {args.out}")
    return outcome.exit_code


class _Session:
    """The runs of one session: where, with which load, and what has been measured so far."""

    def __init__(self, args: argparse.Namespace, load: Any, first: Any) -> None:
        self._args = args
        self._load = load
        self._first = first
        self._place = first
        self._ends = Ends(args.target_host, args.target_netns, args.switch)
        self._path = [f"--rtt={args.rtt:g}ms"] if args.rtt is not None else []
        self._path += [f"--rate={args.rate:.0f}bit"] if args.rate is not None else []
        self._kept: dict[tuple[str, str], list[RunRecord]] = {}
        self._id = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self._show = progress.for_stderr(measure_cli.REDRAWS_PER_S)
        expected_s = _SWITCH_S + args.settle + measure_cli.expected_s(args, load)
        for part, pairs in ((CALIBRATION, args.calibrate), (PAIRS, args.pairs)):
            turns = [(side, pair) for side in "AB" for pair in range(pairs)]
            self._show.begin([(self._name(part, side, pair), expected_s) for side, pair in turns])
        self.say = self._show.say

    def sides(self, part: str) -> "tuple[list[RunRecord], list[RunRecord]]":
        """Return the records of both sides of `part`."""
        return self._kept.get((part, "A"), []), self._kept.get((part, "B"), [])

    def run(self, part: str, turns: Iterable[Any], profiles: dict[str, str]) -> None:
        """Make the runs of `part`: before each the switch to its side's profile."""
        for turn in turns:
            with self._show.step(self._name(part, turn.side, turn.pair)):
                switch(profiles[turn.side], self._ends, self._path, self._place.sessions)
                time.sleep(self._args.settle)
                self._place = _returned(self._args.on, self._first, measure_cli.writes(self._load, self._first))
                self._measure(part, turn, profiles[turn.side])

    def _name(self, part: str, side: str, pair: int) -> str:
        what = "A against A" if part == CALIBRATION else f"{self._args.a} against {self._args.b}"
        return f"{what}: pair {pair + 1}, run of {side}"

    def _measure(self, part: str, turn: Any, profile: str) -> None:
        from fabtune.measure import record, run
        from fabtune.model.runrecord import SessionTurn

        args = self._args
        interrupted = False
        around = measure_cli.environment()
        around |= {f"target: {name}": value for name, value in target_values(self._ends).items()}
        try:
            result = run.measure(
                self._load, self._place, label=profile, path=measure_cli.path_of(args), runtime_s=args.runtime,
                ramp_s=args.ramp, environment=around, keep_files=args.keep_files,
            )  # fmt: skip
        except run.IncompleteError as error:
            result = error.record
            self.say(str(error))
            interrupted = isinstance(error, run.RunInterruptedError)
        session = SessionTurn(f"{self._id}-{part}", turn.pair, turn.side)
        result = attrs.evolve(result, session=session, command=("fabtune", *sys.argv[1:]))
        file = args.out / part / f"{turn.pair:02d}-{turn.side}-{measure_cli.record_name(result)}"
        record.write(result, file)
        if interrupted:
            raise KeyboardInterrupt
        self._kept.setdefault((part, turn.side), []).append(attrs.evolve(result, file=str(file)))

    def end(self) -> None:
        """Leave nothing applied; not even a second Ctrl-C stops that.  Says so and raises FabtuneError if it fails."""
        self.say(f"back to {UNTOUCHED}")
        try:
            with signals.ignored():
                switch(UNTOUCHED, self._ends, self._path, self._place.sessions)
        except FabtuneError as error:
            self.say(f"{error}; take the rest back with: fabtune revert --allow-relogin")
            raise


def _returned(on: str, first: Any, written: bool) -> Any:
    """Return the target `on` once it is there again, checked to be `first`, and still free where it is `written`.

    Raises FabtuneError.
    """
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
    if place.wwid != first.wwid:
        raise FabtuneError(
            f"{on} is another device after the switch (WWID {place.wwid}, was {first.wwid}); give a by-id path"
        )
    reasons = target.in_use(place) if written and place.kind == "device" else []
    if reasons:
        raise FabtuneError(f"{on} was taken into use since the session began: {'; '.join(reasons)}")
    return place
