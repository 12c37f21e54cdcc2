# SPDX-License-Identifier: GPL-2.0-or-later
"""How many commands each stage lets through: LUN, session, the target's command window."""

from collections.abc import Iterator

from fabtune.host import targets
from fabtune.lint.rule import Case, Scene, case, rule
from fabtune.model.login_target import serves
from fabtune.model.negotiate import MANAGEMENT_COMMANDS

# drivers/scsi/libiscsi.c, iscsi_session_setup (ISCSI_TOTAL_CMDS_MIN)
_LEAST_COMMANDS = 16
_LIO_MOST_COMMANDS = 512


def _used(cmds_max: int) -> int:
    """Return the power of two that libiscsi rounds cmds_max down to."""
    return 1 << max(cmds_max.bit_length() - 1, 0)


@rule(
    "cmds-max-not-power-of-two",
    "warning",
    seen="cmds_max is {value}",
    so="the kernel uses {used}",
    fix="set iscsi.cmds_max to a power of two from 16 to 2048",
    example={"iscsi.cmds_max": "100"},
)
def cmds_max_not_power_of_two(scene: Scene) -> Iterator[Case]:
    """libiscsi rounds cmds_max down to a power of two."""
    for reading, value in scene.numbers("iscsi.cmds_max"):
        if value >= _LEAST_COMMANDS and value & (value - 1):
            yield case(reading, value=value, used=_used(value))


@rule(
    "cmds-max-too-small",
    "danger",
    seen="cmds_max is {value}",
    so="the login fails",
    fix="set iscsi.cmds_max to a power of two from 16 to 2048",
    example={"iscsi.cmds_max": "8"},
)
def cmds_max_too_small(scene: Scene) -> Iterator[Case]:
    """libiscsi refuses a session with fewer than 16 commands."""
    for reading, value in scene.numbers("iscsi.cmds_max"):
        if value < _LEAST_COMMANDS:
            yield case(reading, value=value)


@rule(
    "queue-depth-above-session",
    "notice",
    seen="{seen}",
    so="{so}",
    fix="{fix}",
    example={"iscsi.queue_depth": "200"},
)
def queue_depth_above_session(scene: Scene) -> Iterator[Case]:
    """libiscsi keeps 15 commands of cmds_max for management; all LUNs of the session share the others."""
    for reading, value in scene.numbers("iscsi.cmds_max"):
        can_queue = _used(value) - MANAGEMENT_COMMANDS
        depth = scene.number("iscsi.queue_depth", reading.device.identity)
        if depth is not None and depth > can_queue:
            yield case(
                reading,
                seen=f"queue_depth {depth} > {can_queue} (cmds_max {value} less {MANAGEMENT_COMMANDS} for management)",
                so=f"one LUN gets {can_queue} commands at most, and a second LUN starves",
                fix="raise iscsi.cmds_max or lower iscsi.queue_depth",
            )
    for session, reading, depth in scene.disks("block.queue_depth"):
        if 0 < session.can_queue < depth:
            yield case(
                reading,
                seen=f"queue depth {depth} > can_queue {session.can_queue} of its session",
                so=f"{session.can_queue} commands at most are in flight",
                fix="raise iscsi.cmds_max and log in again",
            )


@rule(
    "queue-above-window",
    "notice",
    seen="the session may queue {can_queue} commands, the target's window is {window}",
    so="{waiting} commands wait for the window, unseen by the block layer's depth",
    fix="raise lio.default_cmdsn_depth (or the ACL's lio.cmdsn_depth), or tgt.max_queue_cmd, to match",
    example={"iscsi.cmds_max": "512"},
)
def queue_above_window(scene: Scene) -> Iterator[Case]:
    """Commands above the target's window wait in the session (RFC 7143, 4.2.2.1)."""
    offered = list(scene.numbers(*(kind.offer("cmdsn_depth") for kind in targets.serving())))
    for reading, value in scene.numbers("iscsi.cmds_max"):
        can_queue, record = _used(value) - MANAGEMENT_COMMANDS, reading.device
        # What a target elsewhere has is not known here.
        for group, default in ((one.device, window) for one, window in offered if serves(one.device, record)):
            acl = f"{group.identity},{record.where.get('initiator')}"
            window = next((own for _, own in scene.numbers(*targets.acl_offers(), identity=acl)), default)
            if can_queue > window:
                yield case(reading, can_queue=can_queue, window=window, waiting=can_queue - window)


@rule(
    "cmdsn-depth-not-kept",
    "warning",
    seen="cmdsn_depth is {depth}, default_cmdsn_depth {default}",
    so="the next restore of the target makes it {default} again",
    fix="set lio.default_cmdsn_depth to {depth} as well, and save",
    example={"lio.cmdsn_depth": "64"},
)
def cmdsn_depth_not_kept(scene: Scene) -> Iterator[Case]:
    """targetcli saves default_cmdsn_depth, never the ACL's own depth."""
    for reading, depth in scene.numbers("lio.cmdsn_depth"):
        default = scene.number("lio.default_cmdsn_depth", ",".join(reading.device.identity.split(",")[:2]))
        if default is not None and depth != default:
            yield case(reading, depth=depth, default=default)


@rule(
    "cmdsn-depth-too-large",
    "danger",
    seen="{name} is {depth}",
    so="LIO refuses more than {most}, and a saved configuration with it fails to restore",
    fix="set it to {most} or less",
    example={"lio.cmdsn_depth": "1024"},
)
def cmdsn_depth_too_large(scene: Scene) -> Iterator[Case]:
    """drivers/target/iscsi/iscsi_target_tpg.h: TA_DEFAULT_CMDSN_DEPTH_MAX."""
    for reading, depth in scene.numbers("lio.cmdsn_depth", "lio.default_cmdsn_depth"):
        if depth > _LIO_MOST_COMMANDS:
            yield case(reading, name=reading.tunable, depth=depth, most=_LIO_MOST_COMMANDS)


@rule(
    "window-from-first-login",
    "notice",
    seen="default_cmdsn_depth is {depth}, and {initiators} logged in without an ACL",
    so="each such initiator keeps the command window of its very first login, whatever the default says since",
    fix="give it an ACL (targetcli: acls/ create IQN) and set lio.cmdsn_depth",
)
def window_from_first_login(scene: Scene) -> Iterator[Case]:
    """Demo mode keeps what it made at an initiator's first login, window included (target_core_tpg.c)."""
    for reading, depth in scene.numbers("lio.default_cmdsn_depth"):
        tpg = next((one for one in scene.facts.tpgs if one.identity == reading.device.identity), None)
        dynamic = [login.initiator for login in tpg.logins if login.dynamic] if tpg else []
        if dynamic and depth != scene.default("lio.default_cmdsn_depth"):
            yield case(reading, depth=depth, initiators=", ".join(dynamic))
