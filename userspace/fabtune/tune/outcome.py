# SPDX-License-Identifier: GPL-2.0-or-later
"""What became of a value that was to go back."""

from dataclasses import dataclass
from enum import StrEnum

from fabtune.model.document import Json
from fabtune.tune.transaction import Step


class Outcome(StrEnum):
    """What became of one step: given back, there already, another transaction's to give back, without device for good,
    without device for now, somebody else's, without leave, refused."""

    RESTORED = "restored"
    ALREADY = "already"
    PASSED_ON = "passed-on"
    GONE = "gone"
    WAITING = "waiting"
    FOREIGN = "foreign"
    HELD = "held"
    FAILED = "failed"


# What leaves nothing owed.
SETTLED = (Outcome.RESTORED, Outcome.ALREADY, Outcome.PASSED_ON, Outcome.GONE)


@dataclass(frozen=True)
class StepOutcome:
    """One step after revert: its outcome and what the value was found to be."""

    step: Step
    state: Outcome
    found: str | None = None
    note: str = ""

    def as_json(self) -> dict[str, Json]:
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
