# SPDX-License-Identifier: GPL-2.0-or-later
"""Bursts and R2Ts: what an iSCSI login agrees on, and what it fails on."""

from collections.abc import Iterator

from fabtune.host import targets, tree
from fabtune.lint.rule import Case, Scene, case, rule

_KEYS = {
    "iscsi.first_burst": "FirstBurstLength",
    "iscsi.max_burst": "MaxBurstLength",
    "iscsi.max_outstanding_r2t": "MaxOutstandingR2T",
}


@rule(
    "first-burst-above-max",
    "warning",
    seen="FirstBurstLength {first} > MaxBurstLength {maximum}",
    so="only {maximum} bytes are used",
    fix="lower {lower} or raise {upper}",
    example={"iscsi.first_burst": "2097152"},
)
def first_burst_above_max(scene: Scene) -> Iterator[Case]:
    """RFC 7143, 13.14: FirstBurstLength must not exceed MaxBurstLength."""
    pairs = [(kind.offer("FirstBurstLength"), kind.offer("MaxBurstLength")) for kind in targets.serving()]
    for lower, upper in [("iscsi.first_burst", "iscsi.max_burst"), *pairs]:
        for reading, first in scene.numbers(lower):
            maximum = scene.number(upper, reading.device.identity)
            if maximum is not None and first > maximum:
                yield case(reading, first=first, maximum=maximum, lower=lower, upper=upper)


@rule(
    "first-burst-above-pdu",
    "notice",
    seen="FirstBurstLength {first} > the PDU size {segment}, and InitialR2T is Yes",
    so="{rest} bytes of each first burst are never sent unasked: they wait a round trip",
    fix="raise {pdu} (the target's declared PDU size) or set {asked} to false",
    example={"lio.max_xmit_segment": "65536"},
)
def first_burst_above_pdu(scene: Scene) -> Iterator[Case]:
    """With InitialR2T only immediate data goes unasked, and that is one PDU."""
    for kind in targets.serving():
        pdu, asked = kind.offer("MaxXmitDataSegmentLength"), kind.offer("InitialR2T")
        asks = {one.device.identity: value for one, value in scene.readings(asked)}
        for reading, first in scene.numbers(kind.offer("FirstBurstLength")):
            segment = scene.number(pdu, reading.device.identity)
            if segment is not None and first > segment and asks.get(reading.device.identity) is True:
                yield case(reading, first=first, segment=segment, rest=first - segment, pdu=pdu, asked=asked)


@rule(
    "r2t-not-power-of-two",
    "danger",
    seen="MaxOutstandingR2T is {value}",
    so="where this is the smaller of both sides, the next login fails and the LUNs stay away",
    fix="set {name} to a power of two, such as {below}",
    example={"iscsi.max_outstanding_r2t": "6"},
)
def r2t_not_power_of_two(scene: Scene) -> Iterator[Case]:
    """iscsi_tcp refuses any number that is no power of two, and the login fails."""
    for reading, value in scene.numbers("iscsi.max_outstanding_r2t", *_offers("MaxOutstandingR2T")):
        if value < 1 or value & (value - 1):
            yield case(reading, value=value, name=reading.tunable, below=1 << max(value.bit_length() - 1, 0))


@rule(
    "session-older-than-record",
    "notice",
    seen="{key} is {agreed} in the session and {recorded} in its record",
    so="the record changed after the login and counts from the next one",
    fix="log the session in again when its LUNs are free",
    example={"iscsi.first_burst": "131072"},
)
def session_older_than_record(scene: Scene) -> Iterator[Case]:
    """A record changed after the login does nothing until the next one."""
    for session in scene.facts.sessions:
        for tunable, key in _KEYS.items():
            recorded = scene.number(tunable, session.identity)
            agreed = tree.whole(session.negotiated.get(key, ""))
            # Agreeing on less is the target's doing; on more, only an older record explains.
            if recorded is not None and agreed is not None and agreed > recorded:
                yield case(session.label, key=key, agreed=agreed, recorded=recorded)


@rule(
    "offer-never-taken",
    "notice",
    seen="{name} is {value}",
    so="open-iscsi always answers {plain}",
    fix="{fix}",
    example={"lio.max_connections": "4"},
)
def offer_never_taken(scene: Scene) -> Iterator[Case]:
    """open-iscsi answers MaxConnections 1 and ErrorRecoveryLevel 0 to whatever is offered."""
    for key, plain, fix in (
        ("MaxConnections", 1, "use several sessions and dm-multipath instead"),
        ("ErrorRecoveryLevel", 0, "set {} to 0"),
    ):
        for reading, value in scene.numbers(*_offers(key)):
            if value > plain:
                yield case(reading, name=reading.tunable, value=value, plain=plain, fix=fix.format(reading.tunable))


@rule(
    "target-forgets",
    "notice",
    seen="{names} not as {kind} starts with",
    so="nothing gives {kind} its parameters back: its next start, at a boot or by hand, has its own defaults",
    fix="apply the profile after each start of {kind}, before the initiators log in",
    example={"tgt.max_burst": "1048576"},
)
def target_forgets(scene: Scene) -> Iterator[Case]:
    """What a target keeps in its process alone; tgt's targets.conf has no word for iSCSI parameters."""
    for kind in [one for one in targets.serving() if not one.outlives_boot]:
        changed: dict[str, list[str]] = {}
        for reading, value in scene.readings(*kind.offers):
            if value != scene.default(reading.tunable):
                changed.setdefault(reading.device.label, []).append(reading.tunable)
        for label, names in changed.items():
            yield case(label, kind=kind.name, names=", ".join(names) + (" is" if len(names) == 1 else " are"))


def _offers(key: str) -> list[str]:
    return [kind.offer(key) for kind in targets.serving()]
