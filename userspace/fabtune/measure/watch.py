# SPDX-License-Identifier: GPL-2.0-or-later
"""Watches one disk while a load runs: a sample a second, and the disk still being there."""

from pathlib import Path
from typing import Any

from fabtune.errors import FabtuneError
from fabtune.measure import counters
from fabtune.measure.target import Target


class Watch:
    """Takes the samples of one step."""

    def __init__(self, target: Target, stuck_after_s: float | None) -> None:
        self._target = target
        self._stuck_after_s = stuck_after_s

    def sample(self) -> counters.Sample:
        """Return one sample.  Raises FabtuneError when the disk has vanished."""
        disk = self._target.disk
        if disk and not Path(f"/sys/block/{disk}").exists():
            raise FabtuneError(f"{disk} has vanished while the load was running")
        return counters.sample(disk)

    def result(self) -> dict[str, Any] | None:
        """Return what fabstat saw of the step, None where the module is not loaded."""
        return None
