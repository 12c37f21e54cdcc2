# SPDX-License-Identifier: GPL-2.0-or-later
"""What a session can carry, and which bound holds it: windows, depth, round trips, pacing, loss, CPU and the line.

One direction is a closed loop: so many requests under way, each of which takes round trips, its own time on the line
and a service time.  Its throughput is the least of a few bounds (Denning and Buzen 1978, the asymptotic bounds of
operational analysis): every stage's own rate, and the requests under way over the time that one takes.  What each
bound is, and where it comes from, stands beside its function and in Documentation/why.md.
"""

import math
import re
from collections.abc import Mapping

import attrs

from fabtune.model.path import Bursts, reno_bytes_per_s, write_round_trips

# Of a receive buffer, the window: tcp_win_from_space() with the scaling ratio that full super-packets settle at
# (Linux 6.6 on); before that half, or three quarters, as tcp_adv_win_scale says.
_RECEIVE_SHARE, _RECEIVE_SHARE_SINCE = 0.745, (6, 6)
_OLD_RECEIVE_SHARES = 1 / 2, 3 / 4
# Of a send buffer, what is in use where its writer is called again, a third of it being free (sk_stream_is_writeable);
# the super-packet that it adds is begun while there is room, and may end beyond.  What is refilled at once is fitted.
_SEND_SHARE, _REFILL_SHARE = 2 / 3, 0.45
# A super-packet: what pacing sends in about a millisecond, pacing being twice what the window carries
# (tcp_tso_autosize, tcp_update_pacing_rate), and at most this.
_SUPER_BYTES, _SUPER_S = 65536, 4 / 1024
# Commands of a session that open-iscsi keeps for management (ISCSI_MGMT_CMDS_MAX).
_MANAGEMENT_COMMANDS = 15
# A TCP window field's largest value.
_WINDOW_FIELD = 65535
# RFC 9438, section 5.2, formula 6 with these constants.
_CUBIC, _CUBIC_C, _CUBIC_BETA = 1.054, 0.4, 0.7
# What bbr does not take for congestion (Cardwell et al. 2016, figure 8: full rate up to about this share).
_BBR_LOSS = 0.15
# The algorithms whose response to losses is known.
ALGORITHMS = ("bbr", "cubic", "reno")
# By how much their response functions are off for a single connection, and fewer losses than tell a share.
LOSS_SPREAD, FEW_LOSSES = 1.6, 4


@attrs.frozen
class Bound:
    """The most that one thing lets pass, in bytes/s; `end` where it is at one of the two."""

    limiter: str
    bytes_per_s: float
    end: str = ""


@attrs.frozen
class Window:
    """Bytes that may be in flight, and how many of them leave at once when there is room."""

    size_bytes: float
    burst_bytes: float = 0.0


@attrs.frozen
class Direction:
    """What decides the throughput of one direction.

    `depths` are the limits to the requests under way and `windows` those to the bytes in flight, by (limiter, end);
    `rates` every other limit in bytes/s.  `share` of the requests go this way, and all of them take `mean_s` longer
    or shorter than those of this way do.
    """

    rtt_s: float
    request_bytes: float
    depths: Mapping[tuple[str, str], float]
    windows: Mapping[tuple[str, str], Window]
    rates: Mapping[tuple[str, str], float]
    round_trips: float = 1.0
    service_s: float = 0.0
    share: float = 1.0
    other_s: float | None = None

    @property
    def peak_bytes_per_s(self) -> float:
        """The rate at which one request's bytes pass."""
        # How long the target's disk takes is the service time.
        return min((rate for (limiter, _), rate in self.rates.items() if limiter != "target-disk"), default=math.inf)

    @property
    def request_s(self) -> float:
        """How long one request takes while no other is in its way."""
        window = min((one.size_bytes for one in self.windows.values()), default=math.inf)
        on_wire_s = self.request_bytes / self.peak_bytes_per_s
        # What does not fit into the window waits for the acknowledgements of what did.
        if window < self.request_bytes:
            on_wire_s = max(on_wire_s, (self.request_bytes - window) * self.rtt_s / window)
        return self.round_trips * self.rtt_s + on_wire_s + self.service_s

    @property
    def is_bounded(self) -> bool:
        """Whether anything is known that lets only so much pass, and something."""
        return bool(self.depths or self.windows or self.rates) and 0 < carried(self).bytes_per_s < math.inf


@attrs.frozen
class Capacity:
    """The least of the bounds, and all of them in rising order: the second holds once the first is lifted."""

    bytes_per_s: float
    first: Bound
    bounds: tuple[Bound, ...]


