# SPDX-License-Identifier: GPL-2.0-or-later
"""The sender has nothing to send, because too few requests are under way: who keeps their number down?

A request's time on the path passes with the line idle. That is the fault of what bounds the number of requests, and
with none of these in sight of the load itself.
"""

from collections.abc import Callable, Iterator

import attrs

from fabtune.host import targets
from fabtune.model import change
from fabtune.model.limits import Evidence
from fabtune.model.observation import INITIATOR, TARGET
from fabtune.why.limiter import OWED, Limiter
from fabtune.why.one_way import Moment, OneWay

# The share of the time at the limit, or of the limit in use, from which on it is one.
_AT_LIMIT = 0.9
# The share of requests that were refused at least once.
REFUSED = 0.05
# Requests that wait above the driver for at least this share of their time are more than the limit.
_WAITS = 0.05
# Refusals as fabstat counts them, by who refuses.
BY_WINDOW, BY_TARGET = ("target_busy",), ("task_set_full", "busy")
BY_HOST = ("host_busy",)


def refusals_a_request(one_way: OneWay, kinds: tuple[str, ...]) -> float:
    """Return the refusals of these kinds by request."""
    done = sum(way.completed for way in one_way.seen.disk.ways.values())
    return sum(one_way.seen.disk.refusals.get(kind, 0) for kind in kinds) / max(done, 1)


def _at_limit(one_way: OneWay) -> bool:
    disk = one_way.seen.disk
    if disk.at_limit is not None:
        return disk.at_limit >= _AT_LIMIT
    return bool(disk.limit and disk.mean_depth is not None and disk.mean_depth >= _AT_LIMIT * disk.limit)


def _more_wait(one_way: OneWay) -> bool:
    """Tell whether more requests are there than the limit lets through: they wait in the block queue."""
    way = one_way.way
    if way.block_ms is None or way.total_ms is None or not one_way.seen.disk.by_fabstat:
        return False
    return way.block_ms - way.total_ms >= _WAITS * way.block_ms


def _session_full(one_way: OneWay) -> bool:
    disk, can_queue = one_way.seen.disk, one_way.seen.session.can_queue
    if not can_queue:
        return False
    # Tags of the host: a load that wants more waits for one unseen, in io_submit.
    return _at_limit(one_way) and disk.limit is not None and disk.limit >= can_queue


def _tags_used_up(one_way: OneWay) -> bool:
    """Tell whether all requests that the block queue has (nr_requests) are in use, fewer than the disk takes."""
    disk = one_way.seen.disk
    tags = int(disk.queue.get("nr_requests", "0") or 0)
    fewer = 0 < tags < (disk.limit or 0)
    return fewer and disk.mean_depth is not None and disk.mean_depth >= _AT_LIMIT * tags


def _bound(moment: Moment) -> str:
    """Return the name of what keeps the number of requests down."""
    one_way = moment.one_way
    if moment.idle:
        return "load"
    if refusals_a_request(one_way, BY_TARGET) >= REFUSED:
        return "task-set-full"
    if refusals_a_request(one_way, BY_WINDOW) >= REFUSED:
        return "command-window"
    if one_way.depth_changes:
        return _changing(moment)
    return depth_of(one_way) or "load"


def depth_of(one_way: OneWay) -> str:
    """Return the name of the limit to the requests under way that is reached all the time, '' for none."""
    if _session_full(one_way) or refusals_a_request(one_way, BY_HOST) >= REFUSED:
        ran_out = one_way.seen.session.no_credit
        return "session-commands" if ran_out is None else "srp-credits" if ran_out else "srp-queue"
    if _tags_used_up(one_way):
        return "nr-requests"
    if _at_limit(one_way) and (_more_wait(one_way) or not one_way.seen.disk.by_fabstat):
        return "queue-depth" if one_way.seen.disk.by_fabstat else "cannot-tell-depth"
    return ""


