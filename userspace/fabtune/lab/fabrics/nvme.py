# SPDX-License-Identifier: GPL-2.0-or-later
"""NVMe over TCP: the kernel's own target and initiator, a line of reference beside the SCSI fabrics."""

import os
from pathlib import Path

from fabtune.host.run import run
from fabtune.host.targets.kind import Store
from fabtune.host.targets.nvmet import KIND
from fabtune.lab.disks import null_block
from fabtune.lab.fabrics import Fabric
from fabtune.lab.shell import nsenter
from fabtune.lab.topology import TARGET_ADDRESS, target_namespace
from fabtune.lab.waiting import until

_NQN = "nqn.2026-01.lab.fabtune:target"
_PORT = 4420


class NvmeTcp(Fabric):
    """nvmet and nvme_tcp, one controller."""

    NAME = "nvme-tcp"
    FACTORS = frozenset({"target_rate"})

    def start_target(self) -> None:
        """Export the disk as namespace 1 of one subsystem, open to any initiator."""
        # The target needs nvme_core too.  Without multipathing the disk is the one that carries the requests.
        run(["modprobe", "nvme_core", "multipath=N"], what="loading nvme_core")
        # What a namespace exports is a block device.
        store = KIND.add_store(Store(0, self.disk.size_mib, self.disk.keeps_data, null_block(self.disk, 0)))
        KIND.add_target(_NQN, (f"{TARGET_ADDRESS}:{_PORT}",), (store,), nsenter(target_namespace()))

    def start_initiator(self) -> None:
        """Load the initiator."""
        run(["modprobe", "nvme_tcp"], what="loading nvme_tcp")

    def login(self) -> list[str]:
        """Connect and return the namespace's disk once it is ready."""
        place = ["--transport", "tcp", "--traddr", TARGET_ADDRESS, "--trsvcid", str(_PORT), "--nqn", _NQN]
        run(["nvme", "connect", *place], what="connecting")
        return self.disks()

    def logout(self) -> None:
        """Disconnect and wait until the disk is gone."""
        run(["nvme", "disconnect", "--nqn", _NQN], what="disconnecting")
        until(lambda: not _disks(), "the NVMe disk to go")

    def disks(self) -> list[str]:
        """Return the namespace's disk once it can be opened."""
        until(lambda: bool(_disks()) and os.access(f"/dev/{_disks()[0]}", os.R_OK), "the NVMe disk")
        return _disks()[:1]


def _disks() -> list[str]:
    return sorted(path.name for path in Path("/sys/block").glob("nvme*n*"))


FABRIC = NvmeTcp
