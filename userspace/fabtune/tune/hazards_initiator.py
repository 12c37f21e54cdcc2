# SPDX-License-Identifier: GPL-2.0-or-later
"""Hazards of the initiator's side: node records, sessions, SRP logins."""

from collections.abc import Iterator

from fabtune.catalog.tunable import kernel_version
from fabtune.host import tree
from fabtune.model.negotiate import MANAGEMENT_COMMANDS
from fabtune.tune.lint import Finding, Hazard, Scene

_MIB = 1 << 20


def _mb(value: float) -> str:
    return f"{value / 1e6:.1f} MB"


def locked_window(scene: Scene) -> Iterator[Finding]:
    """A locked socket buffer is a fixed window each round trip (open-iscsi usr/io.c)."""
    clamp = min((value for name in ("net.rmem_max", "net.wmem_max") for _, value in scene.numbers(name)), default=None)
    for reading, window in scene.numbers("iscsi.tcp_window"):
        if window == 0:
            continue
        granted = window if clamp is None else min(window, clamp)
        if clamp is not None and window > clamp:
            yield Finding(
                "window-clamped",
                "warning",
                reading.device.label,
                f"tcp.window_size asks for {window} bytes, net.core.rmem_max or wmem_max allows {clamp}",
                f"the kernel silently locks {granted} bytes",
                "set iscsi.tcp_window to 0 (autotuning), or raise net.rmem_max and net.wmem_max",
            )
        if scene.path and granted < 2 * scene.path.bdp_bytes and scene.path.rtt_s > 0:
            # The kernel doubles the wish for its own overhead; about the wish itself is window.
            rate = min(granted / scene.path.rtt_s, scene.path.goodput_bytes_per_s)
            yield Finding(
                "window-locked",
                "warning",
                reading.device.label,
                f"{granted} bytes locked, the path holds {scene.path.bdp_bytes:.0f}",
                f"at most about {_mb(rate)}/s of {_mb(scene.path.goodput_bytes_per_s)}/s, whatever the sysctls say",
                "set iscsi.tcp_window to 0 and log in again (`fabtune apply wan`)",
            )


def initiator_bursts(scene: Scene) -> Iterator[Finding]:
    """RFC 7143, 13.14: FirstBurstLength must not exceed MaxBurstLength."""
    for reading, first in scene.numbers("iscsi.first_burst"):
        maximum = scene.number("iscsi.max_burst", reading.device.identity)
        if maximum is not None and first > maximum:
            yield Finding(
                "first-burst-above-max",
                "warning",
                reading.device.label,
                f"FirstBurstLength {first} > MaxBurstLength {maximum}",
                f"only {maximum} bytes are used",
                "lower iscsi.first_burst or raise iscsi.max_burst",
            )


def outstanding_r2t(scene: Scene) -> Iterator[Finding]:
    """iscsi_tcp refuses any number that is no power of two, and the login fails."""
    for name in ("iscsi.max_outstanding_r2t", "lio.max_outstanding_r2t"):
        for reading, value in scene.numbers(name):
            if value < 1 or value & (value - 1):
                yield Finding(
                    "r2t-not-power-of-two",
                    "danger",
                    reading.device.label,
                    f"MaxOutstandingR2T is {value}",
                    "where this is the smaller of both sides, the next login fails and the LUNs stay away",
                    f"set {name} to a power of two, such as {1 << max(value.bit_length() - 1, 0)}",
                )


def command_queue(scene: Scene) -> Iterator[Finding]:
    """libiscsi rounds cmds_max down to a power of two and keeps 15 commands for management."""
    windows = [value for _, value in scene.numbers("lio.default_cmdsn_depth")]
    for reading, value in scene.numbers("iscsi.cmds_max"):
        if value < 16 or value & (value - 1):
            used = 1 << max(value.bit_length() - 1, 0)
            yield Finding(
                "cmds-max-not-power-of-two",
                "warning" if value >= 16 else "danger",
                reading.device.label,
                f"cmds_max is {value}",
                f"the kernel uses {used}" if value >= 16 else "the login fails",
                "set iscsi.cmds_max to a power of two from 16 to 2048",
            )
        can_queue = (1 << max(value.bit_length() - 1, 0)) - MANAGEMENT_COMMANDS
        depth = scene.number("iscsi.queue_depth", reading.device.identity)
        if depth is not None and depth > can_queue:
            yield Finding(
                "queue-depth-above-session",
                "notice",
                reading.device.label,
                f"queue_depth {depth} > {can_queue} (cmds_max {value} less {MANAGEMENT_COMMANDS} for management)",
                f"one LUN gets {can_queue} commands at most, and a second LUN starves",
                "raise iscsi.cmds_max or lower iscsi.queue_depth",
            )
        if windows and can_queue > max(windows):
            yield Finding(
                "queue-above-window",
                "notice",
                reading.device.label,
                f"the session may queue {can_queue} commands, the target's window is {max(windows)}",
                f"{can_queue - max(windows)} commands wait for the window, unseen by the block layer's depth",
                "raise lio.default_cmdsn_depth (or the ACL's lio.cmdsn_depth) to match",
            )
    for session in scene.facts.sessions:
        for reading, depth in scene.numbers("block.queue_depth"):
            if reading.device.label in session.luns and 0 < session.can_queue < depth:
                yield Finding(
                    "queue-depth-above-session",
                    "notice",
                    reading.device.label,
                    f"queue depth {depth} > can_queue {session.can_queue} of its session",
                    f"{session.can_queue} commands at most are in flight",
                    "raise iscsi.cmds_max and log in again",
                )


