#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
"""Says which profiles are in force on a host, and what is no longer as applied; changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: profile_info
short_description: Which fabtune profiles are in force, and what has drifted
description:
  - Runs C(fabtune history) and C(fabtune verify) on the host and returns what they say as data.
  - Drift is an answer here and no failure; M(fabtune.fleet.profile) with C(state=verified) fails on it.
version_added: 0.2.0
author:
  - The fabtune developers (@fabtune)
options:
  netns:
    description: Only what was applied in this network namespace of the portals.
    type: str
  executable:
    description: The fabtune program on the host.
    type: str
    default: fabtune
attributes:
  check_mode:
    description: It changes nothing in any mode.
    support: full
"""

EXAMPLES = r"""
- name: Ask what is in force
  fabtune.fleet.profile_info:
  register: found

- name: Name the hosts that have drifted
  ansible.builtin.debug:
    msg: "{{ found.drift | map(attribute='tunable') | join(', ') }}"
  when: found.drift | length > 0
"""

RETURN = r"""
profiles:
  description: Names of the profiles in force, oldest first.
  returned: always
  type: list
  elements: str
transactions:
  description: Every transaction with its profile, state and time, oldest first; its values are left out.
  returned: always
  type: list
  elements: dict
checked:
  description: How many values were compared.
  returned: always
  type: int
drift:
  description: Values that are no longer what was applied.
  returned: always
  type: list
  elements: dict
remarks:
  description: What waits for a new login, and what else was found beside the values.
  returned: always
  type: list
  elements: dict
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
    module = AnsibleModule(argument_spec={**ARGUMENTS, "netns": {"type": "str"}}, supports_check_mode=True)
    netns = module.params["netns"]
    history = [one for one in fabtune(module, ["history"])[1] if netns in (None, one["netns"])]
    words = ["verify", *(["--netns", netns] if netns else [])]
    found = fabtune(module, words, (DONE, DRIFT, NEEDS_ACTION))[1]
    module.exit_json(
        changed=False,
        profiles=list(dict.fromkeys(one["profile"] for one in history if one["state"] == "in force")),
        transactions=[{key: value for key, value in one.items() if key != "steps"} for one in history],
        checked=found["checked"],
        drift=found["drift"],
        remarks=found["remarks"],
    )


if __name__ == "__main__":
    main()
