# SPDX-License-Identifier: GPL-2.0-or-later
"""Time limits that a full queue outlasts, or that undo each other."""

import math
from collections.abc import Iterator

from fabtune.host import tree
from fabtune.lint.rule import Case, Gap, Scene, case, rule
from fabtune.model.full_queue import JOINED, leaves_s, most_requests
from fabtune.model.path import NetworkPath

# What the kernel, and every profile, starts with.
_QUEUE = 32


class _Limit:
    """A time limit beside what a full queue takes on the scene's path, and what to do where it is too short."""

    def __init__(self, scene: Scene, path: NetworkPath, requests: int, *, round_trips: int = 1) -> None:
        self._io_bytes, self._rate = scene.io_bytes, path.rate_bytes_per_s
        self._waits_s = round_trips * path.rtt_s
        # The formula of profile wan, so that what it has set is not too short.
        self.needed_s = self._waits_s + leaves_s(requests, self._io_bytes, self._rate)
        self.kib = JOINED * self._io_bytes / 1024

    def fix(self, name: str, now_s: int, most_s: int, depth: str, beside: str = "") -> str:
        """Return which limit of at most `most_s` to set, and where none is long enough which `depth` besides."""
        if self.needed_s <= most_s:
            return f"set {name} to at least {math.ceil(self.needed_s)} s"
        limit_s = max(now_s, most_s)
        first = f"set {name} to {most_s} s, and" if now_s < most_s else "set"
        if few := most_requests(limit_s, self._waits_s, self._io_bytes, self._rate):
            return f"{first} {depth} to at most {few}{beside}"
        kib = max(4, math.floor((limit_s - self._waits_s) * self._rate / 1024))
        return f"{first} block.max_sectors_kb to at most {kib}: one request alone takes too long"


def _gives_up_s(scene: Scene) -> int:
    """Return when SCSI gives a command up where nobody has said otherwise: no other limit need be longer."""
    return int(scene.default("block.timeout") or 0)


@rule(
    "ping-timeout-short",
    "danger",
    seen="noop_out_timeout is {timeout} s; {queue} requests of {kib:g} KiB ahead of a ping take {needed:.1f} s",
    so="load is enough to make the initiator drop the session",
    fix="{fix}",
    example={"iscsi.noop_timeout": "2"},
)
def ping_timeout_short(scene: Scene) -> Iterator[Case | Gap]:
    """Pings wait behind the data in the same socket (drivers/scsi/libiscsi.c, iscsi_check_transport_timeouts)."""
    usual_s = _gives_up_s(scene)
    commands: dict[str, int] = {}
    for session, _, given_s in scene.disks("block.timeout"):
        commands[session.identity] = min(given_s, commands.get(session.identity, given_s))
    for reading, timeout in scene.numbers("iscsi.noop_timeout"):
        record = reading.device.identity
        # What waits longer than SCSI does finds out nothing: the commands are aborted by then.
        if not timeout or timeout >= max(usual_s, commands.get(record, usual_s)):
            continue
        if not scene.number("iscsi.noop_interval", record):
            continue
        if scene.path is None:
            yield scene.gap(reading)
            continue
        queue = scene.number("iscsi.queue_depth", record) or _QUEUE
        limit = _Limit(scene, scene.path, queue)
        if timeout < limit.needed_s:
            fix = limit.fix(reading.tunable, timeout, usual_s, "iscsi.queue_depth", ", and block.queue_depth with it")
            yield case(reading, timeout=timeout, queue=queue, kib=limit.kib, needed=limit.needed_s, fix=fix)


@rule(
    "scsi-timeout-short",
    "danger",
    seen="commands time out after {timeout} s; a queue of {queue} requests of {kib:g} KiB takes {needed:.1f} s",
    so="full queues are aborted and sent again, which fills them further",
    fix="{fix}",
    example={"block.timeout": "2"},
)
def scsi_timeout_short(scene: Scene) -> Iterator[Case | Gap]:
    """A SCSI time limit shorter than a full queue takes aborts commands that are merely waiting."""
    for _, reading, timeout in scene.disks("block.timeout"):
        if scene.path is None:
            yield scene.gap(reading)
            continue
        queue = scene.number("block.queue_depth", reading.device.identity) or _QUEUE
        limit = _Limit(scene, scene.path, queue)
        if timeout < limit.needed_s:
            beside = ", and iscsi.queue_depth for the next logins"
            fix = limit.fix(reading.tunable, timeout, _gives_up_s(scene), "block.queue_depth", beside)
            yield case(reading, timeout=timeout, queue=queue, kib=limit.kib, needed=limit.needed_s, fix=fix)


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
    seen="dataout_timeout is {timeout} s; {depth} writes of {kib:g} KiB take {needed:.1f} s on this path",
    so="LIO drops the connection under full load, and the initiator logs in again and again",
    fix="{fix}",
    example={"lio.dataout_timeout": "3"},
)
def dataout_timeout_short(scene: Scene) -> Iterator[Case | Gap]:
    """At ERL 0 an expired dataout_timeout closes the connection (iscsi_target_erl1.c)."""
    for reading, timeout in scene.numbers("lio.dataout_timeout"):
        depth = scene.number("lio.cmdsn_depth", reading.device.identity)
        if depth is None:
            continue
        if scene.path is None:
            yield scene.gap(reading)
            continue
        limit = _Limit(scene, scene.path, depth, round_trips=2)
        if timeout < limit.needed_s:
            most_s = scene.catalog.tunables[reading.tunable].maximum or timeout
            beside = " while its LUNs are free: that ends the initiator's sessions"
            fix = limit.fix(reading.tunable, timeout, most_s, "lio.cmdsn_depth", beside)
            yield case(reading, timeout=timeout, depth=depth, kib=limit.kib, needed=limit.needed_s, fix=fix)


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
