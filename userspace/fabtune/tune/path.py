# SPDX-License-Identifier: GPL-2.0-or-later
"""The path a plan is computed for: as given, else as the live sessions show it."""

from fabtune.facts.collect import Facts
from fabtune.model.path import NetworkPath


def choose(facts: Facts, rtt_ms: float | None, rate_bit_per_s: float | None) -> NetworkPath | None:
    """Return the path given, its gaps filled from `facts`; None when round trip or rate stays unknown.

    Of several sessions the one with the longest round trip and the fastest link counts: the
    values computed from them are upper limits that shorter paths do not use up.
    """
    if rtt_ms is None:
        rtt_ms = max((socket.path_rtt_ms for socket in facts.sockets), default=None)
    if rate_bit_per_s is None:
        rate_bit_per_s = max((nic.speed_bit_per_s for nic in facts.nics if nic.speed_bit_per_s), default=None)
    if rtt_ms is None or rate_bit_per_s is None:
        return None
    mtu = min((nic.mtu_bytes for nic in facts.nics), default=1500)
    return NetworkPath(rtt_ms / 1e3, rate_bit_per_s / 8, mtu)