def carried(one: Direction) -> Capacity:
    """Return what direction `one` carries and why no more."""
    bounds = [Bound(limiter, rate, end) for (limiter, end), rate in one.rates.items()]
    for (limiter, end), window in one.windows.items():
        bounds.append(Bound(limiter, window_bytes_per_s(window, one.rtt_s, one.peak_bytes_per_s), end))
    # Requests of both directions share the depth: each goes round in the mean time of all.
    mean_s = one.request_s if one.other_s is None else one.share * one.request_s + (1 - one.share) * one.other_s
    for (limiter, end), depth in one.depths.items():
        bounds.append(Bound(limiter, depth * one.share * one.request_bytes / mean_s if mean_s else math.inf, end))
    ranked = sorted(bounds, key=lambda bound: bound.bytes_per_s)
    if not ranked:
        raise ValueError("a direction without any bound")
    return Capacity(ranked[0].bytes_per_s, ranked[0], tuple(ranked))


def window_bytes_per_s(window: Window, rtt_s: float, peak_bytes_per_s: float = math.inf) -> float:
    """Return what a window carries: itself in each round trip, and in the time that a burst of it is on the line."""
    turn_s = rtt_s + window.burst_bytes / peak_bytes_per_s
    return window.size_bytes / turn_s if turn_s else math.inf


def latency_s(depth: float, request_bytes: float, bytes_per_s: float) -> float:
    """Return a request's mean time where `depth` are kept under way (Little 1961)."""
    return depth * request_bytes / bytes_per_s


def receive_shares(kernel: str) -> tuple[float, float]:
    """Return the least and the most of a receive buffer that the window is on `kernel`, '' for one not known."""
    version = re.match(r"(\d+)\.(\d+)", kernel)
    if version and (int(version[1]), int(version[2])) >= _RECEIVE_SHARE_SINCE:
        return _RECEIVE_SHARE, _RECEIVE_SHARE
    return _OLD_RECEIVE_SHARES


def receive_window(buffer_bytes: float, rtt_s: float, *, locked: bool, share: float = _RECEIVE_SHARE) -> Window:
    """Return the window that a receive buffer offers, `share` of it.

    A locked one has chosen the scale of its window at the start, from half of the buffer
    (tcp_select_initial_window), and the field's 16 bits shifted by it are the most it can say.
    """
    size = share * buffer_bytes
    if locked:
        shift = max(0, int(math.log2(max(buffer_bytes / 2, 1))) - 15)
        size = min(size, float(_WINDOW_FIELD << shift))
    return shown_window(size, rtt_s)


def shown_window(size_bytes: float, rtt_s: float) -> Window:
    """Return a receive window of that size: it is used again a super-packet at a time."""
    return Window(size_bytes, min(_SUPER_BYTES, size_bytes / rtt_s * _SUPER_S) if rtt_s else 0.0)


def send_window(buffer_bytes: float, written_bytes: float = math.inf) -> Window:
    """Return what a send buffer lets be in flight, of writes of so many bytes.

    The end of a write calls iscsi_tcp's worker again, too, which fills the buffer up however little is free.
    """
    size = max(_SEND_SHARE * buffer_bytes + _SUPER_BYTES, buffer_bytes - written_bytes / 2)
    return Window(size, _REFILL_SHARE * buffer_bytes)


def locked_buffer_bytes(asked_bytes: float, most_bytes: float) -> float:
    """Return the buffer that setsockopt(SO_RCVBUF or SO_SNDBUF) makes: twice what is asked for, up to the maximum."""
    return 2 * min(asked_bytes, most_bytes)


def session_commands(cmds_max: int) -> int:
    """Return the SCSI commands of an open-iscsi session: a power of two, less those for management."""
    return max(1, (1 << max(cmds_max, 2).bit_length() - 1) - _MANAGEMENT_COMMANDS)


def loss_bytes_per_s(mss_bytes: int, rtt_s: float, loss: float, algorithm: str) -> float:
    """Return what one connection carries where a share `loss` of its segments is lost at random.

    cubic: the larger of its response function (RFC 9438) and Reno's (Mathis 1997), as it never sends less than Reno.
    """
    if not loss or not rtt_s:
        return math.inf
    if algorithm == "bbr":
        return math.inf if loss < _BBR_LOSS else 0.0
    reno = reno_bytes_per_s(mss_bytes, rtt_s, loss)
    if algorithm != "cubic":
        return reno
    return max(reno, _CUBIC * mss_bytes / (math.pow(rtt_s, 0.25) * math.pow(loss, 0.75)))


def cubic_recovery_s(window_segments: float) -> float:
    """Return how long cubic takes to have the window back that it had before a loss (K of RFC 9438, 4.2)."""
    return math.cbrt(window_segments * (1 - _CUBIC_BETA) / _CUBIC_C)


def recovery_s(window_segments: float, rtt_s: float) -> float:
    """Return how long cubic takes for that where it is no slower than Reno would be (RFC 9438, 4.3)."""
    reno_s = window_segments * (1 - _CUBIC_BETA) / (3 * (1 - _CUBIC_BETA) / (1 + _CUBIC_BETA)) * rtt_s
    return min(cubic_recovery_s(window_segments), reno_s)


def round_trips(way: str, request_bytes: float, bursts: Bursts | None) -> int:
    """Return the round trips of one request; a read has one, as has a write whose bursts are not known."""
    return 1 if way == "read" or bursts is None else write_round_trips(round(request_bytes), bursts)
