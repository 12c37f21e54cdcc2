# SPDX-License-Identifier: GPL-2.0-or-later
"""TCP windows and socket buffers that are locked, clamped, lowered or raised for nothing."""

import math
from collections.abc import Iterator
from dataclasses import replace

from fabtune.host.sessions import Connections
from fabtune.host.sockets import TcpSocket
from fabtune.lint.rule import MIB, Case, Gap, Scene, case, rule
from fabtune.lint.ways import nics_by_address
from fabtune.model import capacity
from fabtune.model.address import canonical
from fabtune.model.device import Device
from fabtune.model.one_path import alike
from fabtune.model.path import NetworkPath, header_bytes


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
def window_locked(scene: Scene) -> Iterator[Case | Gap]:
    """A locked socket buffer is a fixed window each round trip (open-iscsi usr/io.c)."""
    clamp, paths = _clamp(scene), _Paths(scene)
    for reading, window in scene.numbers("iscsi.tcp_window"):
        if not window:
            continue
        granted = window if clamp is None else min(window, clamp)
        path = paths.of(reading.device)
        if path is None:
            yield scene.gap(reading, paths.why_none, _ceiling(scene, window, granted, paths.rtt_s(reading.device)))
            continue
        rate, goodput = _most_bytes_per_s(scene, window, path), path.goodput_bytes_per_s
        if path.rtt_s > 0 and rate < goodput:
            yield case(reading, granted=granted, bdp=path.bdp_bytes, rate=rate / 1e6, goodput=goodput / 1e6)


def _ceiling(scene: Scene, window: int, granted: int, rtt_s: float) -> str:
    """Return what a locked window carries whatever the line's rate, '' where not even the round trip is known."""
    if rtt_s <= 0:
        return ""
    most = _most_bytes_per_s(scene, window, NetworkPath(rtt_s, math.inf))
    return (
        f"{granted} bytes locked: at most about {most / 1e6:.1f} MB/s at {rtt_s * 1e3:g} ms, whatever the line carries"
    )


def _most_bytes_per_s(scene: Scene, window: int, path: NetworkPath) -> float:
    """Return what a session carries at most, either way, whose buffers are locked at `window` and the maxima."""
    receive, send = (
        capacity.locked_buffer_bytes(window, math.inf if most is None else most)
        for most in map(scene.number, ("net.rmem_max", "net.wmem_max"))
    )
    share = max(capacity.receive_shares(scene.facts.host.kernel))
    read = capacity.receive_window(receive, path.rtt_s, locked=True, share=share)
    # The smallest writes leave the least of a send buffer unused.
    windows = read, capacity.send_window(send, written_bytes=0)
    return min(capacity.window_bytes_per_s(one, path.rtt_s, path.goodput_bytes_per_s) for one in windows)


class _Paths:
    """The path of each record's own session: of several sessions the scene's is the longest, with the fastest NIC."""

    def __init__(self, scene: Scene) -> None:
        self._path, sockets = scene.path, scene.facts.sockets
        ends = Connections(sockets, scene.facts.sessions)
        self._sessions: dict[str, list[TcpSocket | None]] = {}
        for one in scene.facts.sessions:
            self._sessions.setdefault(one.identity, []).append(None if one.is_rdma else ends.of(one))
        self._nics = nics_by_address(scene.facts)
        known_ms = [one.path_rtt_ms for one in sockets if one.path_rtt_ms]
        self._one = scene.path is None or all(alike(one, scene.path.rtt_s * 1e3) for one in known_ms)
        # A round trip that was told, where no connection has one.
        self._told_ms = (scene.half.rtt_ms or 0.0) if scene.half and not known_ms else 0.0

    @property
    def why_none(self) -> str:
        """Why `of` found none, '' where the host's own path is not known."""
        return "" if self._path is None else "no session of it tells which of this host's paths it has"

    def rtt_s(self, record: Device) -> float:
        """Return the round trip of the session of `record`, 0 where it is not known; it may be where no path is."""
        return max((one.path_rtt_ms for one in self._found(record)), default=self._told_ms) / 1e3

    def of(self, record: Device) -> NetworkPath | None:
        """Return the path of the session of `record`, None where it is not known."""
        found = self._found(record)
        if self._path is None or not found:
            # Where nothing says that there is another one it is the scene's.
            return self._path if self._one else None
        return max((self._over(one, self._path) for one in found), key=lambda path: path.bdp_bytes)

    def _found(self, record: Device) -> list[TcpSocket]:
        return [one for one in self._sessions.get(record.identity, ()) if one and one.path_rtt_ms]

    def _over(self, one: TcpSocket, path: NetworkPath) -> NetworkPath:
        """Return `path` where that of a connection is no shorter, and its NIC no slower."""
        near = self._nics.get(canonical(one.local), ())
        speeds = [nic.speed_bit_per_s / 8 for nic in near if nic.speed_bit_per_s]
        rate = min(path.rate_bytes_per_s, max(speeds, default=math.inf))
        rtt_s, headers = min(path.rtt_s, one.path_rtt_ms / 1e3), header_bytes(canonical(one.remote))
        return replace(path, rtt_s=rtt_s, rate_bytes_per_s=rate, header_bytes=headers)


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
