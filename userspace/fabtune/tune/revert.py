# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes back what apply wrote, three-way: only a value that still is ours goes back, the rest is reported."""

from dataclasses import dataclass
from enum import StrEnum

from fabtune import backends
from fabtune.backends import UnsupportedError
from fabtune.errors import FabtuneError, InputError
from fabtune.facts import devices
from fabtune.facts.surroundings import Surroundings
from fabtune.model.device import Device
from fabtune.tune import fault
from fabtune.tune.journal import Step, Transaction, Writer
from fabtune.tune.relogin import in_use


class Outcome(StrEnum):
    """What became of one step: given back, there already, somebody else's, without device, without leave, refused."""

    RESTORED = "restored"
    ALREADY = "already"
    FOREIGN = "foreign"
    GONE = "gone"
    HELD = "held"
    FAILED = "failed"


# These change one value by several writes, and a crash between them leaves a mixture of ours.
_SEVERAL_WRITES = ("qdisc", "irq")
_SETTLED = (Outcome.RESTORED, Outcome.ALREADY, Outcome.GONE)


@dataclass(frozen=True)
class StepOutcome:
    """One step after revert: its outcome and what the value was found to be."""

    step: Step
    state: Outcome
    found: str | None = None
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the outcome with stable keys."""
        return {
            "tunable": self.step.tunable,
            "device": self.step.device.label,
            "identity": self.step.device.identity,
            "old": self.step.old,
            "wrote": self.step.wrote,
            "found": self.found,
            "state": str(self.state),
            "note": self.note,
        }


class Locator:
    """Finds a journalled device on this host as it is now, whatever it is called today."""

    def __init__(self, netns: str) -> None:
        self._namespace_gone = False
        try:
            self._around = Surroundings(netns)
        except InputError:
            # Its links, routes and sysctls are out of reach; sessions, disks and targets are not in it.
            self._namespace_gone = True
            self._around = Surroundings()
        self._found: dict[tuple[str, str], Device | None] = {}

    def __call__(self, device: Device) -> Device | None:
        """Return the present device with the same identity, None where it is positively absent.

        Raises FabtuneError where that cannot be told.
        """
        if self._namespace_gone and device.scope in ("netns", "nic", "route"):
            return None
        if device.key not in self._found:
            self._found[device.key] = devices.locate(device, self._around)
        return self._found[device.key]


def current(step: Step, device: Device) -> str:
    """Return what the step's value is now.  Raises UnsupportedError, FabtuneError."""
    return backends.get(step.backend).read(device, step.key)


def is_ours(step: Step, found: str, in_doubt: bool) -> bool:
    """Tell whether `found` is what we wrote.

    A driver may round what it is given.  Where the process died before it could journal the
    rounded value (`in_doubt`), any value of such a tunable but the old one is taken for ours.
    """
    if found.split() in (step.wrote.split(), (step.holds or step.wrote).split()):
        return True
    return in_doubt and (step.rounds or step.backend in _SEVERAL_WRITES)


def revert_transaction(
    transaction: Transaction, writer: Writer | None, force: bool, may_end_sessions: bool
) -> list[StepOutcome]:
    """Give back every open step of `transaction`, last first; journal what was done.

    A value whose write ends live sessions waits for `may_end_sessions`.
    A journal that cannot be written (a full disk) does not stop values from going back: a
    step already given back is recognised by its value.
    """
    locate = Locator(str(transaction.header["netns"]))
    moved = {
        step.number for step in transaction.open_steps if step.disturbed and _moved_by_us(step, transaction, locate)
    }
    outcomes: dict[int, StepOutcome] = {}
    # A value that another step's value still forbids (nr_requests under the wrong scheduler) goes
    # back on the second walk.
    for _ in range(2):
        for step in reversed(transaction.open_steps):
            if step.number in outcomes and outcomes[step.number].state in _SETTLED:
                continue
            in_doubt = step.number == len(transaction.steps) and not transaction.applied and step.holds is None
            try:
                device = locate(step.device)
            except FabtuneError as error:
                outcomes[step.number] = StepOutcome(step, Outcome.FAILED, note=f"cannot tell whether it is there: {error}")
                continue
            outcome = _revert_step(step, device, in_doubt, force or step.number in moved, may_end_sessions)
            outcomes[step.number] = outcome
            if outcome.state in _SETTLED:
                note(writer, "restored", step=step.number)
    if all(outcome.state in _SETTLED for outcome in outcomes.values()):
        note(writer, "closed")
    return list(outcomes.values())


def _moved_by_us(step: Step, transaction: Transaction, locate: Locator) -> bool:
    """Tell whether a disturbed value is what our write beside it made of it, asked before anything goes back.

    Its cause is the next step that was really written.  Once the cause is back, the value may
    have moved again on the way, and that was us too.
    """
    later = transaction.steps[step.number :]
    cause = next((one for one in later if not one.disturbed), None)
    ours = {(step.holds or "").strip(), step.old.strip()}
    ours |= {
        (one.holds or one.wrote).strip() for one in later if (one.tunable, one.device) == (step.tunable, step.device)
    }
    if cause is None or cause.restored or step.holds is None:
        return True
    try:
        device, cause_device = locate(step.device), locate(cause.device)
        back = cause_device is not None and current(cause, cause_device).split() == cause.old.split()
        return device is not None and (back or current(step, device).strip() in ours)
    except FabtuneError:
        return False


def note(writer: Writer | None, kind: str, **fields: object) -> None:
    """Write a line to the journal if there is one and its disk takes it."""
    if writer is None:
        return
    try:
        writer.append(kind, **fields)
    except OSError:
        return


def _revert_step(step: Step, device: Device | None, in_doubt: bool, force: bool, may_end_sessions: bool) -> StepOutcome:
    if device is None:
        return StepOutcome(step, Outcome.GONE, note="the device is gone, and the value with it")
    found: str | None = None
    try:
        found = current(step, device)
        if found.split() == step.old.split():
            return StepOutcome(step, Outcome.ALREADY, found)
        if not is_ours(step, found, in_doubt) and not force:
            return StepOutcome(step, Outcome.FOREIGN, found, "changed by somebody else since; --force overrides")
        if step.effect == "kills-session" and not may_end_sessions and in_use(device):
            return StepOutcome(step, Outcome.HELD, found, "would end live sessions; give --allow-relogin")
        backends.get(step.backend).write(device, step.key, step.old)
        fault.checkpoint()
        now = current(step, device)
    except UnsupportedError as error:
        # What can be read but not written is refused by the state of something else, perhaps not for long.
        return StepOutcome(step, Outcome.FAILED if found is not None else Outcome.GONE, found, str(error))
    except FabtuneError as error:
        return StepOutcome(step, Outcome.FAILED, found, str(error))
    if now.split() != step.old.split() and not step.rounds:
        return StepOutcome(step, Outcome.FAILED, now, f"wrote {step.old} back, but it reads {now}")
    return StepOutcome(step, Outcome.RESTORED, found)
