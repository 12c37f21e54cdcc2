# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb ``ab``: two profiles in interleaved runs, calibrated against A itself, and a verdict."""

import argparse
import contextlib
import secrets
import shlex
import shutil
import sys
from pathlib import Path

import attrs

from fabtune import progress
from fabtune.catalog.profile import load_profile
from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli import compare as compare_cli
from fabtune.cli import console
from fabtune.cli import measure as measure_cli
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.experiment.alternation import Alternation, Contest, until_decided
from fabtune.host.run import require
from fabtune.measure import interleave
from fabtune.model import judgement
from fabtune.model.judgement import Rules
from fabtune.model.runrecord import CALIBRATION, PAIRS
from fabtune.model.units import counted
from fabtune.model.untouched import UNTOUCHED, refuse_default
from fabtune.tune.switch import Ends

_PAIRS, _PAIRS_UNTIL_DECIDED = 10, 32


def _most_pairs(args: argparse.Namespace) -> int:
    """Return how many pairs there will be at most."""
    if args.pairs is not None:
        return int(args.pairs)
    return _PAIRS_UNTIL_DECIDED if args.until else _PAIRS


def _check(args: argparse.Namespace) -> None:
    pairs, least = _most_pairs(args), judgement.LEAST_LOOKED_AT
    if pairs < 2:
        raise InputError(f"--pairs {pairs}: expected 2 or more; a verdict needs {judgement.LEAST}")
    if args.calibrate < 0:
        raise InputError(f"--calibrate {args.calibrate}: expected 0 or more")
    for option, value in (("--pairs", pairs), ("--calibrate", args.calibrate)):
        if value % interleave.PAIRS_PER_BLOCK:
            raise InputError(f"{option} {value}: expected an even number of pairs, since they come in ABBA blocks")
    if args.until and pairs < least:
        raise InputError(f"--pairs {pairs}: with --until decided, expected the most that may be run, {least} or more")
    if args.switch and (args.target_host or args.target_netns):
        raise InputError(
            "--switch replaces apply and revert: it cannot be combined with --target-host or --target-netns"
        )
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
    _check(args)
    show = progress.for_stderr(measure_cli.REDRAWS_PER_S)
    rules = _rules(args)
    show.say(f"order of the runs: --seed {rules.seed}")
    most_pairs = _most_pairs(args)
    session = Alternation(_contest(args, rules), {CALIBRATION: args.calibrate, PAIRS: most_pairs}, show)
    try:
        outcome = until_decided(session.run, args.calibrate, most_pairs, rules)
    except KeyboardInterrupt:
        kept = _kept(session, most_pairs, args.out)
        try:
            session.end()
        except FabtuneError as left:
            # Who is told of an interrupt alone takes everything for restored.
            raise FabtuneError(f"interrupted, and not everything is back: {left}; {kept}") from None
        raise KeyboardInterrupt(kept) from None
    except BaseException:
        with contextlib.suppress(FabtuneError):
            session.end()
        if session.records:
            show.say(_kept(session, most_pairs, args.out))
        raise
    session.end()
    for one in outcome.looked:
        if not outcome.decided and one.pairs < most_pairs:
            why = "what a run does not tell, no further one can"
            show.say(f"ended after {one.pairs} of at most {most_pairs} pairs, undecided: {why}")
    with console.reader_may_leave():
        compare_cli.show(outcome, args.json)
    show.say(f"records are in {args.out}; see them with: fabtune report {args.out}{session.said_elsewhere()}")
    return outcome.exit_code or (ExitCode.FAILED if session.elsewhere else ExitCode.DONE)


def _kept(session: Alternation, most_pairs: int, out: Path) -> str:
    """Return what a session leaves that did not reach its end, and how to go on."""
    pairs = session.whole_pairs()
    kept = f"{pairs} of {counted(most_pairs, 'pair')} {'is' if pairs == 1 else 'are'} kept"
    if session.records:
        see = f"see {'it' if pairs == 1 else 'the records'} with: fabtune report {out}"
        kept += f" in {out} ({see}{session.said_elsewhere()})"
    return f"{kept}; a session is not gone on with: the same command begins a new one"


def _rules(args: argparse.Namespace) -> Rules:
    rules = judgement.rules_with_looks(_most_pairs(args)) if args.until else Rules()
    practical = rules.practical if args.practical is None else args.practical
    seed = secrets.randbits(31) if args.seed is None else args.seed
    return attrs.evolve(rules, practical=practical, seed=seed)


def _contest(args: argparse.Namespace, rules: Rules) -> Contest:
    path = [f"--rtt={args.rtt:g}ms"] if args.rtt is not None else []
    path += [f"--rate={args.rate:.0f}bit"] if args.rate is not None else []
    return Contest(
        args.a,
        args.b,
        on=args.on,
        asked=measure_cli.asked_of(args),
        ends=Ends(args.target_host, args.target_netns, args.switch),
        path=tuple(path),
        settle_s=args.settle,
        out=args.out,
        rules=rules,
        command=("fabtune", *sys.argv[1:]),
    )
