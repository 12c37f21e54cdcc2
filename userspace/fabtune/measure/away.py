# SPDX-License-Identifier: GPL-2.0-or-later
"""The target's end on another host: the same fabtune looks there, started by ssh, while we look here."""

import os
import tempfile
import time
from collections.abc import Sequence

import attrs

from fabtune.errors import FabtuneError
from fabtune.host.run import ended, launch, require, tail
from fabtune.model import typed
from fabtune.model.document import printed
from fabtune.model.observation import EndSeen

# What ssh and the other host's Python take besides the look itself.
_CONNECT_S, _MORE_S = 5, 10.0
_POLL_S = 0.02
# What that look says on stderr when it begins.
LOOKING = "looking for"


@attrs.frozen
class EndsSeen:
    """What `fabtune why --end target --json` prints."""

    ends: tuple[EndSeen, ...]


class AwayEnd:
    """A look of `seconds` at the target's end on `host`, begun at once."""

    def __init__(self, host: str, seconds: float) -> None:
        self._host, self._seconds = host, seconds
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - give_up closes it
        options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_S}"]
        words = ["fabtune", "why", "--end", "target", "--for", f"{seconds:g}s", "--json"]
        ssh = require("ssh", "openssh-client")
        self._process = launch([ssh, *options, "--", host, *words], log=self._printed, dies_by="TERM")

    def wait_until_begun(self) -> None:
        """Return when it looks, has ended, or has had the time that ssh and Python may take."""
        until_s = time.monotonic() + _CONNECT_S + _MORE_S
        while not self._looks() and self._process.poll() is None and time.monotonic() < until_s:
            time.sleep(_POLL_S)

    def _looks(self) -> bool:
        # Read at a place of its own: the program that writes there has the same offset.
        descriptor = self._printed.fileno()
        return LOOKING.encode() in os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def seen(self) -> Sequence[EndSeen]:
        """Wait for its end and return what it saw of each connection.  Raises FabtuneError."""
        try:
            if not ended(self._process, self._seconds + _CONNECT_S + _MORE_S):
                raise FabtuneError(f"{self._host}: no answer in time")
            self._printed.seek(0)
            text = self._printed.read().decode(errors="replace")
        finally:
            self.give_up()
        if self._process.returncode:
            raise FabtuneError(f"{self._host} (ssh ended with {self._process.returncode}):\n{tail(text, 3)}")
        return typed.TOLERANT.read(EndsSeen, printed(text, self._host), self._host).ends

    def give_up(self) -> None:
        """End what still runs, and forget what it printed."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._printed.close()
