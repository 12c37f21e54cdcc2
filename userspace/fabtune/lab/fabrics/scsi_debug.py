# SPDX-License-Identifier: GPL-2.0-or-later
"""A SCSI disk inside the host that answers as it is told: no path, only what the initiator's midlayer makes of it."""

import os
from pathlib import Path

from fabtune.host.run import run
from fabtune.lab.fabrics import Fabric, Injection
from fabtune.lab.waiting import until

# 1 ms a request, so that many are in flight.
_DELAY_NS = 1_000_000
# When the target becomes full: after the first reading of the measured part.
_FULL_AFTER_S = 2.0


class ScsiDebug(Fabric):
    """The kernel's scsi_debug; its disk comes with the login."""

    NAME = "scsi_debug"
    FACTORS = frozenset({"task_set_full"})
    CROSSES_PATH = False

    def start_target(self) -> None:
        """Nothing: the disk comes with `login`."""

    def start_initiator(self) -> None:
        """Load the disk's driver."""
        run(["modprobe", "sd_mod"], what="loading sd_mod")

    def login(self) -> list[str]:
        """Load scsi_debug and return its disk."""
        words = ["dev_size_mb=64", f"ndelay={_DELAY_NS}", "max_queue=192"]
        run(["modprobe", "scsi_debug", *words], what="loading scsi_debug")
        return self.disks()

    def logout(self) -> None:
        """Unload scsi_debug."""
        run(["modprobe", "-r", "scsi_debug"], what="unloading scsi_debug")

    def disks(self) -> list[str]:
        """Return the disk once it can be opened."""
        until(lambda: bool(_disks()) and os.access(f"/dev/{_disks()[0]}", os.R_OK), "scsi_debug's disk")
        return _disks()[:1]

    def injections(self) -> list[Injection]:
        """Return the target that becomes full where the settings ask for it."""
        count = self.settings.task_set_full
        return (
            [Injection("the target answers TASK SET FULL", _FULL_AFTER_S, lambda: _answer_task_set_full(count))]
            if count
            else []
        )

    def figures(self) -> dict[str, int]:
        """Return how many requests the midlayer now gives the disk at a time."""
        return {"depth_after": int(Path(f"/sys/block/{_disks()[0]}/device/queue_depth").read_text())}


def _answer_task_set_full(count: int) -> None:
    """Let the next `count` READ(10) be answered with TASK SET FULL (Linux 6.7 and later)."""
    host = Path(f"/sys/block/{_disks()[0]}/device").resolve().name
    Path(f"/sys/kernel/debug/scsi_debug/{host}/error").write_text(f"2 -{count} 0x28 0 0 0x28 0 0 0")


def _disks() -> list[str]:
    return sorted(path.name for path in Path("/sys/block").glob("sd*") if "/adapter0/" in str(path.resolve()))


FABRIC = ScsiDebug
