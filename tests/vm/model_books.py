# SPDX-License-Identifier: GPL-2.0-or-later
"""The model: what should have been counted of a device, told by blktrace event by event.

A request is known by its kind and the sector at which it ends, which it keeps however often it is sent back and
however much of it is done; those of passthrough by nothing at all, so that which of several it is can be unclear.
"""

import errno
import struct
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

# struct blk_io_trace: magic, sequence, time, sector, bytes, action, pid, device, cpu, error, pdu_len
_EVENT = struct.Struct("<IIQQIIIIIHH")
REQUEUE, ISSUE, COMPLETE = 6, 7, 8
CATEGORY = 16
WRITE, FLUSH, PASSTHROUGH, NOTIFY, DISCARD = 1 << 1, 1 << 2, 1 << 9, 1 << 10, 1 << 13
_SECTOR = 512
_CLASSES = {
    errno.ETIMEDOUT: "timeout", errno.ENOLINK: "transport", errno.EREMOTEIO: "target", errno.EBADE: "reservation",
    errno.ENODATA: "medium", errno.EILSEQ: "protection", errno.EOPNOTSUPP: "unsupported", errno.ENOSPC: "space",
    errno.ENODEV: "offline", errno.ENOMEM: "resource", errno.EBUSY: "resource", errno.EAGAIN: "resource",
}  # fmt: skip


@dataclass
class Books:
    """One op's, by the model.  `retried` and `waited_ns` are of completed requests that had been sent back.

    `unclear` is how often an event may have been another one's, and `unclear_ns` how far times may be off for that.
    """

    issued: int = 0
    completed: int = 0
    sent_back: int = 0
    bytes: int = 0  # noqa: A003
    failed_bytes: int = 0
    never_issued: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    times_ns: list[int] = field(default_factory=list)
    total_times_ns: list[int] = field(default_factory=list)
    retried: int = 0
    waited_ns: int = 0
    unclear: int = 0
    unclear_ns: int = 0


@dataclass
class Flight:
    """A request from its issue on, or while it waits for another one; None: it has not been issued, or sent back."""

    size: int
    begun_ns: int = 0
    first_ns: int | None = None
    sent_back_ns: int | None = None


_Place = tuple[str, int]


