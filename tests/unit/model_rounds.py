# SPDX-License-Identifier: GPL-2.0-or-later
"""A made-up round of the randomised model test: a trace, the books of a right module, and what the guest knows."""

import bisect
import heapq
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fabtune.installed import PACKAGE
from fabtune.stat import DeviceInterval, Histogram, Op, parse

sys.path.insert(0, str(PACKAGE.parents[1] / "tests/vm"))

from model_books import Model, model_of  # noqa: E402
from model_kept import COMPLETE, ISSUE, REQUEUE, Event  # noqa: E402
from model_known import Known, known  # noqa: E402

READING = parse((Path(__file__).parent / "data/fabstat-0.2.0.stats").read_text())
FROM_NS = next(iter(READING.devices[0].ops.values())).histograms["device"].from_ns
EVENTS = (*READING.event_names, "nvme_aborted", "nvme_path", "nvme_not_ready")
BY_TARGET = ("task_set_full", "busy", "unit_attention")
REASONS = {
    "scsi_debug": ("host_busy", "device_busy", "target_busy", *BY_TARGET), "path": ("host_busy", *BY_TARGET),
    "iscsi": ("target_busy",) * 9 + ("task_set_full",), "nvme": ("unit_attention",),
}  # fmt: skip
_BY_DRIVER = {"host_busy": 0x1055, "device_busy": 0x1056, "target_busy": 0x1058}
_STATUS = {"task_set_full": 0x28, "busy": 0x08, "unit_attention": 0x02}
LIMIT = 64


@dataclass
class Request:
    """One that is issued, refused for some reasons, and ends."""

    number: int
    issues_ns: list[int] = field(default_factory=list)
    back_ns: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    end_ns: int = 0

    @property
    def device_ns(self) -> int:
        return self.end_ns - self.issues_ns[-1]

    @property
    def total_ns(self) -> int:
        return self.end_ns - self.issues_ns[0]

    @property
    def refused_ns(self) -> int | None:
        refused = [when for when, why in zip(self.back_ns, self.reasons, strict=True) if why != "unit_attention"]
        return self.issues_ns[-1] - refused[0] if refused else None


@dataclass
class Round:
    """A model, what the module says, what is known, and the requests of which all of it was made."""

    model: Model
    one: DeviceInterval
    knows: Known
    requests: list[Request]

    def read(self, **changes: object) -> DeviceInterval:
        """Return what the module says with these changes to its reads."""
        return replace(self.one, ops={**self.one.ops, "read": replace(self.one.ops["read"], **changes)})

    def histograms(self, **changes: Histogram) -> DeviceInterval:
        return self.read(histograms={**self.one.ops["read"].histograms, **changes})


def histogram(times_ns: Iterable[int]) -> Histogram:
    return Histogram(FROM_NS, dict(Counter(bisect.bisect_right(FROM_NS, time) - 1 for time in times_ns)))


def bucket(index: int, count: int) -> Histogram:
    """Return a histogram with all times in one bucket; -1: the last one."""
    return Histogram(FROM_NS, {index % len(FROM_NS): count})


def load(kind: str, requests: int, depth: int, delay_ns: int, seed: int) -> tuple[list[Event], list[Request]]:
    """Return the events of so many reads of 4 KiB, and the requests."""
    chance, queue, events = random.Random(seed), list[tuple[int, int, str, Request]](), list[Event]()
    done: list[Request] = []
    sent_back = 0.002 if kind == "nvme" else 0.014

    def push(when: int, what: str, request: Request) -> None:
        heapq.heappush(queue, (when, chance.randrange(1 << 40), what, request))

    def note(when: int, action: int, request: Request) -> None:
        events.append((when, action, request.number * 8 - 8, 4096, 0))

    for number in range(1, depth + 1):
        push(1_000_000 + chance.randrange(200, 2000), "issue", Request(number))
    while queue:
        now, _, what, request = heapq.heappop(queue)
        if what == "issue":
            request.issues_ns.append(now)
            note(now, ISSUE, request)
            if chance.random() < sent_back:
                request.reasons.append(chance.choice(REASONS[kind]))
                push(now + (delay_ns if request.reasons[-1] in BY_TARGET else 3000), "back", request)
            else:
                push(now + delay_ns + int(chance.expovariate(1 / (0.1 * delay_ns))), "end", request)
        elif what == "back":
            request.back_ns.append(now)
            note(now, REQUEUE, request)
            push(now + chance.randrange(1_000_000, 3_000_000), "issue", request)
        else:
            request.end_ns = now
            note(now, COMPLETE, request)
            done.append(request)
            if (number := len(done) + depth) <= requests:
                # The next one is asked for when its predecessor has been seen to end.
                push(now + chance.randrange(40_000, 60_000), "issue", Request(number))
    return events, done


