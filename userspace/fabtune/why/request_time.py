# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a request's mean time goes, from the block queue to the target's disk and back; the parts sum to the whole."""

import attrs

from fabtune.why.one_way import OneWay


@attrs.frozen
class Part:
    """One part of a request's mean time."""

    name: str
    ms: float


def parts_of(one_way: OneWay) -> list[Part]:
    """Return the parts in the order in which a request passes them, empty where its time is not known.

    `held`: in the block queue and refused; `socket`: its data waits in the sender's socket for windows, pacing and the
    data before it; `path`: the round trip without queues; `queues`: what queues on the way add; `r2t`: round trips of
    R2Ts; `wire`: its own data on the line; `backstore`: in the target's disk, where that was seen; `target`:
    the target besides, where its fabstat tells, of reads alone, for a write's data comes meanwhile; `rest`: what is
    left: its turn behind others, wherever these wait, and what an end that was not seen would tell.
    """
    way = one_way.way
    whole_ms = way.block_ms or way.total_ms
    if not whole_ms:
        return []
    told = [
        Part("held", max(0.0, whole_ms - (way.device_ms or whole_ms))),
        Part("path", 1e3 * one_way.rtt_s),
        Part("r2t", 1e3 * one_way.r2t_s),
        Part("backstore", backstore_ms := 1e3 * one_way.backstore_s),
        Part("target", max(0.0, (one_way.served_ms or 0.0) - backstore_ms)),
        # Without the line's rate it is what the round trip grows by, which the target's time may be.
        Part("wire", 1e3 * one_way.wire_s),
        Part("queues", 1e3 * one_way.queues_s),
        Part("socket", 1e3 * one_way.socket_s),
    ]
    # Means of samples and of requests differ a little: no part has more than what those before it have left.
    left_ms = whole_ms
    fitted = []
    for one in told:
        fitted.append(Part(one.name, min(one.ms, left_ms)))
        left_ms -= fitted[-1].ms
    return [*fitted, Part("rest", left_ms)]
