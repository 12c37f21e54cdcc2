# SPDX-License-Identifier: GPL-2.0-or-later
"""What a limiter looks at: one direction of one disk as a whole, and each moment of it."""

import math
from collections.abc import Sequence
from functools import cached_property

import attrs

from fabtune.model.observation import DiskSample, Observation, SocketSample, WaySeen
from fabtune.model.path import sendable_bytes, write_round_trips
from fabtune.why.own_data import OwnData
from fabtune.why.slices import HELD_BACK, Parts, Slice, around, facing, nearest, paced_to, parted, usable

# Rates are taken over at least this long, and this many round trips: bytes come in bursts.
_RATE_S, _RATE_RTTS = 0.5, 4
# A queue on the path that no burst of one segment batch explains.
_QUEUE_BYTES, _QUEUE_SHARE = 128 << 10, 0.15
# What R2Ts ask for leaves at once, and one may come while another's data still queues.
_BURSTS = 2
# A line carries this share of its goodput at least when it is full.
FULL = 0.9
# A queue that stands for this share of the look tells by what passes meanwhile what the line has for this connection.
_STANDS = 0.25
# A limiter on the own host that is this near the line's rate is there to keep it.
_AS_THE_LINE = 0.95
# A buffer that is this full on average, with no more than this share of it unsent, keeps its writer waiting.
_MOSTLY_FULL, _MOSTLY_SENT = 0.6, 0.2
# iscsi_tcp's worker spins while the socket's buffer is full (-EAGAIN): its CPU time then says nothing.
_SPINS = 0.5
# Data that waits behind at least half as much in flight, in nearly all samples.
_BACKLOG, _ALWAYS = 0.5, 0.9
# A part of a request's time that is smaller is within what the others are off.
_TELLING, _TELLING_LESS = 0.15, 0.3


