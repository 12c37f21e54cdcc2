# SPDX-License-Identifier: GPL-2.0-or-later
"""A local connection that ends where the host has cut itself off: from when the file $FLEET/HOST/cut is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
name: mortal
short_description: local, until the host cuts itself off
description: Runs commands here, and loses the host as soon as it has a file called cut.
author: The fabtune developers (@fabtune)
version_added: 0.2.0
options: {}
extends_documentation_fragment: [connection_pipelining]
"""


class Connection(Local):  # type: ignore[misc]
    """The local connection, and how it is lost."""

    transport = "mortal"

    def exec_command(self, *args: Any, **options: Any) -> Any:
        """Run a command, whose answer is lost where it cuts the host off.  Raises AnsibleConnectionFailure."""
        cut = Path(os.environ["FLEET"]) / self._play_context.remote_addr / "cut"
        done = None if cut.exists() else super().exec_command(*args, **options)
        if cut.exists():
            raise AnsibleConnectionFailure("no route to host")
        return done
