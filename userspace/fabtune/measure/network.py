# SPDX-License-Identifier: GPL-2.0-or-later
"""The network before the storage: round trip at the cadence of I/O, MTU of the path, raw TCP by window and streams."""

import json
import math
import os
import platform
import re
import socket
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from fabtune.errors import FabtuneError, InputError
from fabtune.host import iproute
from fabtune.host.run import Ended, finish, require
from fabtune.measure.workload_run import host_used, recording
from fabtune.model import typed
from fabtune.model.outputs import Iperf3Output
from fabtune.model.runrecord import Draft, RunRecord, StepResult, TargetUsed, WorkloadUsed, begin
from fabtune.progress import Progress

# A probe a second finds idle CPUs and radios asleep and overstates the round trip that I/O sees.
_PROBES = 200
_PROBE_INTERVAL_S = 0.005
_IP_AND_ICMP_BYTES = {4: 28, 6: 48}
_SMALLEST_BYTES = 576
# No IPv4 packet is larger; loopback's MTU is.
_LARGEST_BYTES = 65535


# Slow start doubles what is under way each round trip: from ten packets on these fill any path there is.
_SLOW_START_ROUND_TRIPS = 15
# Less of a test's time than this makes no difference to its rate; and more iperf3 does not leave out.
_LEAST_SHARE, _MOST_OMITTED_S = 0.01, 60


@attrs.frozen
class PathMtu:
    """The largest packet that reaches the peer unfragmented, beside the sender's own limit (bytes, IP header in).

    `told` is whether the path said so (ICMP, RFC 1191) when a packet was too large for it; where it
    only swallows them, TCP sessions stall as soon as they have much to send.
    """

    interface_bytes: int
    path_bytes: int
    told: bool

    @property
    def black_hole(self) -> bool:
        """Whether large packets vanish without a word."""
        return self.path_bytes < self.interface_bytes and not self.told

    @property
    def verdict(self) -> str:
        """What it means, in words."""
        if self.black_hole:
            return "black hole: larger packets vanish without a word; lower the interface's MTU or mend the path"
        return "smaller than the interface's, and says so" if self.told else "whole: it passes what the interface sends"


def measure(
    peer: str,
    *,
    port: int,
    seconds: float,
    windows: Sequence[int],
    streams: Sequence[int],
    label: str = "",
    show: Progress | None = None,
) -> RunRecord:
    """Return a run record of the path to `peer`, where ``iperf3 --server`` has to run.

    Each of `windows` (bytes; 0 leaves the window to the kernel) is tried with each number of `streams`, sending and
    receiving, for `seconds` after slow start, which the record has as its ramp.
    Raises InputError for no time and for a peer that has no address, IncompleteError with the record so far.
    """
    if seconds <= 0:
        # Which iperf3 takes for no end.
        raise InputError(
            f"--runtime {seconds:g}s: expected more than 0, such as 5s: each test of the network ends with it"
        )
    address = _address(peer, port)
    iperf3, _ = require("iperf3", "iperf3"), require("ping", "iputils-ping")
    draft = Draft(begin(
        workload=WorkloadUsed("net", "raw TCP, round trip and MTU", "GUPFS FY2003, E.5.2"),
        target=TargetUsed(peer, "peer"), host=host_used(), runtime_s=seconds, ramp_s=0, label=label,
    ))  # fmt: skip
    show = show or Progress(quiet=True)
    tests = list(_combinations(windows, streams))
    show.begin([("net: round trip", _PROBES * _PROBE_INTERVAL_S + 1), ("net: MTU of the path", 5.0)])
    show.begin([(f"net: {_name(*test)}", seconds) for test in tests])
    with recording(draft, "net"):
        _measure_path(address, draft, show)
        omitted_s = _slow_start_s(statistics.median(draft.record.round_trips_ms) / 1e3, seconds)
        draft.record = attrs.evolve(draft.record, ramp_s=omitted_s)
        show.begin([(f"net: {_name(*test)}", omitted_s + seconds) for test in tests])
        for window, count, receive in tests:
            name = _name(window, count, receive)
            # iperf3 takes whole seconds.
            command = [iperf3, "--json", "--client", address, "--port", str(port), "--time", str(math.ceil(seconds))]
            command += ["--omit", str(omitted_s)] if omitted_s else []
            command += ["--parallel", str(count), *(["--window", str(window)] if window else [])]
            command += ["--reverse"] if receive else []
            op = "receive" if receive else "send"
            draft.add(StepResult(name, {"window_bytes": window, "streams": count, "op": op}))
            with show.step(f"net: {name}"):
                draft.note(iperf3=_iperf3(command))
    return draft.record


