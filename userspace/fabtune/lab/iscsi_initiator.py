# SPDX-License-Identifier: GPL-2.0-or-later
"""The iSCSI initiator of the lab: a real open-iscsi, its records and its sessions' disks."""

import os
from collections.abc import Sequence
from pathlib import Path

from fabtune.host.run import finish, launch, run
from fabtune.lab.waiting import until

INITIATOR_IQN = "iqn.2026-01.lab.fabtune:initiator"
# Where open-iscsi keeps its records: the newer place first.
_RECORDS = (Path("/var/lib/iscsi"), Path("/etc/iscsi"))


def start(transport: str) -> None:
    """Load the transport and start iscsid."""
    run(["modprobe", transport], what=f"loading {transport}")
    run(["modprobe", "sd_mod"], what="loading sd_mod")
    Path("/etc/iscsi/initiatorname.iscsi").write_text(f"InitiatorName={INITIATOR_IQN}\n")
    launch(["iscsid", "-f"])
    until(lambda: _answers_iscsid(), "iscsid to answer")


def client_name(number: int) -> str:
    """Return the initiator name of client `number`."""
    return f"{INITIATOR_IQN}{number}"


def add_clients(count: int) -> list[str]:
    """Give open-iscsi an interface for each of `count` clients, with a name of its own; return the interfaces."""
    directory = next(place for place in _RECORDS if (place / "nodes").is_dir()) / "ifaces"
    directory.mkdir(exist_ok=True)
    names = [f"client{number}" for number in range(count)]
    for number, name in enumerate(names):
        lines = {"iscsi_ifacename": name, "transport_name": "tcp", "initiatorname": client_name(number)}
        (directory / name).write_text("".join(f"iface.{key} = {value}\n" for key, value in lines.items()))
    return names


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


def login(iqn: str) -> None:
    """Log every session to the target `iqn` in."""
    run(["iscsiadm", "-m", "node", "-T", iqn, "--login"], what="logging in")


def logout(iqn: str) -> None:
    """Log every session to the target `iqn` out."""
    run(["iscsiadm", "-m", "node", "-T", iqn, "--logout"], what="logging out")


def wait_for_disks(count: int) -> list[str]:
    """Return the disks of all sessions once there are `count` that can be opened."""
    until(
        lambda: len(found := disks()) == count and all(os.access(f"/dev/{disk}", os.R_OK) for disk in found),
        f"{count} iSCSI disks",
    )
    return disks()


def disks() -> list[str]:
    """Return the names of all disks behind iSCSI sessions, in the order of their names."""
    found = [path.name for path in Path("/sys/block").iterdir() if "/session" in str(path.resolve())]
    return sorted(found, key=lambda name: (len(name), name))


def _answers_iscsid() -> bool:
    # 21: no sessions, said by an iscsid that answers; 20 and others: not there yet.
    return finish(["iscsiadm", "-m", "session"]).status in (0, 21)
