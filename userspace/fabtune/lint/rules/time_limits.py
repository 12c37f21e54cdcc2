# SPDX-License-Identifier: GPL-2.0-or-later
"""Time limits that a full queue outlasts, or that undo each other."""

from collections.abc import Iterator

from fabtune.host import tree
from fabtune.lint.rule import MIB, Case, Scene, case, rule


@rule(
    "ping-timeout-short",
    "danger",
    seen="noop_out_timeout is {timeout} s; {queue} requests of 1 MiB ahead of a ping take {needed:.1f} s",
    so="load is enough to make the initiator drop the session",
    fix="set iscsi.noop_timeout to at least {enough} s",
    example={"iscsi.noop_timeout": "2"},
)
def ping_timeout_short(scene: Scene) -> Iterator[Case]:
    """Pings wait behind the data in the same socket (drivers/scsi/libiscsi.c, iscsi_check_transport_timeouts)."""
    if scene.path is None:
        return
    for reading, timeout in scene.numbers("iscsi.noop_timeout"):
        if not timeout or not scene.number("iscsi.noop_interval", reading.device.identity):
            continue
        queue = scene.number("iscsi.queue_depth", reading.device.identity) or 32
        needed = scene.path.rtt_s + queue * MIB / scene.path.goodput_bytes_per_s
        if timeout <= needed:
            yield case(reading, timeout=timeout, queue=queue, needed=needed, enough=int(needed) + 5)


@rule(
    "scsi-timeout-short",
    "danger",
    seen="commands time out after {timeout} s; a queue of {queue} requests of 1 MiB takes {needed:.1f} s",
    so="full queues are aborted and sent again, which fills them further",
    fix="set block.timeout to at least {enough} s",
    example={"block.timeout": "2"},
)
def scsi_timeout_short(scene: Scene) -> Iterator[Case]:
    """A SCSI time limit shorter than a full queue takes aborts commands that are merely waiting."""
    if scene.path is None:
        return
    for _, reading, timeout in scene.disks("block.timeout"):
        queue = scene.number("block.queue_depth", reading.device.identity) or 32
        needed = queue * MIB / scene.path.goodput_bytes_per_s + scene.path.rtt_s
        if timeout <= needed:
            yield case(reading, timeout=timeout, queue=queue, needed=needed, enough=int(2 * needed) + 1)


@rule(
    "recovery-for-ever",
    "warning",
    seen="recovery_tmo is {recovery}",
    so="commands of a lost session never fail: processes hang until it is back",
    fix="set iscsi.replacement_timeout to the longest outage to ride out",
    example={"iscsi.recovery_timeout": "-1"},
)
def recovery_for_ever(scene: Scene) -> Iterator[Case]:
    """A negative time limit is none."""
    for session in scene.facts.sessions:
        recovery = scene.number("iscsi.recovery_timeout", session.own_identity)
        if recovery is not None and recovery < 0 and session.luns:
            yield case(session.label, recovery=recovery)


@rule(
    "recovery-timeout-owner",
    "notice",
    seen="the record says {recorded} s, the session has {value} s, and multipathd is running",
    so="multipathd's fast_io_fail_tmo wins at each of its reloads",
    fix="set fast_io_fail_tmo in multipath.conf instead of replacement_timeout",
)
def recovery_timeout_owner(scene: Scene) -> Iterator[Case]:
    """multipathd writes recovery_tmo from fast_io_fail_tmo on each reload, over replacement_timeout."""
    for reading, value in scene.numbers("iscsi.recovery_timeout") if scene.running("multipathd") else ():
        recorded = scene.number("iscsi.replacement_timeout", reading.device.identity)
        if recorded is not None and recorded != value:
            yield case(reading, recorded=recorded, value=value)


@rule(
    "dataout-timeout-short",
    "danger",
    seen="dataout_timeout is {timeout} s; {depth} writes of 1 MiB take {needed:.1f} s on this path",
    so="LIO drops the connection under full load, and the initiator logs in again and again",
    fix="set lio.dataout_timeout to at least {enough} s",
    example={"lio.dataout_timeout": "3"},
)
def dataout_timeout_short(scene: Scene) -> Iterator[Case]:
    """At ERL 0 an expired dataout_timeout closes the connection (iscsi_target_erl1.c)."""
    if scene.path is None:
        return
    for reading, timeout in scene.numbers("lio.dataout_timeout"):
        depth = scene.number("lio.cmdsn_depth", reading.device.identity)
        if depth is None:
            continue
        needed = depth * MIB / scene.path.rate_bytes_per_s + 2 * scene.path.rtt_s
        if timeout < needed:
            yield case(reading, timeout=timeout, depth=depth, needed=needed, enough=min(60, int(needed) + 2))


@rule(
    "srp-timeouts-crossed",
    "danger",
    seen="fast_io_fail_tmo {fail} s >= dev_loss_tmo {loss} s",
    so="the disks vanish before commands fail over",
    fix="set srp.dev_loss_tmo above srp.fast_io_fail_tmo",
    example={"srp.fast_io_fail_tmo": "600"},
)
def srp_timeouts_crossed(scene: Scene) -> Iterator[Case]:
    """Commands must fail over before their disk is taken away (drivers/scsi/scsi_transport_srp.c)."""
    losses = {one.device.identity: one.value for one in reversed(scene.facts.of("srp.dev_loss_tmo"))}
    for reading, _ in scene.readings("srp.fast_io_fail_tmo"):
        fail, loss = tree.whole(reading.value), tree.whole(losses.get(reading.device.identity))
        if fail is not None and loss is not None and 0 <= loss <= fail:
            yield case(reading, fail=fail, loss=loss)