def _slow_start_s(rtt_s: float, seconds: float) -> int:
    """Return for how many whole seconds a test of `seconds` over such a path is left out: iperf3 takes no others."""
    lasts_s = _SLOW_START_ROUND_TRIPS * rtt_s
    return 0 if lasts_s < _LEAST_SHARE * seconds else min(math.ceil(lasts_s), _MOST_OMITTED_S)


def _address(peer: str, port: int) -> str:
    """Return the address of `peer`, which may be a name: ip knows none.  Raises InputError."""
    try:
        return str(socket.getaddrinfo(peer, port)[0][4][0])
    except OSError as error:
        raise InputError(f"--peer {peer}: {error.strerror}; expected the name or address of a host") from None


def _measure_path(address: str, draft: Draft, show: Progress) -> None:
    """Note the path's round trip and MTU in `draft`.  Raises FabtuneError where TCP cannot be measured over it."""
    with show.step("net: round trip"):
        draft.record = attrs.evolve(draft.record, round_trips_ms=tuple(round_trips_ms(address)))
    with show.step("net: MTU of the path"):
        mtu = path_mtu(address)
        draft.record = attrs.evolve(
            draft.record,
            path_mtu_bytes=mtu.path_bytes, interface_mtu_bytes=mtu.interface_bytes, path_mtu_verdict=mtu.verdict,
        )  # fmt: skip
    if mtu.black_hole:
        raise FabtuneError(f"TCP is not measured over a path that drops packets above {mtu.path_bytes} bytes")


def _combinations(windows: Sequence[int], streams: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
    for window in windows:
        for count in streams:
            for receive in (False, True):
                yield window, count, receive


def _name(window: int, count: int, receive: bool) -> str:
    size = f"window {window // 1024} KiB" if window else "window left to the kernel"
    return f"{'receive' if receive else 'send'}, {count} stream{'s' if count > 1 else ''}, {size}"


def _iperf3(command: Sequence[str]) -> Iperf3Output:
    """Run one test and return what iperf3 says of it.  Raises FabtuneError with its own words."""
    done = finish(command)
    try:
        document = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise FabtuneError(f"iperf3: {(done.stderr or done.stdout).strip() or 'no output'}") from None
    if isinstance(document, dict) and "error" in document:
        raise FabtuneError(f"iperf3: {document['error']}; the peer needs: iperf3 --server")
    return typed.STRICT.read(Iperf3Output, document, "iperf3's output")


def _ping(peer: str, *words: str) -> Ended:
    command = [require("ping", "iputils-ping"), "-n", *words, peer]
    return finish(command, env=os.environ | {"LC_ALL": "C"})


def round_trips_ms(peer: str) -> list[float]:
    """Return round trips at the cadence of I/O, in ms.  Raises FabtuneError when nothing answers."""
    done = _ping(peer, "-c", str(_PROBES), "-i", str(_PROBE_INTERVAL_S), "-W", "2")
    times = [float(found) for found in re.findall(r"time=([\d.]+) ms", done.stdout)]
    if not times:
        raise FabtuneError(f"{peer} does not answer ping: {' '.join((done.stderr or done.stdout).split()[-12:])}")
    return times


def path_mtu(peer: str) -> PathMtu:
    """Return what packets without leave to be fragmented show of the path to `peer`.

    Raises FabtuneError when not even small packets arrive.
    """
    route = iproute.way_to(peer)
    top = min(_LARGEST_BYTES, int(Path(f"/sys/class/net/{route['dev']}/mtu").read_text()))
    headers = _IP_AND_ICMP_BYTES[6 if ":" in str(route["dst"]) else 4]
    told = False

    def passes(size: int) -> bool:
        nonlocal told
        done = _ping(peer, "-c", "2", "-i", "0.05", "-W", "2", "-M", "do", "-s", str(size - headers))
        # A router's answer, or this host's memory of one: "Frag needed and DF set (mtu = 1400)", "mtu=1400".
        told |= re.search(r"mtu ?[=:]", done.stdout + done.stderr) is not None
        return done.status == 0

    low, high = _SMALLEST_BYTES, top
    if passes(high):
        return PathMtu(top, top, told=False)
    if not passes(low):
        raise FabtuneError(f"not even packets of {low} bytes reach {peer} from {platform.node()}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return PathMtu(top, low, told)
