# SPDX-License-Identifier: GPL-2.0-or-later
"""NVMe over TCP: the kernel's own target and initiator, a line of reference beside the SCSI fabrics."""

import os
from pathlib import Path

from fabtune.host.run import run
from fabtune.host.targets.kind import Store
from fabtune.host.targets.nvmet import KIND
from fabtune.lab.disks import USUAL, Disk, null_block
from fabtune.lab.shell import nsenter
from fabtune.lab.topology import TARGET_ADDRESS, target_namespace
from fabtune.lab.waiting import until

SUMMARY = "NVMe over TCP"
ONE_NAMESPACE = False
NQN = "nqn.2026-01.lab.fabtune:target"
PORT = 4420


def start_target(disk: Disk = USUAL) -> None:
    """Export `disk` as namespace 1 of NQN, open to any initiator."""
    # The target needs nvme_core too.  Without multipathing the disk is the one that carries the requests.
    run(["modprobe", "nvme_core", "multipath=N"], what="loading nvme_core")
    # What a namespace exports is a block device.
    store = KIND.add_store(Store(0, disk.size_mib, disk.keeps_data, null_block(disk, 0)))
    KIND.add_target(NQN, (f"{TARGET_ADDRESS}:{PORT}",), (store,), nsenter(target_namespace()))


def start_initiator() -> None:
    """Load the initiator."""
    run(["modprobe", "nvme_tcp"], what="loading nvme_tcp")


def login() -> str:
    """Connect and return the namespace's disk once it is ready."""
    place = ["--transport", "tcp", "--traddr", TARGET_ADDRESS, "--trsvcid", str(PORT), "--nqn", NQN]
    run(["nvme", "connect", *place], what="connecting")
    return wait_for_disk()


def logout() -> None:
    """Disconnect and wait until the disk is gone."""
    run(["nvme", "disconnect", "--nqn", NQN], what="disconnecting")
    until(lambda: not _disks(), "the NVMe disk to go")


def wait_for_disk() -> str:
    """Return the namespace's disk once it can be opened."""
    until(lambda: bool(_disks()) and os.access(f"/dev/{_disks()[0]}", os.R_OK), "the NVMe disk")
    return _disks()[0]


def _disks() -> list[str]:
    return sorted(path.name for path in Path("/sys/block").glob("nvme*n*"))
