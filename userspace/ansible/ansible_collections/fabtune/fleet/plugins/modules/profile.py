#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings a host to a fabtune profile, holds it against it, keeps it, or takes it back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: profile
short_description: Apply, verify, confirm or revert a fabtune profile
version_added: 0.1.0
author:
  - The fabtune developers (@fabtune)
description:
  - Runs C(fabtune apply), C(fabtune verify), C(fabtune confirm) or C(fabtune revert) on the host and returns what
    it did as data.
  - In check mode nothing is written; C(changed) says whether something would be.
options:
  state:
    description:
      - What the host shall be. C(verified) fails when a value is no longer what was applied; a session that waits for
        its login is a remark. C(confirmed) keeps what O(confirm_within) would take back.
    choices: [applied, verified, confirmed, reverted]
    default: applied
    type: str
  name:
    description: The profile. Needed for C(applied); limits C(reverted) to what this profile wrote.
    type: str
  role:
    description: Which end the host is; without it, what it has.
    choices: [initiator, target, both]
    type: str
  rtt:
    description: Round trip of the path, such as 50ms; without it, from the live sessions.
    type: str
  rate:
    description: Rate of the path's slowest link, such as 1gbit; without it, the link's speed.
    type: str
  netns:
    description: Network namespace of the portals.
    type: str
  allow_relogin:
    description: Whether sessions may be logged in again, one at a time, where that is safe.
    type: bool
    default: false
  end_sessions:
    description: Whether values are written that end a target's sessions, whose initiators may be using them.
    type: bool
    default: false
  persist:
    description: Whether the values are also written to the native files that set them at boot.
    type: bool
    default: false
  confirm_within:
    description:
      - For C(applied), the host takes everything back by itself after this time, such as 300s, unless C(confirmed)
        comes, even when the apply itself has cut it off.
    type: str
  transaction:
    description:
      - A transaction as C(applied) returned it. C(reverted) takes back this one alone; C(verified) and
        C(confirmed) fail where it is no longer in force.
    type: str
  timeout_s:
    description: After so many seconds fabtune is interrupted, by which an apply takes back what it wrote.
    type: int
  executable:
    description: The fabtune program on the host.
    type: str
    default: fabtune
attributes:
  check_mode:
    description: Nothing is written; C(changed) says whether something would be.
    support: full
  diff_mode:
    description: The diff has a line for each value, before and after.
    support: full
"""

EXAMPLES = r"""
- name: Bring an initiator to the profile for a WAN
  fabtune.fleet.profile:
    name: wan
    role: initiator
    rtt: 50ms
    rate: 1gbit

- name: Fail where a value is no longer what was applied
  fabtune.fleet.profile:
    state: verified

- name: Apply what may cut the host off, so that it comes back by itself
  fabtune.fleet.profile:
    name: wan
    role: initiator
    confirm_within: 300s

- name: Keep it, since the host still answers
  fabtune.fleet.profile:
    state: confirmed

- name: Take the profile back
  fabtune.fleet.profile:
    state: reverted
    name: wan
"""

RETURN = r"""
changes:
  description: The rows written, or that would be written, with tunable, device, value before and after.
  returned: for applied and reverted
  type: list
  elements: dict
transaction:
  description: The name of what was applied, for C(reverted); empty where nothing was to be written.
  returned: for applied
  type: str
needs_relogin:
  description: What still needs a login, and why.
  returned: for applied and reverted
  type: list
  elements: dict
drift:
  description: Values that are no longer what was applied.
  returned: for verified
  type: list
  elements: dict
remarks:
  description: What waits for a new login, and what else was found beside the values.
  returned: for verified
  type: list
  elements: dict
confirmed:
  description: The transactions that stay.
  returned: for confirmed
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible_collections.fabtune.fleet.plugins.module_utils.command import (  # noqa: E402
    ARGUMENTS,
    DONE,
    DRIFT,
    NEEDS_ACTION,
    fabtune,
)  # fmt: skip


def main():
    """Run the module."""
    texts = {name: {"type": "str"} for name in ("name", "rtt", "rate", "netns", "confirm_within", "transaction")}
    switches = {name: {"type": "bool", "default": False} for name in ("allow_relogin", "end_sessions", "persist")}
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS, **texts, **switches,
            "state": {"type": "str", "default": "applied", "choices": ["applied", "verified", "confirmed", "reverted"]},
            "role": {"type": "str", "choices": ["initiator", "target", "both"]},
            "timeout_s": {"type": "int"},
        },
        required_if=[("state", "applied", ["name"])],
        supports_check_mode=True,
    )  # fmt: skip
    states = {"applied": applied, "verified": verified, "confirmed": confirmed, "reverted": reverted}
    states[module.params["state"]](module)


