# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes back what apply wrote, three-way: only a value that still is ours goes back, the rest is reported."""

from dataclasses import dataclass
from enum import StrEnum

from fabtune import backends
from fabtune.backends import UnsupportedError
from fabtune.errors import FabtuneError
from fabtune.facts import devices
from fabtune.facts.surroundings import Surroundings
from fabtune.model.device import Device
from fabtune.tune import fault
from fabtune.tune.journal import Step, Transaction, Writer


class Outcome(StrEnum):
    """What became of one step: given back, there already, somebody else's now, without device, refused."""

    RESTORED = "restored"
    ALREADY = "already"
    FOREIGN = "foreign"
    GONE = "gone"
    FAILED = "failed"


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
        try:
            self._around: Surroundings | None = Surroundings(netns)
        except FabtuneError:
            # The namespace is gone, and its devices with it.
            self._around = None
        self._found: dict[str, dict[tuple[str, str], Device]] = {}

    def __call__(self, device: Device) -> Device | None:
        """Return the present device with the same identity, or None."""
        if device.scope not in self._found:
            found = devices.find(device.scope, self._around) if self._around else []
            self._found[device.scope] = {one.key: one for one in found}
        return self._found[device.scope].get(device.key)


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
    return in_doubt and step.rounds


def revert_transaction(transaction: Transaction, writer: Writer | None, force: bool) -> list[StepOutcome]:
    """Give back every open step of `transaction`, last first; journal what was done.

    A journal that cannot be written (a full disk) does not stop values from going back: a
    step already given back is recognised by its value.
    """
    locate = Locator(str(transaction.header["netns"]))
    last = len(transaction.steps)
    outcomes = []
    for step in reversed(transaction.open_steps):
        in_doubt = step.number == last and not transaction.applied and step.holds is None
        outcome = _revert_step(step, locate(step.device), in_doubt, force)
        outcomes.append(outcome)
        if outcome.state in (Outcome.RESTORED, Outcome.ALREADY, Outcome.GONE):
            _note(writer, "restored", step=step.number)
    if all(outcome.state in (Outcome.RESTORED, Outcome.ALREADY, Outcome.GONE) for outcome in outcomes):
        _note(writer, "closed")
    return outcomes


def _note(writer: Writer | None, kind: str, **fields: object) -> None:
    if writer is None:
        return
    try:
        writer.append(kind, **fields)
    except OSError:
        return


def _revert_step(step: Step, device: Device | None, in_doubt: bool, force: bool) -> StepOutcome:
    if device is None:
        return StepOutcome(step, Outcome.GONE, note="the device is gone, and the value with it")
    found: str | None = None
    try:
        found = current(step, device)
        if found.split() == step.old.split():
            return StepOutcome(step, Outcome.ALREADY, found)
        if not is_ours(step, found, in_doubt) and not force:
            return StepOutcome(step, Outcome.FOREIGN, found, "changed by somebody else since; --force overrides")
        backends.get(step.backend).write(device, step.key, step.old)
        fault.checkpoint()
        now = current(step, device)
    except UnsupportedError as error:
        return StepOutcome(step, Outcome.GONE, found, str(error))
    except FabtuneError as error:
        return StepOutcome(step, Outcome.FAILED, found, str(error))
    if now.split() != step.old.split() and not step.rounds:
        return StepOutcome(step, Outcome.FAILED, now, f"wrote {step.old} back, but it reads {now}")
    return StepOutcome(step, Outcome.RESTORED, found)