def _changing(moment: Moment) -> str:
    """Return the same where somebody changed the limit during the look: by what stood there in this moment."""
    if not moment.at_depth or not (_more_wait(moment.one_way) or not moment.one_way.seen.disk.by_fabstat):
        return "load"
    sample = moment.asked
    tags, limit = (sample.nr_requests, sample.limit) if sample else (None, None)
    fewer = tags is not None and (limit is None or tags < limit)
    return "nr-requests" if fewer else "queue-depth"


def _when(name: str) -> Callable[[Moment], float]:
    return lambda moment: moment.parts.path if _bound(moment) == name else 0.0


def _depth_seen(one_way: OneWay) -> Iterator[Evidence]:
    disk = one_way.seen.disk
    depth = "not known" if disk.mean_depth is None else f"{disk.mean_depth:.1f}"
    limit = f"{depth} of {disk.limit}" if disk.limit else depth
    size = f"{one_way.way.request_bytes / 1024:.0f} KiB each"
    yield Evidence(INITIATOR, "requests in flight", f"{limit}, {size}")
    if _tags_used_up(one_way):
        yield Evidence(INITIATOR, "nr_requests", disk.queue["nr_requests"])
    if disk.at_limit is not None and disk.at_limit >= 0.005:
        yield Evidence(INITIATOR, "time at that limit", f"{100 * disk.at_limit:.0f} %")
    if one_way.latency_s:
        path_ms = 1e3 * (one_way.rtt_s + one_way.wire_s)
        yield Evidence(
            INITIATOR, "a request takes", f"{1e3 * one_way.latency_s:.1f} ms, {path_ms:.1f} ms of it the path"
        )


def _refusals_seen(one_way: OneWay) -> Iterator[Evidence]:
    for kind in (*BY_WINDOW, *BY_TARGET, *BY_HOST):
        if count := one_way.seen.disk.refusals.get(kind):
            yield Evidence(INITIATOR, f"refused: {kind}", f"{count} times in {one_way.seen.disk.elapsed_s:.0f} s")
    yield from _depth_seen(one_way)


def _window_seen(one_way: OneWay) -> Iterator[Evidence]:
    served = one_way.seen.served
    if served and served.window is not None:
        yield Evidence(TARGET, "the session's command window", f"{served.window} commands")
    yield from _refusals_seen(one_way)


def commands_seen(one_way: OneWay) -> Iterator[Evidence]:
    """Yield the session's queue, its credits where it has some, refusals and depth."""
    yield Evidence(INITIATOR, "can_queue of the session", str(one_way.seen.session.can_queue))
    if one_way.seen.session.no_credit is not None:
        yield Evidence(INITIATOR, "out of SRP credits", f"{one_way.seen.session.no_credit} times (zero_req_lim)")
    yield from _refusals_seen(one_way)


def _r2t(moment: Moment) -> float:
    return moment.parts.r2t


def _r2t_seen(one_way: OneWay) -> Iterator[Evidence]:
    names = ("InitialR2T", "ImmediateData", "FirstBurstLength", "MaxBurstLength", "MaxOutstandingR2T")
    agreed = ", ".join(f"{name} {one_way.seen.session.negotiated.get(name, '?')}" for name in names)
    yield Evidence(INITIATOR, "negotiated", agreed)
    size = f"{one_way.way.request_bytes / 1024:.0f} KiB"
    yield Evidence(INITIATOR, "round trips for R2Ts", f"{one_way.r2t_round_trips} a write of {size}")
    served = one_way.seen.served
    if served and (wait_ms := served.r2t_ms.get(one_way.way_name)) is not None:
        yield Evidence(TARGET, "a write's wait for its data", f"{wait_ms:.1f} ms")
    yield from _depth_seen(one_way)


def _initiator(_: OneWay) -> tuple[str, ...]:
    return (INITIATOR,)


def _target(_: OneWay) -> tuple[str, ...]:
    return (TARGET,)


