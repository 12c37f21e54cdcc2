# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the host's fabtune for a module."""

import json

# What every module of this collection takes.
ARGUMENTS = {"executable": {"type": "str", "default": "fabtune"}}
DONE, DRIFT, NEEDS_ACTION = 0, 3, 4


def fabtune(module, words, allowed=(DONE,)):
    """Return exit status and parsed JSON of ``fabtune WORDS --json``; a status not in `allowed` fails the module."""
    command = [module.params["executable"], *words, "--json"]
    if module.params.get("timeout_s"):
        # Interrupted, an apply takes back what it wrote.
        command = ["timeout", "--signal=INT", str(module.params["timeout_s"]), *command]
    status, out, err = module.run_command(command)
    if status not in allowed:
        module.fail_json(msg=err.strip() or f"{' '.join(command)}: exit {status}", rc=status, cmd=command)
    try:
        return status, json.loads(out)
    except ValueError:
        module.fail_json(msg=f"{' '.join(command)}: no JSON on stdout", stdout=out, stderr=err, rc=status)
