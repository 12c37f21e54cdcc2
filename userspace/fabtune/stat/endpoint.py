# SPDX-License-Identifier: GPL-2.0-or-later
"""Which target and portal a device is reached through, from the names that the module prints.

The module follows no pointers into transports; sysfs has it all under the names it prints.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from fabtune.host import tree
from fabtune.stat.snapshot import CountedDevice


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`transport` is iscsi, srp, fc, nvme or empty; `target` and `portal` are empty when unknown."""

    transport: str = ""
    target: str = ""
    portal: str = ""


def endpoint(device: CountedDevice, sys: Path | None = None) -> Endpoint:
    """Return where `device` leads; an empty Endpoint for a local disk, or one that is gone or whose transport is."""
    if device.around is not None:
        return Endpoint(device.around.transport, device.around.target, device.around.portal)
    if device.state == "gone":
        # The number of its host, session or controller may be another's by now.
        return Endpoint()
    sys = sys or tree.SYS
    if re.fullmatch(r"session\d+", device.parent):
        return _iscsi(device.parent.removeprefix("session"), sys / "class")
    if device.parent.startswith("rport-"):
        port = sys / "class/fc_remote_ports" / device.parent
        return Endpoint("fc", _read(port / "node_name"), _read(port / "port_name"))
    if re.fullmatch(r"nvme\d+", device.parent):
        controller = sys / "class/nvme" / device.parent
        return Endpoint("nvme", _read(controller / "subsysnqn"), _read(controller / "address"))
    host = device.hctl.split(":")[0]
    for port in (sys / "class/srp_remote_ports").glob(f"port-{host}:*"):
        scsi_host = sys / f"class/scsi_host/host{host}"
        return Endpoint("srp", _read(scsi_host / "ioc_guid") or _read(port / "port_id"), _read(scsi_host / "dgid"))
    return Endpoint()


def _iscsi(number: str, classes: Path) -> Endpoint:
    connection = classes / f"iscsi_connection/connection{number}:0"
    address = _read(connection / "persistent_address")
    port = _read(connection / "persistent_port")
    portal = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return Endpoint("iscsi", _read(classes / f"iscsi_session/session{number}/targetname"), portal if address else "")


def _read(path: Path) -> str:
    return tree.read_text(path) or ""
