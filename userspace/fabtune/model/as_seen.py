# SPDX-License-Identifier: GPL-2.0-or-later
"""What one direction of an observation shows by itself, before anything is supposed to be changed."""

from functools import cached_property

from fabtune.model import capacity
from fabtune.model.capacity import Window
from fabtune.model.change import whole_number
from fabtune.model.observation import INITIATOR, TARGET, Observation

# A disk that is busy so much of the time has no more to give, if so many of the requests are there.
_BUSY, _MOST_THERE = 0.9, 0.5
# A window that data waits for more of the time than this holds it.
_MOSTLY = 0.5
# A disk that moves so much of all is alone: the rest may be headers.
_ALONE = 0.98


def _part(mine: float, together: float) -> float:
    return mine / together if 0 < mine < _ALONE * together else 1.0


class AsSeen:
    """Direction `way` of `seen`: its ends, and what holds it there, whatever is to be changed."""

    def __init__(self, seen: Observation, way: str) -> None:
        self.seen, self.way = seen, way
        self.sender, self.receiver = seen.sender(way), seen.receiver(way)
        self._sending = TARGET if way == "read" else INITIATOR
        self._receiving = INITIATOR if way == "read" else TARGET
        self.rtt_s = (seen.rtt_ms or 0.0) / 1e3

    @property
    def _now(self) -> float:
        return self.seen.disk.ways[self.way].moved_bytes / self.seen.disk.elapsed_s

    @cached_property
    def part_of_session(self) -> float:
        """What of all that the session carries this way is this disk's: the rest of the windows is other disks'."""
        beside, socket = self.seen.beside, self.seen.initiator.socket
        if beside is not None:
            return _part(self._now, self._now + beside.session_bytes_per_s.get(self.way, 0.0))
        if len(self.seen.session.disks) < 2 or socket is None or not socket.elapsed_s:
            return 1.0
        sent = socket.grown("sent_bytes") - socket.grown("retransmitted_bytes")
        passed = socket.grown("received_bytes") if self.way == "read" else sent
        return _part(self._now, passed / socket.elapsed_s)

    @cached_property
    def part_of_line(self) -> float:
        """What of all that this host's sessions move this way by the same NIC is this disk's."""
        beside = self.seen.beside
        others = beside.bytes_per_s.get(self.way, 0.0) if beside else 0.0
        return min(self.part_of_session, _part(self._now, self._now + others))

    def _part_of(self, window: Window | None) -> Window | None:
        part = self.part_of_session
        return window and Window(window.size_bytes * part, window.burst_bytes * part)

    @property
    def _waiting_depth(self) -> float | None:
        """The mean of what samples have under way, or of what the driver has had, which no sample misses."""
        samples = self.seen.disk.samples
        sampled = sum(one.in_flight for one in samples) / len(samples) if samples else None
        return max((one for one in (sampled, self.seen.disk.mean_depth) if one is not None), default=None)

    @cached_property
    def _window_holds(self) -> bool:
        socket = self.sender.socket if self.sender else None
        return socket is not None and socket.grown("rwnd_limited_us") > _MOSTLY * 1e6 * socket.elapsed_s

    def _shown_window(self) -> Window | None:
        """Return the window that the sender was shown, or that the receiver says it offers."""
        if self.sender and self.sender.socket:
            sizes = [one.send_window_bytes for one in self.sender.socket.samples if one.send_window_bytes]
        else:
            samples = self.receiver.socket.samples if self.receiver and self.receiver.socket else ()
            sizes = [one.receive_window_bytes for one in samples if one.receive_window_bytes]
        return capacity.shown_window(max(sizes), self.rtt_s) if sizes else None

    def _sysctl(self, end: str, name: str) -> float | None:
        one = self.seen.initiator if end == INITIATOR else self.seen.target
        text = one.sysctls.get(name) or one.sysctls.get(f"net.ipv4.{name}") if one else None
        return whole_number(text.split()[-1]) if text else None

    def _cpu(self) -> float | None:
        """Return what the initiator's busiest thread or CPU would carry at the present cost of a byte."""
        one = self.seen.initiator
        shares = [*one.softirq]
        # A worker that finds the send buffer full asks again and again: its time is no work then.
        if not self._waits_to_send:
            shares += [thread.cpu_share for thread in one.threads if "iscsi_q" in thread.name]
            # Of a host with one CPU all work is done there.
            shares += one.cpu_busy if len(one.cpu_busy) == 1 else ()
        busiest = max(shares, default=0.0)
        return self._now / busiest if busiest > 0.01 else None

    @property
    def _waits_to_send(self) -> bool:
        socket = self.seen.initiator.socket
        return socket is not None and any(one.notsent_bytes for one in socket.samples)

    def _service_s(self, way: str) -> float:
        stores = self.seen.target.backstores if self.seen.target else ()
        return max((one.mean_ms.get(way, 0.0) for one in stores), default=0.0) / 1e3

    @property
    def _disk_is_full(self) -> bool:
        """Whether the target's disk works all the time, and most requests are there: one may do several at once."""
        stores = self.seen.target.backstores if self.seen.target else ()
        queue = max(1.0, _MOST_THERE * (self.seen.disk.mean_depth or 0.0))
        return any(one.busy_share >= _BUSY and one.mean_depth > queue for one in stores)
