# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA (SRP, iSER), with no TCP connection to see: what the disk's requests and refusals can tell.

Nobody tells the round trip then. With the line's rate and the target's disks and CPUs known, what these leave of a
request's time is the way's. Without, a depth that is reached all the time may limit, and may as well be what a full
line or a slow disk makes of a load.
"""

from collections.abc import Callable

from fabtune.why.limiter import HELD, Limiter
from fabtune.why.limiters.requests import BY_TARGET, BY_WINDOW, REFUSED, commands_seen, depth_of, refusals_a_request
from fabtune.why.one_way import Moment, OneWay

_BEHIND = ("line", "target-disk", "target-cpu")


def _which(one_way: OneWay) -> str:
    """Return the name of what requests meet with, '' where it can be told whether it limits."""
    if not one_way.seen.session.rdma or (one_way.goodput and _target_told(one_way)):
        return ""
    if depth_of(one_way) in ("srp-credits", "srp-queue"):
        return "cannot-tell-credits"
    refused = refusals_a_request(one_way, (*BY_WINDOW, *BY_TARGET)) >= REFUSED
    return "cannot-tell-reached" if refused or depth_of(one_way) else "cannot-tell-unconnected"


def _target_told(one_way: OneWay) -> bool:
    """Tell whether the target's part of a request's time is known: by its own count, or by its disk's."""
    stores = one_way.seen.target.backstores if one_way.seen.target else ()
    return bool(stores) or one_way.seen.served_ms(one_way.way_name) is not None


def _when(name: str) -> Callable[[Moment], float]:
    return lambda moment: float(not moment.idle and _which(moment.one_way) == name)


CREDITS = Limiter(
    name="cannot-tell-credits", stage=HELD, order=20, claim=_when("cannot-tell-credits"), evidence=commands_seen,
    subject=lambda _: "the SRP login's credits and queue, or what keeps requests that long: the line or the target",
    among=("srp-credits", "srp-queue", *_BEHIND),
)  # fmt: skip
REACHED = Limiter(
    name="cannot-tell-reached", stage=HELD, order=21, claim=_when("cannot-tell-reached"), evidence=commands_seen,
    subject=lambda _: "a depth that is reached, or what keeps requests that long: the line or the target",
    among=("queue-depth", "nr-requests", "session-commands", "command-window", "task-set-full", *_BEHIND),
)  # fmt: skip
UNCONNECTED = Limiter(
    name="cannot-tell-unconnected", stage=HELD, order=22, claim=_when("cannot-tell-unconnected"),
    evidence=commands_seen, subject=lambda _: "the load (too few requests), the line or the target",
    among=("load", *_BEHIND),
)  # fmt: skip

LIMITERS = (CREDITS, REACHED, UNCONNECTED)
