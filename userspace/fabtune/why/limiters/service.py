# SPDX-License-Identifier: GPL-2.0-or-later
"""The sender has nothing to send, and requests take longer than the path explains: who works on them?"""

from collections.abc import Callable, Iterator

import attrs

from fabtune.model.limits import Evidence
from fabtune.model.observation import INITIATOR, TARGET, BackstoreSeen, EndSeen
from fabtune.why import cpu_busy
from fabtune.why.limiter import HELD, OWED, STOPPED, Limiter
from fabtune.why.limiters.requests import DEPTH_OR_LOAD, LOAD, depth_of
from fabtune.why.limiters.requests import LIMITERS as REQUESTS
from fabtune.why.limiters.stopped import hangs, is_heard, waiting_seen
from fabtune.why.one_way import Moment, OneWay
from fabtune.why.slices import Parts

# A thread or CPU this busy has no more to give.
_BUSY, _NO_REST = 0.85, 0.97
# The share of the time that a disk works, or of a request's rest that it takes, from which on it is the disk.
_DISK_BUSY, _DISK_SHARE = 0.8, 0.5


def _slowest(one_way: OneWay) -> BackstoreSeen | None:
    """Return the target's disk that accounts for what requests wait for, None where none does or none is seen."""
    if one_way.seen.target is None or not one_way.latency_s:
        return _stuck(one_way)
    rest_ms = _rest_ms(one_way)
    telling = [
        one
        for one in one_way.seen.target.backstores
        if one.busy_share >= _DISK_BUSY or one.mean_ms.get(one_way.way_name, 0.0) >= _DISK_SHARE * rest_ms
    ]
    return max(telling, key=lambda one: one.busy_share) if telling else None


def _stuck(one_way: OneWay) -> BackstoreSeen | None:
    """Return the target's disk that works all the time and ends nothing, None where none does or something moves."""
    stores = one_way.seen.target.backstores if one_way.seen.target and not one_way.way.moved_bytes else ()
    return next((one for one in stores if one.busy_share >= _DISK_BUSY and not sum(one.completed.values())), None)


def _backstore_seen(one_way: OneWay) -> bool:
    """Tell whether a disk of the target did requests of this direction: one of those seen is the backstore."""
    stores = one_way.seen.target.backstores if one_way.seen.target else ()
    return any(one.completed.get(one_way.way_name, 0) for one in stores)


def _rest_ms(one_way: OneWay) -> float:
    """Return what the path does not explain of a request's mean time."""
    return 1e3 * one_way.parts.rest * (one_way.latency_s or 0.0)


def _rests(one_way: OneWay, end: EndSeen) -> bool:
    """Tell whether a CPU of `end` has time left: without, its work waits for a CPU, whichever thread's it is.

    A CPU that spins on a full socket looks as busy, and of hosts in namespaces it is everybody's.
    """
    return one_way.spins or min(end.cpu_busy, default=0.0) < _NO_REST


def _of_one_end(one_way: OneWay) -> str:
    """Return the name of what the initiator alone cannot tell apart."""
    if one_way.way_name == "write":
        return "cannot-tell-target"
    return "cannot-tell-sender" if one_way.goodput else "cannot-tell-sender-line"


def _who(one_way: OneWay) -> str:
    """Return the name of who has the requests meanwhile, as far as it can be told."""
    if cpu_busy.busiest(one_way, one_way.seen.initiator) >= _BUSY:
        return "initiator-cpu"
    resting = _rests(one_way, one_way.seen.initiator)
    target = one_way.seen.target
    if target is None and not resting:
        return "cannot-tell-cpu"
    # What its connection waits for is not known then.
    unseen = "" if target and (target.socket or one_way.seen.session.rdma) else _of_one_end(one_way)
    if target is None:
        return unseen
    if cpu_busy.busiest(one_way, target) >= _BUSY:
        return "target-cpu"
    if not _slowest(one_way) and not _rests(one_way, target):
        return "target-cpu" if resting else "cannot-tell-cpu"
    served_ms = one_way.seen.served_ms(one_way.way_name)
    if served_ms is not None and served_ms < _DISK_SHARE * _rest_ms(one_way):
        # The target answers at once; who has the rest of the time is not known.
        return unseen or "nobody"
    backstore_ms = one_way.seen.backstore_ms(one_way.way_name)
    if backstore_ms is not None:
        # Counted of just these commands: what the target has besides is nobody's that is known.
        return "target-disk" if backstore_ms >= _DISK_SHARE * _rest_ms(one_way) else unseen or "nobody"
    if not _slowest(one_way) and _backstore_seen(one_way):
        # Its own counter says that it answers at once; what holds writes back this end sees.
        return (one_way.way_name == "read" and unseen) or "nobody"
    if not _slowest(one_way) and unseen:
        return unseen
    # With its CPUs idle nothing but the backstore is left, of whatever kind it is.
    return "target-disk"


