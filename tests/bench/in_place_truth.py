# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether what fabtune says after a fault is so: its exit status, its words, `verify`, `history` and `plan`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BURST = "iscsi.max_burst"
# What apply's exit status says (userspace/fabtune/errors.py); killed by SIGKILL it says nothing.
DONE, DRIFT, NEEDS_ACTION, KILLED = 0, 3, 4, -9


@dataclass(frozen=True)
class State:
    """What really is, and what fabtune says of it.

    `record` has the node record's values by tunable, `burst` the session's MaxBurstLength, of which the target takes
    `most_burst`.  `read_since`: iscsid has read the record after its last change.  `plan_now` is what `plan` shows.
    """

    record: Mapping[str, str]
    burst: int
    most_burst: int
    read_since: bool
    verify_status: int
    verify: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    plan_now: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_force(self) -> bool:
        """Whether the session has negotiated what the record asks for."""
        return self.burst == min(int(self.record[BURST]), self.most_burst)

    @property
    def says_due(self) -> bool:
        """Whether verify names a session that must still get what was written, or taken back."""
        return any(one["tunable"] == "session" for one in (*self.verify["drift"], *self.verify["remarks"]))

    @property
    def open_steps(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The steps that history has as not taken back, with their transaction's state."""
        taken = [(one["state"], step) for one in self.history for step in one["steps"] if not step["restored"]]
        return [(state, step) for state, step in taken if state != "taken back"]


def untrue_of_state(state: State, old: Mapping[str, str]) -> list[str]:
    """Return what verify, history and plan say that is not so, whatever fabtune did before; `old`: before all of it."""
    told = []
    drift = {one["tunable"]: one for one in state.verify["drift"]}
    for name in (name for name in drift if name in state.record):
        if drift[name]["found"] != state.record[name]:
            told.append(f"verify finds {name} {drift[name]['found']}, the record has {state.record[name]}")
        if drift[name]["expected"] == state.record[name]:
            told.append(f"verify says that {name} differs, the record has what it expects")
    for where, step in state.open_steps:
        name, wrote = step["tunable"], step["wrote"]
        if wrote != state.record[name] and name not in drift:
            told.append(f"history has {name} {wrote} {where}, the record has {state.record[name]}; verify is silent")
    ours = {step["tunable"] for _, step in state.open_steps}
    told += [
        f"the record has {name} {value}, it was {old[name]}, and history has nothing open of it"
        for name, value in state.record.items()
        if value != old[name] and name not in ours
    ]
    if not state.in_force and not state.says_due:
        told.append(f"negotiated {state.burst}, the record has {state.record[BURST]}, and verify says nothing of it")
    if state.in_force and state.read_since and state.says_due:
        told.append("verify says that a session must still get its values, and it has them")
    if state.verify_status != (wanted := _verify_status(state.verify)):
        told.append(f"verify ends with {state.verify_status}, what it says is {wanted}")
    told += [
        f"plan has {name} at {now}, the record has {state.record[name]}"
        for name, now in state.plan_now.items()
        if now != state.record[name]
    ]
    return told


def _verify_status(verify: Mapping[str, Any]) -> int:
    if verify["drift"]:
        return DRIFT
    return NEEDS_ACTION if any(one["due"] for one in verify["remarks"]) else DONE


def untrue_of_apply(status: int, said: str, state: State, old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return what apply's exit status and words say that is not so."""
    told = ["apply shows a traceback"] if "Traceback" in said else []
    newest = state.history[-1]["state"] if state.history else "none"
    if status in (DONE, NEEDS_ACTION):
        if dict(state.record) != dict(new):
            told.append(f"apply ended with {status}, and the record has {dict(state.record)}")
        if newest != "in force":
            told.append(f"apply ended with {status}, and its transaction is {newest}")
    if status == DONE:
        if not state.in_force:
            told.append(f"apply ended with 0, and negotiated is {state.burst}")
        if state.verify_status != DONE:
            told.append(f"apply ended with 0, and verify ends with {state.verify_status}")
    if status in (DONE, NEEDS_ACTION, KILLED):
        return told
    has_old = dict(state.record) == dict(old)
    if not has_old and not state.open_steps:
        told.append(f"apply failed ({status}), the record has {dict(state.record)}, and history has nothing open")
    if "everything written was taken back" in said and not has_old:
        told.append(f"apply says that all was taken back, and the record has {dict(state.record)}")
    if "back with their old values" in said and not state.in_force:
        told.append(f"apply says that sessions are back with their old values, and negotiated is {state.burst}")
    return told


def wrong_after_revert(status: int, said: str, state: State, old: Mapping[str, str]) -> list[str]:
    """Return what a revert of a host that is whole again did not give back, or says that is not so."""
    told = ["revert shows a traceback"] if "Traceback" in said else []
    if status != DONE:
        told.append(f"revert ended with {status}")
    if dict(state.record) != dict(old):
        told.append(f"after the revert the record has {dict(state.record)}")
    if not state.in_force:
        told.append(f"after the revert negotiated is {state.burst}")
    if open_ones := [one["state"] for one in state.history if one["state"] != "taken back"]:
        told.append(f"after the revert history has {', '.join(open_ones)}")
    if status == DONE and state.verify_status != DONE:
        told.append(f"revert ended with 0, and verify ends with {state.verify_status}")
    return told
