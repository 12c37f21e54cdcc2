# SPDX-License-Identifier: GPL-2.0-or-later
"""Hazards of the target's side: LIO's portal groups, ACLs and backstores."""

from collections.abc import Iterator

from fabtune.tune.lint import Finding, Hazard, Scene

_MIB = 1 << 20
_LIO_MOST_COMMANDS = 512


def target_bursts(scene: Scene) -> Iterator[Finding]:
    """FirstBurstLength against MaxBurstLength and against LIO's PDU size."""
    for reading, first in scene.numbers("lio.first_burst"):
        identity = reading.device.identity
        maximum = scene.number("lio.max_burst", identity)
        segment = scene.number("lio.max_xmit_segment", identity)
        asks = {one.device.identity: value for one, value in scene.readings("lio.initial_r2t")}
        if maximum is not None and first > maximum:
            yield Finding(
                "first-burst-above-max",
                "warning",
                reading.device.label,
                f"FirstBurstLength {first} > MaxBurstLength {maximum}",
                f"only {maximum} bytes are used",
                "lower lio.first_burst or raise lio.max_burst",
            )
        if segment is not None and first > segment and asks.get(identity) is True:
            yield Finding(
                "first-burst-above-pdu",
                "notice",
                reading.device.label,
                f"FirstBurstLength {first} > the PDU size {segment}, and InitialR2T is Yes",
                f"{first - segment} bytes of each first burst are never sent unasked: they wait a round trip",
                "raise lio.max_xmit_segment (LIO's declared PDU size) or set lio.initial_r2t to false",
            )


def command_window(scene: Scene) -> Iterator[Finding]:
    """targetcli saves default_cmdsn_depth, never the ACL's own depth."""
    for reading, depth in scene.numbers("lio.cmdsn_depth"):
        tpg = ",".join(reading.device.identity.split(",")[:2])
        default = scene.number("lio.default_cmdsn_depth", tpg)
        if default is not None and depth != default:
            yield Finding(
                "cmdsn-depth-not-kept",
                "warning",
                reading.device.label,
                f"cmdsn_depth is {depth}, default_cmdsn_depth {default}",
                f"the next restore of the target makes it {default} again",
                f"set lio.default_cmdsn_depth to {depth} as well, and save",
            )
    for name in ("lio.cmdsn_depth", "lio.default_cmdsn_depth"):
        for reading, depth in scene.numbers(name):
            if depth > _LIO_MOST_COMMANDS:
                yield Finding(
                    "cmdsn-depth-too-large",
                    "danger",
                    reading.device.label,
                    f"{name} is {depth}",
                    f"LIO refuses more than {_LIO_MOST_COMMANDS}, and a saved configuration with it fails to restore",
                    f"set it to {_LIO_MOST_COMMANDS} or less",
                )


def remembered_window(scene: Scene) -> Iterator[Finding]:
    """Demo mode keeps what it made at an initiator's first login, window included (target_core_tpg.c)."""
    for reading, depth in scene.numbers("lio.default_cmdsn_depth"):
        tpg = next((one for one in scene.facts.tpgs if one.identity == reading.device.identity), None)
        dynamic = [login.initiator for login in tpg.logins if login.dynamic] if tpg else []
        if dynamic and depth != scene.default("lio.default_cmdsn_depth"):
            yield Finding(
                "window-from-first-login",
                "notice",
                reading.device.label,
                f"default_cmdsn_depth is {depth}, and {', '.join(dynamic)} logged in without an ACL",
                "each such initiator keeps the command window of its very first login, whatever the default says since",
                "give it an ACL (targetcli: acls/ create IQN) and set lio.cmdsn_depth",
            )


def data_timeout(scene: Scene) -> Iterator[Finding]:
    """At ERL 0 an expired dataout_timeout closes the connection (iscsi_target_erl1.c)."""
    if scene.path is None:
        return
    for reading, timeout in scene.numbers("lio.dataout_timeout"):
        depth = scene.number("lio.cmdsn_depth", reading.device.identity)
        if depth is None:
            continue
        needed = depth * _MIB / scene.path.rate_bytes_per_s + 2 * scene.path.rtt_s
        if timeout < needed:
            yield Finding(
                "dataout-timeout-short",
                "danger",
                reading.device.label,
                f"dataout_timeout is {timeout} s; {depth} writes of 1 MiB take {needed:.1f} s on this path",
                "LIO drops the connection under full load, and the initiator logs in again and again",
                f"set lio.dataout_timeout to at least {min(60, int(needed) + 2)} s",
            )


def unsolicited_memory(scene: Scene) -> Iterator[Finding]:
    """Unsolicited data needs a buffer before the target can refuse it."""
    memory = scene.facts.host.memory_bytes
    for reading, first in scene.numbers("lio.first_burst"):
        depth = scene.number("lio.default_cmdsn_depth", reading.device.identity)
        tpg = next((one for one in scene.facts.tpgs if one.identity == reading.device.identity), None)
        if depth is None or tpg is None or not memory:
            continue
        sessions = max(1, len(tpg.logins))
        worst = sessions * depth * first
        if worst > memory / 8:
            yield Finding(
                "unsolicited-memory",
                "warning",
                reading.device.label,
                f"{sessions} sessions x {depth} commands x {first} bytes of FirstBurst = {worst / _MIB:.0f} MiB",
                f"{100 * worst / memory:.0f} % of this host's {memory / _MIB:.0f} MiB at worst",
                "lower lio.first_burst or lio.default_cmdsn_depth",
            )


def write_cache(scene: Scene) -> Iterator[Finding]:
    """The advertised cache must tell the truth about the backing store."""
    for reading, advertised in scene.readings("lio.emulate_write_cache"):
        store = next((one for one in scene.facts.backstores if one.name == reading.device.label), None)
        if store is None or store.writes_back is None or store.writes_back == advertised:
            continue
        if store.writes_back:
            yield Finding(
                "write-cache-hidden",
                "danger",
                reading.device.label,
                "the file is written through the page cache, and emulate_write_cache is 0",
                "initiators never flush: a crash of this host loses writes they were told are safe",
                "set emulate_write_cache to 1, or make the backstore with write_back=false",
            )
        else:
            yield Finding(
                "write-cache-claimed",
                "notice",
                reading.device.label,
                "the file is written through, and emulate_write_cache is 1",
                "initiators send flushes for nothing, a round trip each",
                "set emulate_write_cache to 0",
            )


def one_connection(scene: Scene) -> Iterator[Finding]:
    """open-iscsi answers MaxConnections 1 and ErrorRecoveryLevel 0 to whatever is offered."""
    for name, plain in (("lio.max_connections", 1), ("lio.error_recovery_level", 0)):
        for reading, value in scene.numbers(name):
            if value > plain:
                yield Finding(
                    "offer-never-taken",
                    "notice",
                    reading.device.label,
                    f"{name} is {value}",
                    f"open-iscsi always answers {plain}",
                    "use several sessions and dm-multipath instead",
                )


HAZARDS: tuple[Hazard, ...] = (
    target_bursts, command_window, remembered_window, data_timeout, unsolicited_memory, write_cache, one_connection,
)  # fmt: skip
