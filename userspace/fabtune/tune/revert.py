# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes back what apply wrote, three-way: only a value that still is ours goes back, the rest is reported.

Several transactions may stand on one value.  Only the last of them writes it back; an earlier one that goes
hands on what it would have given back, so that the value stays as long as anybody wants it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fabtune import backends
from fabtune.errors import ByHandError, FabtuneError, UnsupportedError
from fabtune.host import targets
from fabtune.host.blocks import kernel_name
from fabtune.host.sessions import why_waits
from fabtune.model.device import Device
from fabtune.tune import fault, journal, moved_beside, persist, saved_target, shares
from fabtune.tune.journal import Step, Transaction, Writer
from fabtune.tune.lines import (
    ClaimLine,
    ClosedLine,
    DueLine,
    HoldsLine,
    InheritLine,
    Line,
    RestoredLine,
    RevertingLine,
    WaitingLine,
)  # fmt: skip
from fabtune.tune.locate import (
    Locator,
    current,
    instance,
    rebooted,
    reborn,
    relies,
    why_nothing_is_owed,
    why_unseen,
)  # fmt: skip
from fabtune.tune.noting import note, note_to
from fabtune.tune.ours import (
    back_before,
    beside,
    cause_of,
    in_doubt,
    is_ours,
    layers_below,
    moved_by_us,
    our_default,
)  # fmt: skip
from fabtune.tune.outcome import SETTLED, Outcome, StepOutcome
from fabtune.tune.pending import Pending
from fabtune.tune.stranded import why_not
from fabtune.tune.transaction import as_line

__all__ = ["Locator", "Outcome", "StepOutcome", "current", "is_ours", "revert_transaction"]


def revert_transaction(
    transaction: Transaction,
    writer: Writer | None,
    force: bool,
    may_end_sessions: bool,
    everything: Sequence[Transaction],
    boot_id: str,
    owing: Callable[[list[StepOutcome]], list[Pending]],
    tell: Callable[[Transaction, Line], bool] = note_to,
) -> list[StepOutcome]:
    """Give back every open step of `transaction`, last first; journal what was done.

    `everything` holds the other transactions, in their order.  What `owing` says must happen before the old values
    are felt is journalled before any value is settled: nobody would ask for it again.  A value whose write ends live
    sessions waits for `may_end_sessions`.  A journal that cannot be written (a full disk) does not stop values from
    going back: a step already given back is recognised by its value.  What another transaction is to give back in its
    place is journalled there by `tell`, which tells whether it was.  No exception but those that end the process comes
    out of here: one value that fails must not keep the others.
    """
    return _Revert(transaction, writer, force, may_end_sessions, everything, boot_id, owing, tell).run()


