# SPDX-License-Identifier: GPL-2.0-or-later
"""Values that a target's saved configuration has without --persist: targetcli saves the whole running target.

It does so whenever somebody leaves it (auto_save_on_exit).  What was saved while our value ran would come back with
the next boot; what was saved before is the administrator's.
"""

from collections.abc import Iterable
from dataclasses import replace

from fabtune import backends
from fabtune.catalog.tunable import Tunable, shipped_catalog
from fabtune.errors import FabtuneError, UnsupportedError
from fabtune.model.device import Device
from fabtune.tune import fault
from fabtune.tune.ours import is_ours
from fabtune.tune.outcome import Outcome, StepOutcome
from fabtune.tune.pending import SAVED, Pending
from fabtune.tune.transaction import Step

_KEEPER = "saveconfig"
AND_SAVED = "the target's saved configuration had it too, and has the old value again"


def saved_now(tunable: Tunable, device: Device) -> str | None:
    """Return what the next boot gives `tunable` of `device`, '' for nothing.

    None where that cannot be told, or nothing saves it.
    """
    if tunable.persist != _KEEPER:
        return None
    try:
        return _read(device, tunable.key)
    except FabtuneError:
        return None


def given_back(outcome: StepOutcome, force: bool) -> StepOutcome:
    """Return `outcome` after its old value went into the saved configuration, if that has got ours since the apply.

    What is still saved is owed, but with `force`.
    """
    step = outcome.step
    if not _is_settled(outcome) or step.saved is None:
        return outcome
    try:
        if not _has_ours(step):
            return outcome
        backends.get(_KEEPER).write(step.device, step.key, step.old)
        fault.checkpoint()
        if _has_ours(step):
            raise FabtuneError(f"wrote {step.old}, but it has {_read(step.device, step.key)}")
    except FabtuneError as error:
        why = f"the next boot may bring it again from the target's saved configuration: {error}"
        return replace(outcome, state=outcome.state if force else Outcome.FAILED, note=why)
    return replace(outcome, note=f"{outcome.note}; {AND_SAVED}" if outcome.note else AND_SAVED)


def still_saved(outcomes: Iterable[StepOutcome], boot_id: str) -> list[Pending]:
    """Return the devices whose values went back while the next boot brings ours, and why that is left to people.

    An older fabtune did not journal what was saved before: it may be the administrator's.
    """
    found: dict[Device, list[Step]] = {}
    for outcome in outcomes:
        if _is_settled(outcome) and outcome.step.saved is None and _may_have_ours(outcome.step):
            found.setdefault(outcome.step.device, []).append(outcome.step)
    return [Pending(SAVED, device.identity, device.label, "", boot_id, _told(steps)) for device, steps in found.items()]


def _told(steps: Iterable[Step]) -> str:
    values = ", ".join(f"{step.tunable} {_read(step.device, step.key)}" for step in steps)
    return f"{values}, whether since the apply or before it is not known; `targetcli saveconfig` saves what runs now"


def _is_settled(outcome: StepOutcome) -> bool:
    """Tell whether `outcome` leaves nothing owed of a value that is saved; what is given up would come back as well."""
    return outcome.state in (Outcome.RESTORED, Outcome.ALREADY, Outcome.GONE) and any(
        (one.backend, one.key, one.scope) == (outcome.step.backend, outcome.step.key, outcome.step.device.scope)
        for one in shipped_catalog().tunables.values()
        if one.persist == _KEEPER
    )


def _may_have_ours(step: Step) -> bool:
    try:
        return _has_ours(step)
    except FabtuneError:
        return False


def _has_ours(step: Step) -> bool:
    """Tell whether what is saved is the value of `step`, and neither the old one nor what was saved before."""
    saved = _read(step.device, step.key).split()
    others = (step.old.split(), None if step.saved is None else step.saved.split())
    return bool(saved) and saved not in others and is_ours(step, " ".join(saved), in_doubt=False)


def _read(device: Device, key: str) -> str:
    """Return what is saved, '' for nothing.  Raises FabtuneError."""
    try:
        return backends.get(_KEEPER).read(device, key)
    except UnsupportedError:
        return ""
