# SPDX-License-Identifier: GPL-2.0-or-later
"""The path a plan is computed for: as given, else as the live sessions show it."""

from dataclasses import dataclass
from pathlib import Path

from fabtune.errors import InputError
from fabtune.facts import train
from fabtune.facts.collect import Facts
from fabtune.model.address import canonical
from fabtune.model.path import SITE_RTT_MS, NetworkPath, header_bytes


def choose(
    facts: Facts, rtt_ms: float | None, rate_bit_per_s: float | None, estimated: bool = False
) -> NetworkPath | None:
    """Return the path given, its gaps filled from `facts`; None when round trip or rate stays unknown.

    Of several sessions the one with the longest round trip and the fastest link counts: the
    values computed from them are upper limits that shorter paths do not use up.  A NIC's speed is
    only an upper limit of a path that is longer than a site: the rate is then an estimate.
    """
    by_nic = rate_bit_per_s is None
    rtt_ms, rate_bit_per_s = _completed(facts, rtt_ms, rate_bit_per_s)
    estimated = estimated or (by_nic and rtt_ms is not None and rtt_ms > SITE_RTT_MS)
    if rtt_ms is None or rate_bit_per_s is None:
        return None
    mtu = min((nic.mtu_bytes for nic in facts.nics), default=1500)
    # Of connections of both kinds the least: what the path carries at most.
    headers = min((header_bytes(canonical(one.remote)) for one in facts.sockets), default=header_bytes(""))
    return NetworkPath(rtt_ms / 1e3, rate_bit_per_s / 8, mtu, estimated, header_bytes=headers, by_nic=by_nic)


def _completed(facts: Facts, rtt_ms: float | None, rate_bit_per_s: float | None) -> tuple[float | None, float | None]:
    """Return the round trip and rate given, what is not given from `facts`, None where they do not tell it."""
    if rtt_ms is None:
        rtt_ms = max((socket.path_rtt_ms for socket in facts.sockets), default=None)
    if rate_bit_per_s is None:
        rate_bit_per_s = fastest_nic_bit_per_s(facts)
    return rtt_ms, rate_bit_per_s


def fastest_nic_bit_per_s(facts: Facts) -> float | None:
    """Return the speed of the fastest NIC, None where none tells it."""
    return max((nic.speed_bit_per_s for nic in facts.nics if nic.speed_bit_per_s), default=None)


@dataclass(frozen=True)
class HalfPath:
    """What is known of a path that is not known whole, and in words what is not."""

    rtt_ms: float | None
    lacks: str


def half(facts: Facts, rtt_ms: float | None, rate_bit_per_s: float | None) -> HalfPath | None:
    """Return what is known where `choose` finds no path, None where it finds one."""
    rtt_ms, rate_bit_per_s = _completed(facts, rtt_ms, rate_bit_per_s)
    if rtt_ms is not None and rate_bit_per_s is not None:
        return None
    return HalfPath(rtt_ms, what_is_missing(rtt_ms is not None, rate_bit_per_s is not None))


def what_is_missing(has_rtt: bool, has_rate: bool) -> str:
    """Return in words which half of a path is not known, and how to give it."""
    if has_rtt:
        return "rate unknown: no NIC tells its speed; give --rate, such as --rate 1gbit"
    if has_rate:
        return "round trip unknown: no live session tells it; give --rtt, such as --rtt 50ms"
    return (
        "round trip and rate unknown: no live session tells the one, no NIC the other; give --rtt and --rate, "
        "such as --rtt 50ms --rate 1gbit"
    )


# A train finds too little where CPUs are busy with it: add a quarter.
_MARGIN = 1.25


def measure_rate_bit_per_s(facts: Facts) -> float:
    """Return the rate of the path to the first live session's disk, as a few reads show it, with a margin above.

    Raises InputError without such a session, FabtuneError when its disk cannot be read.
    """
    disk = next((lun for session in facts.sessions for lun in session.luns), None)
    if disk is None:
        raise InputError("--rate measure: no live session with a disk on this host; give a rate, such as --rate 1gbit")
    mtu = min((nic.mtu_bytes for nic in facts.nics), default=1500)
    # What one byte of payload a second is on the wire.
    wire_share = NetworkPath(0, 1, mtu).goodput_bytes_per_s
    return train.rate_bytes_per_s(Path("/dev") / disk) / wire_share * 8 * _MARGIN