@dataclass
class _Revert:
    """One transaction being taken back."""

    transaction: Transaction
    writer: Writer | None
    force: bool
    may_end_sessions: bool
    everything: Sequence[Transaction]
    boot_id: str
    owing: Callable[[list[StepOutcome]], list[Pending]]
    tell: Callable[[Transaction, Line], bool]
    outcomes: dict[int, StepOutcome] = field(default_factory=dict)
    # What each value was read as when it had been written back: a device may round it.
    made: dict[int, str] = field(default_factory=dict)
    # Who answers from now on for a step that was passed on.
    heirs: dict[int, Transaction] = field(default_factory=dict)

    def run(self) -> list[StepOutcome]:
        """Give back what can be, then read all of it again: one write may have moved another value."""
        self.locate = Locator(self.transaction.header.netns, self.transaction.steps)
        steps = [step for step in self.transaction.open_steps if not step.empty]
        resumed = self._begin()
        self.moved = {
            step.number
            for step in steps
            if step.disturbed and moved_by_us(self.transaction, step, self.locate, resumed)
        }
        # A queue's write may wait for requests, and these for what another value keeps from them: it comes last.
        # What another step's value still forbids (nr_requests under the wrong scheduler) goes back on the second walk.
        for _ in range(2):
            for step in sorted(steps, key=lambda step: (step.device.scope == "block", -step.number)):
                if step.number not in self.outcomes or self.outcomes[step.number].state not in SETTLED:
                    self.outcomes[step.number] = self._guarded(step)
        # Of a value that we wrote several times the first step has the old one; the others' were ours.
        first = {step.value: step.number for step in reversed(steps)}
        for step in steps:
            if self.outcomes[step.number].state == Outcome.RESTORED and first[step.value] == step.number:
                self.outcomes[step.number] = self._read_again(step, self.outcomes[step.number])
        self._journal()
        return list(self.outcomes.values())

    def _begin(self) -> bool:
        """Journal that values go back, before the first does; tell whether that was journalled by an earlier revert.

        Whatever becomes of this one, nobody is to write them again.  A disk that does not take the line keeps no value
        from going back.
        """
        resumed = self.transaction.reverting
        if not resumed and any(not step.empty for step in self.transaction.open_steps):
            note(self.writer, RevertingLine())
            journal.take(self.transaction, RevertingLine())
        return resumed

    def _guarded(self, step: Step) -> StepOutcome:
        try:
            return saved_target.given_back(self._one(step), self.force)
        except FabtuneError as error:
            return StepOutcome(step, Outcome.FAILED, note=f"cannot tell whether it is there: {error}")
        except Exception as error:
            return StepOutcome(step, Outcome.FAILED, note=f"unexpected {type(error).__name__}: {error}")

    def _one(self, step: Step) -> StepOutcome:
        heir = self._heir(step)
        if heir:
            files = shares.shared(step) and shares.shared(heir[1])
            return self._leave_file(step) if files else self._pass_on(step, *heir)
        try:
            device = self.locate.of(step)
        except FabtuneError as error:
            if self.force:
                return self._without_device(step, f"cannot tell whether it is there: {error}")
            raise
        if device is None:
            return self._without_device(step, why_unseen(step) or "it is not there")
        return self._give_back(step, device)

    def _without_device(self, step: Step, what: str, until: str = "it is back") -> StepOutcome:
        gone = why_nothing_is_owed(step, self.boot_id) or ("no longer waited for (--force)" if self.force else "")
        if gone:
            return StepOutcome(step, Outcome.GONE, note=f"{what}; {gone}")
        return StepOutcome(step, Outcome.WAITING, note=f"{what}; revert again once {until}, or give it up with --force")

    def _give_back(self, step: Step, device: Device) -> StepOutcome:
        force = self.force or step.number in self.moved
        found: str | None = None
        try:
            found = current(step, device)
            if found.split() == step.old.split():
                return StepOutcome(step, Outcome.ALREADY, found)
            ours = is_ours(step, found, in_doubt(self.transaction, step)) or our_default(step, found, self.everything)
            if not ours and not force:
                if back_before(step, found, self.transaction, self.everything):
                    return StepOutcome(step, Outcome.ALREADY, found)
                if reborn(step, device, self.boot_id):
                    return StepOutcome(step, Outcome.ALREADY, found, "created again since, with its own value")
                return StepOutcome(step, Outcome.FOREIGN, found, "changed by somebody else since; --force overrides")
            if not force and reborn(step, device, self.boot_id) and not self._brought(step, device):
                return StepOutcome(step, Outcome.ALREADY, found, "came with a boot or a new device, not from fabtune")
            if step.effect == "kills-session" and not self.may_end_sessions and targets.in_use(device):
                return StepOutcome(
                    step, Outcome.HELD, found, "would end live sessions, used or not; give --end-sessions"
                )
            stranded = "" if self.force else why_not(step.tunable, device, found, step.old)
            if stranded:
                return StepOutcome(step, Outcome.HELD, found, stranded)
            if step.device.scope == "block" and (why := why_waits(kernel_name(device))):
                return StepOutcome(step, Outcome.WAITING, found, f"{why}, and the write would wait for it")
            return self._write(step, device, found)
        except UnsupportedError as error:
            # What can be read but not written is refused by the state of something else, perhaps not for long.
            if found is None:
                return self._without_device(step, str(error), "it can be read")
            foreign = isinstance(error, ByHandError) and not self.force
            return StepOutcome(step, Outcome.FOREIGN if foreign else Outcome.FAILED, found, str(error))
        except FabtuneError as error:
            return StepOutcome(step, Outcome.FAILED, found, str(error))

    def _brought(self, step: Step, device: Device) -> bool:
        """Tell whether the value of `step` came to `device`, which was created since, by fabtune's doing."""
        return persist.brought_by_us(step, self._known(), self.boot_id) or any(
            # A VLAN that is made anew begins with the MTU of what it lies on.
            not reborn(one, below, self.boot_id) or persist.brought_by_us(one, self._known(), self.boot_id)
            for one, below in layers_below(self.transaction, step, device, self.locate)
        )

    def _known(self) -> list[Transaction]:
        return [*self.everything, self.transaction]

    def _write(self, step: Step, device: Device, found: str) -> StepOutcome:
        with moved_beside.sparing_others(self.transaction, step, self.moved, self.locate.of):
            backends.get(step.backend).write(device, step.key, step.old)
            fault.checkpoint()
            self._note_moved(step)
        now = current(step, device)
        self.made[step.number] = now
        if now.split() == step.old.split():
            return StepOutcome(step, Outcome.RESTORED, found)
        # A device rounds; what did not move, or is ours yet, was not rounded.
        if not step.rounds or now.split() == found.split() or is_ours(step, now, in_doubt=False):
            return StepOutcome(step, Outcome.FAILED, now, f"wrote {step.old} back, but it reads {now}")
        made = f"it was {step.old}, and the device makes {now} of that"
        return StepOutcome(step, Outcome.RESTORED, found, made)

    def _note_moved(self, cause: Step) -> None:
        """Journal what the write of `cause` has made of our values beside it: if one stays, the next revert knows it.

        What was somebody's before that write is nobody's value of ours now.
        """
        for step in beside(self.transaction, cause):
            try:
                device = self.locate.of(step) if step.number in self.moved else None
                now = current(step, device) if device else step.old
            except FabtuneError:
                continue
            if now.split() not in (step.old.split(), (step.holds or "").split()):
                line = HoldsLine(step.number, now)
                note(self.writer, line)
                journal.take(self.transaction, line)

    def _read_again(self, step: Step, outcome: StepOutcome) -> StepOutcome:
        """Return `outcome` if the value still is the old one after all other writes; else write it once more."""
        try:
            device = self.locate.of(step)
            if device is None or current(step, device).split() in (step.old.split(), self.made[step.number].split()):
                return outcome
            return replace(self._write(step, device, outcome.found or ""), found=outcome.found)
        except Exception as error:
            return StepOutcome(step, Outcome.FAILED, outcome.found, f"went back, but cannot be read again: {error}")

    def _heir(self, step: Step) -> tuple[Transaction, Step] | None:
        """Return the next transaction that relies on the step's value, and the first of its steps that does."""
        for other in self.everything:
            # What fabtune itself wrote for this one wants nothing beyond it.
            if other.closed or other.name <= self.transaction.name or other.root == self.transaction.name:
                continue
            found = next((one for one in other.open_steps if relies(one, step, self.locate)), None)
            if found:
                return other, found
        # A value that moved beside another one (nr_requests beside the scheduler) follows it.
        cause = cause_of(self.transaction, step)
        if step.disturbed and cause and cause.number in self.heirs:
            return self.heirs[cause.number], step
        return None

    def _pass_on(self, step: Step, heir: Transaction, other: Step) -> StepOutcome:
        """Leave the value to `heir`, which from now on gives back what `step` would have."""
        whose = f"profile {heir.profile} ({heir.name})"
        line: Line | None = None
        undone = rebooted(step, self.boot_id) and not persist.brought_by_us(step, self._known(), self.boot_id)
        if undone and not self.force:
            return StepOutcome(step, Outcome.ALREADY, note="the boot since has undone the value")
        if other is step:
            mine = replace(step, number=len(heir.steps) + 1)
            line = as_line(mine, ClaimLine, step.instance or instance(step.device))
        elif other.old.split() == step.old.split():
            pass
        elif self.force or is_ours(step, other.old, in_doubt(self.transaction, step)):
            line = InheritLine(other.number, step.old, step.holds or step.wrote, step.saved)
        elif step.instance and other.instance and step.instance != other.instance:
            return StepOutcome(step, Outcome.ALREADY, note="created again since, with its own value")
        else:
            return StepOutcome(step, Outcome.FOREIGN, note=f"changed by somebody else before {whose} wrote it")
        if line and not self.tell(heir, line):
            return StepOutcome(step, Outcome.FAILED, note=f"{whose} still wants it, and the journal cannot be written")
        self.heirs[step.number] = heir
        return StepOutcome(step, Outcome.PASSED_ON, note=f"stays: {whose} still wants it, and gives the old value back")

    def _leave_file(self, step: Step) -> StepOutcome:
        """Take `step`'s lines out of a file into which later transactions have written theirs."""
        heirs = [
            (other, one)
            for other in self.everything
            if other.name > self.transaction.name
            for one in other.open_steps
            if one.value == step.value
        ]
        device = self.locate.of(step)
        if device is None:
            return self._without_device(step, "it is not there")
        found, (last, top) = current(step, device), heirs[-1]
        first = heirs[0][1]
        strange = first.old not in (step.old, *_texts(step)) or found not in _texts(top)
        if strange and not self.force:
            return StepOutcome(step, Outcome.FOREIGN, found, "changed by somebody else since; --force overrides")
        others: list[str] = []
        old = text = step.old
        for other, one in heirs:
            others.append(one.share)
            text = shares.left(one.holds or one.wrote, step.old, others)
            lines: tuple[Line, ...] = (
                InheritLine(one.number, old, one.holds or one.wrote),
                HoldsLine(one.number, text),
            )
            if (old, text) != (one.old, one.holds or one.wrote) and not all(self.tell(other, line) for line in lines):
                return StepOutcome(step, Outcome.FAILED, found, "the journal cannot be written")
            old = text
        if found != text:
            backends.get(step.backend).write(device, step.key, text)
            fault.checkpoint()
        return StepOutcome(step, Outcome.PASSED_ON, found, f"the lines of profile {last.profile} ({last.name}) stay")

    def _journal(self) -> None:
        """Record what became of every step, in the file and in `transaction`."""
        try:
            for pending in self.owing(list(self.outcomes.values())):
                note(self.writer, pending.line(DueLine))
        except (FabtuneError, OSError):
            # Left open, the transaction is asked again, and by then finds its values back.
            return
        # The first step of a value has its old one: while that is open, what was killed here is right when it goes on.
        for step in reversed(self.transaction.open_steps):
            state = Outcome.ALREADY if step.empty else self.outcomes[step.number].state
            line: Line | None = RestoredLine(step.number, self.boot_id) if state in SETTLED else None
            if state == Outcome.WAITING and not step.waiting:
                line = WaitingLine(step.number)
            if line:
                note(self.writer, line)
                journal.take(self.transaction, line)
        if not self.transaction.open_steps and not self.transaction.damage:
            note(self.writer, ClosedLine())
            self.transaction.closed = True


def _texts(step: Step) -> tuple[str, ...]:
    """Return what the file of `step` may hold if nobody else wrote it."""
    return step.wrote, step.holds or step.wrote, *step.ours
