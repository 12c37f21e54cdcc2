# SPDX-License-Identifier: GPL-2.0-or-later
"""Topologies of sessions over the path: many initiators, many sessions to one LUN, many targets, one path cut.

initiators: each has a name and a session of its own, to one LUN that all share or to a LUN each
sessions:   one initiator, a portal and a session each, joined by dm-multipath
targets:    one session to each of them, striped by md RAID-0
"""

from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import InputError
from fabtune.host.run import run
from fabtune.host.targets import lio
from fabtune.lab.disks import USUAL, Disk, add_store, mapped
from fabtune.lab.fabrics import iscsi
from fabtune.lab.shell import ip_batch
from fabtune.lab.topology import WAN, target_namespace
from fabtune.lab.waiting import until

# Where open-iscsi keeps its records: the newer place first.
_RECORDS = (Path("/var/lib/iscsi"), Path("/etc/iscsi"))
MAX_PORTALS = 8
# A request of 256 KiB keeps four members busy.
_CHUNK_KIB = 64


@dataclass(frozen=True)
class Layout:
    """How many of what; at most one of the three counts may be more than one."""

    initiators: int = 1
    own_luns: bool = False
    sessions: int = 1
    targets: int = 1
    disk: Disk = USUAL

    def __post_init__(self) -> None:
        if sum(count > 1 for count in (self.initiators, self.sessions, self.targets)) > 1:
            raise InputError("initiators, sessions and targets: only one of them can be more than one")
        if max(self.sessions, self.targets) > MAX_PORTALS:
            raise InputError(f"sessions and targets: at most {MAX_PORTALS}")

    @property
    def disks(self) -> int:
        """Number of disks that the sessions bring."""
        return max(self.initiators, self.sessions, self.targets)


def portal(number: int) -> str:
    """Return the address of portal `number`, counted from 0."""
    return f"10.2.0.{1 + number}"


def start(layout: Layout) -> None:
    """Start the layout's targets and make its initiators ready to log in; the topology is up."""
    portals = max(layout.sessions, layout.targets)
    ip_batch(target_namespace(), [f"addr add {portal(number)}/24 dev t0" for number in range(1, portals)])
    if layout.targets > 1:
        for number in range(layout.targets):
            name = iscsi.TARGET_IQN + (str(number + 1) if number else "")
            iscsi.add_target(name, (f"{portal(number)}:3260",), (add_store(lio.KIND, layout.disk, number),))
    else:
        count = layout.initiators if layout.own_luns else 1
        backstores = [add_store(lio.KIND, layout.disk, number) for number in range(count)]
        addresses = [f"{portal(number)}:3260" for number in range(layout.sessions)]
        iscsi.add_target(iscsi.TARGET_IQN, addresses, backstores)
        if layout.own_luns:
            for number in range(count):
                lio.KIND.map_lun(iscsi.TARGET_IQN, _initiator_name(number), number)
    iscsi.start_initiator()
    if layout.initiators > 1:
        interfaces = next(place for place in _RECORDS if (place / "nodes").is_dir()) / "ifaces"
        interfaces.mkdir(exist_ok=True)
        names = [f"client{number}" for number in range(layout.initiators)]
        for number, name in enumerate(names):
            lines = {"iscsi_ifacename": name, "transport_name": "tcp", "initiatorname": _initiator_name(number)}
            (interfaces / name).write_text("".join(f"iface.{key} = {value}\n" for key, value in lines.items()))
        iscsi.forget_nodes()
        iscsi.discover(iscsi.PORTAL, names)
    for number in range(1, layout.targets):
        iscsi.discover(f"{portal(number)}:3260")


def login(layout: Layout) -> list[str]:
    """Log every session in and return their disks once all can be opened."""
    run(["iscsiadm", "-m", "node", "--login"], what="logging in")
    return iscsi.wait_for_disks(layout.disks)


def logout(layout: Layout) -> None:
    """Take the joined device apart, log every session out and wait until their disks are gone."""
    if layout.sessions > 1:
        run(["dmsetup", "remove", "--retry", "lab-paths"], what="removing the multipath device")
    if layout.targets > 1:
        run(["mdadm", "--stop", "/dev/md0"], what="stopping the stripe set")
    run(["iscsiadm", "-m", "node", "--logout"], what="logging out")
    until(lambda: not iscsi.iscsi_disks(), "the disks to go")


def join(layout: Layout, disks: list[str]) -> list[str]:
    """Join the disks as the layout says and return what is to be loaded: several disks only with several initiators."""
    if layout.targets > 1:
        members = [f"/dev/{disk}" for disk in disks]
        run(["modprobe", "raid0"], what="loading raid0")
        words = ["--level=0", f"--chunk={_CHUNK_KIB}", f"--raid-devices={len(disks)}", *members]
        run(["mdadm", "--build", "/dev/md0", *words], what="building the stripe set")
        return ["md0"]
    return [multipath(disks)] if layout.sessions > 1 else disks


def multipath(disks: list[str]) -> str:
    """Join `disks`, paths to one LUN, by dm-multipath and return the device's name.

    The kernel's part alone: it chooses the path with the shortest queue, takes a failed one out and asks
    the others; nobody brings a path back, which is multipathd's part.
    """
    for module in ("dm_multipath", "dm_queue_length"):
        run(["modprobe", module], what=f"loading {module}")
    sectors = Path(f"/sys/block/{disks[0]}/size").read_text().strip()
    paths = " ".join(f"{Path(f'/sys/block/{disk}/dev').read_text().strip()} 1" for disk in disks)
    table = f"0 {sectors} multipath 1 queue_if_no_path 0 1 1 queue-length 0 {len(disks)} 1 {paths}"
    run(["dmsetup", "create", "lab-paths", "--noudevsync", "--table", table], what="creating the multipath device")
    return mapped("lab-paths")


def paths_failed() -> int:
    """Return how many paths of the multipath device the kernel has given up."""
    words = run(["dmsetup", "status", "lab-paths"], what="asking for the paths").split()
    return words.count("F")


def cut(number: int) -> None:
    """Let the WAN swallow whatever is for portal `number`, without a word to the sender."""
    ip_batch(WAN, [f"route add blackhole {portal(number)}/32"])


def mend(number: int) -> None:
    """Let the WAN pass on again what is for portal `number`."""
    ip_batch(WAN, [f"route del blackhole {portal(number)}/32"])


def _initiator_name(number: int) -> str:
    return f"{iscsi.INITIATOR_IQN}{number}"
