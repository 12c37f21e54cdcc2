# SPDX-License-Identifier: GPL-2.0-or-later
"""What moved until when, of all disks of a look together."""

from collections.abc import Sequence

from fabtune.model.observation import DiskSample, Observation


def moving(seen: Sequence[Observation]) -> list[Sequence[tuple[float, int]]]:
    """Return what moved until when (s, bytes), by connection where those carry these disks alone, else by disk.

    A disk counts whole requests: of the few that make up a block, one more or less hides a gain of some percent.
    """
    named = {one.device for one in seen}
    sockets = {(end.local, end.remote): end for one in seen if (end := one.initiator.socket)}
    whole = (named.issuperset(one.session.disks) and one.session.connections == 1 for one in seen)
    # One that is lost shows what moved before, and not that nothing does since.
    if all(map(is_connected, seen)) and all(whole):
        return [[(one.at_s, one.sent_bytes + one.received_bytes) for one in end.samples] for end in sockets.values()]
    return [[(one.at_s, one.read_bytes + one.write_bytes) for one in which.disk.samples] for which in seen]


def is_connected(one: Observation) -> bool:
    """Tell whether its connection was there to the end of the look."""
    end, disk = one.initiator.socket, one.disk
    return end is not None and (not disk.samples or end.samples[-1].at_s >= disk.samples[-1].at_s)


def in_blocks(each: Sequence[Sequence[tuple[float, int]]], block_s: float) -> list[float]:
    """Return the bytes per second of everything that moves together, block by block."""
    found: list[float] = []
    turns = list(zip(*each, strict=False))
    begun = turns[0] if turns else ()
    for turn in turns[1:]:
        elapsed_s = turn[0][0] - begun[0][0]
        if elapsed_s >= block_s:
            moved = sum(now - then for (_, now), (_, then) in zip(turn, begun, strict=True))
            found.append(max(moved, 1) / elapsed_s)
            begun = turn
    return found


def gone(seen: Sequence[Observation]) -> dict[str, float]:
    """Return the disks that went away before the look at all of them was over, and the bytes/s of each until then.

    There are no samples of a disk from there on, and no counters at the end of the look.
    """
    over_s = max((one.disk.samples[-1].at_s for one in seen if one.disk.samples), default=0.0)
    short = (one for one in seen if one.disk.samples and one.disk.samples[-1].at_s < over_s)
    return {one.device: _bytes_per_s(one.disk.samples) for one in short}


def _bytes_per_s(samples: Sequence[DiskSample]) -> float:
    first, last = samples[0], samples[-1]
    moved = last.read_bytes + last.write_bytes - first.read_bytes - first.write_bytes
    return moved / (last.at_s - first.at_s) if last.at_s > first.at_s else 0.0
