# SPDX-License-Identifier: GPL-2.0-or-later
"""The SRP initiator's logins: credits, queues and channels, from the SCSI host of each remote port."""

from dataclasses import dataclass
from pathlib import Path

from fabtune.host import tree


@dataclass(frozen=True)
class SrpLogin:
    """One SRP target this host is logged in to; numbers are -1 where the kernel does not show them."""

    port: str
    port_id: str
    state: str
    host: str
    req_lim: int
    zero_req_lim: int
    can_queue: int
    ch_count: int
    cmd_sg_entries: int
    sg_tablesize: int
    allow_ext_sg: bool
    comp_vectors: int
    # The kernel names of its disks.
    luns: tuple[str, ...] = ()
    # The GIDs of both ports: the target's is '' of a login by address (RDMA's connection manager).
    sgid: str = ""
    dgid: str = ""


def _number(path: Path) -> int:
    text = tree.read_text(path) or ""
    number = tree.whole(text)
    return -1 if number is None else number


def ports() -> list[Path]:
    """Return sysfs's directory of each port this host is logged in to."""
    return sorted((tree.SYS / "class/srp_remote_ports").glob("*"))


def scsi_host(port: Path) -> Path | None:
    """Return sysfs's directory of the SCSI host that `port` belongs to; it holds the port's LUNs too."""
    return next((part for part in port.resolve().parents if part.name.startswith("host")), None)


def _disks(host: Path | None) -> list[str]:
    return sorted(disk.name for disk in host.glob("target*/*/block/*")) if host else []


def ports_of_disks() -> dict[str, str]:
    """Return the port id that each SRP disk is reached through, by the disk's kernel name."""
    return {disk: tree.read_text(port / "port_id") or port.name for port in ports() for disk in _disks(scsi_host(port))}


def srp_logins() -> list[SrpLogin]:
    """Return every SRP login of this host."""
    found = []
    for port in ports():
        host = scsi_host(port)
        directory = tree.SYS / "class/scsi_host" / (host.name if host else "")
        device = tree.read_text(directory / "local_ib_device") or ""
        found.append(
            SrpLogin(
                port=port.name,
                port_id=tree.read_text(port / "port_id") or "",
                state=tree.read_text(port / "state") or "",
                host=host.name if host else "",
                req_lim=_number(directory / "req_lim"),
                zero_req_lim=_number(directory / "zero_req_lim"),
                can_queue=_number(directory / "can_queue"),
                ch_count=_number(directory / "ch_count"),
                cmd_sg_entries=_number(directory / "cmd_sg_entries"),
                sg_tablesize=_number(directory / "sg_tablesize"),
                allow_ext_sg=tree.read_text(directory / "allow_ext_sg") in ("1", "true", "Y"),
                comp_vectors=_number(tree.SYS / "class/infiniband" / device / "num_comp_vectors"),
                luns=tuple(_disks(host)),
                sgid=tree.read_text(directory / "sgid") or "",
                dgid=tree.read_text(directory / "dgid") or "",
            )
        )
    return found


def times_out_of_credit(login: SrpLogin) -> int:
    """Return how often the login has found no credit since it is there; 0 where it is gone."""
    return max(0, _number(tree.SYS / "class/scsi_host" / login.host / "zero_req_lim"))
