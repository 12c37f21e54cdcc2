# SPDX-License-Identifier: GPL-2.0-or-later
"""The fabrics: one file each, all used the same way; and those that a computer alone cannot have."""

from typing import Protocol

from fabtune.errors import InputError
from fabtune.lab.disks import Disk
from fabtune.lab.fabrics import iscsi, iser, nvme, scsi_debug, srp


class Fabric(Protocol):
    """A target and an initiator at the ends of the topology's path."""

    SUMMARY: str
    # Both ends in init_net: what `topology.up` is told.
    ONE_NAMESPACE: bool

    def start_target(self, disk: Disk = ...) -> None:
        """Export `disk` to the initiator."""

    def start_initiator(self) -> None:
        """Make everything ready for `login`."""

    def login(self) -> str:
        """Log in and return the disk's name once it can be opened."""

    def logout(self) -> None:
        """Log out and wait until the disk is gone."""

    def wait_for_disk(self) -> str:
        """Return the disk's name once it can be opened, after a login by somebody else."""


FABRICS: dict[str, Fabric] = {"iscsi": iscsi, "iser": iser, "srp": srp, "nvme-tcp": nvme, "scsi_debug": scsi_debug}
# Those whose requests do not cross the emulated path.
WITHOUT_PATH = ("scsi_debug",)
# Rows of the studies that need hardware: they are said to be missing, never measured as something else.
NOT_HERE = {
    "fc": "not available here: no Fibre Channel adapter and no software that stands in for one on both ends",
    "infiniband": "not available here: no InfiniBand adapter; SRP and iSER run over soft RoCE instead",
}


def find(name: str) -> Fabric:
    """Return the fabric `name`.  Raises InputError for one that is unknown or not available here."""
    if name in NOT_HERE:
        raise InputError(f"fabric '{name}': {NOT_HERE[name]}")
    if name not in FABRICS:
        raise InputError(f"fabric '{name}': expected one of {', '.join(FABRICS)}")
    return FABRICS[name]
