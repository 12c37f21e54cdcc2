# SPDX-License-Identifier: GPL-2.0-or-later
"""What a target's own fabstat counted of the sessions that it serves, and which of them is whose."""

import re
from collections.abc import Mapping, Sequence

import attrs

# What a disk asked for and what somebody did is the same if the two differ by no more: looks at two ends begin and end
# a little apart.
_SAME = 0.2
# ib_srpt's names: half a GID, as it writes a GUID, and a whole one or a port's identifier.
_GUID, _WHOLE = re.compile(r"(?:[0-9a-f]{4}:){3}[0-9a-f]{4}"), re.compile(r"(?:0x)?[0-9a-f]{32}")
_ADDRESS = re.compile(r"\d+(?:\.\d+){3}|\[?[0-9a-f]*:[0-9a-f:.]*\]?")


@attrs.frozen
class ServedSeen:
    """What the target's own fabstat counted of one session's commands to one LUN.

    `mean_ms` is a command's mean time from its coming to its answer; of a write its data comes meanwhile.  `tpg` is
    the target portal group, '' from an older fabtune, which tells all sessions of an initiator together.  Of that time
    `r2t_ms` is a write's wait for its data, `backstore_ms` what the backstore took: empty where parts were not seen.
    `window` is how many commands its session may have there, and `window_used` how many it had as the look ended,
    None on fabrics without one.
    """

    initiator: str
    target: str
    lun: int
    completed: Mapping[str, int]
    mean_ms: Mapping[str, float]
    tpg: str = ""
    r2t_ms: Mapping[str, float] = {}
    backstore_ms: Mapping[str, float] = {}
    window: int | None = None
    window_used: int | None = None

    def own_ms(self, way: str) -> float | None:
        """Return a command's mean time there without its wait for data; None of a write where parts were not seen."""
        whole_ms = self.mean_ms.get(way)
        if way != "write" or whole_ms is None:
            return whole_ms
        return None if way not in self.r2t_ms else max(0.0, whole_ms - self.r2t_ms[way])


def about_as_many(did: int, asked: int) -> bool:
    """Tell whether what was done and what was asked for in two looks at about the same time may be the same."""
    return abs(did - asked) <= _SAME * asked


def of_iscsi(
    told: Sequence[ServedSeen], initiator: str, target: str, tpg: str, lun: int | None
) -> tuple[ServedSeen, ...]:
    """Return the sessions that an initiator's may be: several in one portal group look alike."""
    # LIO lowers an initiator's name at login (RFC 3720, 3.2.6.1).
    mine = initiator.lower(), target, lun
    found = [one for one in told if (one.initiator.lower(), one.target, one.lun) == mine]
    return tuple(one for one in found if not tpg or one.tpg in ("", tpg))


def of_srp(
    told: Sequence[ServedSeen], gid: str, target_gid: str, lun: int | None, asked: int
) -> tuple[ServedSeen, ...]:
    """Return the sessions that an SRP login's may be, from the port `gid`, whose disk asked for `asked` requests.

    ib_srpt registers a session by the address that the connection manager tells, else by the initiator's port: what a
    row is called is not always the initiator's own, and logins of one name share a row.  So it also has to have done
    what was asked for.
    """
    return tuple(
        one
        for one in told
        if one.lun == lun
        and _is_port(one.target, target_gid)
        and _may_be(one.initiator, gid, by_ib_cm=bool(target_gid))
        and about_as_many(sum(one.completed.values()), asked)
    )


def _may_be(name: str, gid: str, *, by_ib_cm: bool) -> bool:
    """Tell whether ib_srpt (srpt_cm_req_recv) may have registered a login from the port `gid` as `name`."""
    guid = gid.lower()[-len("0000:0000:0000:0000") :]
    if not _GUID.fullmatch(guid):
        return False
    if _WHOLE.fullmatch(name):
        # Before its interface's half a port's identifier has what the login chose (initiator_ext), which nobody tells.
        return name.endswith(guid.replace(":", ""))
    if _GUID.fullmatch(name):
        return by_ib_cm and name == guid
    # RDMA's connection manager has it from the target's own address (route.addr.src_addr of who was connected to).
    return not by_ib_cm and _ADDRESS.fullmatch(name) is not None


def _is_port(name: str, gid: str) -> bool:
    """Tell whether ib_srpt may call its port `gid` so, or any port where `gid` is '': a login by address has none."""
    if not gid:
        return bool(_GUID.fullmatch(name) or _WHOLE.fullmatch(name))
    whole = gid.lower()
    return name in (whole[-len("0000:0000:0000:0000") :], f"0x{whole.replace(':', '')}")
