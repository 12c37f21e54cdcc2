# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a session the throughput model knows how to change, and what a number of it is now."""

from collections.abc import Mapping
from typing import NamedTuple

from fabtune.model.capacity import session_commands
from fabtune.model.observation import INITIATOR, Observation

# What each end offers, by its name in RFC 7143, and what of a session's bursts it is: the smaller one holds, or for the
# two flags what `and` and `or` make of them.
BURSTS = {
    "FirstBurstLength": "first_burst_bytes", "MaxBurstLength": "max_burst_bytes",
    "MaxOutstandingR2T": "outstanding_r2t", "ImmediateData": "immediate_data", "InitialR2T": "initial_r2t",
}  # fmt: skip
# The initiator's tunables for them; each kind of target has its own, and the model knows these by the names above.
_INITIATORS = {
    "iscsi.first_burst": "FirstBurstLength", "iscsi.max_burst": "MaxBurstLength",
    "iscsi.max_outstanding_r2t": "MaxOutstandingR2T", "iscsi.immediate_data": "ImmediateData",
    "iscsi.initial_r2t": "InitialR2T",
}  # fmt: skip
# The window that a target opens to a session's commands.
COMMAND_WINDOW = "cmdsn_depth"
# What the model knows how to change; a tunable that is not here changes nothing that it can tell.
KNOWN = frozenset({
    *_INITIATORS, *BURSTS, COMMAND_WINDOW, "iscsi.tcp_window", "iscsi.cmds_max",
    "iscsi.queue_depth", "block.queue_depth", "block.nr_requests", "block.scheduler", "block.read_ahead_kb",
    "tcp.rmem_max", "tcp.wmem_max", "net.rmem_max", "net.wmem_max",
    "tcp.congestion_control", "iscsi.congestion_control", "route.congctl", "qdisc.maxrate", "connection.pacing",
})  # fmt: skip


class Change(NamedTuple):
    """A tunable at one end, that is to have another value; what a target offers in a login is called as in RFC 7143."""

    end: str
    tunable: str

    @property
    def offer(self) -> str:
        """What it offers in a login, by its name in RFC 7143; '' for what is one end's alone."""
        found = _INITIATORS.get(self.tunable, "") if self.end == INITIATOR else self.tunable
        return found if found in BURSTS else ""


def present(seen: Observation, change: Change) -> float | None:
    """Return the value that a number has now, None where the observation does not tell it."""
    one = seen.initiator if change.end == INITIATOR else seen.target
    _, _, name = change.tunable.partition(".")
    found = {
        "tcp.rmem_max": ("net.ipv4.tcp_rmem", one), "tcp.wmem_max": ("net.ipv4.tcp_wmem", one),
        "net.rmem_max": ("net.core.rmem_max", one), "net.wmem_max": ("net.core.wmem_max", one),
    }.get(change.tunable)  # fmt: skip
    if found and found[1]:
        return whole_number((found[1].sysctls.get(found[0]) or "").rpartition("\t")[2].rpartition(" ")[2])
    if change.tunable in ("block.read_ahead_kb", "block.nr_requests"):
        return whole_number(seen.disk.queue.get(name))
    if change.tunable in ("iscsi.queue_depth", "block.queue_depth"):
        return seen.disk.limit
    if change.tunable == "iscsi.cmds_max":
        return seen.session.can_queue
    if change.offer and seen.bursts:
        return float(getattr(seen.bursts, BURSTS[change.offer]))
    return None


def changing(seen: Observation, changes: Mapping[Change, float | str]) -> dict[Change, float | str]:
    """Return those of `changes` that are not there already, as far as the observation tells.

    Of what both ends offer only the result is seen: an offer equal to it stays beside another one of the other end.
    """
    left = {change for change, value in changes.items() if not _is_there(seen, change, value)}
    negotiated = {change.offer for change in left} - {""}
    return {change: value for change, value in changes.items() if change in left or change.offer in negotiated}


def _is_there(seen: Observation, change: Change, value: float | str) -> bool:
    end = seen.initiator if change.end == INITIATOR else seen.target
    if change.tunable.endswith(("congestion_control", "congctl")):
        return end is not None and end.socket is not None and end.socket.congestion_control == value
    if change.tunable == "block.scheduler":
        return f"[{value}]" in seen.disk.queue.get("scheduler", "")
    if isinstance(value, str):
        return False
    if change.tunable == "iscsi.cmds_max":
        return session_commands(int(value)) == seen.session.can_queue
    if change.tunable == "iscsi.tcp_window":
        return value == seen.session.window_bytes
    if change.tunable == "qdisc.maxrate":
        return end is not None and end.qdisc is not None and (end.qdisc.max_bytes_per_s or 0.0) == value
    return value == present(seen, change)


def whole_number(text: str | None) -> int | None:
    """Return the number that a file holds, None where it holds none."""
    return int(text) if text and text.strip().isdecimal() else None
