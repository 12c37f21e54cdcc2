# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads an observation, with some settings changed, as the parameters of the throughput model."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import attrs

from fabtune.model import capacity
from fabtune.model.as_seen import AsSeen
from fabtune.model.capacity import FEW_LOSSES, Direction, Window
from fabtune.model.change import BURSTS, COMMAND_WINDOW, Change, whole_number
from fabtune.model.observation import INITIATOR, TARGET, Observation, SocketSample
from fabtune.model.path import Bursts

# The limits to the requests under way.
DEPTHS = ("load", "queue-depth", "nr-requests", "session-commands", "command-window")
# A load that fills so much of what it may have would perhaps take more.
_FULL = 0.9
# A queue on the path that no burst explains, in bytes; and what of the line a session that fills it has in the mean of
# a look (`why` calls the line of a moment full from a little less on).
_STANDING_BYTES, _LINE_SHARE, _AS_THE_LINE = 128 << 10, 0.93, 0.95
# A request that waits takes longer than this beside what explains it.
_LONGER = 1.05
# What shows that a buffer holds: how full it is, how little of that waits, and what else would go.
_FULL_BUFFER, _FEW_WAIT, _GROWN, _MORE = 0.6, 0.25, 0.9, 1.2


class Supposed(AsSeen):
    """Direction `way` of `seen` with `changes` made; numbers are in the tunables' own units."""

    def __init__(self, seen: Observation, way: str, changes: Mapping[Change, float | str]) -> None:
        super().__init__(seen, way)
        self._changes = changes
        self.notes: list[str] = []
        # By how much a receive window that is reckoned from its buffer may be larger.
        self.window_spread = 1.0
        self._as_is: Supposed = Supposed(seen, way, {}) if changes else self

    def direction(self) -> Direction:
        """Return the parameters of the model."""
        ways = self.seen.disk.ways
        requests = sum(one.completed for one in ways.values())
        mine = ways[self.way]
        share = mine.completed / requests if requests else 1.0
        one = Direction(
            rtt_s=self.rtt_s, request_bytes=mine.request_bytes, depths=self._depths(), windows=self._windows(),
            rates=self._rates(), round_trips=self._round_trips(self.way), service_s=self._service_s(self.way),
            share=share,
        )  # fmt: skip
        if share > 0.99:
            return attrs.evolve(one, share=1.0)
        other = "write" if self.way == "read" else "read"
        away = attrs.evolve(
            one, request_bytes=ways[other].request_bytes, windows={}, round_trips=self._round_trips(other),
            service_s=self._service_s(other),
        )  # fmt: skip
        return attrs.evolve(one, other_s=away.request_s)

    def _value(self, end: str, *tunables: str) -> float | str | None:
        return next((self._changes[Change(end, one)] for one in tunables if Change(end, one) in self._changes), None)

    def _number(self, end: str, *tunables: str) -> float | None:
        value = self._value(end, *tunables)
        return float(value) if value is not None and not isinstance(value, str) else None

    def _round_trips(self, way: str) -> int:
        return capacity.round_trips(way, self.seen.disk.ways[way].request_bytes, self._bursts)

    @cached_property
    def _bursts(self) -> Bursts | None:
        found = self.seen.bursts
        told: dict[str, int] = {}
        for name, field in BURSTS.items():
            offers = [value for change, value in self._changes.items() if change.offer == name]
            values = [int(one) for one in offers if not isinstance(one, str)]
            if not values:
                continue
            if len(values) == 1 and self.way == "write":
                self.notes.append("that the other end offers the same bursts")
            told[field] = max(values) if name == "InitialR2T" else min(values)
        if found is None or not told:
            return found
        return replace(
            found, **{key: bool(v) if isinstance(getattr(found, key), bool) else v for key, v in told.items()}
        )

    # -- requests under way

    @cached_property
    def load_depth(self) -> float | None:
        """The requests that the load keeps under way, those that wait in the block layer included."""
        found = self._waiting_depth
        ahead = self._number(INITIATOR, "block.read_ahead_kb")
        now = whole_number(self.seen.disk.queue.get("read_ahead_kb"))
        if found is None or ahead is None or not now or self.way != "read":
            return found
        return self._read_ahead(found, now, ahead)

    def _read_ahead(self, found: float, now_kib: float, then_kib: float) -> float:
        """Return the depth with another read-ahead, of which a file that is read in order keeps all under way."""
        kept = found * self.seen.disk.ways["read"].request_bytes
        if kept > 2 * now_kib * 1024:
            return found
        self.notes.append("that what reads goes through the page cache, in order")
        return found * then_kib / now_kib

    @property
    def changes_read_ahead(self) -> bool:
        """Whether the page cache is to ask for more, or less, at once."""
        return Change(INITIATOR, "block.read_ahead_kb") in self._changes

    @property
    def load_may_be_more(self) -> bool:
        """Whether as many requests wait as the block layer lets in, so that there may be more behind them."""
        tags = whole_number(self.seen.disk.queue.get("nr_requests")) or math.inf
        most = min(tags, self._can_queue * self.part_of_session)
        return self._waiting_depth is not None and self._waiting_depth >= _FULL * most

    @property
    def _can_queue(self) -> float:
        # A driver that tells no number, or 0, does not bound it there.
        return self.seen.session.can_queue or math.inf

    def _depths(self) -> dict[tuple[str, str], float]:
        seen = self.seen
        commands = self._number(INITIATOR, "iscsi.cmds_max")
        can_queue = capacity.session_commands(int(commands)) if commands else self._can_queue
        found = {}
        if math.isfinite(can_queue):
            found["session-commands", INITIATOR] = can_queue * self.part_of_session
        limit = self._number(INITIATOR, "iscsi.queue_depth", "block.queue_depth") or seen.disk.limit
        # The driver cuts a disk's depth to what the session has; with more of that it is what the record says.
        if limit and (limit < self._can_queue or limit != seen.disk.limit):
            found["queue-depth", INITIATOR] = float(limit)
        if (window := self._command_window()) is not None:
            found["command-window", TARGET] = window
        if (requests := self._nr_requests(can_queue)) is not None:
            found["nr-requests", INITIATOR] = requests
        if self.load_depth and not (self._changes and self.load_may_be_more):
            found["load", INITIATOR] = self.load_depth
        return found

    def _command_window(self) -> float | None:
        told = self._number(TARGET, COMMAND_WINDOW)
        if told is not None:
            return told * self.part_of_session
        # Commands that were held back because it was closed show how far it opens.
        return self.seen.disk.mean_depth if self.seen.disk.refusals.get("target_busy") else None

    def _nr_requests(self, can_queue: float) -> float | None:
        told = self._number(INITIATOR, "block.nr_requests")
        if told is not None:
            return told
        scheduler = self._value(INITIATOR, "block.scheduler")
        now = whole_number(self.seen.disk.queue.get("nr_requests"))
        if now is None or scheduler == "none" or now >= min(can_queue, self._can_queue):
            # Without a scheduler these are the session's commands.
            return None
        return float(now)

    # -- bytes in flight

    def _windows(self) -> dict[tuple[str, str], Window]:
        found = {}
        receive, send = self._receive_window(), self._send_buffer()
        if receive is not None:
            found["receive-window", self._receiving] = receive
        if send is not None:
            found["send-buffer", self._sending] = send
        return found

    def _locked(self) -> float | None:
        """Return the window that iscsid locks the initiator's buffers to, 0 for none, None where it is not told."""
        told = self._number(INITIATOR, "iscsi.tcp_window")
        return told if told is not None else self.seen.session.window_bytes

    def _as_it_is(self) -> Window:
        """Return the window that carries what is carried, for one that is seen to be what holds."""
        return Window(self._now * self.rtt_s)

    @cached_property
    def _buffer_holds(self) -> bool:
        """Whether the send buffer is full of data in flight: none of it waits for a window or for the line."""
        samples = self.sender.socket.samples if self.sender and self.sender.socket else ()
        flying, waiting, queued, buffer = (
            sum(getattr(one, name) for one in samples)
            for name in ("in_flight_bytes", "notsent_bytes", "send_queue_bytes", "send_buffer_bytes")
        )
        sendable = self.seen.sendable_bytes(self.way) / self.part_of_session * len(samples)
        if not samples or queued < _FULL_BUFFER * buffer or waiting > _FEW_WAIT * flying or sendable < _MORE * flying:
            return False
        # One that autotuning would still let grow holds nothing.
        most = self._sysctl(self._sending, "tcp_wmem")
        grown = (
            bool(self.seen.session.window_bytes and self.way == "write")
            or most is None
            or buffer / len(samples) >= _GROWN * most
        )
        return grown and self._requests_wait

    @property
    def _requests_wait(self) -> bool:
        """Whether requests take longer than their round trips, their own data on the line and the disk explain."""
        mine = self.seen.disk.ways[self.way]
        trips = capacity.round_trips(self.way, mine.request_bytes, self.seen.bursts)
        wire_s = mine.request_bytes / min(self._as_is._plain_rates().values(), default=math.inf)
        told_ms = 1e3 * (trips * self.rtt_s + wire_s + self._service_s(self.way))
        return mine.answered_ms is None or mine.answered_ms >= _LONGER * told_ms

    def _receive_window(self) -> Window | None:
        locked = self._locked() if self.way == "read" else 0
        if not self._other_receive_window(self._receiving):
            if self._window_holds:
                return self._as_it_is()
            if locked or locked is None:
                return self._part_of(self._shown_window())
        self.window_spread = self._share(self._receiving)[1] / self._share(self._receiving)[0]
        return self._part_of(self._receive_by_limits(self._receiving))

    def _share(self, end: str) -> tuple[float, float]:
        return capacity.receive_shares(self.kernel(end))

    def kernel(self, end: str) -> str:
        """Return the kernel of `end`, '' where it is not seen."""
        one = self.seen.initiator if end == INITIATOR else self.seen.target
        return one.kernel if one else ""

    def _receive_by_limits(self, end: str) -> Window | None:
        """Return the receive window of `end` by the limits that are set there, None where they are not told."""
        locked = self._locked() if end == INITIATOR else 0
        if locked:
            most = self._number(INITIATOR, "net.rmem_max") or self._sysctl(INITIATOR, "net.core.rmem_max") or math.inf
            buffer = capacity.locked_buffer_bytes(locked, most)
            return capacity.receive_window(buffer, self.rtt_s, locked=True, share=self._share(end)[0])
        most_buffer = self._number(end, "tcp.rmem_max") or self._sysctl(end, "tcp_rmem")
        if locked is None or most_buffer is None:
            return None
        return capacity.receive_window(most_buffer, self.rtt_s, locked=False, share=self._share(end)[0])

    def _other_receive_window(self, end: str) -> bool:
        """Whether the changes give `end` another receive window: what does not bound it may be anything."""
        return self._receive_by_limits(end) != self._as_is._receive_by_limits(end)

    def _send_buffer(self) -> Window | None:
        if self._buffer_holds and not self._other_send_buffer:
            return self._as_it_is()
        return self._part_of(self._send_by_limits())

    def _send_by_limits(self) -> Window | None:
        locked = self._locked() if self.way == "write" else 0
        written = self.seen.disk.ways[self.way].request_bytes if self.way == "write" else math.inf
        if locked:
            most = self._number(INITIATOR, "net.wmem_max") or self._sysctl(INITIATOR, "net.core.wmem_max") or math.inf
            return capacity.send_window(capacity.locked_buffer_bytes(locked, most), written)
        most_buffer = self._number(self._sending, "tcp.wmem_max") or self._sysctl(self._sending, "tcp_wmem")
        return None if most_buffer is None else capacity.send_window(most_buffer, written)

    @property
    def _other_send_buffer(self) -> bool:
        return self._send_by_limits() != self._as_is._send_by_limits()

    # -- bytes per second

    def _rates(self) -> dict[tuple[str, str], float]:
        congested = self._congested()
        found = self._plain_rates() | congested
        if (cpu := self._cpu()) is not None:
            found[f"{INITIATOR}-cpu", INITIATOR] = cpu
        if self._standing_queue and not congested and not self.shares_line:
            found["competing-traffic" if self.line_known else "line", ""] = self._now
        if self._disk_is_full:
            found["target-disk", TARGET] = self._now
        return found

    def _plain_rates(self) -> dict[tuple[str, str], float]:
        rate, paced = self.seen.rate_bytes_per_s, self._paced()
        of_line, of_session = self.part_of_line, self.part_of_session
        if rate is None:
            return {} if paced is None else {("pacing", self._sending): of_session * paced}
        line = self.seen.payload_of(rate)
        if paced is None or paced >= _AS_THE_LINE * line:
            # A limit that is as high as the line's rate is there to keep it.
            return {("line", ""): of_line * min(line, paced or line)}
        return {("line", ""): of_line * line, ("pacing", self._sending): of_session * paced}

    @property
    def shares_line(self) -> bool:
        """Whether others' data waits on the path, and a window or a buffer that this session fills is to be another.

        What it has is its part of all that is in flight: with more of that it gets more.
        """
        held = self._window_holds and self._other_receive_window(self._receiving)
        return self.line_known and self._standing_queue and (held or (self._buffer_holds and self._other_send_buffer))

    def opens_window_full_for(self, share: float) -> bool:
        """Whether a window that data or answers come up against for that share of the time or more is to be larger."""
        for sender, receiving in ((self.seen.target, INITIATOR), (self.seen.initiator, TARGET)):
            socket = sender.socket if sender else None
            long = socket and share and socket.grown("rwnd_limited_us") >= share * 1e6 * socket.elapsed_s
            if long and self._larger_receive_window(receiving):
                return True
        return False

    def _larger_receive_window(self, end: str) -> bool:
        now, then = self._as_is._receive_by_limits(end), self._receive_by_limits(end)
        return now != then and (now is None or then is None or then.size_bytes > now.size_bytes)

    @property
    def line_known(self) -> bool:
        """Whether somebody told the line's rate."""
        return self.seen.rate_bytes_per_s is not None

    def _paced(self) -> float | None:
        """Return the payload that the sender's limit to the rate lets pass: a qdisc counts headers, TCP does not."""
        if (value := self._value(self._sending, "connection.pacing")) is not None:
            return float(value) or None
        value = self._value(self._sending, "qdisc.maxrate")
        qdisc = self.sender.qdisc if self.sender else None
        rate = (qdisc.max_bytes_per_s if qdisc else None) if value is None else float(value)
        return self.seen.payload_of(rate) if rate else None

    @property
    def other_algorithm(self) -> str:
        """The congestion control that the sender is to have instead of its own, '' if it keeps that."""
        asked = self._value(self._sending, "iscsi.congestion_control", "route.congctl", "tcp.congestion_control")
        return str(asked or "")

    def _congested(self) -> dict[tuple[str, str], float]:
        """Return what the congestion window leaves: as it is now where that holds, else by the response function."""
        socket = self.sender.socket if self.sender else None
        if socket is None:
            return {}
        again = socket.grown("retransmitted_bytes")
        algorithm = self.other_algorithm or socket.congestion_control
        # A congestion window grows no further than what is in flight: where another window holds that, both are full.
        full = sum(_held_by_cwnd(one) for one in socket.samples) >= len(socket.samples) / 2
        held = full and not self._window_holds
        below = self._now < _LINE_SHARE * min(self._as_is._plain_rates().values(), default=math.inf)
        if held and below and algorithm == socket.congestion_control:
            return {("loss" if again else "congestion-window", self._sending): self._now}
        if again < FEW_LOSSES * self.seen.mss_bytes:
            return {}
        return {("loss", self._sending): self._lossy(algorithm)}

    def _lossy(self, algorithm: str) -> float:
        """Return what `algorithm` carries of this disk's at the losses that were seen."""
        assert self.sender and self.sender.socket
        socket = self.sender.socket
        loss = socket.grown("retransmitted_bytes") / max(socket.grown("sent_bytes"), 1)
        return self.part_of_session * capacity.loss_bytes_per_s(self.seen.mss_bytes, self.rtt_s, loss, algorithm)

    @property
    def few_losses_leave(self) -> float:
        """What losses too few to tell a rate would leave, if they went on as they were; infinite without any."""
        socket = self.sender.socket if self.sender else None
        if socket is None or not 0 < socket.grown("retransmitted_bytes") < FEW_LOSSES * self.seen.mss_bytes:
            return math.inf
        return self._lossy(self.other_algorithm or socket.congestion_control)

    @property
    def _standing_queue(self) -> bool:
        """Whether others' packets, or too many of its own, wait on the path although the line has room for it."""
        socket = self.sender.socket if self.sender else None
        if socket is None or not self.rtt_s:
            return False
        mean = sum(one.rtt_ms for one in socket.samples) / len(socket.samples) / 1e3
        own = sum(one.below_tcp_bytes for one in socket.samples) / len(socket.samples)
        carried = self._now / self.part_of_session
        standing = (mean - self.rtt_s) * carried - own > max(_STANDING_BYTES, 0.15 * carried * self.rtt_s)
        line = self.seen.payload_of(self.seen.rate_bytes_per_s) if self.seen.rate_bytes_per_s else math.inf
        # What waits longer than all that is in flight of its own takes waits behind others.
        flying = sum(one.in_flight_bytes for one in socket.samples) / len(socket.samples)
        queued_s = mean - self.rtt_s - own / max(carried, 1.0)
        others = queued_s * line - flying if self.line_known else 0.0
        standing = standing or others > _STANDING_BYTES
        # What waits for a limit to the rate is gone with that.
        at_limit = self._now >= _LINE_SHARE * min(self._as_is._plain_rates().values(), default=math.inf)
        return standing and not at_limit


def _held_by_cwnd(one: SocketSample) -> bool:
    return one.notsent_bytes > 0 and one.in_flight_bytes >= 0.7 * one.cwnd_bytes