def options(module, *names):
    """Return those of the module's parameters that are set as words of a command line."""
    words = []
    for name in names:
        value = module.params[name]
        if value is True:
            words.append("--" + name.replace("_", "-"))
        elif value:
            words += ["--" + name.replace("_", "-"), value]
    return words


def applied(module):
    """Apply the profile, or in check mode say what that would write."""
    where = options(module, "role", "rtt", "rate", "netns")
    if module.check_mode:
        plan = fabtune(module, ["plan", module.params["name"], *where])[1]
        changes = [row for row in plan["rows"] if row["state"] == "change"]
        module.exit_json(changed=bool(changes), changes=changes, needs_relogin=[], transaction="", diff=diff(changes))
    words = ["apply", module.params["name"], *where]
    words += options(module, "allow_relogin", "end_sessions", "persist", "confirm_within")
    done = fabtune(module, words, (DONE, NEEDS_ACTION))[1]
    changed = bool(done["written"] or done["relogged"])
    module.exit_json(
        changed=changed,
        changes=done["written"],
        needs_relogin=done["pending"],
        refused=done["refused"],
        transaction=done["transaction"] or "",
        diff=diff(done["written"]),
    )


def diff(rows):
    """Return the rows of a plan as Ansible shows what changes."""
    before = [f"{row['tunable']} {row['device']}: {row['now']}\n" for row in rows]
    after = [f"{row['tunable']} {row['device']}: {row['wanted']}\n" for row in rows]
    return {"before": "".join(before), "after": "".join(after)}


def state_of(module, name):
    """Return what the journal says of the transaction called `name`."""
    found = [one["state"] for one in fabtune(module, ["history"])[1] if one["transaction"] == name]
    return found[0] if found else "not in the journal"


def verified(module):
    """Fail when a value is no longer what was applied, or all of it has gone back since."""
    words = ["verify", *([module.params["name"]] if module.params["name"] else [])]
    words += (
        options(module, "role", "rtt", "rate", "netns") if module.params["name"] else options(module, "role", "netns")
    )
    status, found = fabtune(module, words, (DONE, DRIFT, NEEDS_ACTION))
    if status == DRIFT:
        module.fail_json(msg=f"{len(found['drift'])} of {found['checked']} values differ", drift=found["drift"])
    name = module.params["transaction"]
    state = state_of(module, name) if name else ""
    if name and state not in ("in force", "unconfirmed"):
        module.fail_json(msg=f"transaction {name}: {state}", drift=[])
    module.exit_json(changed=False, checked=found["checked"], drift=[], remarks=found["remarks"])


def confirmed(module):
    """Keep what was applied with a time limit, or in check mode say that something waits for it."""
    name = module.params["transaction"]
    waiting = [one["transaction"] for one in fabtune(module, ["history"])[1] if one["state"] == "unconfirmed"]
    if name and name not in waiting:
        state = state_of(module, name)
        if state != "in force":
            module.fail_json(msg=f"transaction {name}: {state}")
    elif waiting and not module.check_mode:
        waiting = fabtune(module, ["confirm"])[1]["confirmed"]
    kept = waiting if name in (None, *waiting) else []
    module.exit_json(changed=bool(kept), confirmed=kept)


def reverted(module):
    """Take back what was applied, or in check mode say what would be taken back."""
    if module.check_mode:
        history = fabtune(module, ["history"])[1]
        name, role = module.params["name"], module.params["role"]
        open_ones = [
            one for one in history
            if one["state"] != "taken back" and name in (None, one["profile"])
            and module.params["transaction"] in (None, one["transaction"], one["written_for"])
            and role in (None, "both", *one["roles"])
        ]  # fmt: skip
        steps = [step for one in open_ones for step in one["steps"] if not step["restored"]]
        back = [{**step, "now": step["wrote"], "wanted": step["old"]} for step in steps]
        module.exit_json(changed=bool(steps), changes=steps, needs_relogin=[], diff=diff(back))
    words = ["revert", *([module.params["name"]] if module.params["name"] else [])]
    words += options(module, "transaction", "role", "netns", "allow_relogin", "end_sessions")
    status, done = fabtune(module, words, (DONE, DRIFT, NEEDS_ACTION))
    others = [step for step in done["steps"] if step["state"] == "foreign"]
    result = {"changes": done["steps"], "needs_relogin": done["pending"]}
    if status == DRIFT:
        module.fail_json(msg="somebody else changed values since; they were left alone", conflicts=others, **result)
    module.exit_json(changed=bool(done["steps"] or done["relogged"]), **result)


if __name__ == "__main__":
    main()
