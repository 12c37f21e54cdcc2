# SPDX-License-Identifier: GPL-2.0-or-later
"""The SRP initiator's logins: credits, queues and channels, from the SCSI host of each remote port."""

from dataclasses import dataclass
from pathlib import Path

from fabtune.backends import tree


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


def _number(path: Path) -> int:
    text = tree.read_text(path) or ""
    return int(text) if text.lstrip("-").isdigit() else -1


def logins() -> list[SrpLogin]:
    """Return every SRP login of this host."""
    found = []
    for port in sorted((tree.SYS / "class/srp_remote_ports").glob("*")):
        host = next((part for part in port.resolve().parts if part.startswith("host")), "")
        directory = tree.SYS / "class/scsi_host" / host
        device = tree.read_text(directory / "local_ib_device") or ""
        found.append(
            SrpLogin(
                port=port.name,
                port_id=tree.read_text(port / "port_id") or "",
                state=tree.read_text(port / "state") or "",
                host=host,
                req_lim=_number(directory / "req_lim"),
                zero_req_lim=_number(directory / "zero_req_lim"),
                can_queue=_number(directory / "can_queue"),
                ch_count=_number(directory / "ch_count"),
                cmd_sg_entries=_number(directory / "cmd_sg_entries"),
                sg_tablesize=_number(directory / "sg_tablesize"),
                allow_ext_sg=tree.read_text(directory / "allow_ext_sg") in ("1", "true", "Y"),
                comp_vectors=_number(tree.SYS / "class/infiniband" / device / "num_comp_vectors"),
            )
        )
    return found