@dataclass
class Model:
    """What should have been counted of one device.

    `requeued` were sent back after they had been issued, `held` before.  `at_depth_ns` has the time by the number of
    requests in flight, `arrivals` how often an issue led there.
    """

    ops: dict[str, Books] = field(default_factory=lambda: defaultdict(Books))
    flying: dict[_Place, deque[Flight]] = field(default_factory=dict)
    waiting: dict[_Place, deque[Flight]] = field(default_factory=dict)
    depth: int = 0
    highest: int = 0
    requeued: int = 0
    held: int = 0
    partial: int = 0
    at_depth_ns: Counter[int] = field(default_factory=Counter)
    arrivals: Counter[int] = field(default_factory=Counter)
    _last_ns: int = 0

    @property
    def errors(self) -> int:
        return sum(sum(books.errors.values()) for books in self.ops.values())

    @property
    def never_issued(self) -> int:
        return sum(books.never_issued for books in self.ops.values())

    @property
    def depth_ns(self) -> int:
        return sum(depth * ns for depth, ns in self.at_depth_ns.items())

    def event(self, action: int, when_ns: int, sector: int, size: int, error: int) -> None:
        op = op_of(action >> CATEGORY)
        # Those of passthrough have no sector.
        end = 0 if op == "other" else sector + size // _SECTOR
        what = action & 0xFFFF
        if what == ISSUE:
            self._issue(op, end, when_ns, size)
        elif what == REQUEUE:
            self._requeue(op, end, when_ns, size)
        elif what == COMPLETE:
            self._complete(op, sector if op != "other" else 0, when_ns, size, error)

    def _move(self, by: int, when_ns: int) -> None:
        if self.depth:
            self.at_depth_ns[self.depth] += when_ns - self._last_ns
        self._last_ns = when_ns
        self.depth += by
        self.highest = max(self.highest, self.depth)
        self.arrivals[self.depth] += by > 0

    def _issue(self, op: str, end: int, when_ns: int, size: int) -> None:
        if op == "other" and self.waiting.get((op, end)):
            # It may be a new one as well.
            self._unclear(op, [when_ns, *(one.sent_back_ns or when_ns for one in self.waiting[op, end])])
        flight = _first(self.waiting, (op, end)) or Flight(size)
        flight.size, flight.begun_ns = size, when_ns
        if flight.first_ns is None:
            flight.first_ns = when_ns
        self.flying.setdefault((op, end), deque()).append(flight)
        self.ops[op].issued += 1
        self._move(1, when_ns)

    def _requeue(self, op: str, end: int, when_ns: int, size: int) -> None:
        if op == "other" and len(self.flying.get((op, end), ())) > 1:
            self._unclear(op, [one.begun_ns for one in self.flying[op, end]])
        flight = _first(self.flying, (op, end))
        if flight:
            self.ops[op].sent_back += 1
            self.requeued += 1
            self._move(-1, when_ns)
        else:
            flight = _first(self.waiting, (op, end)) or Flight(size)
            self.held += 1
        if flight.sent_back_ns is None:
            flight.sent_back_ns = when_ns
        self.waiting.setdefault((op, end), deque()).append(flight)

    def _unclear(self, op: str, since_ns: list[int]) -> None:
        """Note that nothing tells whose event this is, of requests that have been there since those times."""
        self.ops[op].unclear += 1
        self.ops[op].unclear_ns += max(since_ns) - min(since_ns)

    def _complete(self, op: str, sector: int, when_ns: int, size: int, error: int) -> None:
        books, found = self.ops[op], self._find(op, sector, size)
        if found is None:
            self._complete_unissued(op, sector, size, error)
            return
        place, flight = found
        books.bytes += size
        books.failed_bytes += size if error else 0
        if size < flight.size and op != "other":
            self.partial += 1
            flight.size -= size
            return
        _take(self.flying, place, flight)
        books.completed += 1
        if error:
            books.errors[error_class(error)] += 1
        books.times_ns.append(when_ns - flight.begun_ns)
        books.total_times_ns.append(when_ns - (flight.first_ns or flight.begun_ns))
        if flight.sent_back_ns is not None:
            books.retried += 1
            books.waited_ns += flight.begun_ns - flight.sent_back_ns
        self._move(-1, when_ns)

    def _complete_unissued(self, op: str, sector: int, size: int, error: int) -> None:
        """Count a request that ended before it was issued; the end of what was counted before has no bytes."""
        if size:
            _first(self.waiting, (op, sector + size // _SECTOR))
            self.ops[op].never_issued += 1
            self.ops[op].errors.update([error_class(error)] if error else ())

    def _find(self, op: str, sector: int, size: int) -> tuple[_Place, Flight] | None:
        """Return the request in flight that ends here, or one of which this is a part, and where it stands."""
        place = (op, 0 if op == "other" else sector + size // _SECTOR)
        for flight in self.flying.get(place, ()):
            if flight.size == size or op == "other":
                return place, flight
        # What is left of a request begins where its next part does.
        for place, flying in self.flying.items() if size and op != "other" else ():
            for flight in flying:
                if place[0] == op and flight.size > size and place[1] - flight.size // _SECTOR == sector:
                    return place, flight
        return None


def _take(flights: dict[_Place, deque[Flight]], place: _Place, flight: Flight) -> None:
    flights[place].remove(flight)
    if not flights[place]:
        del flights[place]


def _first(flights: dict[_Place, deque[Flight]], place: _Place) -> Flight | None:
    """Take the first one off its place and return it; None: there is none."""
    if place not in flights:
        return None
    flight = flights[place][0]
    _take(flights, place, flight)
    return flight


def op_of(kind: int) -> str:
    """Return the module's name of a request of such categories; a write with a flush before it is a write."""
    if kind & PASSTHROUGH:
        return "other"
    if kind & DISCARD:
        return "discard"
    if kind & FLUSH and not kind & WRITE:
        return "flush"
    return "write" if kind & WRITE else "read"


def error_class(error: int) -> str:
    """Return the class of the error in an event, which stands there as 16 bits of a negative number."""
    return "error_" + _CLASSES.get(0x10000 - error if error >= 0x8000 else error, "io")


def model_of(trace: Path) -> Model:
    """Return the model after all events of `trace`, in the order of their times."""
    data = trace.read_bytes()
    events = []
    place = 0
    while place + _EVENT.size <= len(data):
        _, _, when, sector, size, action, _, _, _, error, more = _EVENT.unpack_from(data, place)
        if not (action >> CATEGORY) & NOTIFY:
            events.append((when, place, action, sector, size, error))
        place += _EVENT.size + more
    model = Model()
    for when, _, action, sector, size, error in sorted(events):
        model.event(action, when, sector, size, error)
    return model
