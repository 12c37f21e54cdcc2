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
from pathlib import Path  # noqa: E402

from ansible.plugins.callback import CallbackBase  # noqa: E402


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
            "message": str(found.get("msg") or found.get("stderr") or "failed"),
        }
        with Path(os.environ["FABTUNE_FAILURES"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
