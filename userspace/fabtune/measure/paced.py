# SPDX-License-Identifier: GPL-2.0-or-later
"""Sends requests at given instants and counts how long each took from its instant: a program of its own, as fio is.

fio does not do this.  With rate_process=poisson its thread waits for everything outstanding before it sleeps until
the next arrival (io_u.c, rate_ddir), so that a stall keeps the arrivals back, and each one's time begins when it is
sent at last: coordinated omission.  With io_submit_mode=offload it hangs when it starts, before 3.42 (736c2015ff).

Usage: python3 -m fabtune.measure.paced DEVICE ARRIVALS OUTPUT SLOTS BEGIN_NS LENGTH_NS.  The measured part begins
BEGIN_NS after the first instant.  OUTPUT has the figures in fio's JSON, with our own beside them.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fabtune.measure.aio import Ring
from fabtune.measure.arrivals import Arrival, unpacked

# prctl's PR_SET_TIMERSLACK: a sleep ends when it is to, not up to 50 us later.
_TIMERSLACK = 29
# What the first request is made in before it leaves.
_HEAD_START_NS = 50_000_000
OFFERED = "offered"


class _Times:
    """Times in ns, and how many there were of each; kept to 1.6 %, as fio does."""

    def __init__(self) -> None:
        self.bins: dict[int, int] = {}
        self.total = self.sum = self.most = 0

    def add(self, ns: int) -> None:
        """Count one."""
        shift = max(0, ns.bit_length() - 7)
        middle = (ns >> shift << shift) + (1 << shift >> 1)
        self.bins[middle] = self.bins.get(middle, 0) + 1
        self.total, self.sum, self.most = self.total + 1, self.sum + ns, max(self.most, ns)

    def quantile(self, share: float) -> int:
        """Return the time that `share` of them did not exceed, 0 of none."""
        left = share * self.total
        for ns in sorted(self.bins):
            left -= self.bins[ns]
            if left <= 0:
                return min(ns, self.most)
        return 0


class _Pacer:
    """Sends the arrivals and counts what comes back."""

    def __init__(self, ring: Ring, slots: int, begin_ns: int, length_ns: int) -> None:
        self._ring, self._free = ring, list(range(slots))
        # That of the request that is made and leaves next.
        self._next: int | None = None
        self._begin_ns, self._length_ns = begin_ns, length_ns
        self._under_way: dict[int, Arrival] = {}
        self._start_ns = self._ready_ns = 0
        self._took, self._bytes = (_Times(), _Times()), [0, 0]
        # How much later than its instant each left, and how much of that is our own doing: a generator that costs
        # nothing would have been ready for the next at _ready_ns.
        self._behind, self._late = _Times(), _Times()
        self._completed = self._most = 0
        self._stopped_ns: int | None = None
        self._begun_unix_ns = 0

    def stop(self, *_: object) -> None:
        """Send nothing more."""
        self._stopped_ns = time.monotonic_ns()

    def run(self, arrivals: Iterator[Arrival]) -> None:
        """Send all, and wait for all.  Raises OSError at the first request that fails."""
        self._start_ns = self._ready_ns = time.monotonic_ns() + _HEAD_START_NS
        self._begun_unix_ns = time.time_ns() + _HEAD_START_NS + self._begin_ns
        todo = next(arrivals, None)
        while todo or self._under_way:
            if self._stopped_ns:
                todo = None
            # One at a time: where more are due than the device takes, what comes back meanwhile is to be seen then.
            if todo and self._next is not None and self._start_ns + todo.at_ns <= time.monotonic_ns():
                self._send(todo, self._next)
                todo = next(arrivals, None)
            if todo and self._next is None and self._free:
                self._next = self._free.pop()
                self._ring.prepare(self._next, todo.offset, todo.length, write=todo.write)
            wait_ns = self._start_ns + todo.at_ns - time.monotonic_ns() if todo and self._next is not None else None
            if todo or self._under_way:
                self._collect(wait_ns)

    def _send(self, arrival: Arrival, slot: int) -> None:
        self._next = None
        self._under_way[slot] = arrival
        self._most = max(self._most, len(self._under_way))
        due_ns, now_ns = self._start_ns + arrival.at_ns, time.monotonic_ns()
        self._ring.submit(slot)
        # The device may have kept us: what is due meanwhile is not late by our doing.  All else that we do is.
        held_ns, free_ns = time.monotonic_ns() - now_ns, max(due_ns, self._ready_ns)
        self._ready_ns = free_ns + held_ns
        if self._measured(arrival.at_ns):
            self._behind.add(now_ns - due_ns)
            self._late.add(max(0, now_ns - free_ns))

    def _collect(self, wait_ns: int | None) -> None:
        full = self._next is None and not self._free
        ended = self._ring.wait(wait_ns)
        now_ns = time.monotonic_ns()
        for slot, done in ended:
            arrival = self._under_way.pop(slot)
            self._free.append(slot)
            self._completed += self._measured(now_ns - self._start_ns)
            if done != arrival.length:
                way, why = ("write" if arrival.write else "read"), os.strerror(-done) if done < 0 else f"{done} bytes"
                raise OSError(f"{way} of {arrival.length} bytes at {arrival.offset} failed: {why}")
            if self._measured(arrival.at_ns):
                self._took[arrival.write].add(now_ns - self._start_ns - arrival.at_ns)
                self._bytes[arrival.write] += arrival.length
        if full:
            self._ready_ns = now_ns

    def _measured(self, at_ns: int) -> bool:
        return self._begin_ns <= at_ns < self._begin_ns + self._length_ns

    def figures(self) -> dict[str, object]:
        """Return what there is to say, in fio's words and our own."""
        ran_ns = self._length_ns
        if self._stopped_ns:
            ran_ns = max(0, min(ran_ns, self._stopped_ns - self._start_ns - self._begin_ns))
        job: dict[str, object] = {"job_start": self._begun_unix_ns // 10**6}
        for op, took, moved in zip(("read", "write"), self._took, self._bytes, strict=True):
            spent = {"N": took.total, "mean": took.sum / max(1, took.total), "max": took.most}
            bins = {str(ns): count for ns, count in sorted(took.bins.items())}
            job[op] = {"total_ios": took.total, "io_bytes": moved, "runtime": ran_ns // 10**6,
                        "clat_ns": {"bins": bins}, "lat_ns": spent}  # fmt: skip
        offered = {
            "requests": self._behind.total, "completed": self._completed, "seconds": ran_ns / 1e9,
            "most_outstanding": self._most, "late_p99_ns": self._late.quantile(0.99),
            "behind_p50_ns": self._behind.quantile(0.5), "behind_p99_ns": self._behind.quantile(0.99),
            "behind_max_ns": self._behind.most,
        }  # fmt: skip
        return {"jobs": [job], OFFERED: offered}


def main() -> int:
    """Run as the module's text says; exit 1 after a request that failed, with what was counted until then."""
    place, arrivals, output, *numbers = sys.argv[1:]
    slots, begin_ns, length_ns = map(int, numbers)
    todo = list(unpacked(Path(arrivals).read_bytes()))
    status = 0
    ctypes.CDLL(None).prctl(_TIMERSLACK, 1)
    with contextlib.suppress(PermissionError):
        # It sleeps nearly all the time; when a request is due, whatever else the host does can wait.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        descriptor = os.open(place, os.O_DIRECT | (os.O_RDWR if any(one.write for one in todo) else os.O_RDONLY))
        longest = [max((one.length for one in todo if one.write is write), default=0) for write in (False, True)]
        ring = Ring(descriptor, slots, (longest[0], longest[1]))
    except OSError as error:
        print(f"{place}: opening it for direct requests failed: {error.strerror}", file=sys.stderr)
        return 1
    pacer = _Pacer(ring, slots, begin_ns, length_ns)
    signal.signal(signal.SIGINT, pacer.stop)
    try:
        pacer.run(iter(todo))
    except OSError as error:
        print(error, file=sys.stderr)
        status = 1
    Path(output).write_text(json.dumps(pacer.figures(), indent=1), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
