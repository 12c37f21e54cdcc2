# SPDX-License-Identifier: GPL-2.0-or-later
"""plan, apply, verify, revert and history: the tuning verbs."""

import argparse
import contextlib
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fabtune.catalog.profile import Profile, load_profile
from fabtune.catalog.tunable import ROLES, shipped_catalog
from fabtune.cli import console, output, table
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.facts.collect import Facts, collect, this_host
from fabtune.host import namespaces, targets
from fabtune.model import units
from fabtune.tune import nextlogin
from fabtune.tune import path as tune_path
from fabtune.tune import plan as planning
from fabtune.tune.plan import Plan

if TYPE_CHECKING:
    from fabtune.tune.saved import SavedPlan


def configure(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the arguments of one of the tuning verbs."""
    parser.add_argument("--json", action="store_true", help="print stable JSON instead of a table")
    {"plan": _configure_plan, "apply": _configure_apply, "verify": _configure_verify, "revert": _configure_revert}.get(
        verb, _configure_history
    )(parser)


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--role", choices=(*ROLES, "both"), help="which end this host is (default: what it has)")
    parser.add_argument(
        "--netns", type=_namespace, default="", metavar="NAME", help="network namespace of the portals, name or path"
    )


def _namespace(text: str) -> str:
    """Return the one name by which the journal knows network namespace `text`, a name or a path."""
    return re.sub(r"^(/var)?/run/netns/(?=[^/]+$)", "", text)


def _known_namespace(netns: str) -> None:
    """Raise InputError for a namespace that is neither there nor in the journal, which knows those that are gone."""
    from fabtune.tune import journal

    if netns and netns not in {transaction.header.netns for transaction in journal.transactions()}:
        namespaces.netns_path(netns)


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
    parser.add_argument("--out", type=Path, metavar="FILE", help="also save the plan, for `fabtune apply --plan FILE`")
    parser.add_argument("--exit-code", action="store_true", help="exit 3 if there is something to change, 0 if not")
    parser.set_defaults(handler=run_plan)


def _configure_apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", nargs="?", metavar="PROFILE", help="a profile's name or file")
    parser.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="instead: what `fabtune plan --out FILE` saved, if the host is still so",
    )
    parser.add_argument(
        "--yes", "-y", action="store_true", help="do not ask; without a terminal nothing is asked anyway"
    )
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
    parser.set_defaults(handler=run_apply, all=False, out=None, exit_code=False)


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
    present = {
        "initiator": bool(facts.sessions) or _has(facts, "record"),
        "target": any(_has(facts, scope) for scope in targets.group_scopes()),
    }
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
    from fabtune.tune import journal, rounded

    mine = planning.tunables_of(wish.profile)
    facts = collect([*mine, *nextlogin.tunables(one.name for one in mine)], args.netns)
    rate_bit_per_s = tune_path.measure_rate_bit_per_s(facts) if wish.measure_rate else wish.rate_bit_per_s
    path = tune_path.choose(facts, wish.rtt_ms, rate_bit_per_s, wish.measure_rate)
    plan = planning.make_plan(wish.profile, roles_of(args.role, facts), facts, path, wish.parameters)
    # Who may not read the journal plans without it.
    with contextlib.suppress(FabtuneError):
        rounded.settle(plan, journal.transactions())
    nextlogin.guard(plan, facts)
    return plan, facts


def run_plan(args: argparse.Namespace) -> int:
    """Show what a profile would change; with --exit-code exit 3 if that is anything."""
    plan, facts = _plan(args, _wish(args))
    if args.out:
        from fabtune.tune import saved

        saved.write(saved.of(plan, facts, shipped_catalog()), args.out)
    _show_plan(plan, facts, args)
    if args.out:
        console.say(f"saved; to write it: fabtune apply --plan {args.out}")
    return ExitCode.DRIFT if args.exit_code and plan.changes else ExitCode.DONE


def _show_plan(plan: Plan, facts: Facts, args: argparse.Namespace) -> None:
    from fabtune.tune.memory import excess, worst_case

    cost = worst_case(plan, facts)
    with console.reader_may_leave():
        output.show_plan(plan, cost, as_json=args.json, everything=args.all, elsewhere=_elsewhere(plan, facts))
    if reason := excess(plan, cost):
        console.say(f"apply refuses this plan: {reason}")


def _elsewhere(plan: Plan, facts: Facts) -> list[str]:
    """Return a sentence for each portal of a target that other NICs and TCP values serve than the plan's."""
    told = []
    for address, places in facts.elsewhere.items() if "target" in plan.roles else ():
        where = f", but in {' and '.join(places)}" if places else ""
        option = f"--netns {places[0] if places else 'NAME'}"
        told.append(
            f"portal {address} is at no address of {f'network namespace {plan.netns}' if plan.netns else 'this host'}"
            f"{where}: the NICs and TCP values that serve it are not the ones here; plan for them with {option}"
        )
    return told


class NotAnsweredError(FabtuneError):
    """The question was interrupted, or nobody was there to answer."""

    exit_code = ExitCode.INTERRUPTED


def run_apply(args: argparse.Namespace) -> int:
    """Write a profile's values, on a terminal after a question; exit 4 while something still needs a re-login."""
    from fabtune.tune import journal, memory, owed, saved
    from fabtune.tune.apply import apply

    kept = _saved_plan(args)
    wish = None if kept else _wish(args)
    if args.dry_run or (console.interactive() and not args.yes):
        plan, facts = _current(args, wish, kept)
        if args.dry_run:
            _show_plan(plan, facts, args)
            return ExitCode.DONE
        if not _agreed(plan, facts, args):
            console.say("nothing was changed")
            return ExitCode.DONE
        # What was agreed to is written, or nothing: the host may change while somebody reads.
        kept = kept or saved.of(plan, facts, shipped_catalog())
    with journal.locked():
        for label in owed.bring_back(this_host().boot_id, console.say)[0]:
            console.say(f"logged in again: {label}")
        plan, facts = _current(args, wish, kept)
        memory.check(plan, facts)
        for remark in _elsewhere(plan, facts):
            console.say(table.told(remark))
        for remark in _keep_at_boot(plan, args):
            console.say(f"not kept after a reboot: {remark}")
        result = apply(plan, facts.host, args.allow_relogin, console.say)
    with console.reader_may_leave():
        output.show_result(plan, result, as_json=args.json)
    return result.exit_code


def _saved_plan(args: argparse.Namespace) -> "SavedPlan | None":
    """Return the plan that --plan names, None without.  Raises InputError for what cannot go with it."""
    from fabtune.tune import saved

    if args.plan is None:
        if args.profile is None:
            raise InputError("apply: give a profile, such as `fabtune apply wan`, or --plan FILE")
        if args.profile.endswith(".plan"):
            raise InputError(f"apply: {args.profile} is no profile; a saved plan goes with --plan {args.profile}")
        return None
    given = {"PROFILE": args.profile, "--role": args.role, "--netns": args.netns, "--rtt": args.rtt,
    "--rate": args.rate,
             "--set": args.set}  # fmt: skip
    for option, value in given.items():
        if value:
            raise InputError(f"apply: --plan {args.plan} is the whole plan; it cannot go with {option}")
    return saved.load(args.plan, shipped_catalog())


def _current(args: argparse.Namespace, wish: _Wish | None, kept: "SavedPlan | None") -> tuple[Plan, Facts]:
    """Return the plan for the host as it is now: computed, or the one `kept` if the host still fits it."""
    from fabtune.tune import saved

    if kept is None:
        assert wish is not None
        return _plan(args, wish)
    facts = collect(kept.tunables, kept.netns)
    plan = saved.resume(kept, facts)
    # The target may have changed where the host has not.
    facts.readings += collect(nextlogin.tunables(one.name for one in kept.tunables), kept.netns).readings
    nextlogin.guard(plan, facts)
    return plan, facts


def _keep_at_boot(plan: Plan, args: argparse.Namespace) -> list[str]:
    """With --persist add to `plan` what sets its values at boot; return a remark for each that nothing can keep."""
    from fabtune.tune import persist

    if not args.persist:
        return []
    more, remarks = persist.rows(plan)
    plan.rows += more
    return remarks


def _agreed(plan: Plan, facts: Facts, args: argparse.Namespace) -> bool:
    """Show the plan and ask whether to write it; True without a question if there is nothing to write.

    Raises NotAnsweredError.
    """
    plan = replace(plan, rows=list(plan.rows))
    _keep_at_boot(plan, args)
    if not plan.changes and not args.allow_relogin:
        return True
    # stdout is for the result alone where a program reads it.
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        _show_plan(plan, facts, argparse.Namespace(json=False, all=False))
        sys.stdout.flush()
    what = f"Write these {len(plan.changes)} values" if len(plan.changes) != 1 else "Write this value"
    if args.allow_relogin:
        what = f"{what} and log sessions in again" if plan.changes else "Log sessions in again where that is due"
    try:
        answer = console.ask(f"{what}? [y/N] ")
    except KeyboardInterrupt:
        raise NotAnsweredError("interrupted; nothing was changed") from None
    if not answer:
        raise NotAnsweredError("no answer; nothing was changed")
    return answer.strip().lower() in ("y", "yes")


def run_verify(args: argparse.Namespace) -> int:
    """Compare the host with the journal (and a profile's plan); exit 3 on drift, 4 where a re-login is due."""
    from fabtune.tune.verify import verify

    _known_namespace(args.netns)
    plan = _plan(args, _wish(args))[0] if args.profile else None
    roles = roles_of(args.role)
    drifts = verify(plan, roles, args.netns)
    with console.reader_may_leave():
        output.show_drift(drifts, as_json=args.json)
    if any(drift.drifted for drift in drifts):
        return ExitCode.DRIFT
    return ExitCode.NEEDS_ACTION if any(drift.due for drift in drifts) else ExitCode.DONE


def run_revert(args: argparse.Namespace) -> int:
    """Take back what apply wrote; exit 3 when a value is somebody else's now, 4 when a re-login is due."""
    from fabtune.tune import journal
    from fabtune.tune.undo import undo

    _known_namespace(args.netns)
    with journal.locked():
        report = undo(
            args.profile, args.transaction, args.role, args.netns, args.force, args.allow_relogin, console.say
        )
    with console.reader_may_leave():
        output.show_revert(report, as_json=args.json)
    return report.exit_code


def run_history(args: argparse.Namespace) -> int:
    """List the journal's transactions, oldest first."""
    from fabtune.tune import journal

    output.show_history(journal.transactions(), as_json=args.json)
    return ExitCode.DONE