def ping_timeout(scene: Scene) -> Iterator[Finding]:
    """Pings wait behind the data in the same socket (drivers/scsi/libiscsi.c, iscsi_check_transport_timeouts)."""
    if scene.path is None:
        return
    for reading, timeout in scene.numbers("iscsi.noop_timeout"):
        interval = scene.number("iscsi.noop_interval", reading.device.identity)
        if not timeout or not interval:
            continue
        queue = scene.number("iscsi.queue_depth", reading.device.identity) or 32
        queued = queue * _MIB
        needed = scene.path.rtt_s + queued / scene.path.goodput_bytes_per_s
        if timeout <= needed:
            yield Finding(
                "ping-timeout-short",
                "danger",
                reading.device.label,
                f"noop_out_timeout is {timeout} s; {queue} requests of 1 MiB ahead of a ping take {needed:.1f} s",
                "load alone makes the initiator drop the session",
                f"set iscsi.noop_timeout to at least {int(needed) + 5} s",
            )


def recovery_owner(scene: Scene) -> Iterator[Finding]:
    """multipathd writes recovery_tmo from fast_io_fail_tmo on each reload, over replacement_timeout."""
    if not scene.running("multipathd"):
        return
    for reading, value in scene.numbers("iscsi.recovery_timeout"):
        recorded = scene.number("iscsi.replacement_timeout", reading.device.identity)
        if recorded is not None and recorded != value:
            yield Finding(
                "recovery-timeout-owner",
                "notice",
                reading.device.label,
                f"the record says {recorded} s, the session has {value} s, and multipathd is running",
                "multipathd's fast_io_fail_tmo wins at each of its reloads",
                "set fast_io_fail_tmo in multipath.conf instead of replacement_timeout",
            )


def dead_knobs(scene: Scene) -> Iterator[Finding]:
    """Settings that newer kernels ignore, and one that only harms."""
    version = kernel_version(scene.facts.host.kernel)
    for reading, priority in scene.numbers("iscsi.xmit_thread_priority"):
        if priority and version >= (6, 0):
            yield Finding(
                "dead-knob",
                "notice",
                reading.device.label,
                f"xmit_thread_priority is {priority}",
                "without effect on this kernel",
                "leave it at 0",
            )
    for reading, scale in scene.numbers("tcp.adv_win_scale"):
        if version >= (6, 6) and scale != scene.default("tcp.adv_win_scale"):
            yield Finding(
                "dead-knob",
                "notice",
                reading.device.label,
                f"tcp_adv_win_scale is {scale}",
                "without effect since Linux 6.6",
                "remove it from sysctl.d",
            )
    for name in ("net.rmem_default", "net.wmem_default"):
        for reading, value in scene.numbers(name):
            if value > 4 * int(scene.default(name) or 212992):
                yield Finding(
                    "default-buffer-raised",
                    "warning",
                    reading.device.label,
                    f"{name} is {value} bytes",
                    f"every socket that is not TCP may hold {value / _MIB:.0f} MiB; TCP does not use it",
                    f"set {name} back to {scene.default(name)}",
                )


