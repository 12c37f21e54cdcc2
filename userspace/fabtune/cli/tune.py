# SPDX-License-Identifier: GPL-2.0-or-later
"""plan, apply, verify, revert and history: the tuning verbs."""

import argparse
import re
import sys
from dataclasses import dataclass

from fabtune.catalog.profile import Profile, load_profile
from fabtune.catalog.tunable import ROLES, shipped_catalog
from fabtune.cli import output
from fabtune.errors import ExitCode, InputError
from fabtune.facts.collect import Facts, collect
from fabtune.model import units
from fabtune.tune import path as tune_path
from fabtune.tune import plan as planning
from fabtune.tune.plan import Plan


def configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the arguments of one of the tuning verbs."""
    parser.add_argument("--json", action="store_true", help="print stable JSON instead of a table")
    {"plan": _configure_plan, "apply": _configure_apply, "verify": _configure_verify, "revert": _configure_revert}.get(
        verb, _configure_history
    )(parser)


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--role", choices=(*ROLES, "both"), help="which end this host is (default: what it has)")
    parser.add_argument("--netns", default="", metavar="NAME", help="network namespace of the portals, name or path")


def _add_path(parser: argparse.ArgumentParser) -> None:
    # argparse would take the value of `--rtt -5ms` for an option and say only that one is missing.
    parser._negative_number_matcher = re.compile(r"-\d")
    parser.add_argument(
        "--rtt", metavar="TIME", help="round trip of the path, such as 50ms (default: from live sessions)"
    )
    parser.add_argument(
        "--rate",
        metavar="RATE",
        help="rate of its slowest link, such as 1gbit; 'measure' reads 3 MB of a session's disk (default: link speed)",
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override a profile parameter")


def _configure_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", default="wan", metavar="PROFILE", help="a profile's name or file")
    parser.add_argument("--all", action="store_true", help="also list what is right already or not needed")
    _add_where(parser)
    _add_path(parser)
    parser.set_defaults(handler=run_plan)


def _configure_apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="a profile's name or file")
    _add_where(parser)
    _add_path(parser)
    parser.add_argument(
        "--allow-relogin", action="store_true", help="log sessions out and in again, one at a time, where that is safe"
    )
    parser.add_argument(
        "--persist",
        action="store_true",
        help="also write the native files that set the values at boot",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show the plan")
    parser.set_defaults(handler=run_apply, all=False)


def _configure_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="also hold this profile's plan against the host")
    _add_where(parser)
    _add_path(parser)
    parser.set_defaults(handler=run_verify)


def _configure_revert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="take back only what this profile wrote")
    parser.add_argument("--transaction", metavar="ID", help="take back only this transaction (see fabtune history)")
    _add_where(parser)
    parser.add_argument("--force", action="store_true", help="also overwrite values somebody else changed since")
    parser.add_argument("--allow-relogin", action="store_true", help="log sessions in again with the old values")
    parser.set_defaults(handler=run_revert)


def _configure_history(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler=run_history)


def progress(text: str) -> None:
    """Print one line of what is happening to stderr."""
    print(text, file=sys.stderr)


def overrides(words: list[str]) -> dict[str, float]:
    """Return the parameters that --set gives.  Raises InputError."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"--set {word}: expected NAME=VALUE, such as --set in_flight=32MiB")
        found[name] = float(units.parse_bytes(value, f"--set {name}"))
    return found


def roles_of(role: str | None, facts: Facts | None = None) -> tuple[str, ...]:
    """Return the roles to plan for: as asked, else what this host has, else both."""
    if role == "both":
        return ROLES
    if role:
        return (role,)
    if facts is None:
        return ROLES
    present = {"initiator": bool(facts.sessions) or _has(facts, "record"), "target": _has(facts, "tpg")}
    return tuple(name for name in ROLES if present[name]) or ROLES


def _has(facts: Facts, scope: str) -> bool:
    return any(reading.device.scope == scope for reading in facts.readings)


@dataclass(frozen=True)
class _Wish:
    """What the command line asks for, checked before anything of the host is read or locked."""

    profile: Profile
    rtt_ms: float | None
    rate_bit_per_s: float | None
    measure_rate: bool
    parameters: dict[str, float]


def _wish(args: argparse.Namespace) -> _Wish:
    return _Wish(
        profile=load_profile(args.profile, shipped_catalog()),
        rtt_ms=None if args.rtt is None else units.parse_ms(args.rtt, "--rtt"),
        rate_bit_per_s=None if args.rate in (None, "measure") else units.parse_bit_per_s(args.rate, "--rate"),
        measure_rate=args.rate == "measure",
        parameters=overrides(args.set),
    )


def _plan(args: argparse.Namespace, wish: _Wish) -> tuple[Plan, Facts]:
    facts = collect(planning.tunables_of(wish.profile), args.netns)
    rate_bit_per_s = tune_path.measure_rate_bit_per_s(facts) if wish.measure_rate else wish.rate_bit_per_s
    path = tune_path.choose(facts, wish.rtt_ms, rate_bit_per_s, wish.measure_rate)
    return planning.make_plan(wish.profile, roles_of(args.role, facts), facts, path, wish.parameters), facts


def run_plan(args: argparse.Namespace) -> int:
    """Show what a profile would change; exit 0 whether or not it would change anything."""
    from fabtune.tune.memory import worst_case

    plan, facts = _plan(args, _wish(args))
    output.show_plan(plan, worst_case(plan, facts), as_json=args.json, everything=args.all)
    return ExitCode.DONE


def run_apply(args: argparse.Namespace) -> int:
    """Write a profile's values; exit 4 while something still needs a re-login."""
    from fabtune.tune import journal, persist
    from fabtune.tune.apply import apply

    if args.dry_run:
        return run_plan(args)
    wish = _wish(args)
    with journal.locked():
        plan, facts = _plan(args, wish)
        if args.persist:
            more, remarks = persist.rows(plan)
            plan.rows += more
            for remark in remarks:
                progress(f"not kept after a reboot: {remark}")
        result = apply(plan, facts.host, args.allow_relogin, progress)
    output.show_result(plan, result, as_json=args.json)
    return result.exit_code


def run_verify(args: argparse.Namespace) -> int:
    """Compare the host with the journal (and a profile's plan); exit 3 on drift."""
    from fabtune.tune.verify import verify

    plan = _plan(args, _wish(args))[0] if args.profile else None
    roles = roles_of(args.role)
    drifts = verify(plan, roles, args.netns)
    output.show_drift(drifts, as_json=args.json)
    return ExitCode.DRIFT if any(drift.drifted for drift in drifts) else ExitCode.DONE


def run_revert(args: argparse.Namespace) -> int:
    """Take back what apply wrote; exit 3 when a value is somebody else's now, 4 when a re-login is due."""
    from fabtune.tune import journal
    from fabtune.tune.undo import undo

    with journal.locked():
        report = undo(args.profile, args.transaction, args.role, args.netns, args.force, args.allow_relogin, progress)
    output.show_revert(report, as_json=args.json)
    return report.exit_code


def run_history(args: argparse.Namespace) -> int:
    """List the journal's transactions, oldest first."""
    from fabtune.tune import journal

    output.show_history(journal.transactions(), as_json=args.json)
    return ExitCode.DONE
