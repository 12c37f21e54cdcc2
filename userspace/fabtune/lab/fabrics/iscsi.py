# SPDX-License-Identifier: GPL-2.0-or-later
"""A real LIO target and a real open-iscsi initiator on the guest's topology, over TCP."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fabtune.host.run import run
from fabtune.host.targets import lio
from fabtune.lab.disks import USUAL, Disk, add_store
from fabtune.lab.shell import nsenter
from fabtune.lab.topology import TARGET_ADDRESS, target_namespace
from fabtune.lab.waiting import until

SUMMARY = "iSCSI over TCP"
ONE_NAMESPACE = False
INITIATOR_IQN = "iqn.2026-01.lab.fabtune:initiator"
TARGET_IQN = "iqn.2026-01.lab.fabtune:target"
PORTAL = f"{TARGET_ADDRESS}:3260"


def start_target(disk: Disk = USUAL) -> None:
    """Export `disk` as LUN 0 of TARGET_IQN on PORTAL, open to any initiator."""
    add_target(TARGET_IQN, (PORTAL,), (add_store(lio.KIND, disk, 0),))


def add_target(iqn: str, portals: Sequence[str], stores: Sequence[str]) -> None:
    """Export `stores` as LUN 0, 1, ... of `iqn` on all `portals` to any initiator."""
    lio.KIND.add_target(iqn, portals, stores, nsenter(target_namespace()))


def move_portal(portal: str) -> None:
    """Open TARGET_IQN on `portal` in place of PORTAL and discover it there."""
    lio.KIND.open_portal(TARGET_IQN, portal, nsenter(target_namespace()))
    lio.KIND.close_portal(TARGET_IQN, PORTAL)
    forget_nodes()
    discover(portal)


def start_initiator(transport: str = "iscsi_tcp") -> None:
    """Start iscsid and discover the target, which writes its node record."""
    run(["modprobe", transport], what=f"loading {transport}")
    run(["modprobe", "sd_mod"], what="loading sd_mod")
    Path("/etc/iscsi/initiatorname.iscsi").write_text(f"InitiatorName={INITIATOR_IQN}\n")
    subprocess.Popen(
        ["iscsid", "-f"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    until(lambda: _answers_iscsid(), "iscsid to answer")
    discover(PORTAL)


def discover(portal: str, interfaces: Sequence[str] = ()) -> None:
    """Write the node records of all targets behind `portal`, for each of open-iscsi's `interfaces`."""
    words = [word for name in interfaces for word in ("-I", name)]
    run(["iscsiadm", "-m", "discovery", "-t", "st", "-p", portal, *words], what="discovering the target")


def forget_nodes() -> None:
    """Delete every node record."""
    run(["iscsiadm", "-m", "node", "-o", "delete"], what="deleting the node records")


def update_node(key: str, value: str) -> None:
    """Write one setting of every node record, for the next login."""
    run(["iscsiadm", "-m", "node", "-o", "update", "-n", key, "-v", value], what=f"setting {key}")


def login() -> str:
    """Log in and return the session's disk (``sda``) once it is ready."""
    run(["iscsiadm", "-m", "node", "-T", TARGET_IQN, "--login"], what="logging in")
    return wait_for_disk()


def logout() -> None:
    """Log the session out and wait until its disk is gone."""
    run(["iscsiadm", "-m", "node", "-T", TARGET_IQN, "--logout"], what="logging out")
    until(lambda: not iscsi_disks(), "the disk to go")


def wait_for_disk() -> str:
    """Return the session's disk once its block device can be opened."""
    return wait_for_disks(1)[0]


def wait_for_disks(count: int) -> list[str]:
    """Return the disks of all sessions once there are `count` that can be opened."""
    until(
        lambda: len(iscsi_disks()) == count and all(os.access(f"/dev/{disk}", os.R_OK) for disk in iscsi_disks()),
        f"{count} iSCSI disks",
    )
    return iscsi_disks()


def iscsi_disks() -> list[str]:
    """Return the names of all disks behind iSCSI sessions, in the order of their names."""
    disks = [path.name for path in Path("/sys/block").iterdir() if "/session" in str(path.resolve())]
    return sorted(disks, key=lambda name: (len(name), name))


def _answers_iscsid() -> bool:
    # 21: no sessions, said by an iscsid that answers; 20 and others: not there yet.
    return subprocess.run(["iscsiadm", "-m", "session"], capture_output=True, check=False).returncode in (0, 21)
