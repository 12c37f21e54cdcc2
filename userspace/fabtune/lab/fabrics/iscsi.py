# SPDX-License-Identifier: GPL-2.0-or-later
"""A real LIO target and a real open-iscsi initiator on the guest's topology, over TCP."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from fabtune.host.run import run
from fabtune.lab.disks import USUAL, Disk, lio_backstore
from fabtune.lab.shell import nsenter
from fabtune.lab.topology import TARGET_ADDRESS, target_namespace
from fabtune.lab.waiting import until

SUMMARY = "iSCSI over TCP"
ONE_NAMESPACE = False
INITIATOR_IQN = "iqn.2026-01.lab.fabtune:initiator"
TARGET_IQN = "iqn.2026-01.lab.fabtune:target"
PORTAL = f"{TARGET_ADDRESS}:3260"
_CONFIGFS = Path("/sys/kernel/config/target/iscsi")


def start_target(disk: Disk = USUAL, depth: int | None = None) -> None:
    """Export `disk` as LUN 0 of TARGET_IQN on PORTAL, open to any initiator; `depth` sets default_cmdsn_depth."""
    attributes = {} if depth is None else {"default_cmdsn_depth": depth}
    add_target(TARGET_IQN, (PORTAL,), (lio_backstore(disk, 0),), attributes)


def add_target(iqn: str, portals: Sequence[str], luns: Sequence[Path], attributes: dict[str, int]) -> Path:
    """Export the backstores `luns` as LUN 0, 1, ... on all `portals` to any initiator; return the TPG's directory.

    Made through configfs, which is all that a target needs to exist.
    """
    run(["modprobe", "iscsi_target_mod"], what="loading iscsi_target_mod")
    tpg = _CONFIGFS / iqn / "tpgt_1"
    tpg.mkdir(parents=True)
    for portal in portals:
        # The portal's socket belongs to the namespace of whoever makes this directory.
        run([*nsenter(target_namespace()), "mkdir", str(tpg / "np" / portal)], what="opening the target's portal")
    for number, backstore in enumerate(luns):
        (tpg / f"lun/lun_{number}").mkdir()
        (tpg / f"lun/lun_{number}" / backstore.name).symlink_to(backstore)
    demo = {"generate_node_acls": 1, "cache_dynamic_acls": 1, "demo_mode_write_protect": 0, "authentication": 0}
    for name, value in (demo | attributes).items():
        (tpg / "attrib" / name).write_text(str(value))
    (tpg / "enable").write_text("1")
    return tpg


def set_target(name: str, value: str) -> None:
    """Write one attribute, parameter or credential (``attrib/authentication``) of every target."""
    for tpg in sorted(_CONFIGFS.glob("iqn.*/tpgt_1")):
        (tpg / name).write_text(value)


def move_portal(portal: str) -> None:
    """Open TARGET_IQN on `portal` in place of PORTAL and discover it there."""
    portals = _CONFIGFS / TARGET_IQN / "tpgt_1/np"
    run([*nsenter(target_namespace()), "mkdir", str(portals / portal)], what="opening the target's portal")
    (portals / PORTAL).rmdir()
    forget_nodes()
    discover(portal)


def demo_initiators() -> list[Path]:
    """Return the place of an ACL for each initiator that is logged in without one."""
    found = []
    for tpg in sorted(_CONFIGFS.glob("iqn.*/tpgt_1")):
        names = (tpg / "dynamic_sessions").read_text().replace("\0", "\n").split()
        found += [tpg / "acls" / name for name in names]
    return found


def forget(acls: Iterable[Path]) -> None:
    """End what demo mode remembers of initiators that have logged out: above all their first command window."""
    for acl in acls:
        acl.mkdir()
        acl.rmdir()


def map_lun(tpg: Path, initiator: str, number: int) -> None:
    """Let `initiator` see LUN `number` alone, as its LUN 0."""
    acl = tpg / "acls" / initiator
    (acl / "lun_0").mkdir(parents=True)
    (acl / "lun_0/lun").symlink_to(tpg / f"lun/lun_{number}")


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
