# SPDX-License-Identifier: GPL-2.0-or-later
"""The model: what should have been counted of a device, told by blktrace event by event.

A request is known by its kind and the sector at which it ends, which it keeps however often it is sent back and
however much of it is done; those of passthrough by nothing at all, so that which of several it is can be unclear.
"""

import errno
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from model_kept import CATEGORY, COMPLETE, ISSUE, REQUEUE, Event

WRITE, FLUSH, PASSTHROUGH, DISCARD = 1 << 1, 1 << 2, 1 << 9, 1 << 13
_SECTOR = 512
_CLASSES = {
    errno.ETIMEDOUT: "timeout", errno.ENOLINK: "transport", errno.EREMOTEIO: "target", errno.EBADE: "reservation",
    errno.ENODATA: "medium", errno.EILSEQ: "protection", errno.EOPNOTSUPP: "unsupported", errno.ENOSPC: "space",
    errno.ENODEV: "offline", errno.ENOMEM: "resource", errno.EBUSY: "resource", errno.EAGAIN: "resource",
}  # fmt: skip


@dataclass(frozen=True)
class Retry:
    """A completed request that had been sent back: its times from the last issue and from the first one.

    And how long before the last issue it was sent back each time after it had been issued, and each time before.
    """

    device_ns: int
    total_ns: int
    sent_back_ns: tuple[int, ...] = ()
    held_ns: tuple[int, ...] = ()

    @property
    def longest_ns(self) -> int:
        return max(self.sent_back_ns + self.held_ns)

    def shortest_ns(self, path: bool) -> int:
        """Return the time since what surely was a refusal, or since the last that may have been one.

        What is held is refused; what dm had of a path, and threw away, may have been another request.
        """
        return max(self.held_ns) if self.held_ns and not path else min(self.sent_back_ns + self.held_ns)


@dataclass
class Books:
    """One op's, by the model.

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
    retries: list[Retry] = field(default_factory=list)
    unclear: int = 0
    unclear_ns: int = 0


@dataclass
class Flight:
    """A request from its issue on, or while it waits for another one; None: it has not been issued, or sent back."""

    size: int
    begun_ns: int = 0
    first_ns: int | None = None
    sent_back_ns: list[int] = field(default_factory=list)
    held_ns: list[int] = field(default_factory=list)

    def retry(self, ended_ns: int) -> Retry | None:
        """Return what became of it if it was sent back."""
        if not self.sent_back_ns + self.held_ns:
            return None
        first_ns = self.begun_ns if self.first_ns is None else self.first_ns
        back, held = (tuple(self.begun_ns - one for one in times) for times in (self.sent_back_ns, self.held_ns))
        return Retry(ended_ns - self.begun_ns, ended_ns - first_ns, back, held)


_Place = tuple[str, int]


@dataclass
class Model:
    """What should have been counted of one device.

    `requeued` were sent back after they had been issued, `held` before.  `at_depth_ns` has the time by the number of
    requests in flight, `arrivals` how often an issue led there; `moves` when each issue and each end was.
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
    moves: list[tuple[int, int]] = field(default_factory=list)
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

    def highest_apart(self, issues_ns: int, ends_ns: int) -> int:
        """Return the highest depth for one who sees each issue and each end so much later."""
        depth = highest = 0
        for _, by in sorted((when + (issues_ns if by > 0 else ends_ns), by) for when, by in self.moves):
            depth += by
            highest = max(highest, depth)
        return highest

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
        self.moves.append((when_ns, by))

    def _issue(self, op: str, end: int, when_ns: int, size: int) -> None:
        if op == "other" and self.waiting.get((op, end)):
            # It may be a new one as well.
            self._unclear(op, [when_ns, *(_back_ns(one, when_ns) for one in self.waiting[op, end])])
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
            flight.sent_back_ns.append(when_ns)
            self.ops[op].sent_back += 1
            self.requeued += 1
            self._move(-1, when_ns)
        else:
            flight = _first(self.waiting, (op, end)) or Flight(size)
            flight.held_ns.append(when_ns)
            self.held += 1
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
        retry = flight.retry(when_ns)
        books.retries += [retry] if retry else []
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


def _back_ns(flight: Flight, otherwise_ns: int) -> int:
    return min([*flight.sent_back_ns, *flight.held_ns], default=otherwise_ns)


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


def model_of(events: Iterable[Event]) -> Model:
    """Return the model after all `events`, which are in the order of their times."""
    model = Model()
    for when, action, sector, size, error in events:
        model.event(action, when, sector, size, error)
    return model