class OneWay:
    """Direction `way` of one observation, with what is worked out once for all its moments."""

    def __init__(self, seen: Observation, way: str) -> None:
        self.seen, self.way_name = seen, way
        self.way = seen.disk.ways.get(way) or WaySeen(0, 0, None, None)
        self.sender, self.receiver = usable(seen.sender(way)), usable(seen.receiver(way))

    @property
    def bytes_per_s(self) -> float:
        """What the disk moved this way."""
        return self.way.moved_bytes / self.seen.disk.elapsed_s

    @cached_property
    def carried_bytes_per_s(self) -> float:
        """What its connection carried this way: of a session of several disks the others' data, too."""
        if len(self.seen.session.disks) < 2:
            return self.bytes_per_s
        beside = self.seen.beside if self.seen.session.rdma else None
        found = self.bytes_per_s + (beside.session_bytes_per_s.get(self.way_name, 0.0) if beside else 0.0)
        for end, counter in ((self.sender, "sent_bytes"), (self.receiver, "received_bytes")):
            if end and end.socket:
                found = max(found, end.socket.grown(counter) / end.socket.elapsed_s)
        return found

    @cached_property
    def own(self) -> OwnData:
        """What this host's other sessions carry meanwhile."""
        return OwnData(self.seen, self.way_name, self.carried_bytes_per_s, queued=self.queued_bytes_per_s is not None)

    @property
    def own_share(self) -> float:
        """The share that this disk has of what its connection carried, 1 where nothing passed."""
        return self.bytes_per_s / self.carried_bytes_per_s if self.carried_bytes_per_s else 1.0

    @property
    def both_ends(self) -> bool:
        """Whether the target's socket was seen too."""
        return all(end is not None and end.socket is not None for end in (self.sender, self.receiver))

    @property
    def untold(self) -> bool:
        """Whether the sender's kernel does not tell what held its data back: then nobody can be said to owe it any."""
        socket = self.sender.socket if self.sender else None
        return socket is not None and not HELD_BACK.isdisjoint(socket.lacks)

    @cached_property
    def rtt_s(self) -> float:
        """The round trip of the path without queues, 0 where it is not known."""
        return (self.seen.rtt_ms or 0.0) / 1e3

    @cached_property
    def mtu(self) -> int:
        """The MTU that segments were cut for."""
        return self.seen.mss_bytes + self.seen.header_bytes

    @cached_property
    def goodput(self) -> float | None:
        """The payload that the line carries, in bytes/s, None where nobody told its rate."""
        rate = self.seen.rate_bytes_per_s
        return self.seen.payload_of(rate) if rate else None

    @cached_property
    def latency_s(self) -> float | None:
        """A request's mean time from its last issue to its end."""
        return None if self.way.answered_ms is None else self.way.answered_ms / 1e3

    @cached_property
    def wire_s(self) -> float:
        """How long one request's data takes to pass the line: by its rate, else by what it adds to the round trip."""
        if self.goodput:
            return self.way.request_bytes / self.goodput
        samples = self.sender.socket.samples if self.sender and self.sender.socket else ()
        return max((one.rtt_ms - self.rtt_s * 1e3 for one in samples), default=0.0) / 1e3

    @cached_property
    def parts(self) -> "Parts":
        """Return a request's mean time in parts, without what its data waits in the socket unpaced, and in queues."""
        return self.split((self.latency_s or 0.0) - max(0.0, self.socket_s - self.paced_s) - self.queues_s)

    def split(self, whole_s: float) -> "Parts":
        """Return the parts of a request's time of `whole_s`."""
        if whole_s <= 0 or not self.rtt_s:
            # Without a round trip all that is known is what the target counted, or its disk did.
            served_ms = self.seen.served_ms(self.way_name)
            there_s = self.backstore_s if served_ms is None else served_ms / 1e3
            rest = 0.0 if whole_s <= 0 or not self.seen.session.rdma else min(1.0, there_s / whole_s)
            return Parts(1.0 - rest, 0.0, rest)
        # So little may be anybody's: the wire's too, where its speed is not known.
        telling = _TELLING if self.goodput or self.both_ends else _TELLING_LESS
        return parted(whole_s, self.r2t_s, self.rtt_s + self.wire_s, self.paced_s, telling)

    @cached_property
    def depth_changes(self) -> bool:
        """Whether somebody changed how many requests the disk may have under way during the look."""
        return len({one.most_in_flight for one in self.seen.disk.samples} - {None}) > 1

    def mean(self, name: str) -> float:
        """Return the mean of a member of the sender's samples, 0 where it was not seen."""
        samples = self.sender.socket.samples if self.sender and self.sender.socket else ()
        return float(sum(getattr(one, name) for one in samples)) / len(samples) if samples else 0.0

    @cached_property
    def socket_s(self) -> float:
        """How long data waits in the sender's socket before it leaves (Little: what waits, over what passes)."""
        return self.mean("notsent_bytes") / self.carried_bytes_per_s if self.carried_bytes_per_s else 0.0

    @cached_property
    def waits(self) -> float:
        """The share of a request's time that neither the path nor R2Ts nor the target's disk explains."""
        if not self.latency_s:
            return 1.0
        told_s = self.rtt_s + self.r2t_s + self.wire_s + self.backstore_s
        return max(0.0, 1.0 - told_s / self.latency_s)

    @cached_property
    def backstore_s(self) -> float:
        """The mean time in the target's backstore, else in the disk there that did most requests; 0 of none seen."""
        if (counted_ms := self.seen.backstore_ms(self.way_name)) is not None:
            return counted_ms / 1e3
        stores = self.seen.target.backstores if self.seen.target else ()
        busiest = max(stores, key=lambda one: one.completed.get(self.way_name, 0), default=None)
        return busiest.mean_ms.get(self.way_name, 0.0) / 1e3 if busiest else 0.0

    @cached_property
    def queues_s(self) -> float:
        """What queues on the way add to the round trip, its own data's time on the line not counted."""
        more_s = self.mean("rtt_ms") / 1e3 - self.rtt_s - self.wire_s
        return max(0.0, more_s) if self.sender and self.sender.socket else 0.0

    @cached_property
    def r2t_s(self) -> float:
        """How long a write waits for leave to send: the round trips for R2Ts, each behind the data before it."""
        now_s = self.mean("rtt_ms") / 1e3 if self.r2t_round_trips else 0.0
        return self.r2t_round_trips * max(self.rtt_s, now_s)

    @cached_property
    def always_backlogged(self) -> bool:
        """Whether the sender has more data than leaves all the time: nobody owes it any."""
        samples = self.sender.socket.samples if self.sender and self.sender.socket else ()
        waiting = sum(one.notsent_bytes >= _BACKLOG * one.in_flight_bytes > 0 for one in samples)
        return bool(samples) and waiting >= _ALWAYS * len(samples)

    @cached_property
    def queued_bytes_per_s(self) -> float | None:
        """The rate of the data while a queue stood on the path, None where it did not for long enough to tell."""
        found = list(self.moments())
        queued = [one for one in found if one.queued_on_path]
        queued_s = sum(one.seconds for one in queued)
        if queued_s < _STANDS * sum(one.seconds for one in found) or not queued_s:
            return None
        return sum(one.seconds * one.bytes_per_s for one in queued) / queued_s

    @cached_property
    def fastest_bytes_per_s(self) -> float:
        """The highest rate of the data around any moment: the line carries that much at least."""
        return max((one.bytes_per_s for one in self.moments()), default=0.0)

    @cached_property
    def buffer_mostly_full(self) -> bool:
        """Whether the sender's buffer is what data waits for: full on the whole, with little of it unsent."""
        queued = self.mean("send_queue_bytes")
        full = queued >= _MOSTLY_FULL * self.mean("send_buffer_bytes")
        return queued > 0 and full and self.mean("notsent_bytes") <= _MOSTLY_SENT * queued

    @cached_property
    def r2t_round_trips(self) -> int:
        """The round trips that a write waits for the target's leave to send the rest."""
        bursts = self.seen.bursts
        if self.way_name != "write" or bursts is None:
            return 0
        return write_round_trips(round(self.way.request_bytes), bursts) - 1

    @cached_property
    def r2t_burst_bytes(self) -> int:
        """What a write sends at once when an R2T comes, 0 where none is waited for."""
        asked = self.seen.bursts if self.r2t_round_trips else None
        return sendable_bytes(round(self.way.request_bytes), asked) if asked else 0

    @cached_property
    def qdisc_limit(self) -> float | None:
        """What the sender's queueing discipline lets pass, as payload."""
        return None if self.qdisc_rate is None else self.below_the_line(self.seen.payload_of(self.qdisc_rate))

    @cached_property
    def qdisc_rate(self) -> float | None:
        """The least rate that the sender's queueing discipline was set to while it was looked at, in bytes/s."""
        read = [self.sender.qdisc.max_bytes_per_s] if self.sender and self.sender.qdisc else []
        return min((one for one in (*read, *self._sampled_qdisc) if one is not None), default=None)

    @cached_property
    def _sampled_qdisc(self) -> list[float]:
        samples = self.sender.socket.samples if self.sender and self.sender.socket else ()
        return [one.qdisc_bytes_per_s for one in samples if one.qdisc_bytes_per_s is not None]

    @cached_property
    def socket_limit(self) -> float | None:
        """What SO_MAX_PACING_RATE lets the sender's socket send, which is payload: TCP paces that alone."""
        samples = self.sender.socket.samples if self.sender and self.sender.socket else ()
        limit = min((rate for one in samples if (rate := paced_to(one)) is not None), default=None)
        return None if limit is None else self.below_the_line(limit)

    def paced_at(self, sample: SocketSample) -> float | None:
        """Return what the limits of the sender's host, as they were at a sample, let pass as payload; None for none."""
        # Where no sample tells, what was read at the ends of the look held for all of it.
        rate = sample.qdisc_bytes_per_s if self._sampled_qdisc else self.qdisc_rate
        limits = [self.below_the_line(one) for one in (paced_to(sample), rate and self.seen.payload_of(rate)) if one]
        return min((one for one in limits if one is not None), default=None)

    @cached_property
    def paced_s(self) -> float:
        """By how much a limit to the rate on the sender's host, there all the time, makes one request's data slower."""
        limit = min((one for one in (self.qdisc_limit, self.socket_limit) if one), default=0.0)
        steady = self.goodput and len(set(self._sampled_qdisc)) < 2
        return self.way.request_bytes / limit - self.wire_s if limit and steady else 0.0

    def below_the_line(self, bytes_per_s: float) -> float | None:
        """Return the payload that a limit lets pass, None where it is no lower than the line's, or its part of that."""
        line = self.goodput or math.inf
        beside = self.own.on_line if self.own.together >= FULL * line else 0.0
        return None if bytes_per_s + beside >= _AS_THE_LINE * line else bytes_per_s

    @cached_property
    def spins(self) -> bool:
        """Tell whether the initiator's worker spins on a full socket: its CPU is busy then, and does nothing."""
        full = _SPINS * self.mean("send_buffer_bytes")
        return self.way_name == "write" and self.mean("send_queue_bytes") >= full

    def moments(self) -> Sequence["Moment"]:
        """Return the moments in order, of the sender's samples where it was seen, else of the receiver's."""
        return self._moments

    @cached_property
    def _moments(self) -> Sequence["Moment"]:
        mine = self.sender.socket if self.sender else None
        other = self.receiver.socket if self.receiver else None
        if (clock := mine or other) is None:
            count = len(self.seen.disk.samples) if self.seen.session.rdma else 0
            return tuple(Moment(self, index, None, None) for index in range(1, count))
        moments = []
        for index in range(1, len(clock.samples)):
            now = Slice(clock.samples[index - 1], clock.samples[index])
            theirs = facing(now, other.samples) if other else None
            moments.append(Moment(self, index, now if mine else None, theirs if mine else now))
        # What the other host saw before this one's look, or after, is not of the time that the disk's counts are of.
        inside = [one for one in moments if one.receiver] if self.sender is self.seen.target and other else moments
        return tuple(inside or moments)


