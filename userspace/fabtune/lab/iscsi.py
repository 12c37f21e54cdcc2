# SPDX-License-Identifier: GPL-2.0-or-later
"""A real LIO target and a real open-iscsi initiator on the guest's topology."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from fabtune.errors import FabtuneError
from fabtune.lab.shell import nsenter
from fabtune.lab.topology import TARGET, TARGET_ADDRESS
from fabtune.run import run

INITIATOR_IQN = "iqn.2026-01.lab.fabtune:initiator"
TARGET_IQN = "iqn.2026-01.lab.fabtune:target"
PORTAL = f"{TARGET_ADDRESS}:3260"
_CONFIGFS = Path("/sys/kernel/config/target")
_WAIT_S = 60.0


def start_target(size_mib: int = 1024, depth: int | None = None) -> None:
    """Export a RAM disk without a medium (rd_mcp nullio) as LUN 0 of TARGET_IQN on PORTAL, open to any initiator.

    Made through configfs, which is all that a target needs to exist; `depth` sets default_cmdsn_depth.
    """
    for module in ("target_core_mod", "iscsi_target_mod"):
        run(["modprobe", module], what=f"loading {module}")
    disk = _CONFIGFS / "core" / "rd_mcp_0" / "disk0"
    disk.mkdir(parents=True)
    (disk / "control").write_text(f"rd_pages={size_mib * 256},rd_nullio=1")
    (disk / "wwn/vpd_unit_serial").write_text("fabtune-lab-disk0")
    (disk / "enable").write_text("1")
    tpg = _CONFIGFS / "iscsi" / TARGET_IQN / "tpgt_1"
    tpg.mkdir(parents=True)
    # The portal's socket belongs to the namespace of whoever makes this directory.
    run([*nsenter(TARGET), "mkdir", str(tpg / "np" / PORTAL)], what="opening the target's portal")
    (tpg / "lun/lun_0").mkdir()
    (tpg / "lun/lun_0/disk0").symlink_to(disk)
    attributes = {"generate_node_acls": 1, "cache_dynamic_acls": 1, "demo_mode_write_protect": 0, "authentication": 0}
    if depth is not None:
        attributes["default_cmdsn_depth"] = depth
    for name, value in attributes.items():
        (tpg / "attrib" / name).write_text(str(value))
    (tpg / "enable").write_text("1")


def start_initiator() -> None:
    """Start iscsid and discover the target, which writes its node record."""
    run(["modprobe", "iscsi_tcp"], what="loading iscsi_tcp")
    run(["modprobe", "sd_mod"], what="loading sd_mod")
    Path("/etc/iscsi/initiatorname.iscsi").write_text(f"InitiatorName={INITIATOR_IQN}\n")
    subprocess.Popen(
        ["iscsid", "-f"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    _until(lambda: _answers_iscsid(), "iscsid to answer")
    run(["iscsiadm", "-m", "discovery", "-t", "st", "-p", PORTAL], what="discovering the target")


def login() -> str:
    """Log in and return the session's disk (``sda``) once it is ready."""
    run(["iscsiadm", "-m", "node", "-T", TARGET_IQN, "-p", PORTAL, "--login"], what="logging in")
    return wait_for_disk()


def logout() -> None:
    """Log the session out and wait until its disk is gone."""
    run(["iscsiadm", "-m", "node", "-T", TARGET_IQN, "-p", PORTAL, "--logout"], what="logging out")
    _until(lambda: not iscsi_disks(), "the disk to go")


def wait_for_disk() -> str:
    """Return the session's disk once its block device can be opened."""
    _until(lambda: bool(iscsi_disks()) and os.access(f"/dev/{iscsi_disks()[0]}", os.R_OK), "the iSCSI disk")
    return iscsi_disks()[0]


def iscsi_disks() -> list[str]:
    """Return the names of all disks behind iSCSI sessions."""
    return sorted(path.name for path in Path("/sys/block").iterdir() if "/session" in str(path.resolve()))


def _answers_iscsid() -> bool:
    # 21: no sessions, said by an iscsid that answers; 20 and others: not there yet.
    return subprocess.run(["iscsiadm", "-m", "session"], capture_output=True, check=False).returncode in (0, 21)


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise FabtuneError(f"waited {_WAIT_S:g} s in vain for {what}")
        time.sleep(0.02)
