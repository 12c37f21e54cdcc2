# SPDX-License-Identifier: GPL-2.0-or-later
"""plan, apply, verify, revert and history: the tuning verbs."""

import argparse
import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fabtune.catalog.tunable import shipped_catalog
from fabtune.cli import console, output
from fabtune.cli.arguments import first_given
from fabtune.cli.published import renewed
from fabtune.errors import ExitCode, InputError
from fabtune.facts.collect import Facts
from fabtune.model import units
from fabtune.tune import journal, memory, saved_plan, unfelt
from fabtune.tune.pending import Leave
from fabtune.tune.plan import Plan
from fabtune.tune.request import (
    MEASURE,
    Request,
    check_namespace,
    keep_at_boot,
    plan_as_of_now,
    plan_for,
    portals_elsewhere,
    request,
    roles_of,
)
from fabtune.tune.saved_plan import SavedPlan

if TYPE_CHECKING:
    from fabtune.tune.lift import Reason

# What stands in a file's place for what comes in, or goes out.
STDIO = Path("-")
# What a saved plan has settled, what --again has from the journal, and what a revert of the unconfirmed has.
_IN_A_PLAN = ("PROFILE", "--role", "--netns", "--rtt", "--rate", "--set", "--scope")
_LEAVE = ("--reconnect", "--allow-relogin", "--end-sessions")
_NOT_AGAIN = (*_IN_A_PLAN, "--plan", "--persist", *_LEAVE, "--dry-run", "--confirm-within", "--note")
_NOT_UNCONFIRMED = ("PROFILE", "--transaction", "--role", "--netns", "--force", *_LEAVE, "--dry-run")
# What sessions make of it nobody knows before.
_NOT_DRY = ("--reconnect", "--allow-relogin")
# What makes a look one at a part of what was applied, or at more.
_OF_A_PART = ("PROFILE", "--role", "--netns")
# What a plan is made from beside its profile.
_OF_A_PLAN = ("--rtt", "--rate", "--set", "--scope", "--only", "--estimated")
# How long `plan --from why` looks.
_LOOK_S = 10.0


def _asked(args: argparse.Namespace) -> Request:
    narrow = getattr(args, "scope", "host") == "connection"
    return request(
        args.profile, args.role, args.netns, args.rtt, args.rate, args.set, narrow,
        only=getattr(args, "only", ()), estimated=getattr(args, "estimated", False),
    )  # fmt: skip


def run_plan(args: argparse.Namespace) -> int:
    """Show what a profile would change; with --exit-code exit 3 if that is anything."""
    if args.reason:
        return _plan_from_why(args)
    plan, facts = plan_for(_asked(args))
    _give_plan(args, plan, facts, plan)
    return ExitCode.DRIFT if args.exit_code and plan.changes else ExitCode.DONE


def _plan_from_why(args: argparse.Namespace) -> int:
    """Show what lifts what limits the sessions now, what brings most first; exit 5 where that cannot be told."""
    from fabtune.tune.unlifted import on_the_target

    reason = _reason(args)
    args.profile = args.profile or reason.profile
    if args.rate is None and reason.rate_bit_per_s:
        args.rate = f"{reason.rate_bit_per_s:.0f}bit"
    if args.rtt is None and reason.rtt_ms:
        args.rtt = f"{reason.rtt_ms}ms"
    plan, facts = plan_for(_asked(args))
    whole, plan.rows = plan.rows, reason.lifting(plan.rows)
    for text in (*reason.verdicts, *(one.in_words for one in reason.unlifted(whole, args.profile))):
        console.say(text)
    if reason.at_target:
        console.say(on_the_target(reason.at_target))
    # A file keeps the order in which they are to be written, and what is left alone.
    shown = reason.by_gain(plan.rows)
    _give_plan(args, plan, facts, replace(plan, rows=shown))
    if not reason.named:
        return ExitCode.CANNOT_TELL
    return ExitCode.DRIFT if args.exit_code and plan.changes else ExitCode.DONE


def _give_plan(args: argparse.Namespace, plan: Plan, facts: Facts, shown: Plan) -> None:
    """Save `plan` where that is asked for, and print it as `shown`."""
    if args.out == STDIO:
        with console.reader_may_leave():
            print(saved_plan.plan_text(saved_plan.of(plan, facts, shipped_catalog())), end="")
        return
    if args.out:
        saved_plan.write(saved_plan.of(plan, facts, shipped_catalog()), args.out)
    _show_plan(shown, facts, args.json, args.all)
    if args.out:
        console.say(f"saved; to write it: fabtune apply --plan {args.out}")