@attrs.frozen
class Moment:
    """One moment of a one_way; what is asked of it is answered from the end that was seen, else from the disk."""

    one_way: OneWay
    index: int
    sender: Slice | None
    receiver: Slice | None

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self._ends_s[1] - self._ends_s[0]

    @property
    def _ends_s(self) -> tuple[float, float]:
        if known := self.sender or self.receiver:
            return known.before.at_s, known.after.at_s
        before, after = self.one_way.seen.disk.samples[self.index - 1 : self.index + 1]
        return before.at_s, after.at_s

    @property
    def disk(self) -> DiskSample | None:
        """The disk at its end, None where it was not looked at then."""
        return nearest(self.one_way.seen.disk.samples, self._ends_s[1])

    @property
    def bytes_per_s(self) -> float:
        """The rate of the data around this moment."""
        end = self.one_way.sender if self.sender else self.one_way.receiver
        counter = "sent_bytes" if self.sender else "received_bytes"
        if not end or not end.socket:
            return self.one_way.carried_bytes_per_s
        reach_s = max(_RATE_S, _RATE_RTTS * self.one_way.rtt_s) / 2
        first, last = around(end.socket.samples, self.index, reach_s)
        return float(getattr(last, counter) - getattr(first, counter)) / (last.at_s - first.at_s)

    @property
    def paced_payload(self) -> float | None:
        """The payload that limits on the sender's own host let pass at its end, in bytes/s; None without one."""
        return self.one_way.paced_at(self.sender.after) if self.sender else None

    @property
    def asked(self) -> DiskSample | None:
        """The disk a round trip before it began: what comes now was asked for then."""
        return nearest(self.one_way.seen.disk.samples, self._ends_s[0] - self.one_way.rtt_s)

    @property
    def idle(self) -> bool:
        """Whether the load asked for nothing in it: no request was under way at its ends, and none ended."""
        ends = (nearest(self.one_way.seen.disk.samples, at_s) for at_s in self._ends_s)
        moved = [(one.read_bytes, one.write_bytes) for one in ends if one and not one.in_flight]
        return len(moved) > 1 and moved[0] == moved[1]

    @property
    def most_in_flight(self) -> int | None:
        """How many requests of the disk might be under way then, where that changed during the look; else None."""
        return self.asked.most_in_flight if self.asked and self.one_way.depth_changes else None

    @property
    def at_depth(self) -> bool:
        """Whether a limit that comes and goes was there then, and reached."""
        most = self.most_in_flight
        return most is not None and self.asked is not None and self.asked.in_flight >= most

    @property
    def parts(self) -> Parts:
        """A request's time in parts: as in the whole look; under a depth that comes and goes by what is in flight."""
        if self.idle:
            return Parts(1.0, 0.0, 0.0)
        one_way, most = self.one_way, self.most_in_flight
        mine = self.bytes_per_s * one_way.own_share
        if most is None or not self.at_depth or not mine:
            return one_way.parts
        return one_way.split(most * one_way.way.request_bytes / mine)

    @property
    def beside_bytes_per_s(self) -> float:
        """What others of this host's sessions carry over the same line while this one asks for something."""
        return 0.0 if self.idle else self.one_way.own.on_line

    @property
    def line_share(self) -> float | None:
        """The share of the line's goodput that this host's sessions have of it, None where its rate is not known."""
        goodput = self.one_way.goodput
        return (self.bytes_per_s + self.beside_bytes_per_s) / goodput if goodput else None

    @property
    def queued_on_path(self) -> bool:
        """Whether more waits on the path than its round trip holds, beyond the sender's own host."""
        return self._on_path_bytes >= max(_QUEUE_BYTES, _QUEUE_SHARE * self.bytes_per_s * self.one_way.rtt_s)

    @property
    def _on_path_bytes(self) -> float:
        if not (known := self.sender or self.receiver) or not self.one_way.rtt_s:
            return 0.0
        more_s = known.mean("rtt_ms") / 1e3 - self.one_way.rtt_s
        return more_s * self.bytes_per_s - known.mean("below_tcp_bytes")

    @property
    def queued_bursts(self) -> bool:
        """Whether what waits on the path may be what R2Ts asked for, sent at once by a buffer that holds no more."""
        most = _BURSTS * self.one_way.r2t_burst_bytes if self.one_way.buffer_mostly_full else 0
        return self.queued_on_path and self._on_path_bytes < most

    @property
    def backlogged(self) -> bool:
        """Whether the sender has more data than leaves."""
        one = self.sender
        return one is not None and one.mean("notsent_bytes") >= _BACKLOG * one.mean("in_flight_bytes") > 0

    @property
    def waits_to_send(self) -> bool:
        """Whether the sender has data that it may not send yet."""
        return self.sender is not None and self.sender.mean("notsent_bytes") >= 2 * self.one_way.seen.mss_bytes
