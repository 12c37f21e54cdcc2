# SPDX-License-Identifier: GPL-2.0-or-later
"""What a revert would do, said before it: the revert's own decisions, where nothing is written.

It waits for no lock: what another fabtune is about to change it cannot know either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from fabtune import backends
from fabtune.backends import record
from fabtune.errors import ExitCode, FabtuneError
from fabtune.facts.collect import this_host
from fabtune.host.sessions import live_sessions
from fabtune.tune import journal, owed, pending, reconnect, saved_target, successor, taken_down
from fabtune.tune.depth_held import DEPTH
from fabtune.tune.journal import Step, Transaction
from fabtune.tune.lines import Line, Logout
from fabtune.tune.locate import Locator, current
from fabtune.tune.ours import cause_of
from fabtune.tune.outcome import Outcome, StepOutcome
from fabtune.tune.pending import RECONNECT
from fabtune.tune.reconnect import Forecast
from fabtune.tune.revert import revert_transaction
from fabtune.tune.signals import Stop
from fabtune.tune.values_back import Report, ValuesBack, asked_for, due, told_of_damage

# Stands in a note where only the revert itself can tell.
UNTOLD = "cannot be told before"
_WOULD_BE_SAVED = "the target's saved configuration has it too, and would get the old value again"


@dataclass
class WouldRevert:
    """What a revert would make of each value, newest transaction first, and what would be due after that.

    `beside` says what it would do beside the values, `reconnect` what --reconnect would, None where nothing asks for
    it.
    """

    values: list[tuple[Transaction, list[StepOutcome]]] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    beside: list[str] = field(default_factory=list)
    reconnect: Forecast | None = None
    # What is in the way of knowing more.
    busy: str = ""

    @property
    def exit_code(self) -> ExitCode | None:
        """How the revert would end if every write is taken; None where that depends on more than its writes."""
        return None if self.beside or self.report.problems else self.report.exit_code


def would_revert(
    profile: str | None, name: str | None, role: str | None, netns: str, force: bool, may_end_sessions: bool
) -> WouldRevert:
    """Return what a revert of these transactions would do now; nothing is written.  Raises FabtuneError."""
    # Others write records, too.
    record.BACKEND.forget()
    found, boot_id = WouldRevert(busy=journal.at_work()), this_host().boot_id
    report, everything = found.report, journal.transactions()
    chosen = asked_for(everything, profile, name, role, netns)

    def take(transaction: Transaction, may_end: bool) -> list[StepOutcome]:
        if transaction.damage:
            report.problems.append(told_of_damage(transaction))
        owing = partial(due, transaction, boot_id)
        outcomes = revert_transaction(transaction, None, force, may_end, everything, boot_id, owing, _told)
        return _before(transaction, outcomes)

    with backends.nothing_written():
        for disk, depth in owed.held_depths(everything, boot_id):
            # What the revert gives back before any value.
            backends.get("attribute").write(disk, DEPTH, depth)
        values = ValuesBack(chosen, everything, boot_id, report, take)
        for transaction in chosen:
            values.take_back(transaction, False)
        values.look_for_untold()
        values.look(lambda: pending.merge(pending.still_pending(everything, boot_id), report.pending))
        if may_end_sessions:
            values.take_back_held(may_end_sessions)
        values.end()
    report.problems = list(dict.fromkeys(report.problems))
    found.values = [(one, list(values.outcomes[one.name].values())) for one in chosen]
    found.beside = [*_logins(everything, boot_id), *_set_by_hand(everything, boot_id), *_started_anew(report)]
    found.reconnect = _reconnect(report)
    return found


def _told(heir: Transaction, line: Line) -> bool:
    """Take `line` as if it were journalled for `heir`, which takes it where that can be read back."""
    if not heir.damage:
        journal.take(heir, line)
    return not heir.damage


def _before(transaction: Transaction, outcomes: Sequence[StepOutcome]) -> list[StepOutcome]:
    """Return `outcomes` in the words of somebody who has written nothing, with what the values are that nobody read."""
    written = {one.step.number for one in outcomes if one.state == Outcome.RESTORED}
    unread = [one for one in outcomes if one.found is None and one.state in (Outcome.PASSED_ON, Outcome.ALREADY)]
    locate = Locator(transaction.header.netns, transaction.steps) if unread else None
    found = []
    for one in outcomes:
        note = one.note.replace(saved_target.AND_SAVED, _WOULD_BE_SAVED)
        cause = cause_of(transaction, one.step) if one.step.disturbed else None
        if cause and cause.number in written:
            beside = f"{cause.tunable} goes back first, and what that makes of this value {UNTOLD}"
            note = f"{note}; {beside}" if note else beside
        reads = _read(one.step, locate) if locate and one in unread else one.found
        found.append(replace(one, found=reads, note=note))
    return found


def _read(step: Step, locate: Locator) -> str | None:
    try:
        device = locate.of(step)
        return current(step, device) if device else None
    except FabtuneError:
        return None


def _logins(everything: Sequence[Transaction], boot_id: str) -> list[str]:
    """Return which sessions would be logged in that an earlier run left logged out."""
    return [
        f"{owed.label(one)} was left logged out by an earlier run: it would be logged in again; "
        + (why or f"whether it comes back {UNTOLD}")
        for one, why in owed.away(everything, boot_id)
        if not _is_given_up(one)
    ]


def _is_given_up(one: Logout) -> bool:
    try:
        return successor.is_given_up(one)
    except FabtuneError:
        return False


def _set_by_hand(everything: Sequence[Transaction], boot_id: str) -> list[str]:
    """Return what was set by hand of sessions before they were connected anew, and would be given back."""
    return [
        f"{value.what} of {value.device} was {value.was} before a {one.act}, and is {value.now}: it would be given back"
        for one, value in owed.values(everything, boot_id)
    ]


def _started_anew(report: Report) -> list[str]:
    """Return for which sessions iscsid would be started anew without being asked for."""
    return [
        f"session {one.label} is down since a reconnect: iscsid would be started anew for it where nothing is against "
        f"that; whether it comes back {UNTOLD}"
        for one in taken_down.waiting(report.pending, Stop(), patient=False)
    ]


def _reconnect(report: Report) -> Forecast | None:
    sessions = live_sessions() if any(one.action == RECONNECT for one in report.pending) else []
    if not sessions:
        return None
    back = [one.step for one in report.outcomes if one.state == Outcome.RESTORED]
    waits_s: dict[str, str | None] = {
        step.device.identity: step.old for step in back if step.key == reconnect.TIME2WAIT_KEY
    }
    return reconnect.foretold(sessions, waits_s, 0.0)
