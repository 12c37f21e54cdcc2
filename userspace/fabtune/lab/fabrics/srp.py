# SPDX-License-Identifier: GPL-2.0-or-later
"""SRP over soft RoCE: LIO's ib_srpt and the kernel's ib_srp, logged in through the RDMA connection manager.

srp_daemon finds targets by the subnet manager of an InfiniBand fabric, which RoCE has not; the login
string is written here instead, with the options that srp_daemon.conf has for it.
"""

import os
from pathlib import Path

from fabtune.backends import srp_daemon
from fabtune.errors import FabtuneError
from fabtune.host.run import run
from fabtune.host.targets.lio import KIND
from fabtune.lab import rdma
from fabtune.lab.disks import add_store
from fabtune.lab.fabrics import Fabric
from fabtune.lab.topology import INITIATOR_ADDRESS, TARGET_ADDRESS
from fabtune.lab.waiting import until

_CM_PORT = 5555
_PORTS = Path("/sys/class/srp_remote_ports")


class Srp(Fabric):
    """ib_srpt and ib_srp, one login."""

    NAME = "srp"
    FACTORS = frozenset({"target_rate", "stall"})
    ONE_NAMESPACE = True

    def start_target(self) -> None:
        """Export the disk as LUN 0 of the target's soft RoCE port to the initiator."""
        rdma.start()
        # ib_srpt takes a connection manager's login for one from the target's own address, and older kernels
        # know the initiator by its GUID or its whole GID.
        whole = "0x" + rdma.gid(rdma.INITIATOR_DEVICE).replace(":", "")
        initiators = (_guid(rdma.INITIATOR_DEVICE), whole, INITIATOR_ADDRESS, TARGET_ADDRESS)
        KIND.add_srp_target(_guid(rdma.TARGET_DEVICE), (add_store(KIND, self.disk, 0),), initiators, _CM_PORT)

    def start_initiator(self) -> None:
        """Load the initiator; its timeouts and queues are those of the login."""
        run(["modprobe", "sd_mod"], what="loading sd_mod")
        run(["modprobe", "ib_srp"], what="loading ib_srp")

    def login(self) -> list[str]:
        """Log in with the options of srp_daemon.conf and return the disk once it is ready."""
        guid = Path("/sys/module/ib_srpt/parameters/srpt_service_guid").read_text().strip()
        words = {
            "id_ext": guid, "ioc_guid": guid, "initiator_ext": rdma.gid(rdma.INITIATOR_DEVICE).replace(":", "")[:16],
            "src": INITIATOR_ADDRESS, "dest": f"{TARGET_ADDRESS}:{_CM_PORT}", **srp_daemon.login_options(),
        }  # fmt: skip
        text = ",".join(f"{key}={value}" for key, value in words.items())

        def added() -> bool:
            try:
                Path(f"/sys/class/infiniband_srp/srp-{rdma.INITIATOR_DEVICE}-1/add_target").write_text(text)
            except FileExistsError:
                # ib_srp forgets a login that was ended only after all that can be seen of it is gone.
                return False
            except OSError as error:
                raise FabtuneError(f"SRP login with {text}: {error.strerror}; dmesg says why") from None
            return True

        until(added, "ib_srp to forget the login before this one")
        return self.disks()

    def logout(self) -> None:
        """Delete the remote port and wait until its disk is gone."""
        for port in _PORTS.iterdir():
            (port / "delete").write_text("1")
        until(lambda: not _disks() and not any(_PORTS.iterdir()), "the SRP disk to go")

    def disks(self) -> list[str]:
        """Return the login's disk once its block device can be opened."""
        until(lambda: bool(_disks()) and os.access(f"/dev/{_disks()[0]}", os.R_OK), "the SRP disk")
        return _disks()[:1]


def _disks() -> list[str]:
    hosts = {part for port in _PORTS.glob("*") for part in port.resolve().parts if part.startswith("host")}
    return sorted(path.name for path in Path("/sys/block").iterdir() if hosts & set(path.resolve().parts))


def _guid(device: str) -> str:
    """Return the second half of the device's GID, the name that ib_srpt gives the port."""
    return rdma.gid(device).removeprefix("fe80:0000:0000:0000:")


FABRIC = Srp
