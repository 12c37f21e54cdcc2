# SPDX-License-Identifier: GPL-2.0-or-later
"""The disks that a look is to look at: those of iSCSI sessions, with their connections, and of SRP logins."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from fabtune.errors import InputError
from fabtune.facts.striped import striped
from fabtune.host import blocks, srp
from fabtune.host.sessions import Connections, Session, live_sessions
from fabtune.host.sockets import TcpSocket
from fabtune.host.srp import SrpLogin

_NO_SESSION = "no iSCSI session is logged in on this host, and no SRP target"


@attrs.frozen
class Looked:
    """A disk to look at, and what brings it; an SRP login has no connection that TCP knows of."""

    disk: str
    session: Session | SrpLogin
    socket: TcpSocket | None
    multipath: str = ""
    # Why none of the connections that lead to its portal is taken for the session's, '' where none does.
    why_no_socket: str = ""
    # Sessions of this host that share a line whenever any one of them is busy.
    striped: int = 1

    @property
    def bearer(self) -> str:
        """What all disks of the same session have in common."""
        return str(self.session.sid) if isinstance(self.session, Session) else self.session.port


def chosen(names: Sequence[str], found: Sequence[TcpSocket]) -> list[Looked]:
    """Return the disks that `names` stand for, or all disks of all sessions.  Raises InputError.

    A device on top of others (multipath, LVM) stands for those that sessions bring.
    """
    live = live_sessions()
    sessions: list[Session | SrpLogin] = [*live, *srp.srp_logins()]
    if not sessions:
        raise InputError(f"{_NO_SESSION}; log in first (iscsiadm -m node --login)")
    by_disk = {lun: session for session in sessions for lun in session.luns}
    wanted = list(dict.fromkeys(disk for name in names for disk in _below(name, by_disk))) or sorted(by_disk)
    if not wanted:
        raise InputError("the sessions of this host have no disks yet")
    heads = blocks.heads_of(wanted)
    ends, together = Connections(found, live), striped(live, found)

    def looked(disk: str) -> Looked:
        one, above = by_disk[disk], ", ".join(heads[disk])
        if not isinstance(one, Session):
            return Looked(disk, one, None, above)
        return Looked(disk, one, ends.of(one), above, ends.why_none(one), together)

    return [looked(disk) for disk in wanted]


def _below(name: str, by_disk: Mapping[str, object]) -> list[str]:
    place = Path(name) if name.startswith("/") else Path("/dev", name)
    # /dev/mapper's names and /dev/disk's lead to the kernel's own.
    bare = place.resolve().name if place.exists() else place.name
    directory = blocks.directory(bare)
    known = ", ".join(sorted(by_disk)) or "none"
    if not directory.exists():
        raise InputError(f"{name}: no such block device; disks of iSCSI sessions and SRP logins here: {known}")
    whole = directory.resolve().parent.name if (directory / "partition").exists() else bare
    slaves = [slave.name for slave in sorted((blocks.directory(whole) / "slaves").glob("*"))]
    found = [disk for slave in slaves for disk in _below(slave, by_disk)] if slaves else [whole]
    if any(disk not in by_disk for disk in found):
        raise InputError(f"{name} is not a disk of an iSCSI session or SRP login; those are: {known}")
    return found
