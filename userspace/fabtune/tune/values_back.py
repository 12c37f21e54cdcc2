# SPDX-License-Identifier: GPL-2.0-or-later
"""The values of a revert on their way back: of which transactions, newest first, and what is due once they are back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fabtune.catalog.profile import available
from fabtune.errors import ExitCode, FabtuneError, InputError
from fabtune.tune import pending, saved_target, unpaced
from fabtune.tune.boot_images import still_packed
from fabtune.tune.journal import Transaction
from fabtune.tune.outcome import Outcome, StepOutcome
from fabtune.tune.pending import Pending
from fabtune.tune.reconnect import Reconnected


@dataclass
class Report:
    """What revert did to each step, and which sessions still run with the values taken back."""

    outcomes: list[StepOutcome] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    relogged: list[str] = field(default_factory=list)
    reconnected: list[Reconnected] = field(default_factory=list)
    # Of these, the sessions that a reconnect had taken down.
    brought_up: list[str] = field(default_factory=list)
    # What could not be done beside the values: journals that cannot be read or written, sessions that stay away.
    problems: list[str] = field(default_factory=list)
    # By a signal, with something still to do.
    interrupted: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """130 if interrupted, 1 if something failed, 3 if a value is somebody else's, 4 if something is due, else 0.

        Due is a leave, a re-login or a device.
        """
        if self.interrupted:
            return ExitCode.INTERRUPTED
        states = {outcome.state for outcome in self.outcomes}
        if Outcome.FAILED in states or self.problems:
            return ExitCode.FAILED
        if Outcome.FOREIGN in states:
            return ExitCode.DRIFT
        owed = self.pending or {Outcome.HELD, Outcome.WAITING} & states
        return ExitCode.NEEDS_ACTION if owed else ExitCode.DONE

    def interrupt(self) -> None:
        """Say that a signal came with something still to do."""
        if not self.interrupted:
            self.problems.append("interrupted; `fabtune revert` goes on")
        self.interrupted = True


def asked_for(
    everything: list[Transaction], profile: str | None, name: str | None, role: str | None, netns: str
) -> list[Transaction]:
    """Return the open ones of `everything` that are asked for, newest first.  Raises InputError for unknown names."""
    # An empty word is no leave to take back everything: a script's variable may have been empty.
    if name is not None and name not in [transaction.name for transaction in everything]:
        known = ", ".join(transaction.name for transaction in everything) or "none"
        raise InputError(f"--transaction {name}: not in the journal; known: {known}")
    if profile and profile.endswith(".toml"):
        # `apply ./mine.toml` is journalled as mine.
        profile = Path(profile).stem
    applied = sorted({transaction.profile for transaction in everything})
    if profile is not None and profile not in applied and profile not in available():
        raise InputError(f"unknown profile '{profile}'; in the journal: {', '.join(applied) or 'none'}")
    return [
        transaction
        for transaction in reversed(everything)
        if not transaction.closed
        and (not name or name in (transaction.name, transaction.root))
        and (not profile or transaction.profile == profile)
        and (not role or role == "both" or role in transaction.header.roles)
        and (not netns or transaction.header.netns == netns)
    ]


def due(transaction: Transaction, boot_id: str, outcomes: list[StepOutcome]) -> list[Pending]:
    """Return what must happen before the old values are felt; a value that was back already may not be felt yet."""
    back = [
        outcome.step
        for outcome in outcomes
        if outcome.state == Outcome.RESTORED or (outcome.state == Outcome.ALREADY and outcome.step.boot_id == boot_id)
    ]
    # iscsid keeps a session's record: who is still logged in from before the write never had what it wrote.  A new
    # connection of the same session has today's sysctls and module parameters, and what an earlier transaction
    # wrote may be in any.
    record = [step for step in back if step.device.scope == "record" and not (step.ours or step.claim)]
    waits = [Pending.of(line) for line in transaction.pending if line.boot_id == boot_id]
    before = {(one.identity, one.sid) for one in waits if not one.reconnected}
    roles = transaction.header.roles
    felt = [one for one in pending.needed(record, roles, boot_id) if (one.identity, one.sid) not in before]
    others = pending.merge(felt, pending.needed([step for step in back if step not in record], roles, boot_id))
    return pending.merge(others, unpaced.by_undoing(back, roles, transaction.header.netns, boot_id))


def _untold(chosen: Sequence[Transaction], outcomes: dict[str, dict[int, StepOutcome]], boot_id: str) -> list[Pending]:
    """Return which initiators a revert noted as due and, killed, told nobody of.

    It left values open that are back already; a revert that ends marks what it leaves open as waiting.
    """
    killed = [
        one
        for one in chosen
        if any(
            outcome.state == Outcome.ALREADY and not (outcome.step.empty or outcome.step.waiting)
            for outcome in outcomes.get(one.name, {}).values()
        )
    ]
    return pending.untold(killed, boot_id)


def told_of_damage(transaction: Transaction) -> str:
    """Return what is said of a transaction that can be read in part."""
    return (
        f"{transaction.damage}; what followed it is not known, so only what precedes it is taken back: "
        "compare the values by hand, then move the file out of the journal directory"
    )


@dataclass
class ValuesBack:
    """The values of the `chosen` transactions, which `take` takes back one by one: whether it writes is its own matter.

    What it is told beside a transaction is whether it may end sessions.  What comes of it stands in `report`.
    """

    chosen: Sequence[Transaction]
    everything: Sequence[Transaction]
    boot_id: str
    report: Report
    take: Callable[[Transaction, bool], list[StepOutcome]]
    # By transaction and step.
    outcomes: dict[str, dict[int, StepOutcome]] = field(default_factory=dict)

    def take_back(self, transaction: Transaction, may_end_sessions: bool) -> None:
        """Take back the values of `transaction`, and look what is due after that."""
        found = self.take(transaction, may_end_sessions)
        known = self.outcomes.get(transaction.name, {})
        self.outcomes[transaction.name] = known | {one.step.number: one for one in found}
        self.look(lambda: pending.merge(self.report.pending, due(transaction, self.boot_id, found)))

    def take_back_held(self, may_end_sessions: bool) -> None:
        """Take back once more what was left for want of leave."""
        for transaction in self.chosen:
            if any(one.state == Outcome.HELD for one in self.outcomes[transaction.name].values()):
                self.take_back(transaction, may_end_sessions)

    def look(self, find: Callable[[], list[Pending]]) -> None:
        """Make what `find` finds the report's list of what is due."""
        # The values have gone back by then, and the report is to say so.
        try:
            self.report.pending = find()
        except (FabtuneError, OSError) as error:
            self.report.problems.append(f"cannot tell which sessions must log in again: {error}")

    def look_for_untold(self) -> None:
        """Add the initiators of whom a revert that was killed told nobody."""
        self.look(lambda: pending.merge(self.report.pending, _untold(self.chosen, self.outcomes, self.boot_id)))

    def end(self) -> None:
        """Put every outcome into the report, and what the next boot may set again of what went back."""
        self.report.outcomes = [one for found in self.outcomes.values() for one in found.values()]
        self.report.pending += still_packed(self.chosen, self.everything, self.boot_id)
        self.report.pending += saved_target.still_saved(self.report.outcomes, self.boot_id)