def _when(name: str) -> Callable[[Moment], float]:
    return lambda moment: moment.parts.rest if _who(moment.one_way) == name else 0.0


def _hung_disk(moment: Moment) -> float:
    return float(hangs(moment) and _stuck(moment.one_way) is not None)


def _hung_target(moment: Moment) -> float:
    return float(hangs(moment) and is_heard(moment.one_way))


def _sender_or_line(moment: Moment) -> float:
    if _who(moment.one_way) != "cannot-tell-sender-line" or not moment.parts.rest:
        return 0.0
    # A full line, too, makes requests late: then nobody keeps too few of them under way.
    return moment.parts.rest + (moment.parts.path if _may_be_full(moment.one_way, moment.parts) else 0.0)


def _may_be_full(one_way: OneWay, parts: Parts) -> bool:
    """Tell whether the line may be: of so many requests at once on a full one, all but one wait behind others."""
    depth = one_way.seen.disk.mean_depth
    return depth is None or parts.path <= 1 - 1 / max(depth, 1.0)


def _too_few(one_way: OneWay) -> tuple[str, ...]:
    """Return what may keep too few requests under way: what is late may be their own time on a slow line."""
    reached = depth_of(one_way)
    if reached == DEPTH_OR_LOAD.name:
        return DEPTH_OR_LOAD.among
    if reached:
        return (reached,)
    return () if _may_be_full(one_way, one_way.parts) else (LOAD.name,)


def _sender_or_line_subject(one_way: OneWay) -> str:
    few = "".join(f", {one.subject(one_way)}" for one in REQUESTS if one.name in _too_few(one_way))
    return f"{SENDER_SIDE.subject(one_way)}{few}, or a full line (give --rate to tell)"


def _too_busy_to_send(end: str) -> Callable[[Moment], float]:
    """By elimination: data waits that no window, buffer or line holds back, and a CPU of the sender has no rest."""

    def claim(moment: Moment) -> float:
        sender = moment.one_way.sender
        busiest = max(sender.cpu_busy, default=0.0) if sender and sender.end == end else 0.0
        return float(moment.one_way.always_backlogged and busiest >= _NO_REST)

    return claim


def _time_seen(one_way: OneWay) -> Iterator[Evidence]:
    if one_way.latency_s:
        path_ms = 1e3 * (one_way.rtt_s + one_way.r2t_s + one_way.wire_s)
        value = f"{1e3 * one_way.latency_s:.1f} ms; round trips and wire explain {path_ms:.1f} ms"
        yield Evidence(INITIATOR, "a request takes", value)
    elif not one_way.way.completed:
        yield from waiting_seen(one_way)


def _cpus_seen(*ends: EndSeen | None) -> Iterator[Evidence]:
    for end in ends:
        if end and end.cpu_busy and min(end.cpu_busy) >= _NO_REST:
            yield Evidence(end.end, "every CPU", f"at least {100 * min(end.cpu_busy):.0f} % busy")


def _no_rest_seen(one_way: OneWay) -> Iterator[Evidence]:
    yield from _time_seen(one_way)
    yield from _cpus_seen(one_way.seen.initiator, one_way.seen.target)


def _served_seen(one_way: OneWay) -> Iterator[Evidence]:
    served_ms = one_way.seen.served_ms(one_way.way_name)
    if served_ms is not None:
        backstore_ms = one_way.seen.backstore_ms(one_way.way_name)
        there = "" if backstore_ms is None else f", {backstore_ms:.1f} ms of it in the backstore"
        yield Evidence(TARGET, "a command's time at the target", f"{served_ms:.1f} ms{there}")


def _target_seen(one_way: OneWay) -> Iterator[Evidence]:
    yield from _time_seen(one_way)
    yield Evidence(
        TARGET, "busiest thread or CPU", f"{100 * cpu_busy.busiest(one_way, one_way.seen.target):.0f} % of a CPU"
    )
    yield from _cpus_seen(one_way.seen.target)
    yield from _served_seen(one_way)
    disk = _slowest(one_way)
    if disk:
        mean_ms = disk.mean_ms.get(one_way.way_name, 0.0)
        ended = f" {mean_ms:.1f} ms a request" if one_way.way.completed else " and ended nothing"
        yield Evidence(TARGET, f"disk {disk.name}", f"busy {100 * disk.busy_share:.0f} %,{ended}")
    elif one_way.seen.target and not _backstore_seen(one_way):
        yield Evidence(TARGET, "backstore", "no block device did these requests; by elimination")


