# SPDX-License-Identifier: GPL-2.0-or-later
"""What was told of the path to the profiles in force, and is not what this host's connections show."""

import attrs

from fabtune.errors import FabtuneError
from fabtune.facts.host_snapshot import HostSnapshot
from fabtune.host.nics import Nic
from fabtune.host.sockets import TcpSocket
from fabtune.model.one_path import alike
from fabtune.model.path import TOO_MUCH
from fabtune.tune import journal
from fabtune.tune.planned_paths import lifted_by, longest_of, planned_for
from fabtune.tune.transaction import Transaction
from fabtune.why.limiters.line import OURS


def _seen_here() -> tuple[list[Transaction], list[TcpSocket], list[Nic]]:
    """Return what is in force of this host for a path, and where anything is storage's connections and the NICs.

    Nothing for who may not see that: they tune all the same.
    """
    try:
        planned = [one for one in planned_for(journal.transactions()) if not one.header.netns]
        host = HostSnapshot()
        return (planned, host.sockets, host.nics) if planned else ([], [], [])
    except FabtuneError:
        return [], [], []


def rtt_doubts() -> list[str]:
    """Return a sentence on each profile in force that was planned for a round trip which is not its longest here."""
    planned, sockets, _ = _seen_here()
    known = [(one.profile, one.header.rtt_ms, lifted_by(one)) for one in planned if one.header.rtt_ms is not None]
    told = []
    for at, (name, told_ms, lifted) in enumerate(known):
        others_ms = [one for other, (_, one, _) in enumerate(known) if other != at]
        seen_ms = longest_of(sockets, told_ms, others_ms, lifted)
        if seen_ms is not None and not alike(told_ms, seen_ms):
            has = f"and the connections have {seen_ms:.1f} ms"
            told.append(f"profile '{name}' was planned for a round trip of {told_ms:g} ms, {has}")
    return told


@attrs.frozen
class ToldRate:
    """The rate of the line that a profile in force was told, for a round trip that none of this host's paths has."""

    profile: str
    bit_per_s: float

    def doubt(self, full_bit_per_s: float) -> str:
        """Return a sentence where a line that is full with so much is another one, '' where it may be this."""
        too_low = full_bit_per_s > TOO_MUCH * self.bit_per_s
        if not too_low and full_bit_per_s >= OURS * self.bit_per_s:
            return ""
        why = "it is not the line's rate" if too_low else "others have the rest, or it is not the line's rate"
        planned = f"profile '{self.profile}' was planned for a line of {self.bit_per_s / 1e6:g} Mb/s"
        return f"{planned}, and the line is full with {full_bit_per_s / 1e6:.1f} Mb/s: {why}"


def other_rates() -> tuple[ToldRate, ...]:
    """Return what profiles in force were told of lines that are not used as one that was told, for their round trip.

    A rate that is a NIC's was not told: a plan takes it where nobody says more.
    """
    planned, sockets, nics = _seen_here()
    rtts_ms, speeds = [one.min_rtt_ms for one in sockets], {one.speed_bit_per_s for one in nics}
    if not rtts_ms or not all(rtts_ms):
        # One that is not known may be any.
        return ()
    return tuple(
        ToldRate(one.profile, rate)
        for one in planned
        if (rate := one.header.rate_bit_per_s)
        and rate not in speeds
        and not any(alike(one.header.rtt_ms or 0.0, rtt_ms) for rtt_ms in rtts_ms)
    )
