#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs one workload on a host, beginning at a given instant, and names the record that it left."""

from __future__ import annotations

DOCUMENTATION = r"""
module: measure
short_description: Run a fabtune workload
description:
  - Runs C(fabtune measure) on the host. With I(at) its load begins when the host's clock shows that time.
  - A run that fails leaves a record too; the module then fails with the record's path in its result.
version_added: 0.1.0
author:
  - The fabtune developers (@fabtune)
options:
  workload:
    description: One of C(fabtune workloads), or the path of a workload file.
    required: true
    type: str
  device:
    description: The block device or directory to load.
    required: true
    type: str
  at:
    description: UNIX time at which the load begins.
    type: float
  confirm:
    description: The device's name, for workloads that overwrite it.
    type: str
  parameters:
    description: The workload's parameters.
    type: dict
    default: {}
  runtime_s:
    description: Measured part of each step.
    type: float
  ramp_s:
    description: Load before the measured part.
    type: float
  label:
    description: What is being compared, such as the profile in force.
    type: str
    default: ""
  directory:
    description: Where the record goes.
    required: true
    type: path
  executable:
    description: The fabtune program on the host.
    type: str
    default: fabtune
"""

EXAMPLES = r"""
- name: Run a workload
  fabtune.fleet.measure:
    workload: xdd
    device: /dev/sdb
    directory: /var/tmp/fabtune-fleet
    parameters:
      op: read
"""

RETURN = r"""
record:
  description: Path of the run record on the host.
  returned: when one was written
  type: str
begun_unix_s:
  description: The host's clock when the load was started.
  returned: when it was
  type: float
"""

import gzip  # noqa: E402
import json  # noqa: E402
from pathlib import Path  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible_collections.fabtune.fleet.plugins.module_utils.command import ARGUMENTS  # noqa: E402


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "workload": {"type": "str", "required": True},
            "device": {"type": "str", "required": True},
            "at": {"type": "float"},
            "confirm": {"type": "str"},
            "parameters": {"type": "dict", "default": {}},
            "runtime_s": {"type": "float"},
            "ramp_s": {"type": "float"},
            "label": {"type": "str", "default": ""},
            "directory": {"type": "path", "required": True},
        }
    )
    wanted = module.params
    directory = Path(wanted["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    before = set(directory.iterdir())
    words = [
        wanted["executable"],
        "measure",
        wanted["workload"],
        "--on",
        wanted["device"],
        "--out",
        wanted["directory"],
    ]
    words += ["--label", wanted["label"], "--json"]
    words += [word for name, value in wanted["parameters"].items() for word in ("--set", f"{name}={value}")]
    for option, value, unit in (("--runtime", wanted["runtime_s"], "s"), ("--ramp", wanted["ramp_s"], "s")):
        words += [option, f"{value:g}{unit}"] if value is not None else []
    words += ["--at", f"{wanted['at']:.6f}"] if wanted["at"] is not None else []
    words += ["--confirm", wanted["confirm"]] if wanted["confirm"] else []
    status, _, err = module.run_command(words)
    left = sorted(path for path in set(directory.iterdir()) - before if path.name.endswith(".run.json.gz"))
    result = {"cmd": words, "rc": status}
    if left:
        result["record"] = str(left[-1])
        with gzip.open(left[-1], "rt") as file:
            steps = json.load(file)["steps"]
        result["begun_unix_s"] = steps[0]["begun_unix_s"] if steps else None
    if status:
        said = [line for line in err.splitlines() if line.strip()]
        module.fail_json(msg="\n".join(said[-3:]) or f"exit {status}", **result)
    module.exit_json(changed=True, **result)


if __name__ == "__main__":
    main()
