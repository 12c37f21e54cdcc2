# SPDX-License-Identifier: GPL-2.0-or-later
"""Busy hosts that do not exist: four disks over two sessions each, whose counters go on with the time.

The metrics are written by the exporter itself; what the kernel would count is drawn at random, by host and step.
"""

import dataclasses
import math
import random
from bisect import bisect_right

from fabtune.export.exposition import render
from fabtune.export.gather import Gathered, WatchedDevice
from fabtune.export.verified import Verified
from fabtune.host.sessions import Session
from fabtune.host.sockets import TcpSocket
from fabtune.stat import CountedDevice, Endpoint, Histogram, Op, Snapshot, StuckList
from fabtune.stat.snapshot import HELD_EVENTS, QUEUE_FULL_EVENTS

DISKS, SESSIONS, TARGETS = 4, 2, 20
STEP_S = 60
# The module's bounds: every ns below 16, then sixteenths of octaves (kmod/histogram.h).
FROM_NS = (*range(16), *(((16 + step) << shift) for shift in range(36) for step in range(16)))
# As many draws tell where a step's requests fall; each stands for many.
_DRAWS = 60
_TARGET = "iqn.2026-01.net.example:array-{0:02}"


class Host:
    """One host; `metrics` is called with rising times."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)
        self._number = number
        self._step = 0
        self._disks = [self._new_disk(index) for index in range(DISKS)]
        self._sockets = [
            TcpSocket(
                "10.0.0.1", f"10.1.0.{one}", 40000 + one, 3260, 0.5, 0.21, 0, 90, 8948, 0, "cubic", 6291456, 4194304
            )
            for one in range(SESSIONS)
        ]

    def _new_disk(self, index: int) -> CountedDevice:
        return CountedDevice(
            id=index + 1,
            state="live",
            disk=f"sd{'abcd'[index]}",
            dev=f"8:{16 * index}",
            diskseq=index,
            driver="iscsi_tcp",
            hctl=f"2:0:0:{index}",
            parent=f"session{index % SESSIONS + 1}",
            seen_ns=1,
            time_ns=1,
            in_flight=0,
            highest=32,
            limit=32,
            forgotten=0,
            eh_wakeups=0,
            depth_ns=0,
            at_limit_ns=0,
            events={},
            ops={"read": Op(), "write": Op()},
        )

    def metrics(self, form: str, at_s: float) -> str:
        """Return what the exporter would answer at `at_s`, in `form`."""
        while self._step < int(at_s / STEP_S):
            # A host seen for the first time has just been booted.
            self._step = self._step + 1 if self._step else int(at_s / STEP_S)
            self._disks = [self._went_on(one, index) for index, one in enumerate(self._disks)]
            self._sockets = [self._sent(one) for one in self._sockets]
        return "".join(render(self._gathered(at_s), form))

    def _went_on(self, disk: CountedDevice, index: int) -> CountedDevice:
        """Return the disk a step later; of four one meets a closed window again and again."""
        draw = self._random
        refused = draw.randrange(40, 400) if index == 3 else 0
        ops = {name: self._worked(op, refused) for name, op in disk.ops.items()}
        busy = sum(op.device_ns - disk.ops[name].device_ns for name, op in ops.items())
        events = {name: disk.events.get(name, 0) for name in (*QUEUE_FULL_EVENTS, *HELD_EVENTS)}
        events["target_busy"] += refused
        return dataclasses.replace(
            disk,
            ops=ops,
            events=events,
            in_flight=draw.randrange(33),
            depth_ns=disk.depth_ns + busy,
            at_limit_ns=disk.at_limit_ns + draw.randrange(10**9),
        )

    def _worked(self, op: Op, refused: int) -> Op:
        """Return the counters after some hundred requests a second of 0.1 to 30 ms, as this minute's load has it."""
        draw = self._random
        middle, times_each = draw.lognormvariate(math.log(1.2e6), 0.5), draw.randrange(100, 1000)
        found = {name: dict(one.counts) for name, one in op.histograms.items()}
        spent = 0
        for _ in range(_DRAWS):
            taken = int(draw.lognormvariate(math.log(middle), 0.8))
            count = draw.randrange(times_each) + 1
            spent += taken * count
            _add(found.setdefault("device", {}), taken, count)
            _add(found.setdefault("total", {}), taken * (2 if refused and taken > middle * 4 else 1), count)
        for _ in range(min(refused, _DRAWS)):
            _add(
                found.setdefault("refused", {}), int(draw.lognormvariate(math.log(middle), 0.8)), refused // _DRAWS + 1
            )
        done = sum(found["device"].values())
        return dataclasses.replace(
            op,
            issued=done,
            completed=done,
            bytes=op.bytes + draw.randrange(4, 64) * 4096 * (done - op.completed),
            sent_back=op.sent_back + refused,
            device_ns=op.device_ns + spent,
            total_ns=op.total_ns + spent,
            refused=op.refused + refused,
            refused_ns=op.refused_ns + refused * int(middle),
            histograms={name: Histogram(FROM_NS, counts) for name, counts in found.items()},
        )

    def _sent(self, one: TcpSocket) -> TcpSocket:
        draw = self._random
        return dataclasses.replace(
            one,
            rtt_ms=round(draw.uniform(0.2, 1), 3),
            cwnd_segments=draw.randrange(10, 200),
            retransmitted_segments=one.retransmitted_segments + (draw.random() < 0.1),
            busy_us=one.busy_us + draw.randrange(60_000_000),
            rwnd_limited_us=one.rwnd_limited_us + draw.randrange(10**6),
            acked_bytes=one.acked_bytes + draw.randrange(10**10),
            received_bytes=one.received_bytes + draw.randrange(10**10),
        )

    def _gathered(self, at_s: float) -> Gathered:
        module = {
            "version": "0.2.0",
            "clock": "counter",
            "missing": "-",
            "enabled": "1",
            "scsi": "1",
            "stuck_ms": "60000",
            "memory_bytes": "1048576",
            "memory_limit_bytes": "134217728",
            "memory_refused": "0",
            "untracked": "0",
        }
        target = _TARGET.format(self._number % TARGETS)
        portals = [f"10.1.{self._number % TARGETS}.{one}:3260" for one in range(SESSIONS)]
        watched = tuple(
            WatchedDevice(one, Endpoint("iscsi", target, portals[index % SESSIONS]), "")
            for index, one in enumerate(self._disks)
        )
        sessions = tuple(
            (
                Session(one + 1, target, portals[one], "default", "LOGGED_IN", "10.1.0.1", 3260, 40000, (), 128, {}),
                socket,
            )
            for one, socket in enumerate(self._sockets)
        )
        outcome = Verified(1, float(self._step // 1440 * 86400), 40, {}, {})
        reading = Snapshot(int(at_s * 1e9), 1, 0, module, (), tuple(self._disks), "")
        took_s = self._random.uniform(0.002, 0.004)
        return Gathered(at_s, reading, watched, 0, StuckList(0, 60 * 10**9, ()), sessions, outcome, None, {}, took_s)


def _add(counts: dict[int, int], taken_ns: int, count: int) -> None:
    index = bisect_right(FROM_NS, taken_ns) - 1
    counts[index] = counts.get(index, 0) + count
