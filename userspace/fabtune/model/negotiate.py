# SPDX-License-Identifier: GPL-2.0-or-later
"""What an iSCSI login would agree on: RFC 7143's result functions as open-iscsi and LIO apply them.

Names are RFC 7143's.  Values are integers, booleans or texts.  Where both implementations go
beyond the RFC (open-iscsi always offers one connection and error recovery level 0, LIO declares
MaxXmitDataSegmentLength as its own receive limit) the function here does what they do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fabtune.model.document import Json

Value = int | bool | str

# Commands that libiscsi keeps back for task management (include/scsi/libiscsi.h, ISCSI_MGMT_CMDS_MAX).
MANAGEMENT_COMMANDS = 15
# LIO's compiled-in values (drivers/target/iscsi/iscsi_target_parameters.h, iscsi_target_tpg.h).
LIO_DEFAULTS: dict[str, Value] = {
    "InitialR2T": True, "ImmediateData": True, "FirstBurstLength": 65536, "MaxBurstLength": 262144,
    "MaxOutstandingR2T": 1, "MaxXmitDataSegmentLength": 262144, "HeaderDigest": "CRC32C,None",
    "DataDigest": "CRC32C,None", "MaxConnections": 1, "ErrorRecoveryLevel": 0, "cmdsn_depth": 64,
}  # fmt: skip
# open-iscsi's record defaults (usr/config.h, etc/iscsid.conf).
OPEN_ISCSI_DEFAULTS: dict[str, Value] = {
    "InitialR2T": False, "ImmediateData": True, "FirstBurstLength": 262144, "MaxBurstLength": 16776192,
    "MaxOutstandingR2T": 1, "MaxRecvDataSegmentLength": 262144, "MaxXmitDataSegmentLength": 0,
    "HeaderDigest": "None", "DataDigest": "None", "cmds_max": 128, "queue_depth": 32,
}  # fmt: skip


@dataclass(frozen=True)
class Agreed:
    """One key's outcome: what each side offers, by which rule they agree, on what; `problem` says why a login fails."""

    name: str
    initiator: Value | None
    target: Value | None
    rule: str
    result: Value
    problem: str = ""

    def as_json(self) -> dict[str, Json]:
        """Return the outcome with stable keys."""
        return {
            "name": self.name,
            "initiator": self.initiator,
            "target": self.target,
            "rule": self.rule,
            "result": self.result,
            "problem": self.problem,
        }


def _digest(initiator: str, target: str) -> tuple[str, str]:
    """Return the first of the initiator's digests that the target has, and why there is none."""
    offered, known = initiator.split(","), target.split(",")
    for digest in offered:
        if digest in known:
            return digest, ""
    return "None", f"no common digest: the initiator offers {initiator}, the target takes {target}; the login fails"


def _pad(value: int) -> int:
    """Round down to the multiple of four that open-iscsi works with."""
    return value & ~3


def preview(initiator: Mapping[str, Value], target: Mapping[str, Value]) -> list[Agreed]:
    """Return what each key of a login would come to; missing keys take the implementation's default."""
    ours = {**OPEN_ISCSI_DEFAULTS, **initiator}
    theirs = {**LIO_DEFAULTS, **target}

    def combine(name: str, rule: str, function: Callable[[int, int], int]) -> Agreed:
        left, right = ours[name], theirs[name]
        result = function(int(left), int(right))
        return Agreed(name, left, right, rule, bool(result) if isinstance(left, bool) else result)

    agreed = [
        combine("InitialR2T", "or", lambda a, b: a | b),
        combine("ImmediateData", "and", lambda a, b: a & b),
        _first_burst(ours, theirs),
        combine("MaxBurstLength", "min", lambda a, b: min(_pad(a), b)),
        _outstanding(combine("MaxOutstandingR2T", "min", min)),
        Agreed(
            "MaxRecvDataSegmentLength", ours["MaxRecvDataSegmentLength"], None, "declared by the initiator",
            _pad(int(ours["MaxRecvDataSegmentLength"])),
        ),
        _max_xmit(ours, theirs),
    ]  # fmt: skip
    for name in ("HeaderDigest", "DataDigest"):
        result, problem = _digest(str(ours[name]), str(theirs[name]))
        agreed.append(Agreed(name, ours[name], theirs[name], "first common", result, problem))
    # LIO answers min(ours, its own): what it allows beyond is never used.
    agreed.append(Agreed("MaxConnections", 1, theirs["MaxConnections"], "min", 1))
    agreed.append(Agreed("ErrorRecoveryLevel", 0, theirs["ErrorRecoveryLevel"], "min", 0))
    agreed.append(_queue(ours, theirs))
    return agreed


def _first_burst(ours: Mapping[str, Value], theirs: Mapping[str, Value]) -> Agreed:
    left, right = int(ours["FirstBurstLength"]), int(theirs["FirstBurstLength"])
    # open-iscsi offers no more than its own MaxBurstLength, LIO answers no more than the one agreed on.
    bursts = _pad(int(ours["MaxBurstLength"])), int(theirs["MaxBurstLength"])
    return Agreed("FirstBurstLength", left, right, "min, <= MaxBurstLength", min(_pad(left), right, *bursts))


def _outstanding(agreed: Agreed) -> Agreed:
    number = int(agreed.result)
    if number & (number - 1):
        problem = f"{number} is not a power of two: iscsi_tcp refuses it and the login fails"
        return Agreed(agreed.name, agreed.initiator, agreed.target, agreed.rule, number, problem)
    return agreed


def _max_xmit(ours: Mapping[str, Value], theirs: Mapping[str, Value]) -> Agreed:
    cap, declared = int(ours["MaxXmitDataSegmentLength"]), int(theirs["MaxXmitDataSegmentLength"])
    result = min(_pad(cap), declared) if cap else declared
    return Agreed("MaxXmitDataSegmentLength", cap, declared, "declared by the target", result)


def _queue(ours: Mapping[str, Value], theirs: Mapping[str, Value]) -> Agreed:
    """Return how many commands one LUN's session can keep in flight."""
    # libiscsi takes the next power of two below, and none of 0.
    rounded = (1 << int(ours["cmds_max"]).bit_length()) >> 1
    session = rounded - MANAGEMENT_COMMANDS
    own = min(session, int(ours["queue_depth"]))
    problem = "" if session > 0 else f"cmds_max {ours['cmds_max']} leaves no command for data; the login fails"
    depth = min(own, int(theirs["cmdsn_depth"]))
    return Agreed("commands in flight", own, theirs["cmdsn_depth"], "min", depth, problem)
