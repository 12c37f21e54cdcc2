# SPDX-License-Identifier: GPL-2.0-or-later
"""iSER over soft RoCE: the iSCSI target and initiator, their data moved by RDMA."""

from fabtune.host.targets import lio
from fabtune.lab import rdma
from fabtune.lab.disks import USUAL, Disk
from fabtune.lab.fabrics import iscsi
from fabtune.lab.fabrics.iscsi import login, logout, wait_for_disk

__all__ = ["ONE_NAMESPACE", "SUMMARY", "login", "logout", "start_initiator", "start_target", "wait_for_disk"]

SUMMARY = "iSER over soft RoCE"
ONE_NAMESPACE = True


def start_target(disk: Disk = USUAL) -> None:
    """Export `disk` over iSER beside TCP, which discovery goes on using."""
    rdma.start()
    iscsi.start_target(disk)
    lio.KIND.offer_iser(iscsi.TARGET_IQN, iscsi.PORTAL)


def start_initiator() -> None:
    """Start iscsid, discover the target, and let its record log in by iSER."""
    iscsi.start_initiator("ib_iser")
    iscsi.update_node("iface.transport_name", "iser")
