# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps what each host's apply was called, at once: a host that fails, or Ctrl-C, ends the playbook for all others."""

from __future__ import annotations

DOCUMENTATION = r"""
name: transactions
type: notification
short_description: What each host's apply was called
description:
  - Writes the transaction that M(fabtune.fleet.profile) returns to the file HOST.ROLE of the directory that
    FABTUNE_TRANSACTIONS names; empty where nothing was to be written.
requirements:
  - enabled through ANSIBLE_CALLBACKS_ENABLED
"""

import os  # noqa: E402
from pathlib import Path  # noqa: E402

from ansible.plugins.callback import CallbackBase  # noqa: E402


class CallbackModule(CallbackBase):
    """The callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "fabtune.fleet.transactions"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_ok(self, result):
        """Keep what was applied."""
        found = result._result
        if "transaction" in found:
            role = found["invocation"]["module_args"]["role"]
            kept = Path(os.environ["FABTUNE_TRANSACTIONS"], f"{result._host.get_name()}.{role}")
            kept.write_text(found["transaction"], encoding="utf-8")
