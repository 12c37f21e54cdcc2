# SPDX-License-Identifier: GPL-2.0-or-later
"""What is judged of an observation, in the form that a run record keeps."""

import attrs

from fabtune.model.limits import KeptShare, Limits
from fabtune.model.observation import BY_NIC, BY_TARGETS_NIC, EndSeen, Observation
from fabtune.model.path import SITE_RTT_MS, TOO_MUCH
from fabtune.why import words
from fabtune.why.judging import Judged, judged

# Less of the time than this is not worth a line.
_WORTH = 0.005


def with_rate(
    seen: Observation, told_bytes_per_s: float | None, rate_by: str = "--rate", said: str = "as --rate says"
) -> Observation:
    """Return `seen` with the line's rate as `rate_by` told it, else the NICs' on a path with no slower link likely.

    A rate below what passed is not believed, and that is said.
    """
    if told_bytes_per_s is not None:
        if may_be_of(seen, told_bytes_per_s):
            return attrs.evolve(seen, rate_bytes_per_s=told_bytes_per_s, rate_by=rate_by)
        passed = _mbit(_carried_bytes_per_s(seen))
        text = f"a line of {_mbit(told_bytes_per_s)}, {said}: {passed} passed; judged without it"
        seen = attrs.evolve(seen, missing=(*seen.missing, text))
    slowest = min((end for end in _ends(seen) if _speed(end)), key=_speed, default=None)
    if slowest is None or not is_near(seen):
        return seen
    by = BY_NIC if slowest is seen.initiator else BY_TARGETS_NIC
    return attrs.evolve(seen, rate_bytes_per_s=_speed(slowest), rate_by=by)


def may_be_of(seen: Observation, rate_bytes_per_s: float) -> bool:
    """Tell whether no more passed than a line of that rate carries."""
    return _carried_bytes_per_s(seen) <= TOO_MUCH * rate_bytes_per_s


def _carried_bytes_per_s(seen: Observation) -> float:
    """Return the payload that passed, of the disk or of all of its session, in the direction in which it was more."""
    disk = (way.moved_bytes / max(seen.disk.elapsed_s, 1e-9) for way in seen.disk.ways.values())
    sockets = (
        end.socket.grown(name) / max(end.socket.elapsed_s, 1e-9)
        for end in _ends(seen)
        if end.socket
        for name in ("sent_bytes", "received_bytes")
    )
    return max((*disk, *sockets), default=0.0)


def _ends(seen: Observation) -> list[EndSeen]:
    return [end for end in (seen.initiator, seen.target) if end]


def _speed(end: EndSeen) -> float:
    return (end.nic.speed_bytes_per_s if end.nic else None) or 0.0


def _mbit(bytes_per_s: float) -> str:
    return f"{bytes_per_s * 8 / 1e6:.0f} Mb/s"


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
