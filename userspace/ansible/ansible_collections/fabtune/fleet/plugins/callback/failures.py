# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes each host's failure as a line of JSON, for the program that started the playbook."""

from __future__ import annotations

DOCUMENTATION = r"""
name: failures
type: notification
short_description: Failures as JSON lines
description:
  - Appends host, task, message and whether the host could not be reached to the file that FABTUNE_FAILURES names.
requirements:
  - enabled through ANSIBLE_CALLBACKS_ENABLED
"""

import json  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
from pathlib import Path  # noqa: E402

from ansible.plugins.callback import CallbackBase  # noqa: E402

# What Ansible says of any command that failed: that it did, not why.
_FAILED = "non-zero return code"
# ssh's farewell to a terminal, which Ansible asks for where it can: what the host wrote on stderr is in stdout then.
_FAREWELL = re.compile(r"(Shared c|C)onnection to .* closed\.")


def reason(found):
    """Return why a task with the result `found` failed, in the words of what failed where Ansible has none."""
    said = str(found.get("msg") or "").strip()
    if "module_stdout" in found or "module_stderr" in found:
        # Of a module that gave no answer Ansible says where to look, which is nowhere by then.
        why = _last_words(found.get("module_stdout"), found.get("module_stderr"))
        return ": ".join(filter(None, (said.partition("\n")[0], why)))
    if said and not said.lower().endswith(_FAILED):
        return said
    return _last_words(found.get("stdout"), found.get("stderr")) or said or "failed"


def _last_words(stdout, stderr):
    """Return the message of fabtune's error, a line of JSON, or the last line where there is none."""
    out, err = ([line.strip() for line in str(one or "").splitlines() if line.strip()] for one in (stdout, stderr))
    for line in reversed(out):
        try:
            return str(json.loads(line)["error"]["message"])
        except (ValueError, LookupError, TypeError):
            continue
    own = [line for line in err if not _FAREWELL.fullmatch(line)]
    first, then = (out, own) if own != err else (own, out)
    return (first or then or [""])[-1]


class CallbackModule(CallbackBase):
    """The callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "fabtune.fleet.failures"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_failed(self, result, ignore_errors=False):
        """Note a failed task."""
        self._note(result, False)

    def v2_runner_on_unreachable(self, result):
        """Note a host that could not be reached, or was lost."""
        self._note(result, True)

    def _note(self, result, unreachable):
        found = result._result
        line = {
            "host": result._host.get_name(),
            "task": result._task.get_name(),
            "unreachable": unreachable,
            "message": reason(found),
        }
        with Path(os.environ["FABTUNE_FAILURES"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
