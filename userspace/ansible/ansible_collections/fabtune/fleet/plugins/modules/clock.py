#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
"""Says how far a host's clock is from true time, and refuses one that is too far."""

from __future__ import annotations

DOCUMENTATION = r"""
module: clock
short_description: Check a host's clock against its time source
description:
  - Reads chrony's estimate of the clock's error. Hosts that start together by their clocks need a small one.
  - Fails when no time source is followed, or when the error may be larger than allowed.
version_added: 0.1.0
author:
  - The fabtune developers (@fabtune)
options:
  max_offset_ms:
    description: The largest error allowed, chrony's own uncertainty included.
    type: float
    default: 25
"""

EXAMPLES = r"""
- name: Refuse hosts whose clock is off
  fabtune.fleet.clock:
    max_offset_ms: 25
"""

RETURN = r"""
offset_ms:
  description: How far the clock is ahead of true time.
  returned: always
  type: float
uncertainty_ms:
  description: How wrong that figure may be (chrony's root delay / 2 + root dispersion).
  returned: always
  type: float
now_unix_s:
  description: The host's clock when it was read.
  returned: always
  type: float
"""

import time  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

# Columns of `chronyc -c tracking`.
SOURCE = 1
SYSTEM_OFFSET_S = 4
ROOT_DELAY_S = 10
ROOT_DISPERSION_S = 11
LEAP = 13


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"max_offset_ms": {"type": "float", "default": 25.0}}, supports_check_mode=True
    )
    program = module.get_bin_path("chronyc")
    if program is None:
        module.fail_json(msg="chronyc is not installed: a start at one instant needs a clock that chrony keeps")
    status, out, err = module.run_command([program, "-c", "tracking"])
    if status:
        module.fail_json(msg=f"chronyc: {(err or out).strip()}; is chronyd running?")
    fields = out.strip().split(",")
    if fields[LEAP] == "Not synchronised":
        module.fail_json(msg="the clock is not synchronised: chronyd follows no time source yet (see chronyc sources)")
    # chrony counts a clock that is behind as positive.
    offset_ms = -float(fields[SYSTEM_OFFSET_S]) * 1e3
    uncertainty_ms = (float(fields[ROOT_DELAY_S]) / 2 + float(fields[ROOT_DISPERSION_S])) * 1e3
    found = {
        "offset_ms": offset_ms,
        "uncertainty_ms": uncertainty_ms,
        "now_unix_s": time.time(),
        "source": fields[SOURCE],
    }
    allowed_ms = module.params["max_offset_ms"]
    if abs(offset_ms) + uncertainty_ms > allowed_ms:
        module.fail_json(
            msg=f"the clock is {offset_ms:+.1f} ms off (+-{uncertainty_ms:.1f} ms), allowed are {allowed_ms:g} ms: "
            "wait until chronyd has corrected it, or step it with chronyc makestep",
            **found,
        )
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