def _reason(args: argparse.Namespace) -> "Reason":
    """Return what limits the sessions now, the target's end looked at too where it is here."""
    from fabtune.tune.lift import reason

    console.say(f"looking for {_LOOK_S:g} s ...")
    rate = units.parse_bit_per_s(args.rate, "--rate") if args.rate not in (None, MEASURE) else None
    return reason(_LOOK_S, args.netns or None, rate)


def _show_plan(plan: Plan, facts: Facts, as_json: bool, everything: bool = False, waiting: bool = False) -> None:
    """Print `plan`; `waiting`: an apply of it would also bring what waits for a new connection already."""
    from fabtune.tune import reconnect

    cost = memory.worst_case(plan, facts)
    with console.reader_may_leave():
        pauses = reconnect.forecast(plan, facts.sessions, waiting)
        told = output.PlanTold(cost, portals_elsewhere(plan, facts), pauses)
        output.show_plan(plan, told, as_json=as_json, everything=everything)
    if reason := memory.excess(plan, cost):
        console.say(f"apply refuses this plan: {reason}")


def run_apply(args: argparse.Namespace) -> int:
    """Write a profile's values, on a terminal after a question; exit 4 while something still needs a re-login."""
    from fabtune.tune.apply import Result
    from fabtune.tune.carry_out import carry_out

    if args.again:
        return _run_again(args)
    _refuse_with_dry_run(args, "apply")
    wanted = _saved_plan(args) or _asked(args)
    if args.dry_run or (console.interactive() and not args.yes):
        plan, facts = plan_as_of_now(wanted)
        if args.dry_run:
            _show_plan(_as_written(plan, args), facts, args.json, waiting=unfelt.any_waits())
            return ExitCode.DONE
        if not _agreed(plan, facts, args):
            console.say("nothing was changed")
            if args.json:
                with console.reader_may_leave():
                    output.show_result(plan, Result(), as_json=True)
            return ExitCode.DONE
        # What was agreed to is written, or nothing: the host may change while somebody reads.
        if isinstance(wanted, Request):
            wanted = saved_plan.of(plan, facts, shipped_catalog())
    with renewed():
        plan, result = carry_out(
            wanted,
            persist=args.persist,
            leave=Leave(args.reconnect, args.allow_relogin, args.end_sessions),
            confirm_within_s=args.confirm_within,
            note=args.note,
            progress=console.say,
        )
        if args.confirm_within is not None and result.transaction:
            console.say(f"all of this goes back in {args.confirm_within:g} s unless you type: fabtune confirm")
        with console.reader_may_leave():
            output.show_result(plan, result, as_json=args.json)
    return result.exit_code


def _run_again(args: argparse.Namespace) -> int:
    """Write what is in force and was undone; exit 3 where something was left as it is."""
    from fabtune.tune import again

    if option := first_given(args, *_NOT_AGAIN):
        raise InputError(f"apply: --again writes what the journal has in force; it cannot be combined with {option}")
    with renewed():
        found = again.write_again(console.say)
        with console.reader_may_leave():
            output.show_again(found, as_json=args.json)
    return found.exit_code


def _saved_plan(args: argparse.Namespace) -> SavedPlan | None:
    """Return the plan that --plan names, None without.  Raises InputError for what cannot go with it."""
    if args.plan is None:
        if args.profile is None:
            raise InputError("apply: give a profile, such as `fabtune apply wan`, or --plan FILE")
        if args.profile.endswith(".plan"):
            raise InputError(
                f"apply: {args.profile} is not a profile; to apply a saved plan, use --plan {args.profile}"
            )
        return None
    if option := first_given(args, *_IN_A_PLAN):
        raise InputError(f"apply: --plan {args.plan} is the whole plan; it cannot be combined with {option}")
    if args.plan == STDIO:
        return saved_plan.parse(sys.stdin.buffer.read(saved_plan.MAX_BYTES + 1), "standard input", shipped_catalog())
    return saved_plan.load(args.plan, shipped_catalog())


def _agreed(plan: Plan, facts: Facts, args: argparse.Namespace) -> bool:
    """Show the plan and ask whether to write it; True without a question if there is nothing to write.

    Raises FabtuneError where nobody answers.
    """
    plan = _as_written(plan, args)
    if not plan.changes and not (args.allow_relogin or args.reconnect):
        return True
    # stdout is for the result alone where a program reads it.
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        _show_plan(plan, facts, as_json=False, waiting=args.reconnect and unfelt.any_waits())
        sys.stdout.flush()
    return console.agreed(f"{_in_words(plan, args)}? [y/N] ")


def _as_written(plan: Plan, args: argparse.Namespace) -> Plan:
    """Return `plan` with the files that set its values at boot, where they are to be written."""
    plan = replace(plan, rows=list(plan.rows))
    if args.persist:
        keep_at_boot(plan)
    return plan