def srp_limits(scene: Scene) -> Iterator[Finding]:
    """Credits, descriptors and channels of SRP logins (drivers/infiniband/ulp/srp/ib_srp.c)."""
    wished = scene.number("srp.queue_size")
    for login in scene.facts.srp:
        if wished and 0 < login.can_queue < wished:
            yield Finding(
                "srp-queue-above-credits",
                "notice",
                login.port,
                f"queue_size {wished} asked for, {login.can_queue} granted",
                "the target's credits are the limit; LIO grants at most 128 a channel",
                f"set srp.queue_size to {login.can_queue}, or add channels",
            )
        if login.zero_req_lim > 0:
            yield Finding(
                "srp-credits-exhausted",
                "warning",
                login.port,
                f"zero_req_lim is {login.zero_req_lim}: so often the target's credits ran out",
                "requests waited at the initiator",
                "use more channels (srp.ch_count) or a target with more credits",
            )
        if login.sg_tablesize > login.cmd_sg_entries > 0 and not login.allow_ext_sg:
            yield Finding(
                "srp-sg-without-ext",
                "warning",
                login.port,
                f"sg_tablesize {login.sg_tablesize} > cmd_sg_entries {login.cmd_sg_entries} without allow_ext_sg",
                "requests that do not fit one registered region fail",
                "set srp.allow_ext_sg, or lower srp.sg_tablesize",
            )
        if 0 < login.comp_vectors < login.ch_count:
            yield Finding(
                "srp-channels-above-vectors",
                "notice",
                login.port,
                f"{login.ch_count} channels share {login.comp_vectors} completion vectors",
                "several channels complete on one CPU",
                f"set srp.ch_count to {login.comp_vectors}",
            )
    for reading, _ in scene.readings("srp.fast_io_fail_tmo"):
        fail, loss = tree.whole(reading.value), tree.whole(_of(scene, "srp.dev_loss_tmo", reading.device.identity))
        if fail is not None and loss is not None and 0 <= loss <= fail:
            yield Finding(
                "srp-timeouts-crossed",
                "danger",
                reading.device.label,
                f"fast_io_fail_tmo {fail} s >= dev_loss_tmo {loss} s",
                "the disks vanish before commands fail over",
                "set srp.dev_loss_tmo above srp.fast_io_fail_tmo",
            )


def _of(scene: Scene, tunable: str, identity: str) -> str:
    return next((one.value or "" for one in scene.facts.of(tunable) if one.device.identity == identity), "")


def stale_session(scene: Scene) -> Iterator[Finding]:
    """A record changed after the login does nothing until the next one."""
    names = {"iscsi.first_burst": "FirstBurstLength", "iscsi.max_burst": "MaxBurstLength",
             "iscsi.max_outstanding_r2t": "MaxOutstandingR2T"}  # fmt: skip
    for session in scene.facts.sessions:
        for tunable, key in names.items():
            recorded = scene.number(tunable, session.identity)
            agreed = tree.whole(session.negotiated.get(key, ""))
            # Agreeing on less is the target's doing; on more, only an older record explains.
            if recorded is not None and agreed is not None and agreed > recorded:
                yield Finding(
                    "session-older-than-record",
                    "notice",
                    f"{session.target} at {session.portal}",
                    f"{key} is {agreed} in the session and {recorded} in its record",
                    "the record changed after the login and counts from the next one",
                    "log the session in again when its LUNs are free",
                )


def abort_storm(scene: Scene) -> Iterator[Finding]:
    """A SCSI timeout shorter than the session's recovery aborts commands in the middle of an outage."""
    for session in scene.facts.sessions:
        recovery = scene.number("iscsi.recovery_timeout", session.own_identity)
        for reading, timeout in scene.numbers("block.timeout"):
            if reading.device.label not in session.luns or scene.path is None:
                continue
            queue = scene.number("block.queue_depth", reading.device.identity) or 32
            needed = queue * _MIB / scene.path.goodput_bytes_per_s + scene.path.rtt_s
            if timeout <= needed:
                yield Finding(
                    "scsi-timeout-short",
                    "danger",
                    reading.device.label,
                    f"commands time out after {timeout} s; a queue of {queue} requests of 1 MiB takes {needed:.1f} s",
                    "full queues are aborted and sent again, which fills them further",
                    f"set block.timeout to at least {int(2 * needed) + 1} s",
                )
        if recovery is not None and recovery < 0 and session.luns:
            yield Finding(
                "recovery-for-ever",
                "warning",
                f"{session.target} at {session.portal}",
                f"recovery_tmo is {recovery}",
                "commands of a lost session never fail: processes hang until it is back",
                "set iscsi.replacement_timeout to the longest outage to ride out",
            )


HAZARDS: tuple[Hazard, ...] = (
    locked_window, initiator_bursts, outstanding_r2t, command_queue, ping_timeout, recovery_owner, dead_knobs,
    srp_limits, stale_session, abort_storm,
)  # fmt: skip