R2T = Limiter(
    name="r2t", stage=OWED, order=0, claim=_r2t, evidence=_r2t_seen,
    subject=lambda _: "round trips in which writes wait for the target's leave to send (R2T, bursts)",
    lifts=(
        "iscsi.initial_r2t", "iscsi.immediate_data", "iscsi.first_burst", "iscsi.max_burst",
        "iscsi.max_outstanding_r2t", "iscsi.max_xmit_segment",
        *targets.offering(*change.BURSTS, "MaxXmitDataSegmentLength"),
    ),
)  # fmt: skip
TASK_SET_FULL = Limiter(
    name="task-set-full", doing="target", stage=OWED, order=1, claim=_when("task-set-full"), evidence=_refusals_seen,
    subject=lambda _: "the target, which refuses commands (TASK SET FULL, BUSY)",
    lifts=("lio.store_queue_depth", "block.queue_ramp_up"), ends=_target,
)  # fmt: skip
COMMAND_WINDOW = Limiter(
    name="command-window", doing="target", stage=OWED, order=2, claim=_when("command-window"), evidence=_window_seen,
    subject=lambda _: "the target's command window, which closes",
    lifts=targets.offering(change.COMMAND_WINDOW), ends=_target,
)  # fmt: skip
SESSION_COMMANDS = Limiter(
    name="session-commands", stage=OWED, order=3, claim=_when("session-commands"), evidence=commands_seen,
    doing="initiator", subject=lambda _: "the number of commands of the session (cmds_max)",
    lifts=("iscsi.cmds_max", "iscsi.queue_depth"), ends=_initiator,
)  # fmt: skip
SRP_CREDITS = Limiter(
    name="srp-credits", doing="target", stage=OWED, order=8, claim=_when("srp-credits"), evidence=commands_seen,
    subject=lambda _: "SRP credits of the target, which run out",
    lifts=("srp.queue_size", "srp.ch_count"), ends=_initiator, profile="srp",
)  # fmt: skip
SRP_QUEUE = attrs.evolve(
    SRP_CREDITS, name="srp-queue", doing="initiator", order=9, claim=_when("srp-queue"),
    subject=lambda _: "the SRP login's queue (queue_size, cut down to the target's credits)",
)  # fmt: skip
NR_REQUESTS = Limiter(
    name="nr-requests", doing="initiator", stage=OWED, order=4, claim=_when("nr-requests"), evidence=_depth_seen,
    subject=lambda _: "the number of requests that the block queue has (nr_requests)",
    lifts=("block.nr_requests", "block.scheduler"), ends=_initiator,
)  # fmt: skip
QUEUE_DEPTH = Limiter(
    name="queue-depth", doing="initiator", stage=OWED, order=5, claim=_when("queue-depth"), evidence=_depth_seen,
    subject=lambda _: "the disk's queue depth",
    # Either does it; the first counts at once, the second from the next login on.
    lifts=("block.queue_depth", "iscsi.queue_depth"), ends=_initiator,
)  # fmt: skip
DEPTH_OR_LOAD = Limiter(
    name="cannot-tell-depth", stage=OWED, order=6, claim=_when("cannot-tell-depth"), evidence=_depth_seen,
    subject=lambda _: "the disk's queue depth, or a load that is just as deep",
    among=("queue-depth", "load"),
)  # fmt: skip
LOAD = Limiter(
    name="load", stage=OWED, order=7, claim=_when("load"), evidence=_depth_seen,
    subject=lambda _: "the load itself: too few requests under way for the round trip",
    advice=lambda one_way: "more or larger requests at a time" + (
        "; for what is read in order through the page cache: block.read_ahead_kb" if one_way.way_name == "read" else ""
    ),
)  # fmt: skip

LIMITERS = (
    R2T,
    TASK_SET_FULL,
    COMMAND_WINDOW,
    SESSION_COMMANDS,
    NR_REQUESTS,
    QUEUE_DEPTH,
    DEPTH_OR_LOAD,
    LOAD,
    SRP_CREDITS,
    SRP_QUEUE,
)