def _refuse_with_dry_run(args: argparse.Namespace, verb: str) -> None:
    """Raise InputError for what a dry run cannot foretell."""
    if args.dry_run and (option := first_given(args, *_NOT_DRY)):
        raise InputError(
            f"{verb}: --dry-run tells whose re-login or new connection would be due; it cannot be combined with "
            f"{option}"
        )


def _in_words(plan: Plan, args: argparse.Namespace) -> str:
    """Return what apply would do with `plan`."""
    acts, due = [], "" if plan.changes else " where that is due"
    if plan.changes:
        acts.append(f"write these {len(plan.changes)} values" if len(plan.changes) > 1 else "write this value")
    if args.reconnect:
        acts.append(f"make all sessions' connections anew in place{due}")
    if args.allow_relogin:
        acts.append(f"log sessions in again{due}")
    if args.end_sessions and any(row.tunable.effect == "kills-session" for row in plan.changes):
        acts.append("end sessions of this target that may be in use")
    words = " and ".join(acts)
    return words[0].upper() + words[1:]


def run_verify(args: argparse.Namespace) -> int:
    """Compare the host with the journal (and a profile's plan); exit 3 on drift, 4 where a re-login is due."""
    from fabtune.export import verified
    from fabtune.tune.verify import verify

    option = "" if args.profile else first_given(args, *_OF_A_PLAN)
    if option:
        raise InputError(f"verify: {option} is for a profile's plan: give a PROFILE with it")
    part = first_given(args, *_OF_A_PART)
    if part and args.publish:
        raise InputError(f"verify: --publish tells of all that was applied; it cannot be combined with {part}")
    check_namespace(args.netns)
    plan = plan_for(_asked(args))[0] if args.profile else None
    drifts = verify(plan, roles_of(args.role), args.netns)
    if args.publish:
        verified.publish(drifts)
    with console.reader_may_leave():
        output.show_drift(drifts, as_json=args.json)
    if not part and not args.publish:
        verified.renew(console.say, lambda: drifts)
    if any(drift.drifted for drift in drifts):
        return ExitCode.DRIFT
    return ExitCode.NEEDS_ACTION if any(drift.due for drift in drifts) else ExitCode.DONE


def run_revert(args: argparse.Namespace) -> int:
    """Take back what apply wrote; exit 3 when a value is somebody else's now, 4 when a re-login is due."""
    from fabtune.cli import revert_output
    from fabtune.tune import watcher
    from fabtune.tune.undo import undo

    if args.unconfirmed:
        if option := first_given(args, *_NOT_UNCONFIRMED):
            raise InputError(
                f"revert: --unconfirmed takes back what nobody confirmed; it cannot be combined with {option}"
            )
        with renewed():
            return (watcher.at_boot if args.unconfirmed == "once" else watcher.watch)(console.say)
    if args.dry_run:
        return _show_would_revert(args)
    check_namespace(args.netns)
    with renewed():
        report = undo(
            args.profile,
            args.transaction,
            args.role,
            args.netns,
            args.force,
            Leave(args.reconnect, args.allow_relogin, args.end_sessions),
            console.say,
        )
        with console.reader_may_leave():
            revert_output.show_revert(report, as_json=args.json)
    return report.exit_code


def _show_would_revert(args: argparse.Namespace) -> int:
    """Show what a revert would do; nothing is written."""
    from fabtune.cli import revert_output
    from fabtune.tune.would_revert import would_revert

    _refuse_with_dry_run(args, "revert")
    check_namespace(args.netns)
    found = would_revert(args.profile, args.transaction, args.role, args.netns, args.force, args.end_sessions)
    if found.busy:
        console.say(f"{found.busy}; what is shown here may be otherwise then")
    with console.reader_may_leave():
        revert_output.show_would_revert(found, as_json=args.json)
    return ExitCode.DONE


def run_confirm(args: argparse.Namespace) -> int:
    """Keep what `apply --confirm-within` wrote."""
    from fabtune.tune import confirm

    with renewed():
        found = confirm.accept(console.say, () if args.transaction is None else (args.transaction,))
        with console.reader_may_leave():
            output.show_confirmed(found, as_json=args.json)
    return ExitCode.DONE


def run_history(args: argparse.Namespace) -> int:
    """List the journal's transactions, oldest first, or show one.  Raises InputError where there is none such."""
    found = journal.transactions()
    if args.transaction is None:
        output.show_history(found, as_json=args.json)
        return ExitCode.DONE
    chosen = [one for one in found if one.name == args.transaction]
    if not chosen:
        raise InputError(f"transaction {args.transaction}: not in the journal; `fabtune history` lists them")
    output.show_history(chosen, as_json=args.json)
    if not args.json:
        output.show_steps(chosen[0])
    return ExitCode.DONE