def counted(kind: str, requests: list[Request], model: Model) -> DeviceInterval:
    """Return what a module that is right says of these requests."""
    times = {
        "device": [request.device_ns for request in requests], "total": [request.total_ns for request in requests],
        "refused": [request.refused_ns for request in requests if request.refused_ns is not None],
    }  # fmt: skip
    op = Op(
        issued=sum(len(request.issues_ns) for request in requests), completed=len(requests),
        sent_back=model.requeued, bytes=4096 * len(requests), device_ns=sum(times["device"]),
        total_ns=sum(times["total"]), refused=len(times["refused"]), refused_ns=sum(times["refused"]),
        histograms={time: histogram(of) for time, of in times.items()},
    )  # fmt: skip
    events = Counter(reason for request in requests for reason in request.reasons)
    by_driver = sum(events[name] for name in _BY_DRIVER)
    told = {name: events[name] for name in EVENTS}
    told |= {"requeued_by_driver": by_driver, "requeued_by_target": model.requeued - by_driver}
    reached = sum(ns for depth, ns in model.at_depth_ns.items() if depth >= LIMIT)
    device = replace(
        READING.devices[0], in_flight=0, highest=model.highest, limit=LIMIT, forgotten=0, eh_wakeups=0, torn=0,
        queues=(), limit_of="device", hctl="0:0:0:0",
    )  # fmt: skip
    return DeviceInterval(device, 10**12, {"read": op}, told, model.depth_ns, reached, 0, ())


def answered(events: Mapping[str, int], unit_attentions: int) -> dict[str, str]:
    """Return the kernel's histograms of what driver and target answered."""
    entries: dict[str, list[str]] = {
        "scsi_dispatch_cmd_error": [_entry("rtn", code, events[name]) for name, code in _BY_DRIVER.items()],
        "scsi_dispatch_cmd_done": [
            _entry("result", code, events.get(name, unit_attentions)) for name, code in _STATUS.items()],
        "scsi_dispatch_cmd_timeout": [], "scsi_eh_wakeup": [],
    }  # fmt: skip
    return {event: "\n".join([*lines, "Totals:", "    Dropped: 0\n"]) for event, lines in entries.items()}


def _entry(key: str, value: int, count: int) -> str:
    return f"{{ host_no:          0, lun:          0, {key}: {value:10} }} hitcount: {count:10}"


def told(kind: str, one: DeviceInterval, limits: tuple[int, int], manner: str = "any") -> dict[str, Any]:
    """Return what a guest's file tells of such a device, but for its traces and readings."""
    disk = "nvme0n1" if kind == "nvme" else "sda"
    read, events = one.ops["read"], one.events
    none = " ".join("0" * 17)
    words = none.split()
    words[0], words[2] = str(read.completed), str(read.bytes // 512)
    unit_attentions = events["requeued_by_target"] - events["task_set_full"] - events["busy"]
    empty = answered(dict.fromkeys(EVENTS, 0), 0)
    reserved = int(kind == "nvme")
    limit = {"nr_requests": limits[-1] + reserved, "tags": 128, "reserved": reserved}
    if kind != "nvme":
        limit |= {"nr_requests": 256, "depth": limits[-1]}
    device = {
        "kind": "nvme" if kind == "nvme" else "scsi", "hctl": "" if kind == "nvme" else "0:0:0:0",
        "limits": [limit, limit], "depths": [depth + reserved for depth in limits],
        "injected": {name: events[name] for name in EVENTS} if kind in ("scsi_debug", "path") else None,
    }  # fmt: skip
    return {
        "stack": kind, "manner": manner, "kernel": "6.12", "head": "dm-0" if kind == "path" else disk,
        "devices": {disk: device}, "can_flush": True, "troubles": {"resets": 3}, "least_ns": 100_000,
        "looks": [{"stats": {disk: none}, "answers": empty},
                  {"stats": {disk: " ".join(words)}, "answers": answered(events, unit_attentions)}],
        "moved": {"read": {"bytes": read.bytes, "ios": read.completed, "latency_ns": read.total_ns},
                  "write": {"bytes": 0, "ios": 0, "latency_ns": 0}, "flush": {"ios": 0}},
    }  # fmt: skip


def made_up(
    kind: str, *, requests: int = 6000, depth: int = 48, delay_ns: int = 300_000, seed: int = 1,
    limits: tuple[int, int] = (4, LIMIT),
) -> Round:  # fmt: skip
    """Return a round of such a stack in which all is right."""
    events, done = load(kind, requests, depth, delay_ns, seed)
    model = model_of(events)
    one = counted(kind, done, model)
    disk = "nvme0n1" if kind == "nvme" else "sda"
    return Round(model, one, known(told(kind, one, limits), disk), done)