def _initiator_seen(one_way: OneWay) -> Iterator[Evidence]:
    yield from _time_seen(one_way)
    yield Evidence(
        INITIATOR, "busiest thread", f"{100 * cpu_busy.busiest(one_way, one_way.seen.initiator):.0f} % of a CPU"
    )
    yield Evidence(INITIATOR, "busiest CPU", f"{100 * max(one_way.seen.initiator.cpu_busy, default=0):.0f} %")
    digests = [
        name for name in ("HeaderDigest", "DataDigest") if "CRC" in one_way.seen.session.negotiated.get(name, "")
    ]
    if digests:
        yield Evidence(INITIATOR, "digests", f"{' and '.join(digests)} cost CPU for every byte")


TARGET_DISK = Limiter(
    name="target-disk", stage=OWED, order=10, claim=_when("target-disk"), evidence=_target_seen, serves=True,
    doing="target",
    subject=lambda one_way: f"the target's disk{f' ({disk.name})' if (disk := _slowest(one_way)) else ''}",
)  # fmt: skip
TARGET_CPU = Limiter(
    name="target-cpu", doing="target", stage=OWED, order=11, claim=_when("target-cpu"), evidence=_target_seen,
    subject=lambda _: "the target's CPU: one thread or CPU has no more to give",
    advice=lambda _: "more sessions to the target (iscsi.nr_sessions) spread the work over its CPUs",
    lifts=("lio.cpus_allowed",), ends=lambda _: (TARGET,),
)  # fmt: skip
INITIATOR_CPU = Limiter(
    name="initiator-cpu", stage=OWED, order=12, claim=_when("initiator-cpu"), evidence=_initiator_seen,
    doing="initiator", subject=lambda _: "the initiator's CPU: one thread or CPU has no more to give",
    lifts=("nic.channels", "nic.gro", "nic.rps_cpus"), ends=lambda _: (INITIATOR,),
)  # fmt: skip
_INITIATOR_SENDS = attrs.evolve(INITIATOR_CPU, stage=HELD, order=10, claim=_too_busy_to_send(INITIATOR))
_TARGET_SENDS = attrs.evolve(TARGET_CPU, stage=HELD, order=11, claim=_too_busy_to_send(TARGET))
TARGET_SIDE = Limiter(
    name="cannot-tell-target", stage=OWED, order=13, claim=_when("cannot-tell-target"), evidence=_time_seen,
    doing="target", subject=lambda _: "the target: its disk or its CPU", among=("target-disk", "target-cpu"),
)  # fmt: skip
_HUNG_DISK = attrs.evolve(TARGET_DISK, stage=STOPPED, order=2, claim=_hung_disk)
_HUNG_TARGET = attrs.evolve(TARGET_SIDE, stage=STOPPED, order=3, claim=_hung_target)
SENDER_SIDE = Limiter(
    name="cannot-tell-sender", stage=OWED, order=14, claim=_when("cannot-tell-sender"), evidence=_time_seen,
    subject=lambda _: "the target: its send buffer, a limit to its rate, its disk or its CPU",
    among=("send-buffer", "pacing", "target-disk", "target-cpu", "congestion-window"),
)  # fmt: skip
SENDER_OR_LINE = Limiter(
    name="cannot-tell-sender-line", stage=OWED, order=-1, claim=_sender_or_line, evidence=_time_seen,
    subject=_sender_or_line_subject, among=(*SENDER_SIDE.among, "line"), also=_too_few,
)  # fmt: skip
NO_CPU_LEFT = Limiter(
    name="cannot-tell-cpu", stage=OWED, order=15, claim=_when("cannot-tell-cpu"), evidence=_no_rest_seen,
    subject=lambda one_way: "a CPU: the initiator's, or the target's" if one_way.seen.target
    else "the initiator's CPU, which has no time left, or the target",
    among=("initiator-cpu", "target-cpu", "target-disk"),
)  # fmt: skip

LIMITERS = (
    _HUNG_DISK, _HUNG_TARGET, TARGET_DISK, TARGET_CPU, INITIATOR_CPU, _INITIATOR_SENDS, _TARGET_SENDS, TARGET_SIDE,
    SENDER_SIDE, SENDER_OR_LINE, NO_CPU_LEFT,
)  # fmt: skip
