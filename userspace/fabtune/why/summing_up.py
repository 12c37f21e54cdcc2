# SPDX-License-Identifier: GPL-2.0-or-later
"""What is judged of an observation, in the form that a run record keeps."""

import attrs

from fabtune.model.limits import KeptShare, Limits
from fabtune.model.observation import Observation
from fabtune.why import words
from fabtune.why.judging import Judged, judged

# Beyond this round trip some link that this host does not see is likely to be the slowest.
SITE_RTT_MS = 2.0
# Less of the time than this is not worth a line.
_WORTH = 0.005


def with_rate(seen: Observation, told_bytes_per_s: float | None) -> Observation:
    """Return `seen` with the line's rate as `--rate` told it, else the NIC's on a path with no slower link likely."""
    if told_bytes_per_s is not None:
        return attrs.evolve(seen, rate_bytes_per_s=told_bytes_per_s, rate_by="--rate")
    speed = nic_bytes_per_s(seen)
    return attrs.evolve(seen, rate_bytes_per_s=speed, rate_by="of the NIC") if is_near(seen) and speed else seen


def nic_bytes_per_s(seen: Observation) -> float | None:
    """Return the rate of the initiator's NIC, None if it is not known."""
    return seen.initiator.nic.speed_bytes_per_s if seen.initiator.nic else None


def is_near(seen: Observation) -> bool:
    """Return whether the path is so short that no link slower than the NIC's is likely."""
    return seen.rtt_ms is not None and seen.rtt_ms <= SITE_RTT_MS


def limits_of(seen: Observation) -> list[Limits]:
    """Return what limited each direction that moved anything."""
    return [_limits(seen, one) for one in judged(seen)]


def _limits(seen: Observation, one: Judged) -> Limits:
    shares = [
        KeptShare(share.limiter, round(share.share, 4), share.subject, share.among, share.evidence)
        for share in one.shares
        if share.share >= _WORTH
    ]
    return Limits(
        one.device, one.way, round(seen.elapsed_s, 3), round(one.bytes_per_s), one.both_ends, words.verdict(one),
        tuple(shares), seen.missing,
    )  # fmt: skip
