# SPDX-License-Identifier: GPL-2.0-or-later
"""TCP windows and socket buffers that are locked, clamped, lowered or raised for nothing."""

from collections.abc import Iterator

from fabtune.lint.rule import MIB, Case, Scene, case, rule


def _clamp(scene: Scene) -> int | None:
    return min((value for _, value in scene.numbers("net.rmem_max", "net.wmem_max")), default=None)


@rule(
    "window-clamped",
    "warning",
    seen="tcp.window_size asks for {window} bytes, net.core.rmem_max or wmem_max allows {clamp}",
    so="the kernel silently locks {clamp} bytes",
    fix="set iscsi.tcp_window to 0 (autotuning), or raise net.rmem_max and net.wmem_max",
    example={"iscsi.tcp_window": "524288"},
)
def window_clamped(scene: Scene) -> Iterator[Case]:
    """setsockopt(SO_RCVBUF, SO_SNDBUF) cuts what is above the maxima without a word."""
    clamp = _clamp(scene)
    for reading, window in scene.numbers("iscsi.tcp_window"):
        if window and clamp is not None and window > clamp:
            yield case(reading, window=window, clamp=clamp)


@rule(
    "window-locked",
    "warning",
    seen="{granted} bytes locked, the path holds {bdp:.0f}",
    so="at most about {rate:.1f} MB/s of {goodput:.1f} MB/s, whatever the sysctls say",
    fix="set iscsi.tcp_window to 0 and log in again (`fabtune apply wan`)",
    example={"iscsi.tcp_window": "524288"},
)
def window_locked(scene: Scene) -> Iterator[Case]:
    """A locked socket buffer is a fixed window each round trip (open-iscsi usr/io.c)."""
    path, clamp = scene.path, _clamp(scene)
    for reading, window in scene.numbers("iscsi.tcp_window"):
        granted = window if clamp is None else min(window, clamp)
        # The kernel doubles what it is asked for, for its own overhead: the window is about what was asked for.
        if window and path and path.rtt_s > 0 and granted < 2 * path.bdp_bytes:
            goodput = path.goodput_bytes_per_s
            rate = min(granted / path.rtt_s, goodput)
            yield case(reading, granted=granted, bdp=path.bdp_bytes, rate=rate / 1e6, goodput=goodput / 1e6)


@rule(
    "buffer-below-default",
    "warning",
    seen="{name} is {value} bytes, this kernel's own default {default}",
    so="connections get {percent:.0f} % of what an untouched host gives them",
    fix="remove the setting (see `fabtune show` for the file that makes it)",
    example={"tcp.rmem_max": "4194304"},
)
def buffer_below_default(scene: Scene) -> Iterator[Case]:
    """Old guides set maxima that today's kernels exceed by themselves."""
    for reading, value in scene.numbers("tcp.rmem_max", "tcp.wmem_max", "net.rmem_max", "net.wmem_max"):
        name, default = reading.tunable, scene.default(reading.tunable)
        # The kernel itself takes less on hosts with little memory (net/ipv4/tcp.c, tcp_init).
        small = scene.facts.host.memory_bytes < 4096 * MIB and name.startswith("tcp.")
        if isinstance(default, int) and value < default and not small:
            yield case(reading, name=name, value=value, default=default, percent=100 * value / default)


@rule(
    "default-buffer-raised",
    "warning",
    seen="{name} is {value} bytes",
    so="every socket that is not TCP may hold {mib:.0f} MiB; TCP does not use it",
    fix="set {name} back to {default}",
    example={"net.rmem_default": "67108864"},
)
def default_buffer_raised(scene: Scene) -> Iterator[Case]:
    """TCP starts from tcp_rmem and tcp_wmem, never from these."""
    for reading, value in scene.numbers("net.rmem_default", "net.wmem_default"):
        default = int(scene.default(reading.tunable) or 212992)
        if value > 4 * default:
            yield case(reading, name=reading.tunable, value=value, mib=value / MIB, default=default)


@rule(
    "writes-spin",
    "warning",
    seen="iscsi_tcp receives in the session's work queue (recv_from_iscsi_q)",
    so="a session that writes more than its send buffer holds keeps a CPU busy until the path has taken it",
    fix="set iscsi.recv_from_iscsi_q to N and log in again",
    example={"iscsi.recv_from_iscsi_q": "Y"},
)
def writes_spin(scene: Scene) -> Iterator[Case]:
    """It sends without waiting then, and asks again at once (iscsi_sw_tcp_xmit_segment, iscsi_xmitworker)."""
    for reading, value in scene.readings("iscsi.recv_from_iscsi_q"):
        if value is True and scene.facts.sessions:
            yield case(reading)
